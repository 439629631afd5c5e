"""What people do around an answer: versions, files, finding and naming chats, taking them out and in, code, the theme, a phone."""
import json

from scripted_page import LAST, ScriptedPage, delta
from serving import check, finish, run

# Gives a file to a field, as if it had been chosen.
CHOOSE = """const [field, name, type, text] = arguments, data = new DataTransfer();
data.items.add(new File([text], name, {type}));
document.querySelector(field).files = data.files;
document.querySelector(field).dispatchEvent(new Event('change', {bubbles: true}));"""
TIMINGS = {"timings": {"prompt_n": 5, "predicted_n": 20, "predicted_per_second": 43.21, "first_text_ms": 120,
                       "diffusion": {"n_steps": 8, "n_blocks": 1, "tokens_per_step": 2.5, "seed": 7}}, "choices": []}
PAGER = f"{LAST}.querySelector('.pager')?.textContent"


def answer(b, text):
    b.script.play([delta(content=text), TIMINGS])


def versions():
    with ScriptedPage() as b:
        answer(b, "first")
        b.ask("Question")
        answer(b, "more")
        b.ask("Go on")
        answer(b, "second")
        b.button("Retry", "article:nth-child(2)")
        b.wait(f"{PAGER} === '‹2/2›'", what="two versions")
        check("another answer takes the place", b.texts() == ["Question", "second"], b.texts())
        previous, following = ("document.querySelector('[aria-label=\"%s answer\"]')" % x for x in ("Previous", "Next"))
        check("there is none after the last", b.js(f"return {following}.disabled && !{previous}.disabled"))
        b.js(f"{previous}.click()")
        check("the first one is back, with what followed", b.texts() == ["Question", "first", "Go on", "more"], b.texts())
        b.load()
        check("versions are kept", b.texts()[1] == "first" and b.js("return document.querySelector('.pager').textContent") == "‹1/2›")
        b.js(f"{following}.click()")
        check("and the second", b.texts() == ["Question", "second"], b.texts())
        answer(b, "third")
        b.button("Retry", "article:nth-child(2)")
        b.wait(f"{PAGER} === '‹3/3›'", what="three versions")
        b.script.refuse(400)
        b.button("Retry", "article:nth-child(2)")
        b.wait("document.querySelector('#notice').textContent.includes('as it was')", what="the notice")
        check("a refused one counts for nothing", b.texts()[1] == "third" and b.js(f"return {PAGER}") == "‹3/3›", b.texts())
        sent = b.script.asked[-1]["messages"]
        check("the server hears of none of it", sent == [{"role": "user", "content": "Question"}], sent)
        line = b.js(f"const s = {LAST}.querySelector('.speeds'); return [s.querySelector('summary').textContent, s.open, s.textContent.includes('seed 7')]")
        check("one figure in sight, the others on request", line == ["43 tokens/s", False, True], line)
        b.quiet("versions")


def files():
    with ScriptedPage() as b:
        answer(b, "read")
        b.js(CHOOSE, "#files", "notes.md", "text/markdown", "# Title\n```c\nx\n```\n")
        b.wait("document.querySelectorAll('#pictures .file').length === 1", what="the file")
        b.js(CHOOSE, "#files", "data.bin", "", "a\u0000b")
        b.wait("document.querySelector('#notice').textContent.includes('neither a picture nor text')", what="a word about what is no text")
        b.js(CHOOSE, "#files", "paper.pdf", "application/pdf", "%PDF-1.7\u0000")
        b.wait("document.querySelector('#notice').textContent.includes('PDF files cannot be read')", what="a word about PDF")
        b.js(CHOOSE, "#files", "large.txt", "text/plain", "x" * 300000)
        b.wait("document.querySelector('#notice').textContent.includes('too long')", what="a word about length")
        b.ask("What does it say?")
        sent = b.script.asked[-1]["messages"][0]["content"]
        check("a text file goes along, between more ticks than it has", sent == "notes.md:\n````\n# Title\n```c\nx\n```\n````\n\nWhat does it say?", sent)
        shown = "[...document.querySelectorAll('article.user .sent-file')].map((e) => e.textContent)"
        check("it is shown with the message", b.js(f"return {shown}") == ["notes.md# Title\n```c\nx\n```\n"], b.js(f"return {shown}"))
        b.load()
        check("and kept", len(b.js(f"return {shown}")) == 1)
        b.click("#new-chat")
        b.js(CHOOSE, "#files", "alone.txt", "text/plain", "text")
        b.wait("document.querySelectorAll('#pictures .file').length === 1", what="the file")
        b.ask("")
        check("a file alone is a message, and its name the title", b.js("return document.querySelector('#title').textContent") == "alone.txt")
        b.quiet("files")


def chats():
    with ScriptedPage() as b:
        answer(b, "an otter")
        b.ask("A rather long question about rivers and the animals that live in them, with more words than the list has room for")
        title = b.js("return document.querySelector('#title').textContent")
        check("titles use their room", title.endswith("room for") and len(title) > 100, title)
        b.click("#new-chat")
        answer(b, "a tower")
        b.ask("Paris")
        rows = "[...document.querySelectorAll('.chat-row .open')].map((e) => e.textContent)"
        b.js("document.querySelector('.chat-row .name').click()")
        b.js("document.querySelector('.chat-row input').value = ''")
        b.type(".chat-row input", "Towers")
        b.press(".chat-row input", "Enter")
        check("renamed", b.js(f"return {rows}")[0] == "Towers" and b.js("return document.title") == "Towers · dgemma", b.js(f"return {rows}"))
        b.js("document.querySelector('.chat-row .name').click()")
        b.type(".chat-row input", "x")
        b.press(".chat-row input", "Escape")
        check("or not", b.js(f"return {rows}")[0] == "Towers")
        b.load()
        check("the name is kept", b.js(f"return [{rows}[0], document.querySelector('#title').textContent]") == ["Towers", "Towers"])
        for words, want in (("tower", 1), ("OTTER rivers", 1), ("nothing like it", 0), ("", 2)):
            b.js("const f = document.querySelector('#find'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", words)
            check(f"search for \"{words}\"", len(b.js(f"return {rows}")) == want, b.js(f"return {rows}"))
        b.js("URL.createObjectURL = (blob) => { blob.text().then((t) => { window.exported = t; }); return 'data:,'; }")
        b.click("#export")
        exported = b.wait("window.exported")
        b.js(CHOOSE, "#import-file", "chat.json", "application/json", exported)
        b.wait(f"{rows}.length === 3", what="the chat that came in")
        check("what was taken out comes in again", b.texts() == ["Paris", "a tower"], b.texts())
        odd = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "<b>hi"}, {"type": "image_url", "image_url": {"url": "javascript:1"}}]},
               {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
               {"role": "tool", "tool_call_id": "c", "content": "done"}, 5, {"role": "dance"}]
        b.js(CHOOSE, "#import-file", "odd.json", "application/json", json.dumps({"messages": odd}))
        b.wait(f"{rows}.length === 4", what="the other chat")
        check("of a chat from elsewhere what has a place", b.js("return [...document.querySelectorAll('article')].map((a) => a.className)") ==
              ["user", "assistant", "tool"] and "f → done" in b.texts()[2] and "left out" in b.told(), b.texts())
        b.js(CHOOSE, "#import-file", "no.json", "application/json", "{")
        b.wait("document.querySelector('#notice').textContent.includes('is not a chat')", what="a word about what is none")
        b.quiet("chats")


CODE = '```python\ndef f(x):  # "twice"\n    return 2 * x + len("a#b")\n```\n\n```\nif plain\n```\n\n```js\n// 1\nconst a = `t`;\n```'


def looks():
    with ScriptedPage() as b:
        answer(b, CODE)
        b.ask("Code")
        marks = b.js(f"return [...{LAST}.querySelectorAll('pre')].map((p) => [...p.querySelectorAll('span')].map((s) => s.className.slice(5) + ' ' + s.textContent))")
        check("code has its marks", marks == [["keyword def", 'comment # "twice"', "keyword return", "number 2", 'string "a#b"'], [],
                                               ["comment // 1", "keyword const", "string `t`"]], marks)
        paper = "return getComputedStyle(document.body).backgroundColor"
        b.scheme("light")
        light = b.js(paper)
        b.click("#theme")
        b.scheme("dark")
        check("light, whatever the system says", b.js(paper) == light)
        b.click("#theme")
        b.scheme("light")
        dark = b.js(paper)
        check("dark, whatever the system says", dark != light)
        b.load()
        check("the theme is kept", b.js(paper) == dark)
        b.click("#theme")
        check("and left to the system again", b.js(paper) == light)
        b.click("#think")
        answer(b, "thought about")
        b.ask("Think")
        check("thinking is asked for beside the message", b.script.asked[-1].get("enable_thinking") is True)
        b.load()
        check("and stays on", b.js("return document.querySelector('#think').getAttribute('aria-pressed')") == "true")
        b.click("#new-chat")
        b.js("document.querySelector('#scenes button').click()")
        b.done()
        content = b.script.asked[-1]["messages"][0]["content"]
        check("a picture to try", content[0]["image_url"]["url"].startswith("data:image/png") and content[1]["text"] == "What is in the picture?")
        b.size(360, 640, True)
        name = b.js("const r = document.querySelector('#server-text').getBoundingClientRect(); return [r.width > 30, r.right <= innerWidth]")
        check("the model's name on a phone", name == [True, True], name)
        b.click("#open-settings")
        b.js("const d = document.querySelector('#settings'); d.scrollTop = d.scrollHeight")
        end = b.js("return ['#set-key', '#settings-done'].map((x) => document.querySelector(x).getBoundingClientRect()).map((r) => r.top >= 0 && r.bottom <= innerHeight)")
        check("the end of the settings can be reached", end == [True, True], end)
        b.js("document.querySelector('#settings').scrollTop = 0")
        check("Done is always in sight", b.js("return document.querySelector('#settings-done').getBoundingClientRect().bottom <= innerHeight"))
        b.click("#settings-done")
        b.js("window.real = window.setInterval; window.setInterval = (work) => window.real(work, 400)")
        b.js(CHOOSE, "#import-file", "no.json", "application/json", "{")
        b.wait("document.querySelector('#notice').textContent.includes('is not a chat')", what="a notice")
        b.wait("document.querySelector('#notice').hidden", what="the notice to leave by itself")
        b.quiet("looks")


run([versions, files, chats, looks])
finish()
