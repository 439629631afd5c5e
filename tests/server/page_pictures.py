"""Makes the pictures of docs/canvas.md from the running program:

    DGEMMA=build/dgemma python3 tests/server/page_pictures.py docs
"""
import sys
import time

from browser import Browser
from serving import MODEL, Server

STORY = "Tell me a story about Ada and a brave otter in the library."
LAST = "[...document.querySelectorAll('article.assistant')].at(-1)"


def show_step(b, step):
    b.js(f"const i = {LAST}.querySelector('.scrub input'); i.value = {step}; i.dispatchEvent(new Event('input'))")
    time.sleep(0.3)


def main(folder):
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
