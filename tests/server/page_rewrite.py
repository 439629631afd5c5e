"""Answers changed in place: a passage anew, tokens of a canvas pinned, a schema and its tree."""
import threading

from scripted_page import LAST, ScriptedPage, delta, draft
from serving import check, finish, run

# Selects words in the last answer, as a person would with the mouse.
SELECT = """const words = arguments[0], walk = document.createTreeWalker(%s.querySelector('.md'), NodeFilter.SHOW_TEXT);
for (let node; (node = walk.nextNode());) {
    const at = node.data.indexOf(words);
    if (at < 0) continue;
    getSelection().setBaseAndExtent(node, at, node, at + words.length);
    return true;
}
return false;""" % LAST
TEXT = f"{LAST}.querySelector('.md').textContent"
TIMINGS = {"timings": {"prompt_n": 5, "predicted_n": 20, "predicted_per_second": 43.21, "first_text_ms": 120,
                       "diffusion": {"n_steps": 8, "n_blocks": 1, "tokens_per_step": 2.5, "seed": 7}}, "choices": []}


def step(pieces, gap, trying=False, entropy=2.5):
    n = len(pieces)
    return {"object": "edit.draft", "range": 0, "diffusion": {
        "type": "draft", "block": 0, "step": 0, "max_steps": 48, "mean_entropy": 1.0, "pieces": pieces, "entropy": [entropy] * n,
        "accepted": [1] * n, "pinned": [0] * gap + [1] * (n - gap), "gap": {"length": gap, "trying": trying}}}


def result(text):
    return {"object": "edit", "text": text, "ranges": [[0, 1]], "changed_tokens": 2, "agreement": 1.0, "steps": 9, "tries": 7, "seed": 7}


def pick(b, words, label):
    check(f"{words} is there to be selected", b.js(SELECT, words))
    b.wait("!document.querySelector('.picker').hidden", what="the buttons beside the selection")
    b.js("[...document.querySelectorAll('.picker button')].find((x) => x.textContent === arguments[0]).click()", label)


def passages():
    with ScriptedPage() as b:
        b.script.play([delta(content="The **old** tower is é very tall. The end."), TIMINGS])
        b.ask("Question")
        hold = threading.Event()
        b.script.play([step(["x", " y", "."], 2, True), step([" quite", " high", "."], 2), hold, result("The **old** tower is é quite high. The end.")])
        pick(b, "very tall", "Rewrite")
        b.wait(f"{LAST}.querySelector('mark.gap span')", what="a step of the passage")
        b.wait(f"{LAST}.querySelector('mark.gap').textContent === ' quite high'", what="the second step")
        check("only the passage dissolves", b.js(f"return {TEXT}") == "The **old** tower is é  quite high. The end.", b.js(f"return {TEXT}"))
        check("and is shaded by doubt", b.js(f"return {LAST}.querySelector('mark.gap span').className") == "e6")
        sent = b.script.asked[-1]
        check("places are code points", sent["ranges"] == [[23, 32]] and sent["text"].startswith("The **old**"), sent)
        check("the conversation goes along", sent["messages"] == [{"role": "user", "content": "Question"}] and sent["instruction"] == "Use other words.", sent)
        hold.set()
        b.done()
        check("it settles", b.js(f"return {TEXT}") == "The old tower is é quite high. The end.", b.js(f"return {TEXT}"))
        b.script.play([result("The **old** tower is é so high. The end.")])
        b.button("Another", "article:nth-child(2)")
        b.wait(f"{TEXT}.includes('so high')", what="another wording")
        check("by the next seed, of what was there first", b.script.asked[-1]["seed"] == sent["seed"] + 1
              and b.script.asked[-1]["text"] == sent["text"], b.script.asked[-1])
        b.button("Undo", "article:nth-child(2)")
        check("undo", b.js(f"return {TEXT}") == "The old tower is é very tall. The end.", b.js(f"return {TEXT}"))
        b.script.play([result("The **old** tower is tall. The end.")])
        pick(b, "é very", "Fill")
        b.done()
        sent = b.script.asked[-1]
        check("to fill is to know nothing of what stood there", sent["ranges"] == [[21, 21]] and "very" not in sent["text"]
              and "instruction" not in sent, sent)
        b.load()
        check("it is kept", b.js(f"return {TEXT}") == "The old tower is tall. The end.", b.js(f"return {TEXT}"))
        b.script.refuse(400)
        pick(b, "tall", "Shorter")
        b.wait("document.querySelector('#notice').textContent.includes('not now')", what="the refusal")
        check("refused, all is as it was", b.js(f"return {TEXT}") == "The old tower is tall. The end.")
        check("what Markdown hides cannot be picked", b.js(
            "const p = document.querySelector('article.assistant .md'); getSelection().selectAllChildren(p); return true"))
        b.wait("document.querySelector('.picker').hidden", what="no buttons")
        b.quiet("passages")


def pins():
    with ScriptedPage() as b:
        d = draft(0, 0, ["Red", " fox", "<turn|>"], 1)
        d["diffusion"]["ids"] = [11, 12, 106]
        b.script.play([d, delta(content="Red fox"), TIMINGS])
        b.ask("Question")
        check("ids are asked for", b.script.asked[-1]["diffusion"]["ids"] is True)
        b.js(f"const p = {LAST}.querySelector('.panel'); p.open = true")
        b.wait(f"{LAST}.querySelectorAll('.cells span').length === 3", what="the canvas")
        b.js(f"{LAST}.querySelectorAll('.cells span')[1].click()")
        b.wait(f"{LAST}.querySelector('.cells span.pinned')", what="a pinned token")
        b.script.play([delta(content="Blue fox"), TIMINGS])
        b.js(f"{LAST}.querySelector('.redo').click()")
        b.done()
        sent = b.script.asked[-1]
        check("what is pinned stays, the rest is noise", sent["diffusion"]["canvas"] == {"tokens": [None, 12, None], "keep": [[1, 2]]}
              and sent["seed"] == 8, sent)
        check("a version beside the first", b.texts()[-1] == "Blue fox" and b.js(f"return {LAST}.querySelector('.pager').textContent") == "‹2/2›")
        b.quiet("pins")


def schemas():
    with ScriptedPage() as b:
        b.click("#open-settings")
        b.js("document.querySelector('#set-schema').value = '{'")
        b.click("#settings-done")
        check("what is no JSON is said", "not JSON" in b.js("return document.querySelector('#schema-error').textContent"))
        b.js("document.querySelector('#set-schema').value = '{\"type\": \"object\"}'")
        b.click("#settings-done")
        b.script.play([delta(content='{"name": "Ada", "tags": ["a", null]}'), TIMINGS])
        b.ask("Who?")
        check("answers are held to it", b.script.asked[-1]["response_format"] == {
            "type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}, b.script.asked[-1])
        tree = b.js(f"return [...{LAST}.querySelectorAll('.tree .leaf')].map((e) => e.textContent)")
        check("JSON is a tree", tree == ['name: "Ada"', '0: "a"', "1: null"], tree)
        b.script.play([delta(content='{"name": <b>x</b>'), TIMINGS])
        b.ask("And now?")
        check("what only looks like it is text", b.js(f"return !{LAST}.querySelector('.tree')"))
        b.load()
        b.click("#open-settings")
        check("the schema is kept", b.js("return document.querySelector('#set-schema').value") == '{"type": "object"}')
        b.quiet("schemas")


run([passages, pins, schemas])
finish()
