"""The page in front of a server that says what the test wants: hostile text, and long, fast answers."""
import time

from scripted_page import LAST, ScriptedPage, delta, draft
from serving import check, finish, run, wait_until

HOSTILE = """<script>window.pwned = 1</script> <img src=x onerror="window.pwned = 2"> <b>bold?</b>

[a link](javascript:window.pwned=3) [another](data:text/html,<script>1</script>) [good](https://example.org/a?b=c) ![picture](https://example.org/p.png)

- item <svg onload="window.pwned = 4">
    - nested `code <i>`

> quoted **strong <u>**

| a | b |
| --- | --- |
| <iframe src="javascript:window.pwned = 5"> | _em_ |

```html
</code></pre><script>window.pwned = 6</script>
```
"""
ODD = ["", "\n\n\n", "*" * 5000, "[" * 3000 + "](", "`" * 999, "> " * 500 + "x", "- " * 400 + "x", "|" * 2000, "_a" * 3000, "**a" * 2000,
       "\u202e\u0000\u2028<x>", "# " * 50, "```\nnever closed", "1. a\n\n\n2. b\n   c\n     - d", "http://" * 500, "\\" * 3000,
       "\n".join("  " * i + "- deep" for i in range(200))]


def stays_text():
    with ScriptedPage() as b:
        call = {"index": 0, "id": "c<1>", "type": "function", "function": {"name": "<img src=x onerror=alert(1)>", "arguments": HOSTILE}}
        b.script.play([draft(0, 0, [HOSTILE, "<script>window.pwned = 7</script>", "<turn|>"]), delta(reasoning_content=HOSTILE), delta(content=HOSTILE),
                       delta(tool_calls=[call])])
        b.ask()
        b.js("document.querySelector('.panel summary').click()")
        made = "return [...document.querySelectorAll('#thread script, #thread iframe, #thread svg:not(.plot), #thread img, #thread b, #thread u, #thread i')].map((e) => e.outerHTML).filter((x) => !/class=.(key|e\\d)|<b>&lt;img/.test(x))"
        check("no element came from the text", not b.js(made), b.js(made))
        text = b.js(f"return {LAST}.querySelector('.md').textContent")
        check("it stands there as text", "<script>window.pwned = 1</script>" in text and "onerror=" in text and "<b>bold?</b>" in text, text)
        check("code too", b.js(f"return {LAST}.querySelector('.md pre code').textContent").startswith("</code></pre><script>"))
        links = b.js(f"return [...{LAST}.querySelectorAll('a')].map((a) => [a.href, a.rel])")
        check("links only where they are harmless", links == [["https://example.org/a?b=c", "noopener noreferrer"],
                                                                ["https://example.org/p.png", "noopener noreferrer"]], links)
        shapes = b.js(f"return ['ul ul', 'blockquote strong', 'table td em', 'pre code', 'li code'].filter((x) => !{LAST}.querySelector('.md ' + x))")
        check("Markdown is Markdown", not shapes, shapes)
        b.open(b.url)  # once more, from the storage
        check("nor after it was kept", not b.js(made) and "pwned = 1" in b.js("return document.querySelector('#thread').textContent"))
        check("nothing ran", b.js("return window.pwned === undefined"))
        refused = b.js("""try { document.body.innerHTML = '<b>x</b>'; return 'taken'; } catch (e) { return e.name; }""")
        check("the browser itself refuses markup from text", refused == "TypeError", refused)
        b.js("const s = document.createElement('link'); s.rel = 'stylesheet'; s.href = '/style.css'; document.head.append(s)")
        loud = []
        wait_until(lambda: loud.extend(m["message"] for m in b.messages() if "ontent Security Policy" in m["message"] or "TrustedHTML" in m["message"])
                   or "style.css" in " ".join(loud))
        check("the policy is heard of only now that it was tried", 1 <= len(loud) <= 3 and "style.css" in " ".join(loud), loud)


def odd_text():
    with ScriptedPage() as b:
        for text in ODD:
            b.script.play([delta(content=text)])
            b.ask()
            shown = b.js(f"return {LAST}.textContent.length")
            check("odd text ends", shown > 0, text[:40])
        plain = b.js(f"return {LAST}.querySelector('.md').textContent")
        check("and is all there", plain.count("deep") == 200, plain[:200])
        b.script.play([delta(content="half"), {"error": {"message": "the model <b>broke</b>"}}])
        b.ask()
        check("an error in the stream is told", "<b>broke</b>" in b.js(f"return {LAST}.querySelector('.note').textContent"))
        b.js("for (const [name, value] of Object.entries(arguments[0])) localStorage.setItem('dgemma.' + name, JSON.stringify(value))", {
            "settings": {"system": 5, "tools": "x", "seed": {}}, "chats": [{"id": "x", "title": {}}, 5, None, {"id": 7}], "chat.x": {"messages": [
                1, {"role": "root"}, {"role": "user", "text": 5, "images": "data"}, {"role": "user", "images": ["javascript:1", 5]},
                {"role": "assistant", "text": "here", "calls": [5, {"name": "f", "id": "i", "args": {}}], "timings": {"diffusion": {}}},
                {"role": "assistant", "calls": "x", "thinking": [], "timings": 5}]}})
        b.open(b.url)
        check("a storage filled by others", b.js("return [document.querySelectorAll('.chat-row').length, document.querySelectorAll('article').length,"
                                                 " document.querySelectorAll('#thread img').length]") == [1, 4, 0])
        b.script.play([delta(content="and on it goes")])
        b.ask()
        check("is no obstacle", "and on it goes" in b.js(f"return {LAST}.textContent"))
        b.quiet("odd text")


MESSAGE = "## Part\n\nSome **bold** words and `code`, a list:\n\n- one\n- two\n\n```c\nint main(void) { return 0; }\n```\n\n" + "A sentence of usual length. " * 12
WATCH = """window.long = []; new PerformanceObserver((list) => window.long.push(...list.getEntries().map((e) => Math.round(e.duration))))
    .observe({type: 'longtask'});"""

# How many times slower the machine is than one that computes this in 15 ms, as one core of a small server does.
SLOWNESS = """let best = Infinity;
for (let n = 0; n < 10; n++) {
    const start = performance.now();
    let x = 0;
    for (let i = 0; i < 2e7; i++) x = (x * 31 + i) | 0;
    best = Math.min(best, performance.now() - start + (x & 0));
}
return Math.max(1, best / 15);"""


def smooth():
    """200 messages, then three blocks of 256 tokens at 40 steps a second: more than today's machines do."""
    words = MESSAGE.split(" ")
    events = []
    for block in range(3):
        for step in range(40):  # what is not accepted yet changes in every step
            settled = 256 * step / 40
            pieces = [" " + words[(i * 7 + (0 if i < settled else step)) % len(words)] for i in range(256)]
            events.append(draft(block, step, pieces, step / 40))
        events.append(delta(content=MESSAGE * 2))
    with ScriptedPage() as b:
        b.cdp("Performance.enable", timeDomain="threadTicks")
        kept = [{"id": str(i), "role": "user" if i % 2 == 0 else "assistant", "text": MESSAGE if i % 2 else f"Question {i}"} for i in range(200)]
        b.js("localStorage.setItem('dgemma.chats', JSON.stringify([{id: 'long', title: 'Long', at: 1}]));"
             "localStorage.setItem('dgemma.chat.long', JSON.stringify({title: 'Long', at: 1, messages: arguments[0]}))", kept)
        # Others may be using this machine: a page that is slow is slow each time.
        for _ in range(8):
            b.open(b.url)
            check("200 messages and more", b.js("return document.querySelectorAll('article').length") >= 200)
            b.js(WATCH)
            before = b.busy_seconds()
            b.script.play(events, 0.025)
            b.ask()
            tasks, work = b.js("return window.long"), b.busy_seconds() - before
            slowness = b.js(SLOWNESS)
            tasks = [ms for ms in tasks if ms > 50 * slowness]
            if not tasks:
                break
            time.sleep(1)
        steps = b.js(f"return {LAST}.querySelector('.panel summary').textContent")
        check("every step came", steps == "Canvas: 120 steps in 3 blocks", steps)
        check("no task over 50 ms while streaming", not tasks, (tasks, slowness))
        check("a step costs less than a frame at 30 a second", work / 120 < 0.033 * slowness, (work, slowness))


run([stays_text, odd_text, smooth])
finish()
