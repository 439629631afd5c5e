"""Pictures that requests name by address: fetched where the server was told to, and from nowhere else."""
import base64
import http.server
import signal
import threading
import time

from serving import HAS_POCKET, MODEL, PATIENCE, Server, check, finish, run, skip, wait_until

QUESTION = "What is in the picture?"


class Files(http.server.BaseHTTPRequestHandler):
    """Answers by path, as a friendly or a hostile host would."""

    def do_GET(self):
        path = self.path
        self.server.asked.append(path)
        if path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("Location", base64.urlsafe_b64decode(path.split("/")[2]).decode())
            self.end_headers()
        elif path == "/missing":
            self.send_error(404)
        elif path in ("/slow", "/trickle"):
            self.send_response(200)
            self.end_headers()
            while not self.server.over:
                if path == "/trickle":
                    self.wfile.write(b"x")
                    self.wfile.flush()
                time.sleep(0.1)
        else:
            data = {"/picture": PICTURE, "/empty": b"", "/text": b"this is no picture",
                    "/large": bytes(3 << 20), "/endless": bytes(3 << 20)}[path]
            self.send_response(200)
            if path != "/endless":
                self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class Host(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Files)
        self.asked, self.over = [], False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *args):
        pass  # whoever asked went away

    def at(self, path, name="127.0.0.1"):
        return f"http://{name}:{self.server_address[1]}{path}"

    def redirect(self, to):
        return self.at("/redirect/" + base64.urlsafe_b64encode(to.encode()).decode())

    def close(self):
        self.over = True
        self.shutdown()


def ask(s, url, **fields):
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": QUESTION}]
    return s.json("POST", "/v1/chat/completions",
                  {"messages": [{"role": "user", "content": content}], "seed": 3, "max_tokens": 24, **fields})


def refused(s, url, status, code, name):
    got, body = ask(s, url)
    check(name, got == status and body["error"]["code"] == code, (got, body))


def same_as_sent():
    host = Host()
    data = base64.b64encode(PICTURE).decode()
    sent = "data:image/png;base64," + data
    with Server("-q", "--image-host", "127.0.0.1", "--fetch-timeout", "600") as s:
        link = host.at("/picture")
        want = ask(s, sent)[1]["choices"][0]["message"]["content"]
        check("a picture by its address", ask(s, link)[1]["choices"][0]["message"]["content"] == want and want)
        check("behind a redirection", ask(s, host.redirect("/picture"))[1]["choices"][0]["message"]["content"] == want)
        got = s.json("POST", "/v1/responses", {"seed": 3, "max_output_tokens": 24, "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": link}, {"type": "input_text", "text": QUESTION}]}]})[1]
        check("in Responses", got["output"][-1]["content"][0]["text"] == want, got)
        messages = [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": link}},
                                                 {"type": "text", "text": QUESTION}]}]
        got = s.json("POST", "/v1/messages", {"seed": 3, "max_tokens": 24, "messages": messages})[1]
        check("in Messages", got["content"][-1]["text"] == want, got)
        n = s.json("POST", "/v1/messages/count_tokens", {"messages": messages})[1]
        messages[0]["content"][0]["source"] = {"type": "base64", "media_type": "image/png", "data": data}
        check("when it is counted", n == s.json("POST", "/v1/messages/count_tokens", {"messages": messages})[1], n)
        before = len(host.asked)
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "image_url", "url": link}}}
        s.chat(tools=[tool])
        check("nothing else that looks like one", len(host.asked) == before)
    host.close()


def what_cannot_be_had():
    host = Host()
    with Server("-q", "--image-host", "127.0.0.1", "--fetch-timeout", "1") as s:
        for path in ("/slow", "/trickle"):  # they go on until the host is over
            refused(s, host.at(path), 400, "invalid_image_url", path + " is not waited for")
    with Server("-q", "--image-host", "127.0.0.1", "--max-body", "1", "--fetch-timeout", "600") as s:
        refused(s, host.at("/missing"), 400, "invalid_image_url", "what is not there")
        refused(s, host.at("/empty"), 400, "invalid_value", "an empty file")
        refused(s, host.at("/text"), 400, "unsupported", "no picture")
        refused(s, host.at("/large"), 413, "image_too_large", "a large one that says so")
        refused(s, host.at("/endless"), 413, "image_too_large", "a large one that does not")
        refused(s, "http://127.0.0.1:1/", 400, "invalid_image_url", "nobody there")
        loop = host.redirect("/picture")
        for _ in range(5):
            loop = host.redirect(loop)
        refused(s, loop, 400, "invalid_image_url", "on and on")
        check("all the same", ask(s, host.at("/picture"))[0] == 200)
    host.close()


def where_nobody_may_look():
    host = Host()
    with Server("-q", "--image-host", "127.0.0.1", "--image-host", "pictures.example") as s:
        other = host.at("/picture", "localhost")
        refused(s, other, 400, "image_host_not_allowed", "a host that was not named")
        refused(s, host.redirect(other), 400, "image_host_not_allowed", "a redirection to it")
        refused(s, host.redirect("file:///etc/passwd"), 400, "invalid_image_url", "a redirection to a file")
        refused(s, host.at("/picture", "me:word@127.0.0.1"), 400, "invalid_image_url", "with a name and a password")
        refused(s, host.at("/picture", "127.0.0.1@localhost"), 400, "invalid_image_url", "a name that looks like a host")
        refused(s, "http://", 400, "invalid_image_url", "no address")
        for url in ("file:///etc/passwd", "ftp://127.0.0.1/x", "/etc/passwd"):
            refused(s, url, 400, "unsupported", url)
    with Server("-q", "--image-host", "*") as s:
        before = len(host.asked)
        port = host.server_address[1]
        for name in ("127.0.0.1", "localhost", "127.1", "0x7f000001", "2130706433", "0", "[::ffff:127.0.0.1]", "[::1]"):
            refused(s, f"http://{name}:{port}/picture", 400, "image_host_not_allowed", name + " is not public")
        check("nobody was asked", len(host.asked) == before)
    with Server("-q") as s:
        refused(s, host.at("/picture"), 400, "unsupported", "not unless it was told to")
        check("nor asked", len(host.asked) == before)
    host.close()


def no_more_at_once():
    host = Host()
    with Server("-q", "--image-host", "127.0.0.1", "--fetch-timeout", "600") as s:
        results = []
        threads = [threading.Thread(target=lambda: results.append(ask(s, host.at("/slow"))[1]["error"]["code"]))
                   for _ in range(8)]
        for t in threads:
            t.start()
        check("eight are fetched", wait_until(lambda: host.asked.count("/slow") == 8))
        got, headers, data = s.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": host.at("/picture")}}]}]})
        check("the ninth is told to come back", got == 503 and headers.get("retry-after") == "1", data)
        check("whoever sends no address is served", s.chat()[0] == 200 and not results, results)
        host.over = True  # they end, and nothing has come
        for t in threads:
            t.join()
        check("the others are told why", results == ["invalid_value"] * 8, results)
        check("there is room again", ask(s, host.at("/picture"))[0] == 200)
    host.close()


def stopped_meanwhile():
    host = Host()
    s = Server("-q", "--image-host", "127.0.0.1", "--fetch-timeout", "600")
    results = []
    one = threading.Thread(target=lambda: results.append(ask(s, host.at("/slow"))))
    one.start()
    check("one is fetched", wait_until(lambda: host.asked))
    s.process.send_signal(signal.SIGTERM)
    check("it is waited for", s.wait_status("/health", 503) and s.process.poll() is None)
    s.process.send_signal(signal.SIGTERM)
    one.join()
    check("but not if there is no time", results[0][0] == 503 and results[0][1]["error"]["code"] == "shutting_down", results)
    check("the server ends well then", s.process.wait(PATIENCE) == 0, s.output())
    host.close()


def can_fetch():
    """False, and a line of its own, where there is nothing to fetch with or to look with."""
    if not HAS_POCKET:
        skip("pictures by their address", "the model that sees them is not here")
        return False
    try:
        with Server("-q", "--image-host", "x"):
            return True
    except RuntimeError as e:
        check("only libcurl may be missing", "libcurl" in str(e), e)
        skip("pictures by their address", "there is no libcurl")
        return False


Server.model = MODEL
with open("tests/data/images/square.png", "rb") as f:
    PICTURE = f.read()
if can_fetch():
    run([same_as_sent, what_cannot_be_had, where_nobody_may_look, no_more_at_once, stopped_meanwhile])
finish()
