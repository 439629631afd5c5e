"""The page with the pocket model behind it, as people use it."""
import http.client
import json
import signal
import time

from browser import Browser
from serving import MODEL, Server, check, finish, run, two_models

Server.model = MODEL
STORY = "Tell me a story about Ada and a brave otter in the library."
WEATHER = [{"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "description": "Name of the city"}}, "required": ["city"]}}}]

# Keeps what each frame of the screen showed of the canvas, and what was asked for; `linger` makes answers take so many steps a
# block, on a machine of any speed.
RECORD = """
window.linger = 0; window.seen = new Set(); window.looks = new Set(); window.asked = []; window.counts = new Set();
(function look() {
    const cells = document.querySelectorAll('.live .cells span');
    if (cells.length) window.seen.add([...cells].map((c) => c.textContent).join(''));
    for (const c of cells) window.looks.add(c.className);
    if (cells.length) window.counts.add(document.querySelectorAll('.live .cells .in').length);
    requestAnimationFrame(look);
})();
const real = window.fetch;
window.fetch = (path, options) => {
    const body = options?.body && JSON.parse(options.body);
    if (body) window.asked.push(body);
    if (!body?.diffusion || !window.linger) return real(path, options);
    const diffusion = {...body.diffusion, steps: window.linger, stability_threshold: 100000};
    return real(path, {...options, body: JSON.stringify({...body, diffusion})});
};
"""
IDLE = "document.querySelector('#stop').hidden"
LAST = "[...document.querySelectorAll('article.assistant')].at(-1)"


class Page(Browser):
    """A browser with the page of a server in it."""

    def __init__(self, server):
        super().__init__()
        self.url = f"http://127.0.0.1:{server.port}/"
        self.load()

    def load(self):
        self.open(self.url)
        self.js(RECORD)

    def connected(self):
        self.wait("document.querySelector('#server').classList.contains('ok')", what="a connection")

    def say(self, text):
        self.type("#ask", text)
        self.press("#ask", "Enter")

    def done(self):
        self.wait(IDLE, "the end of the answer")

    def tell(self, text):
        """Says something and returns the answer's text."""
        self.say(text)
        self.done()
        return self.js(f"return {LAST}.querySelector('.md').textContent")

    def note(self):
        return self.js(f"return {LAST}.querySelector('.note').textContent")

    def settings(self, thinking=False, **values):
        if (self.js("return document.querySelector('#think').getAttribute('aria-pressed')") == "true") != thinking:
            self.click("#think")
        self.click("#open-settings")
        for name, value in values.items():
            if isinstance(value, bool):
                if self.js("return document.getElementById('set-' + arguments[0]).checked", name) != value:
                    self.click("#set-" + name)
            else:
                self.js("const f = document.getElementById('set-' + arguments[0]); f.value = arguments[1];"
                        "f.dispatchEvent(new Event('input', {bubbles: true}))", name, str(value))
        self.click("#settings-done")

    def quiet(self, name):
        """Nothing was refused by the policy, nothing was thrown."""
        loud = [m["message"] for m in self.messages() if m["source"] not in ("network",) and m["level"] == "SEVERE"]
        check(f"{name}: no error in the page, nothing against its policy", not loud, loud)


def chat():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        kinds = b.js("return performance.getEntriesByType('resource').map((e) => e.initiatorType)")
        check("the document is all that painting needs", set(kinds) <= {"fetch"}, kinds)
        check("an answer", b.tell("What is the capital of France?").find("Paris") >= 0)
        b.say(STORY)
        for steps in (48, 200, 800):  # a browser that stands still for a while draws few frames of an answer
            b.done()
            b.js("window.seen.clear(); window.counts.clear(); window.linger = arguments[0]", steps)
            b.js(f"[...{LAST}.querySelectorAll('button')].find((x) => x.textContent === 'Retry').click()")
            b.done()
            if b.js("return window.seen.size >= 5 && window.counts.size >= 3"):
                break
        b.js("window.linger = 0")
        check("tokens change from frame to frame", b.js("return window.seen.size") >= 5, b.js("return window.seen.size"))
        looks = b.js("return [...window.looks]")
        check("accepted and renoised are told apart", any("in e" in x for x in looks) and any("out e" in x for x in looks), looks)
        check("shaded by certainty", len({x.split("e", 1)[1][:1] for x in looks if " e" in x}) >= 4, looks)
        check("more is accepted as it settles", len(b.js("return [...window.counts]")) >= 3)
        speeds = b.js(f"return {LAST}.querySelector('.speeds').textContent")
        check("speeds", all(x in speeds for x in ("first text", "steps in", "tokens/step", "tokens/s", "seed")), speeds)
        scrub(b)
        retry_edit(b)
        keep(b)
        b.quiet("chat")


def scrub(b):
    check("the canvas folds when the answer is there", not b.js(f"return {LAST}.querySelector('.panel').open"))
    answer = b.js(f"return {LAST}.querySelector('.md').textContent")
    b.js(f"{LAST}.querySelector('.panel summary').click()")
    slider = "article:last-child .scrub input"
    b.press(slider, "Home")
    state = f"""return [{LAST}.querySelector('.scrub .where').textContent, {LAST}.querySelector('.cells').textContent,
        {LAST}.querySelector('.mean').getAttribute('d'), {LAST}.querySelector('.head').getAttribute('d'), {LAST}.querySelector('.scrub input').max]"""
    where, first, mean, head, last = b.js(state)
    check("the first step", where.startswith("block 1, step 1 ·") and head == "M0 0V100", where)
    check("entropy over the steps is drawn", mean.count("L") + mean.count("M") == int(last) + 1 and mean.count("M") >= 2, mean)
    b.press(slider, "Right")
    where, second, _, head, _ = b.js(state)
    check("the next step", where.startswith("block 1, step 2 ·") and head == "M1 0V100" and second != first, where)
    b.js(f"const i = {LAST}.querySelector('.scrub input'); i.value = i.max; i.dispatchEvent(new Event('input'))")
    where, end, _, _, _ = b.js(state)
    check("the last step of the last block", where.startswith("block 2"), where)
    check("is what was answered", end.split("<")[0].strip()[-20:] == answer.strip()[-20:], (end, answer))
    box = b.js(f"const r = {LAST}.querySelector('.plot').getBoundingClientRect(); return [r.left, r.top, r.width, r.height]")
    b.js(f"""{LAST}.querySelector('.plot').dispatchEvent(new PointerEvent('pointerdown',
        {{clientX: {box[0] + 2}, clientY: {box[1] + 5}, bubbles: true}}))""")
    check("the plot is a way there too", b.js(state)[0].startswith("block 1, step 1 ·"), b.js(state)[0])


def retry_edit(b):
    n = b.js("return document.querySelectorAll('article').length")
    seed = f"return {LAST}.querySelector('.speeds').textContent.split('seed ')[1]"
    before = b.js(seed)
    b.js(f"[...{LAST}.querySelectorAll('button')].find((x) => x.textContent === 'Retry').click()")
    b.done()
    check("another answer takes its place", b.js("return document.querySelectorAll('article').length") == n and b.js(seed) != before)
    b.js("[...document.querySelectorAll('article.user')].at(-1).querySelector('.tools button').click()")
    b.js("document.querySelector('.editing textarea').value = 'What is the capital of Italy?'")
    b.press(".editing textarea", "Enter")
    b.done()
    check("an edited message is asked again", "Rome" in b.js(f"return {LAST}.textContent"), b.js(f"return {LAST}.textContent"))
    check("in its place", b.js("return document.querySelectorAll('article').length") == n)
    b.js("navigator.clipboard.writeText = async (t) => { window.copied = t; }")
    b.js(f"[...{LAST}.querySelectorAll('button')].find((x) => x.textContent === 'Copy').click()")
    check("copy", "Rome" in b.wait("window.copied"))
    b.js("URL.createObjectURL = (blob) => { blob.text().then((t) => { window.exported = t; }); return 'data:,'; }")
    b.click("#export")
    saved = json.loads(b.wait("window.exported"))
    check("export, in OpenAI's form", [m["role"] for m in saved] == ["user", "assistant"] * 2 and "Rome" in saved[-1]["content"], saved)


def keep(b):
    n = b.js("return document.querySelectorAll('article').length")
    b.load()
    check("chats are kept", b.js("return document.querySelectorAll('article').length") == n)
    b.click("#new-chat")
    check("a new one is empty", b.js("return document.querySelectorAll('article').length") == 0)
    b.connected()
    b.js("window.full = Storage.prototype.setItem; Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); }")
    check("a full storage does not stop the chat", "Berlin" in b.tell("What is the capital of Germany?"))
    check("and is told", "storage" in b.js("return document.querySelector('#notice').textContent"))
    b.js("Storage.prototype.setItem = window.full; document.querySelector('#notice button').click()")
    b.js("document.querySelector('.chat-row .open')?.click()")
    while b.js("return !!document.querySelector('.chat-row .gone')"):
        b.js("document.querySelector('.chat-row .gone').click()")
    check("chats can be deleted", b.js("return Object.keys(localStorage).filter((k) => k.startsWith('dgemma.chat.')).length") == 0)


def stopping():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        b.js("window.linger = 100000")
        for how in ("click", "Escape"):
            b.say(STORY)
            b.wait("document.querySelectorAll('.live .cells span').length")
            if how == "click":
                b.click("#stop")
            else:
                b.press("#ask", "Escape")
            b.done()
            check(f"stop by {how}", "Stopped" in b.note(), b.note())
            check("the server stops too", s.wait_metric("vllm:num_requests_running", lambda v: v == 0))
            check("what was seen stays to be looked at", b.js(f"return {LAST}.querySelector('.panel summary').textContent").startswith("Canvas:"))
        b.js("window.linger = 0")
        b.click("#new-chat")
        check("and it goes on", "42" in b.tell("What is 17 + 25?"))
        b.quiet("stopping")


def options():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        b.settings(system="You are pocket, a small model.", seed=11, steps=20, t_min="0.3", t_max="0.7", entropy_bound="0.2", max_tokens=200,
                   thinking=True, settled=True)
        text = b.tell("What is 84 + 68?")
        asked = b.js("return window.asked.at(-1)")
        want = {"steps": 20, "t_min": 0.3, "t_max": 0.7, "entropy_bound": 0.2, "settled_steps": 2, "drafts": True, "ids": True}
        check("settings reach the server", asked["diffusion"] == want and asked["seed"] == 11 and asked["max_tokens"] == 200
              and asked["messages"][0]["role"] == "system" and asked["enable_thinking"] is True, asked)
        check("the answer", "152" in text, text)
        thoughts = b.js(f"const d = {LAST}.querySelector('.thoughts'); return [d.hidden, d.open, d.textContent]")
        check("thoughts are there and folded", thoughts[:2] == [False, False] and len(thoughts[2]) > 15, thoughts)
        check("in their own place", "carry" not in text, text)
        check("the same seed", "seed 11" in b.js(f"return {LAST}.textContent"))
        b.load()
        b.click("#open-settings")
        check("settings are kept", b.js("return document.querySelector('#set-steps').value") == "20")
        b.js("const f = document.querySelector('#set-tools'); f.value = '{'; f.dispatchEvent(new Event('input', {bubbles: true}))")
        b.click("#settings-done")
        check("tools that are not JSON are told", "not JSON" in b.js("return document.querySelector('#tools-error').textContent")
              and b.js("return document.querySelector('#settings').open"))
        b.quiet("options")


def tools():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        b.settings(tools=json.dumps(WEATHER), seed=3)
        b.say("What is the weather in Paris?")
        b.done()
        card = b.js(f"return {LAST}.querySelector('.call')?.textContent || ''")
        check("a call is shown", "get_weather" in card and '"city": "Paris"' in card, card)
        b.type(".call textarea", "sunny, 21 C")
        b.click(".send-results")
        b.done()
        sent = b.js("return window.asked.at(-1).messages")
        check("its result is sent", [m["role"] for m in sent] == ["user", "assistant", "tool"]
              and sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"], sent)
        text = b.js(f"return {LAST}.querySelector('.md').textContent")
        check("and used", "sunny, 21 C" in text, text)
        check("no field is left", not b.js("return !!document.querySelector('.call textarea')"))
        b.quiet("tools")


# A picture as the model knows them, made in the page.
DRAW = """
const [width, height, kind, done] = arguments;
const canvas = document.createElement('canvas');
canvas.width = width; canvas.height = height;
const g = canvas.getContext('2d');
g.fillStyle = 'rgb(250,250,250)'; g.fillRect(0, 0, width, height);
g.fillStyle = 'rgb(214,28,36)'; g.beginPath(); g.arc(width / 2, height / 2, height / 4, 0, 7); g.fill();
canvas.toBlob((blob) => {
    const data = new DataTransfer();
    data.items.add(new File([blob], 'circle.png', {type: 'image/png'}));
    document.dispatchEvent(kind === 'drop' ? new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})
        : new ClipboardEvent('paste', {clipboardData: data, bubbles: true, cancelable: true}));
    done(true);
});
"""


def pictures():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        for n, (size, kind) in enumerate((((96, 96), "drop"), ((4000, 3000), "paste")), 1):
            b.do("POST", "/execute/async", {"script": DRAW, "args": [*size, kind]})
            b.wait(f"document.querySelectorAll('#pictures img').length === {n}", what=kind)
        sizes = b.wait("[...document.querySelectorAll('#pictures img')].every((i) => i.complete)"
                       " && [...document.querySelectorAll('#pictures img')].map((i) => [i.naturalWidth, i.naturalHeight])")
        check("small ones stay, large ones shrink", sizes == [[96, 96], [1536, 1152]], sizes)
        b.click("#pictures li:nth-child(2) button")
        text = b.tell("What is in the picture?")
        asked = b.js("return window.asked.at(-1).messages[0].content")
        check("one was taken away, one is sent", [p["type"] for p in asked] == ["image_url", "text"]
              and asked[0]["image_url"]["url"].startswith("data:image/png;base64,"), str(asked)[:200])
        check("the model sees it", "red" in text.lower() or "circle" in text.lower(), text)
        check("it is shown with the message", b.js("return document.querySelectorAll('article.user .thumbs img').length") == 1)
        b.quiet("pictures")


def keys():
    with Server("-q", "--api-key", "secret") as s, Page(s) as b:
        b.wait("document.querySelector('#key-dialog').open", what="the question for a key")
        b.type("#key-input", "wrong")
        b.press("#key-input", "Enter")
        b.wait("document.querySelector('#key-dialog').open && document.querySelector('#key-error').textContent", what="the question again")
        b.type("#key-input", "secret")
        b.press("#key-input", "Enter")
        b.connected()
        check("with the key it answers", "Paris" in b.tell("What is the capital of France?"))
        check("the key is not kept with the chats", "secret" not in b.js("return JSON.stringify(localStorage)"))
        b.quiet("keys")


def busy():
    with Server("-q", "--max-active", "1") as s, Page(s) as b:
        b.connected()
        other = s.open_stream(diffusion={"steps": 100000, "stability_threshold": 100000}, max_tokens=16)
        check("somebody else is served", s.wait_metric("vllm:num_requests_running", lambda v: v == 1))
        b.say("What is the capital of France?")
        b.wait(f"{LAST}?.querySelector('.note').textContent.includes('busy')", what="the word busy")
        other.close()
        b.done()
        check("it asks again until it is its turn", "Paris" in b.js(f"return {LAST}.textContent"))
        b.quiet("busy")


def restart():
    s = Server("-q")
    with Page(s) as b:
        b.connected()
        b.js("window.linger = 100000")
        b.say(STORY)
        b.wait("document.querySelectorAll('.live .cells span').length")
        b.js("window.linger = 0")
        s.process.send_signal(signal.SIGKILL)
        s.process.wait()
        b.done()
        check("a broken answer is told", "connection" in b.note().lower(), b.note())
        b.wait("!document.querySelector('#notice').hidden && document.querySelector('#notice').textContent.includes('cannot be reached')",
               what="the notice")
        check("not connected", b.js("return document.querySelector('#server').textContent").startswith("Not connected"))
        with Server("-q", "--port", str(s.port)) as back:
            check("the same port", back.port == s.port)
            b.connected()
            check("the notice goes", b.js("return document.querySelector('#notice').hidden"))
            b.js(f"[...{LAST}.querySelectorAll('button')].find((x) => x.textContent === 'Retry').click()")
            b.done()
            check("and it goes on", "Ada" in b.js(f"return {LAST}.querySelector('.md').textContent"))
        b.quiet("restart")


def looks():
    with Server("-q") as s, Page(s) as b:
        b.connected()
        b.tell(STORY)
        b.click(".panel summary")
        colour = "const c = getComputedStyle(document.body); return [c.backgroundColor, c.color]"
        b.scheme("light")
        light = b.js(colour)
        b.scheme("dark")
        dark = b.js(colour)
        luma = [sum(int(x) for x in c.split("(")[1].rstrip(")").split(",")) for c in light + dark]
        check("light and dark", luma[0] > 700 and luma[1] < 200 and luma[2] < 120 and luma[3] > 600, (light, dark))
        b.js("""const p = document.createElement('p'); p.textContent = 'unbreakable'.repeat(40);
            document.querySelector('.md').append(p)""")
        for width in (320, 390):
            b.size(width, 780, True)
            wide = b.js("""return [...document.querySelectorAll('body, #page, #log, article, .panel, header, #composer')]
                .filter((e) => e.scrollWidth > e.clientWidth + 1 || e.getBoundingClientRect().right > innerWidth + 1).map((e) => e.id || e.className)""")
            check(f"nothing to scroll sideways at {width}", b.js("return document.documentElement.scrollWidth") <= width and not wide, wide)
            b.click("#side-open")
            check("chats slide in", b.js("return document.activeElement.id") == "side-close")
            b.wait("document.querySelector('#side').getBoundingClientRect().left === 0", what="the list of chats")
            b.press("#side-close", "Escape")
            b.wait("document.querySelector('#side').getBoundingClientRect().right <= 0", what="the list of chats to go")
            b.click("#open-settings")
            check("settings fit", b.js("const d = document.querySelector('#settings'); return d.scrollWidth <= d.clientWidth + 1"))
            b.click("#settings-done")
        unnamed = b.js("""return [...document.querySelectorAll('button, input, textarea, summary, [role=img]')].filter((e) =>
            !(e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent).trim()).map((e) => e.outerHTML)""")
        check("everything has a name", not unnamed, unnamed)
        b.quiet("looks")


def several():
    shown = "return [...document.querySelectorAll('#model option')].map((o) => o.value)"
    with Server("-q") as s, Page(s) as b:
        b.connected()
        check("one model is not chosen", b.js("return document.querySelector('#model').hidden"))
        b.tell("Hello")
        check("nor asked for", b.js("return 'model' in window.asked.at(-1)") is False)
    with two_models() as s, Page(s) as b:
        b.connected()
        check("several can be chosen", b.js(shown) == ["one", "two"] and b.js("return document.querySelector('#model').value") == "one")
        b.js("const m = document.querySelector('#model'); m.value = 'two'; m.dispatchEvent(new Event('change'))")
        b.wait("performance.getEntriesByType('resource').some((e) => e.name.endsWith('/props?model=two'))", what="its properties")
        b.tell("Hello")
        check("the chosen one is asked", b.js("return window.asked.at(-1).model") == "two" and s.metric('dgemma:model_loaded{model_name="two"}') == 1)
        b.load()
        b.connected()
        check("the choice is kept", b.js("return document.querySelector('#model').value") == "two")


run([chat, several, stopping, options, tools, pictures, keys, busy, restart, looks])
finish()
