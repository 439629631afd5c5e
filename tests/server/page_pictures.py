"""Makes the pictures of docs/canvas.md from the running program:

    DGEMMA=build/dgemma python3 tests/server/page_pictures.py docs
"""
import sys
import threading
import time

from browser import Browser
from scripted_page import ScriptedPage, delta
from serving import MODEL, Server

STORY = "Tell me a story about Ada and a brave otter in the library."
LAST = "[...document.querySelectorAll('article.assistant')].at(-1)"


def show_step(b, step):
    b.js(f"const i = {LAST}.querySelector('.scrub input'); i.value = {step}; i.dispatchEvent(new Event('input'))")
    time.sleep(0.3)


def passage(folder):
    """A passage on its way, at a step that the script holds."""
    said, hold = "The lighthouse stands on a rock above the bay. It was built long ago, and its lamp is still lit every night.", threading.Event()
    words = "was built long ago"
    pieces = [" dates", " from", " an", " earlier", " age", ",", " and"]
    step = {"object": "edit.draft", "range": 0, "diffusion": {
        "type": "draft", "block": 0, "step": 4, "max_steps": 48, "mean_entropy": 1.0, "pieces": pieces, "accepted": [1] * 7,
        "entropy": [0.1, 0.02, 1.2, 2.5, 0.7, 0, 0], "pinned": [0] * 5 + [1] * 2, "gap": {"length": 5, "trying": False}}}
    with ScriptedPage() as b:
        b.size(820, 420)
        b.scheme("light")
        b.script.play([delta(content=said)])
        b.ask("Describe the lighthouse.")
        b.js(f"""const node = {LAST}.querySelector('.md').querySelector('p').firstChild, at = node.data.indexOf(arguments[0]);
            getSelection().setBaseAndExtent(node, at, node, at + arguments[0].length)""", words)
        b.wait("!document.querySelector('.picker').hidden")
        b.picture(f"{folder}/canvas-select.png")
        b.script.play([step, hold])
        b.js("document.querySelector('.picker button').click()")
        b.wait(f"{LAST}.querySelector('mark.gap span')")
        b.picture(f"{folder}/canvas-rewrite.png")
        hold.set()


def main(folder):
    passage(folder)
    with Server("-q", "--name", "pocket", model=MODEL) as s, Browser() as b:
        b.size(1120, 700)
        b.scheme("light")
        b.open(f"http://127.0.0.1:{s.port}/")
        b.wait("document.querySelector('#server').classList.contains('ok')")
        b.click("#open-settings")
        b.type("#set-seed", "7")
        b.click("#settings-done")
        b.type("#ask", STORY)
        b.press("#ask", "Enter")
        b.wait("document.querySelector('.live') && document.querySelectorAll('.live .cells .in').length > 9")
        b.picture(f"{folder}/canvas-settling.png")
        b.wait("document.querySelector('#stop').hidden")
        b.click(".panel summary")
        b.scheme("dark")
        show_step(b, 7)
        b.js("document.querySelector('#log').scrollTop = 1e6; document.activeElement.blur()")
        b.picture(f"{folder}/canvas-scrubber.png")
        b.size(390, 760, True)
        b.scheme("light")
        show_step(b, 14)
        b.js(f"{LAST}.querySelector('.panel').scrollIntoView()")
        time.sleep(0.3)
        b.picture(f"{folder}/canvas-phone.png")


main(sys.argv[1])
