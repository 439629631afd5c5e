"""dgemma's page in a browser, in front of a server that says what the test wants."""
import http.server
import json
import threading
import time

from browser import Browser
from serving import Server, check

LAST = "[...document.querySelectorAll('article.assistant')].at(-1)"


class Script(http.server.ThreadingHTTPServer):
    """Serves dgemma's page, and answers of its own."""

    daemon_threads = True

    def __init__(self, page, headers):
        self.page, self.page_headers, self.asked = page, headers, []
        self.play([])
        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def play(self, events, pause=0.0, line_end=b"\n"):
        """What the next answers are. Where a threading.Event stands among the events, they wait for it."""
        self.events, self.pause, self.line_end, self.refusal = events, pause, line_end, None

    def refuse(self, status):
        self.refusal = status


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def answer(self, kind, body, headers=(), status=200):
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), *headers):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/":
            self.answer("text/html; charset=utf-8", self.server.page,
                        [("Content-Security-Policy", self.server.page_headers["content-security-policy"])])
        else:
            self.answer("application/json", json.dumps({"model_alias": "<b>script</b>", "modalities": {"vision": True}}).encode())

    def do_POST(self):
        script = self.server
        script.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if script.refusal:
            return self.answer("application/json", b'{"error": {"message": "not now"}}', [("Retry-After", "1")], script.refusal)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            self.stream(script.events, script.pause, script.line_end)
        except OSError:
            pass  # the page was stopped or left

    def stream(self, events, pause, line_end):
        for event in events:
            if isinstance(event, threading.Event):
                event.wait()
                continue
            self.wfile.write(b"data: " + json.dumps(event).encode() + line_end * 2)
            self.wfile.flush()
            time.sleep(pause)
        self.wfile.write(b"data: [DONE]" + line_end * 2)


def delta(**fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def draft(block, step, pieces, certain=0.5):
    n = len(pieces)
    return {**delta(), "diffusion": {"type": "draft", "block": block, "step": step, "max_steps": 48, "mean_entropy": 1.0, "pieces": pieces,
                                     "entropy": [0.0 if i < n * certain else 2.5 for i in range(n)],
                                     "accepted": [int(i < n * certain) for i in range(n)]}}


class ScriptedPage(Browser):
    def __init__(self):
        super().__init__()
        with Server("-q") as s:
            _, headers, page = s.request("GET", "/")
        self.script = Script(page, headers)
        self.url = f"http://127.0.0.1:{self.script.server_port}/"
        self.open(self.url)

    def __exit__(self, *exc):
        self.script.shutdown()
        super().__exit__(*exc)

    def busy_seconds(self):
        """What the page's thread has computed so far, whoever else uses the machine."""
        return next(m["value"] for m in self.cdp("Performance.getMetrics")["metrics"] if m["name"] == "TaskDuration")

    def say(self, text="Go"):
        self.js("document.querySelector('#ask').value = arguments[0]", text)
        self.press("#ask", "Enter")

    def done(self):
        self.wait("document.querySelector('#stop').hidden", "the end of the answer")

    def ask(self, text="Go"):
        self.say(text)
        self.done()

    def load(self):
        """The page anew, with the chats that it kept."""
        self.open(self.url)

    def texts(self):
        """What is said, in order."""
        return self.js("return [...document.querySelectorAll('#thread article')].map((a) =>"
                       " [...a.querySelectorAll('.body, .md')].map((e) => e.textContent).join(''))")

    def button(self, label, article="article:last-child"):
        """Presses a button of a message."""
        self.js("const button = [...document.querySelectorAll(arguments[0] + ' button')].find((x) => x.textContent === arguments[1]);"
                "button.focus(); button.click()", article, label)

    def row(self, n):
        """Opens a chat of the list, which may be drawn anew at any time."""
        self.js("document.querySelector(`.chat-row:nth-child(${arguments[0]}) .open`).click()", n)

    def told(self):
        return self.js("return document.querySelector('#notice').textContent")

    def quiet(self, name):
        loud = [m["message"] for m in self.messages() if m["level"] == "SEVERE" and m["source"] != "network"]
        check(f"{name}: nothing was thrown", not loud, loud)
