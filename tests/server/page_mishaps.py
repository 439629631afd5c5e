"""The page when something goes wrong: storage that is full or closed, another tab, a server that is gone, a hasty hand.

    page_mishaps.py [CASE...]
"""
import sys
import threading

from scripted_page import LAST, ScriptedPage, delta
from serving import check, finish, run

# Fills the storage up to so many characters under the name of another page.
FILL = """
localStorage.setItem('other', '');
let text = '';
for (let size = 1 << 22; size >= 1; size >>= 1) {
    try { localStorage.setItem('other', text + ' '.repeat(size)); text += ' '.repeat(size); } catch { /* less, then */ }
}
localStorage.setItem('other', ' '.repeat(text.length - arguments[0]));
"""
KEPT = "return Object.keys(localStorage).filter((k) => k.startsWith('dgemma.chat.')).length"
LISTED = "return [...document.querySelectorAll('.chat-row .open')].map((b) => b.textContent)"
FORBID = """for (const name of ['localStorage', 'sessionStorage'])
    Object.defineProperty(window, name, {get() { throw new DOMException('denied', 'SecurityError'); }})"""


def full_of_others():
    """Giving up chats would not help: none is."""
    with ScriptedPage() as b:
        b.script.play([delta(content="yes")])
        for title in ("One", "Two", "Three"):
            b.ask(title)
            b.click("#new-chat")
        b.js(FILL, 200)
        b.ask("x" * 5000)
        check("no chat is given up in vain", b.js(KEPT) == 3 and b.js(LISTED) == ["Three", "Two", "One"], b.js(LISTED))
        check("it is told", "could not be kept" in b.told(), b.told())
        check("the chat goes on", b.texts()[-1] == "yes")
        b.quiet("full of others")


def full_of_ours():
    """The oldest chats make room, and only as many as have to."""
    with ScriptedPage() as b:
        b.script.play([delta(content="yes")])
        for title in ("One", "Two", "Three"):
            b.ask(title + " " + "x" * 3000)
            b.click("#new-chat")
        b.js(FILL, 200)
        b.ask("Four " + "x" * 2000)
        listed = [title.split()[0] for title in b.js(LISTED)]
        check("the oldest makes room", listed == ["Four", "Three", "Two"] and b.js(KEPT) == 3, listed)
        check("and is named", "One" in b.told() and "Two" not in b.told(), b.told())
        b.load()
        check("the new one is kept", b.texts()[0].startswith("Four"))
        b.js("const n = JSON.parse(localStorage.getItem('dgemma.chats'))[1].id; localStorage.removeItem('dgemma.chat.' + n)")
        b.row(2)
        check("one that somebody else deleted", "no longer there" in b.told() and len(b.js(LISTED)) == 2, b.told())
        b.quiet("full of ours")


def full_of_pictures():
    with ScriptedPage() as b:
        b.script.play([delta(content="yes")])
        b.ask("One " + "x" * 3000)
        b.click("#new-chat")
        b.js(FILL, 3000)
        paste(b, picture(b, 10), picture(b, 60))
        b.wait("document.querySelectorAll('#pictures img').length === 2")
        b.ask("Two")
        check("pictures go before chats do", b.js(KEPT) == 2 and "without its pictures" in b.told(), b.told())
        b.load()
        b.wait("document.querySelector('#thread article')", what="the chat that was kept")
        check("the words are kept", "Two" in b.texts()[0] and "not kept" in b.texts()[0], b.texts())
        b.quiet("full of pictures")


def forbidden_storage():
    with ScriptedPage() as b:
        b.cdp("Page.addScriptToEvaluateOnNewDocument", source=FORBID)
        b.load()
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        b.script.play([delta(content="yes")])
        b.ask("One")
        b.click("#new-chat")
        b.ask("Two")
        check("it works without storage", b.texts() == ["Two", "yes"] and b.js(LISTED) == ["Two", "One"], b.texts())
        check("and says so", "store nothing" in b.js("return document.querySelector('#kept').textContent"))
        b.quiet("forbidden storage")


# ---- another try ----

CHAT = ["First", "yes", "Second", "yes", "Third", "yes"]
RUNNING = "!document.querySelector('#stop').hidden"
FOCUS = "return document.activeElement.id || document.activeElement.textContent"
# Where there is no mouse the field would bring up a keyboard, and is left alone.
AT_REST = "return document.activeElement.id === (matchMedia('(pointer: fine)').matches ? 'ask' : 'log')"
ENABLED = "[...document.querySelectorAll('.asks')].map((x) => !x.disabled)"


def talk(b):
    """Three questions with their answers."""
    b.script.play([delta(content="yes")])
    for text in CHAT[::2]:
        b.ask(text)


def edit(b, text, article):
    b.button("Edit", article)
    b.js("document.querySelector('.editing textarea').value = arguments[0]", text)
    b.button("Send again", article)


def try_in_vain():
    """No text came: all that stood there stays."""
    with ScriptedPage() as b:
        talk(b)
        b.script.refuse(400)
        b.button("Retry", "article:nth-child(2)")
        b.wait("document.querySelector('#notice').textContent.includes('as it was')", what="the notice")
        check("a refused retry takes nothing away", b.texts() == CHAT and "not now" in b.told(), b.texts())
        check("the focus stays in the page", b.js(AT_REST), b.js(FOCUS))
        b.script.refuse(429)
        b.button("Retry", "article:nth-child(2)")
        b.wait(f"{LAST}.querySelector('.note').textContent.includes('busy')", what="the word busy")
        b.load()
        check("nor does leaving the page meanwhile", b.texts() == CHAT, b.texts())
        b.button("Retry", "article:nth-child(4)")
        b.wait(f"{LAST}.querySelector('.note').textContent.includes('busy')", what="the word busy")
        b.click("#stop")
        b.done()
        check("nor does Stop", b.texts() == CHAT, b.texts())
        edit(b, "Zeroth", "article:nth-child(1)")
        b.wait(RUNNING)
        check("the focus stays in the page after an edit", b.js(AT_REST), b.js(FOCUS))
        b.click("#stop")
        b.done()
        field = b.js("return document.querySelector('.editing textarea')?.value")
        check("an edit in vain is still there", b.texts()[1:] == CHAT[1:] and field == "Zeroth", (b.texts(), field))
        b.load()
        check("and what was said is kept", b.texts() == CHAT, b.texts())
        b.script.shutdown()
        b.script.server_close()
        b.button("Retry", "article:nth-child(2)")
        b.wait("document.querySelector('#notice').textContent.includes('cannot be reached')", what="the notice")
        b.done()
        check("a server that is gone takes nothing away", b.texts() == CHAT, b.texts())
        b.quiet("try in vain")


def try_again():
    """Text came: it takes the place of all that followed."""
    with ScriptedPage() as b:
        talk(b)
        hold = threading.Event()
        b.script.play([delta(content="no"), hold])
        b.button("Retry", "article:nth-child(4)")
        b.wait(f"{LAST}.textContent.includes('no')")
        b.button("Edit", "article:nth-child(1)")
        check("what would send is out of use meanwhile", b.js(f"return {ENABLED}") == [False, False], b.js(f"return {ENABLED}"))
        b.click(".editing textarea")
        b.press(".editing textarea", "Escape")
        check("the focus goes back to Edit", b.js(FOCUS) == "Edit", b.js(FOCUS))
        b.click("#stop")
        b.done()
        check("what came of it stays", b.texts() == ["First", "yes", "Second", "no"], b.texts())
        check("and can be tried again", all(b.js(f"return {ENABLED}")))
        hold.set()
        edit(b, "Zeroth", "article:nth-child(1)")
        b.done()
        check("an edit that is answered", b.texts() == ["Zeroth", "no"], b.texts())
        b.load()
        check("is kept", b.texts() == ["Zeroth", "no"], b.texts())
        b.quiet("try again")


def leave_and_stay():
    with ScriptedPage() as b:
        hold = threading.Event()
        b.script.play([delta(content="half"), hold, delta(content=" and half")])
        b.say("First")
        b.wait(f"{LAST}?.textContent.includes('half')")
        b.row(1)
        check("the open chat is not opened again", b.js(f"return {RUNNING}"))
        b.js("dispatchEvent(new StorageEvent('storage', {key: 'dgemma.chat.' + document.querySelector('.chat-row').dataset.id, newValue: '{}'}))")
        hold.set()
        b.done()
        check("and goes on", b.texts() == ["First", "half and half"], b.texts())
        check("late word of what was written here is no news", len(b.js(LISTED)) == 1 and not b.told(), b.told())
        hold.clear()
        b.say("Second")
        b.wait(f"{LAST}.textContent.includes('half')")
        b.load()
        check("what came before the page was left", b.texts()[2:] == ["Second", "half"], b.texts())
        check("is kept as stopped", "Stopped" in b.js(f"return {LAST}.querySelector('.note').textContent"))
        b.script.play([hold])
        b.say("Third")
        b.wait(RUNNING)
        b.load()
        check("without an answer there is Retry", "Retry" in b.js(f"return {LAST}.textContent") and b.texts()[4:] == ["Third", ""], b.texts())
        hold.set()
        b.quiet("leave and stay")


def two_tabs():
    with ScriptedPage() as b:
        b.script.play([delta(content="yes")])
        b.ask("First")
        here = b.do("GET", "/window")
        there = b.do("POST", "/window/new", {"type": "tab"})["handle"]

        def turn(handle):
            b.do("POST", "/window", {"handle": handle})
        turn(there)
        b.load()
        b.ask("Second")
        turn(here)
        b.wait("document.querySelectorAll('#thread article').length === 4", what="what was said in the other tab")
        hold = threading.Event()
        b.script.play([delta(content="long"), hold])
        b.say("Third")
        b.wait(f"{LAST}.textContent.includes('long')")
        turn(there)
        b.wait("[...document.querySelectorAll('#thread article')].some((a) => a.textContent.includes('Third'))")
        b.script.play([delta(content="other")])
        b.ask("Fourth")
        ours = b.texts()
        turn(here)
        b.wait("document.querySelector('#notice').textContent.includes('another tab')", what="the notice")
        hold.set()
        b.done()
        check("an answer that is under way stays", b.texts() == ["First", "yes", "Second", "yes", "Third", "long"], b.texts())
        b.load()
        check("both are kept", len(b.js(LISTED)) == 2 and b.texts()[-1] == "long", b.js(LISTED))
        b.row(2)
        check("each as it was", b.texts() == ours and ours[-2:] == ["Fourth", "other"], (ours, b.texts()))
        b.quiet("two tabs")


def unanswered_calls():
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with ScriptedPage() as b:
        b.script.play([delta(tool_calls=[call])])
        b.ask("First")
        b.script.play([delta(content="well")])
        b.ask("Never mind")
        check("the form of an older call is out of use", b.js("return [...document.querySelectorAll('.call textarea, .send-results')]"
                                                              ".every((x) => x.disabled)"))
        b.js("document.querySelector('.send-results').click()")
        check("and takes nothing away", b.texts() == ["First", "", "Never mind", "well"], b.texts())
        b.click("#new-chat")
        b.script.play([delta(tool_calls=[call])])
        b.ask("First")
        hold = threading.Event()
        b.script.play([hold])
        b.type(".call textarea", "seen")
        b.click(".send-results")
        b.wait(RUNNING)
        b.load()
        b.wait("document.querySelectorAll('#thread article').length > 2", what="the chat that was kept")
        check("a result is kept when it is sent", b.texts()[2].endswith("seen"), b.texts())
        hold.set()
        b.quiet("unanswered calls")


# ---- pictures ----

# A picture file of noise, which no format makes small, as a data URL.
NOISE = """
const canvas = document.createElement('canvas');
canvas.width = canvas.height = arguments[0];
const g = canvas.getContext('2d'), data = g.createImageData(arguments[0], arguments[0]);
crypto.getRandomValues(data.data);
g.putImageData(data, 0, 0);
return canvas.toDataURL();
"""
PASTE = """
const data = new DataTransfer();
for (const [name, type, url] of arguments[1])
    data.items.add(new File([Uint8Array.from(atob(url.split(',')[1]), (c) => c.charCodeAt(0))], name, {type}));
if (arguments[2]) data.items.add(arguments[2], 'text/plain');
const event = arguments[0] === 'drop' ? new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})
    : new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true});
document.dispatchEvent(event);
return event.defaultPrevented;
"""


def picture(b, side):
    return ["picture.png", "image/png", b.js(NOISE, side)]


def paste(b, *files, text="", kind="paste"):
    """Whether the page took what was pasted."""
    return b.js(PASTE, kind, list(files), text)


PENDING = "document.querySelectorAll('#pictures img').length"


def sent_pictures(b):
    """How many pictures each user message of the last request has."""
    contents = [m["content"] for m in b.script.asked[-1]["messages"] if m["role"] == "user"]
    return [0 if isinstance(c, str) else sum(p["type"] == "image_url" for p in c) for c in contents]


def many_pictures():
    with ScriptedPage() as b:
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        b.script.play([delta(content="yes")])
        small = picture(b, 4)
        paste(b, *[small] * 20, kind="drop")
        b.wait(f"{PENDING} === 16")
        check("more than the server takes are left out, with a word", "at most 16" in b.told(), b.told())
        b.ask("")
        check("a chat's pictures are sent", sent_pictures(b) == [16], sent_pictures(b))
        paste(b, small, small, small)
        b.wait(f"{PENDING} === 3")
        b.ask("And these?")
        check("the newest of all", sent_pictures(b) == [13, 3] and "newest 16" in b.told(), (sent_pictures(b), b.told()))
        paste(b, *[small] * 16)
        b.wait(f"{PENDING} === 16")
        b.ask("Only these?")
        check("and no others", sent_pictures(b) == [0, 0, 16], sent_pictures(b))
        check("the chat still has them", b.js("return document.querySelectorAll('.thumbs img').length") == 35)
        edit(b, "", "article:nth-child(1)")
        b.done()
        check("a picture alone can be sent again", sent_pictures(b) == [16] and len(b.texts()) == 2, sent_pictures(b))
        b.quiet("many pictures")


def hasty_pictures():
    with ScriptedPage() as b:
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        b.script.play([delta(content="yes")])
        b.js("const real = createImageBitmap; window.createImageBitmap = async (f) => { await new Promise((go) => { window.go = go; }); return real(f); }")
        small = picture(b, 4)
        paste(b, small)
        b.wait("!!window.go")
        b.say("Look")
        check("a message waits for its picture", b.texts() == [] and b.js("return document.querySelector('#ask').value") == "Look", b.texts())
        b.js("window.go()")
        b.wait(f"{LAST}?.textContent.includes('yes')")
        check("and is sent with it", sent_pictures(b) == [1], sent_pictures(b))
        b.quiet("hasty pictures")


def odd_paste():
    with ScriptedPage() as b:
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        small = picture(b, 4)
        check("text goes before a picture of it", not paste(b, small, text="1\t2\n3\t4"))
        check("a file's name is no text", paste(b, small, text="picture.png"))
        b.wait(f"{PENDING} === 1")
        check("a file that is no picture", paste(b, ["a.pdf", "application/pdf", "data:,"]) and "PDF files cannot be read" in b.told(), b.told())
        check("is not added", b.js(f"return {PENDING}") == 1)
        b.quiet("odd paste")


# ---- text, keys, looks ----

MARKDOWN = [
    ("```so``` it begins\n\nand **goes on**", "strong", "goes on"),
    ("```\n\tone\n\t\ttwo\n```\nafter", "pre code", "\tone\n\t\ttwo"),
    ("- item\n  ```py\n  a = 1\n\n\n  b = 2\n  ```\n- next", "li:first-child pre code", "a = 1\n\n\nb = 2"),
    ("1. item\n   ```\n   a\n     b\n   ```\n2. next", "li:first-child pre code", "a\n  b"),
    ("1. item\n\n    ```\n    a\n\n    b\n    ```\n\n2. next", "li:first-child pre code", "a\n\nb"),
    ("- item\n\t```\n\ta\n\t\tb\n\t```\n- next", "li:first-child pre code", "a\n\tb"),
    ("- item\n  ```\n  a\n```\n- next", "li:nth-child(2)", "next"),
    ("- a\n\t- b\n\t- c\n- d", "ul > li > ul > li:nth-child(2)", "c"),
    ("1. item\n   ```\n   a\n\n   b\n   ```\n2. next", "ol > li:nth-child(2)", "next"),
    ("````\n```js\na\n```\n````\nafter", "pre code", "```js\na\n```"),
]


def code_as_written():
    with ScriptedPage() as b:
        for text, where, want in MARKDOWN:
            b.script.play([delta(content=text)], line_end=b"\r\n")
            b.ask()
            got = b.js(f"return {LAST}.querySelector('.md ' + arguments[0])?.textContent", where)
            check("code as it was written", got == want, (text, got))
        b.quiet("code as written")


def odd_keys():
    with ScriptedPage() as b:
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        b.click("#open-settings")
        b.js("document.querySelector('#set-key').value = '\u043a\u043b\u044e\u0447'")
        b.click("#settings-done")
        b.wait("document.querySelector('#key-dialog').open", what="the question for a key")
        check("a key that no header can carry is a wrong key", "did not take" in b.js("return document.querySelector('#key-error').textContent"))
        b.type("#key-input", "typed")
        b.press("#key-input", "Escape")
        b.wait("!document.querySelector('#key-dialog').open")
        check("Escape takes no key", "typed" not in b.js("return JSON.stringify(sessionStorage)") and "asks for an API key" in b.told(), b.told())
        b.click("#notice button")
        b.type("#key-input", "good")
        b.press("#key-input", "Enter")
        b.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")
        b.quiet("odd keys")


LONG = """
for (const [id, n, step] of [['long', 120, 37], ['longer', 260, 11]]) {
    const messages = Array.from({length: n}, (_, i) => ({id: id + i, role: i % 2 ? 'assistant' : 'user', text: `Part ${i}.\\n\\n`.repeat(1 + step * i % 90)}));
    localStorage.setItem('dgemma.chat.' + id, JSON.stringify({title: id, at: 1, messages}));
}
localStorage.setItem('dgemma.chats', '[{"id": "long", "title": "long"}, {"id": "longer", "title": "longer"}]');
"""
# For how many frames the end has been in sight, and has stayed where it is; and for how many it has been far away.
WATCH_END = """
window.rests = window.away = 0; let was = -1;
(function look() {
    const log = document.querySelector('#log'), rest = log.scrollHeight - log.scrollTop - log.clientHeight;
    window.rests = rest < 2 && was === log.scrollHeight ? window.rests + 1 : 0;
    window.away = rest > 1000 ? window.away + 1 : 0;
    was = log.scrollHeight;
    requestAnimationFrame(look);
})();
"""


def long_chats():
    with ScriptedPage() as b:
        b.js(LONG)
        b.load()
        b.js(WATCH_END)
        for row in (1, 2, 1, 2):
            b.js("window.rests = 0")
            b.row(row)
            b.wait("window.rests > 20", what="the end of a long chat")
        hold = threading.Event()
        b.script.play([delta(content="yes"), hold, delta(content=" indeed")])
        b.say()
        b.wait(f"{LAST}.textContent.includes('yes')")
        b.js("document.querySelector('#log').scrollTop -= 3000")
        b.wait("window.away > 5", what="a place further up")
        hold.set()
        b.done()
        b.js("window.away = 0")
        b.wait("window.away > 5", what="the same place, where people are left")
        b.quiet("long chats")


def fingers():
    with ScriptedPage() as b:
        talk(b)
        b.click("#new-chat")
        b.ask("Fourth")
        shown = "return ['.chat-row .gone', 'article.user .tools'].map((x) => getComputedStyle(document.querySelector(x)).opacity)"
        b.size(1100, 800, True)
        b.cdp("Emulation.setTouchEmulationEnabled", enabled=True)
        b.wait("matchMedia('(hover: none)').matches", what="a screen that is touched")
        b.wait(shown[7:] + ".every((x) => x === '1')", what="buttons that fingers can find")
        b.size(390, 780, True)
        b.click("#side-open")
        b.wait("document.querySelector('#side').getBoundingClientRect().left === 0", what="the list of chats")
        check("the rest of the page is behind a shade", b.js("return document.elementFromPoint(370, 740).id") == "shade")
        b.js("document.elementFromPoint(370, 740).click()")
        b.wait("document.querySelector('#side').getBoundingClientRect().right <= 0", what="the list of chats to go")
        check("the focus goes back", b.js(FOCUS) == "side-open", b.js(FOCUS))
        b.quiet("fingers")


def deleting():
    with ScriptedPage() as b:
        b.script.play([delta(content="yes")])
        for text in ("One", "Two", "Three"):
            b.click("#new-chat")
            b.ask(text)
        focused = "return document.activeElement.getAttribute('aria-label') || document.activeElement.id"
        b.js("const x = document.querySelector('[aria-label=\"Delete Two\"]'); x.focus(); x.click()")
        check("the focus goes to the next", b.js(focused) == "Delete One", b.js(focused))
        b.js("document.activeElement.click()")
        check("or to the last", b.js(focused) == "Delete Three", b.js(focused))
        check("the steps are not shouted", not b.js("return !!document.querySelector('output, .panel [aria-live], .panel [role=status]')"))
        b.quiet("deleting")


CASES = [full_of_others, full_of_ours, full_of_pictures, forbidden_storage, try_in_vain, try_again, leave_and_stay, two_tabs, unanswered_calls,
         many_pictures, hasty_pictures, odd_paste, code_as_written, odd_keys, long_chats, fingers, deleting]
run([case for case in CASES if case.__name__ in sys.argv[1:] or not sys.argv[1:]])
finish()
