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
        b.click(".chat-row:nth-child(2) .open")
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
        check("and says so", "forbids" in b.js("return document.querySelector('#kept').textContent"))
        b.quiet("forbidden storage")


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


CASES = [full_of_others, full_of_ours, full_of_pictures, forbidden_storage]
run([case for case in CASES if case.__name__ in sys.argv[1:] or not sys.argv[1:]])
finish()
