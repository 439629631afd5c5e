"""Clients that send what they should not, hang up, dawdle or come in crowds. Nothing of it may hurt others."""
import fcntl
import json
import os
import resource
import select
import signal
import socket
import subprocess
import tempfile
import time

from serving import ENDLESS, PATIENCE, SLOW, Server, check, events, finish, read_all, run, skip, status_of, wait_until

CHAT = "/v1/chat/completions"
USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def chat(**fields):
    return {"messages": USER, "max_tokens": 8, "seed": 1, **fields}


def picture(url):
    return [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]


# name, method, path, body, status, a word of the answer
STATUS = [
    ("health", "GET", "/health", None, 200, "ok"),
    ("models", "GET", "/v1/models", None, 200, "test"),
    ("one model", "GET", "/v1/models/test", None, 200, "test"),
    ("another model", "GET", "/v1/models/other", None, 404, "model_not_found"),
    ("props", "GET", "/props", None, 200, "block-diffusion"),
    ("props tell the numerics", "GET", "/props", None, 200, '"numerics"'),
    ("the model tells its numerics", "GET", "/v1/models", None, 200, '"numerics"'),
    ("slots", "GET", "/slots", None, 200, "is_processing"),
    ("metrics", "GET", "/metrics", None, 200, "vllm:num_requests_running"),
    ("no such path", "GET", "/nowhere", None, 404, "not_found_error"),
    ("a path that climbs", "GET", "/v1/../../etc/passwd", None, 404, "not_found"),
    ("the wrong method", "GET", CHAT, None, 405, "method_not_allowed"),
    ("the other wrong method", "POST", "/health", "{}", 405, "method_not_allowed"),
    ("no body", "POST", CHAT, "", 400, "invalid_json"),
    ("no JSON", "POST", CHAT, "hello", 400, "invalid_json"),
    ("JSON that ends early", "POST", CHAT, '{"messages": [', 400, "invalid_json"),
    ("JSON that is no object", "POST", CHAT, "[1]", 400, "no JSON object"),
    ("something behind the JSON", "POST", CHAT, json.dumps(chat()) + "x", 400, "invalid_json"),
    ("invalid UTF-8", "POST", CHAT, b'{"messages": [{"role": "user", "content": "\xff\xfe"}]}', 400, "invalid_json"),
    ("half a surrogate", "POST", CHAT, r'{"messages": [{"role": "user", "content": "\ud800"}]}', 200, "usage"),
    ("a NUL byte", "POST", CHAT, b'{"messages": [{"role": "user", "content": "a\x00b"}]}', 400, "invalid_json"),
    ("an escaped NUL", "POST", CHAT, r'{"messages": [{"role": "user", "content": "a\u0000b"}]}', 200, "usage"),
    ("deep JSON", "POST", CHAT, '{"messages": ' + "[" * 100000, 400, "json_too_deep"),
    ("deep but closed", "POST", CHAT, '{"a": ' + "[" * 1000 + "]" * 1000 + "}", 400, "json_too_deep"),
    ("very many values", "POST", CHAT, '{"a": [' + "0," * 300000 + "0]}", 400, "json_too_large"),
    ("a huge number", "POST", CHAT, '{"max_tokens": 1e999, "messages": []}', 400, "invalid_json"),
    ("no messages", "POST", CHAT, {"model": "x"}, 400, "messages"),
    ("empty messages", "POST", CHAT, {"messages": []}, 400, "messages"),
    ("messages that are none", "POST", CHAT, {"messages": "hi"}, 400, "messages"),
    ("a message that is none", "POST", CHAT, {"messages": [1]}, 400, "messages"),
    ("an unknown role", "POST", CHAT, {"messages": [{"role": "god", "content": "x"}]}, 400, "role"),
    ("content that is none", "POST", CHAT, {"messages": [{"role": "user", "content": 5}]}, 400, "content"),
    ("an unknown part", "POST", CHAT, {"messages": [{"role": "user", "content": [{"type": "smell"}]}]}, 400, "type"),
    ("temperature too high", "POST", CHAT, chat(temperature=3), 400, "temperature"),
    ("temperature as text", "POST", CHAT, chat(temperature="hot"), 400, "temperature"),
    ("top_p out of range", "POST", CHAT, chat(top_p=1.5), 400, "top_p"),
    ("max_tokens 0", "POST", CHAT, chat(max_tokens=0), 400, "max_tokens"),
    ("max_tokens with a fraction", "POST", CHAT, chat(max_tokens=1.5), 400, "max_tokens"),
    ("n too large", "POST", CHAT, chat(n=1000), 400, '"n is 1000: 1 to 16 are possible"'),
    ("n too small", "POST", CHAT, chat(n=0), 400, '"n is 0: 1 to 16 are possible"'),
    ("n below nothing", "POST", "/v1/completions", {"prompt": ["a", "b"], "n": -1}, 400, '"n is -1: 1 to 16 are possible"'),
    ("too many for two prompts", "POST", "/v1/completions", {"prompt": ["a", "b"], "n": 9}, 400, "n is 9 for 2 prompts: 16 answers"),
    ("the largest seed", "POST", CHAT, chat(seed=2**64 - 1), 200, "choices"),
    ("a seed beyond", "POST", CHAT, chat(seed=2**64), 400, "up to 18446744073709551615"),
    ("a seed that is none", "POST", CHAT, chat(seed="x"), 400, "seed"),
    ("stop that is none", "POST", CHAT, chat(stop=[1]), 400, "stop"),
    ("too many stops", "POST", CHAT, chat(stop=["x"] * 65), 400, "stop"),
    ("a bias for no token", "POST", CHAT, chat(logit_bias={"99999999": 1}), 400, "logit_bias"),
    ("a bias too strong", "POST", CHAT, chat(logit_bias={"5": 1000}), 400, "logit_bias"),
    ("top_logprobs alone", "POST", CHAT, chat(top_logprobs=2), 400, "top_logprobs"),
    ("too many top_logprobs", "POST", CHAT, chat(logprobs=True, top_logprobs=21), 400, "top_logprobs"),
    ("a schema", "POST", CHAT, chat(response_format={"type": "json_schema", "json_schema": {}}), 400, "json_schema"),
    ("an unknown format", "POST", CHAT, chat(response_format={"type": "xml"}), 400, "response_format"),
    ("a tool without a name", "POST", CHAT, chat(tools=[{"type": "function", "function": {}}]), 400, "tools"),
    ("tools that are none", "POST", CHAT, chat(tools={}), 400, "tools"),
    ("a tool that is not there", "POST", CHAT,
     chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}}), 400, "tool_choice"),
    ("required without tools", "POST", CHAT, chat(tool_choice="required"), 400, "tool_choice"),
    ("an unknown tool_choice", "POST", CHAT, chat(tools=[TOOL], tool_choice="perhaps"), 400, "tool_choice"),
    ("diffusion that is none", "POST", CHAT, chat(diffusion=3), 400, "diffusion"),
    ("steps 0", "POST", CHAT, chat(diffusion={"steps": 0}), 400, "diffusion.steps"),
    ("a canvas too long", "POST", CHAT, chat(diffusion={"canvas_length": 100000}), 400, "canvas_length"),
    ("temperatures upside down", "POST", CHAT, chat(diffusion={"t_min": 2, "t_max": 1}), 400, "t_min"),
    ("a file for a picture", "POST", CHAT, chat(messages=picture("file:///etc/passwd")), 400, "data URL"),
    ("a path for a picture", "POST", CHAT, chat(messages=picture("/etc/passwd")), 400, "data URL"),
    ("a link for a picture", "POST", CHAT, chat(messages=picture("http://127.0.0.1/x.png")), 400, "data URL"),
    ("a picture that is none", "POST", CHAT, chat(messages=picture("data:image/png;base64,AAAA")), 400, "error"),
    ("a picture that is no base64", "POST", CHAT, chat(messages=picture("data:image/png;base64,?")), 400, "base64"),
    ("too many pictures", "POST", CHAT,
     chat(messages=[{"role": "user", "content": [{"type": "image"}] * 17}]), 400, "too_many_images"),
    ("a prompt past the context", "POST", CHAT,
     chat(messages=[{"role": "user", "content": "ab" * 300000}]), 400, "context_length_exceeded"),
    ("a last message to go on from that is none", "POST", CHAT, chat(continue_final_message=True), 400, "assistant"),
    ("unknown fields", "POST", CHAT, chat(user="me", store=True, prediction=None, frobnicate={"a": 1}), 200, "choices"),
    ("null fields", "POST", CHAT, chat(temperature=None, stop=None, tools=None, tool_choice=None), 200, "choices"),
    ("penalties", "POST", CHAT, chat(frequency_penalty=1, presence_penalty=1), 200, "choices"),
    ("any model's name", "POST", CHAT, chat(model="gpt-4o"), 200, '"test"'),
    ("max_tokens without a bound", "POST", CHAT, chat(max_tokens=-1, diffusion={"steps": 1}, stop=["a", "e", "i", "o", "u"]), 200, "usage"),
    ("tokens", "POST", "/tokenize", {"content": "ab"}, 200, "tokens"),
    ("tokens of nothing", "POST", "/tokenize", {}, 400, "content"),
    ("text of tokens", "POST", "/detokenize", {"tokens": [20, 21]}, 200, "content"),
    ("text of no tokens", "POST", "/detokenize", {"tokens": [-1]}, 400, "tokens"),
    ("completions", "POST", "/v1/completions", {"prompt": "ab", "max_tokens": 4}, 200, "text_completion"),
    ("completions of ids", "POST", "/v1/completions", {"prompt": [[2, 20], [2, 21]], "max_tokens": 4}, 200, '"index":1'),
    ("completions of nothing", "POST", "/v1/completions", {}, 400, "prompt"),
    ("completions of bad ids", "POST", "/v1/completions", {"prompt": [2, 99999999]}, 400, "prompt"),
    ("completions with an echo", "POST", "/v1/completions", {"prompt": "x", "echo": True}, 400, "echo"),
]


def status_table():
    with Server("-q") as s:
        for name, method, path, body, want, word in STATUS:
            status, headers, data = s.request(method, path, body)
            check(name, status == want and word.encode() in data, f"{status} {data[:300]}")
            if status >= 400:
                error = json.loads(data)["error"]
                check(name + ": an error object", set(error) == {"message", "type", "param", "code"}, error)
                check(name + ": no use in trying again", headers.get("x-should-retry") == "false", headers)
        for method, path, allowed in (("GET", CHAT, "POST, OPTIONS"), ("POST", "/health", "GET, HEAD, OPTIONS")):
            status, headers, _ = s.request(method, path, "{}" if method == "POST" else None)
            check("what goes with a path is named", status == 405 and headers.get("allow") == allowed, headers)
        for encoding, want in (("gzip", 415), ("identity", 200), ("gzip, identity", 415)):
            status, _, data = s.request("POST", CHAT, chat(), {"Content-Encoding": encoding})
            check(f"a body in {encoding}", status == want, data)
        check("the server lived through it", s.request("GET", "/health")[0] == 200)


def without_tokenizer():
    with Server("-q", model="tests/fixtures/golden/text/model") as s:
        status, answer = s.json("POST", CHAT, chat())
        message = answer["error"]["message"]
        check("a model without a tokenizer says so, and not where it is", status == 400 and "no tokenizer" in message
              and "/" not in message, answer)


def large_things():
    with Server("-q", "--max-body", "1") as s:
        c = s.connect()
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        try:
            for _ in range(16):
                c.sendall(b"a" * 65536)
            c.sendall(b"\r\n\r\n")
        except OSError:
            pass
        check("headers of 1 MB", status_of(read_all(c)) in (431, 413))
        c = s.connect()
        try:
            c.sendall(b"GET /" + b"a" * 200000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        except OSError:
            pass
        check("a path of 200 kB", status_of(read_all(c)) in (414, 431))
        c = s.connect()
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n")
        check("100 MB announced", status_of(c.recv(65536)) == 413)
        c.close()
        c = s.connect()
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n")
        check("far more announced in a chunk", status_of(c.recv(65536)) == 413)
        c.close()
        c = s.connect()
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        piece = b"100000\r\n" + b"a" * 0x100000 + b"\r\n"
        try:
            for _ in range(100):
                c.sendall(piece)
            c.sendall(b"0\r\n\r\n")
        except OSError:
            pass
        check("100 MB in chunks", status_of(read_all(c)) == 413)
        check("without keeping them", s.rss() < 200 << 20 or SLOW > 1, s.rss())
        status, _, _ = s.request("POST", CHAT, b"x" * (2 << 20))
        check("2 MB at once", status == 413, status)
        status, _, _ = s.request("POST", "/nowhere", b"x" * (1 << 20))
        check("1 MB to nowhere", status == 404, status)
        c = s.connect()
        c.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n"
                  b"Expect: 100-continue\r\n\r\n")
        check("2 MB, asking first", status_of(read_all(c)) == 413)
        check("others are served", s.request("GET", "/health")[0] == 200)
    with Server("-q") as s:
        for name, n, fields in (("tokens", 1 << 20, {}), ("pieces", 1 << 17, {"with_pieces": True})):
            text = "\u0378" * n  # at least a token each
            status, data = s.json("POST", "/tokenize", {"content": text, **fields})
            check(f"too many {name}", status == 400 and data["error"]["code"] == "too_many_tokens", data.get("error"))


def aborts():
    with Server("-q") as s:
        s.chat()
        files = s.files()
        for name, fields in (("whole", {"stream": False}), ("stream", {})):
            before = s.metric('vllm:request_success_total{finished_reason="abort"}')
            c = s.open_stream(**{**ENDLESS, **fields})
            check(f"it runs ({name})", s.wait_metric("vllm:num_requests_running", lambda n: n == 1))
            c.close()
            check(f"a client that leaves ends its answer ({name})",
                  s.wait_metric('vllm:request_success_total{finished_reason="abort"}', lambda n: n == before + 1))
        for i in range(50):
            c = s.open_stream(**ENDLESS)
            if i % 2:
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset, not close
            c.close()
        check("fifty who leave at once", s.wait_active(0))
        check("an answer after them", s.chat()[0] == 200)
        check("no connection is left", s.wait_metric("dgemma:connections", lambda n: n == 1))
        check("no file is left open", s.files() <= files + 1, f"{files} {s.files()}")


def dawdlers():
    with Server("-q", "--receive-timeout", "2", "--idle-timeout", "3600") as s:
        half = s.connect()
        half.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Le")
        body = s.connect()
        body.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        until = time.time() + PATIENCE
        for c, name in ((half, "half a header"), (body, "half a body")):
            got, is_open = b"", True
            while is_open and time.time() < until:
                try:
                    ready, _, _ = select.select([c], [], [], 0.2)
                    piece = c.recv(4096) if ready else None
                    got += piece or b""
                    is_open = piece != b""
                    c.sendall(b" ")  # a byte now and then does not help
                except OSError:
                    is_open = False
            check(f"{name} is not waited for", not is_open)
            check(f"{name}: and is told", got.startswith(b"HTTP/1.1 408 ") and b"request_timeout" in got, got)
        check("others are served", s.request("GET", "/health")[0] == 200)


def slow_reader():
    with Server("-q") as s:
        c = s.connect()
        c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        c.close()
        slow = [s.open_stream(max_tokens=16, diffusion={"steps": 2000 // SLOW ** 2, "stability_threshold": 100000, "drafts": True})
                for _ in range(2)]
        start = s.rss()
        ended = s.wait_metric("vllm:request_success_total", lambda n: n >= 2)
        check("an answer that nobody reads ends all the same", ended)
        check("without filling memory", s.rss() - start < 64 << 20 or SLOW > 1, s.rss() - start)
        check("others are served", s.chat()[0] == 200)
        data = read_all(slow[0])
        check("it can still be read", b"[DONE]" in data)
        drafts = [e for e in events(data)[0] if "diffusion" in e]
        check("drafts say what they should", drafts and set(drafts[0]["diffusion"]) >= {"pieces", "entropy", "accepted"})
        check("a client that knows no drafts survives them",
              all(e["choices"][0]["delta"] == {} for e in drafts))
        for c in slow:
            c.close()


def crowd():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n = min(3000, hard - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n + 200), hard))
    with Server("-q", "--max-connections", "512", "--idle-timeout", "3600") as s:
        idle = []
        for _ in range(n):
            try:
                idle.append(s.connect())
            except OSError:
                pass
        check("thousands may connect", len(idle) > 2000, len(idle))
        worst = 0
        for _ in range(20):
            start = time.time()
            status = s.request("GET", "/health")[0]
            worst = max(worst, time.time() - start)
            check("health among idle connections", status == 200)
        check("in time", worst < 20 * SLOW, worst)
        check("an answer among them", s.chat()[0] == 200)
        for c in idle:
            c.close()
        check("nothing stays", s.wait_metric("dgemma:connections", lambda k: k <= 2))


def has_read(s, c):
    """Whether the server has taken this connection and all that was sent on it, as the kernel sees it."""
    ends, sent, read = (f":{c.getsockname()[1]:04X}", f":{s.port:04X}"), False, False
    with open("/proc/net/tcp", encoding="ascii") as f:
        for _, local, remote, _, queues, _, _, _, _, inode, *_ in map(str.split, f.readlines()[1:]):
            if (local[-5:], remote[-5:]) == ends:
                sent = queues.startswith("00000000:")
            elif (remote[-5:], local[-5:]) == ends:
                read = queues.endswith(":00000000") and inode != "0"
    return sent and read


def full():
    """Nobody is sent away while there is room; then who says nothing goes first."""
    def begin(s, said=b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17\r\n\r\n{"):
        c = s.connect()
        c.sendall(said)
        check("what is begun is read", wait_until(lambda: has_read(s, c)))
        return c

    def end(c):
        try:
            c.sendall(b'"content": "hi"}')
            return c.recv(4096)
        except OSError as e:
            return repr(e).encode()

    with Server("-q", "--max-connections", "8") as s:
        quiet = begin(s, b"")
        busy = [begin(s) for _ in range(7)]
        check("eight of eight", not select.select([quiet, *busy], [], [], 0.5)[0])
        busy.append(begin(s))
        check("then the idle one goes", quiet.recv(10) == b"")
        check("and nobody else", not select.select(busy, [], [], 0.5)[0])
        late = begin(s)
        first = busy.pop(0)
        check("or the oldest, which is told", b"too_many_connections" in first.recv(4096))
        for c in (*busy, late):
            got = end(c)
            check("the others are answered", b" 200 " in got, got)
        for c in (first, quiet, late, *busy):
            c.close()


def keys():
    with tempfile.NamedTemporaryFile("w") as f:
        f.write("# keys\nfrom-file\n")
        f.flush()
        with Server("-q", "--api-key", "first", "--api-key", "second", "--api-key-file", f.name) as s:
            for name, headers, want in (
                    ("no key", {}, 401), ("a wrong key", {"Authorization": "Bearer nope"}, 401),
                    ("a beginning", {"Authorization": "Bearer firs"}, 401),
                    ("a longer one", {"Authorization": "Bearer firstfirst"}, 401),
                    ("an empty one", {"Authorization": "Bearer "}, 401),
                    ("another scheme", {"Authorization": "Basic first"}, 401),
                    ("a comment", {"Authorization": "Bearer # keys"}, 401),
                    ("the first", {"Authorization": "Bearer first"}, 200),
                    ("the second", {"Authorization": "bearer second"}, 200),
                    ("from a file", {"X-Api-Key": "from-file"}, 200)):
                status, _, data = s.request("GET", "/v1/models", None, headers)
                check("keys: " + name, status == want, data)
                check("keys: chat, " + name, s.chat(headers=headers)[0] == want)
            check("health needs none", s.request("GET", "/health")[0] == 200)
            check("metrics need one", s.request("GET", "/metrics")[0] == 401)
            check("nothing is told without one", s.request("GET", "/nowhere")[0] == 401)
    with tempfile.NamedTemporaryFile("w") as empty, tempfile.NamedTemporaryFile("w") as comment:
        comment.write("# none yet\n")
        comment.flush()
        with tempfile.NamedTemporaryFile("w") as spaces:
            spaces.write("good\nbad \n")
            spaces.flush()
            refused = subprocess.run([os.environ["DGEMMA"], "serve", "-m", Server.model, "--port", "0", "--api-key-file",
                                      spaces.name], capture_output=True, timeout=PATIENCE)
            check("a key with a space is a mistake", refused.returncode == 2 and b"space" in refused.stderr, refused)
        for name, args in (("an empty file of keys", ["--api-key-file", empty.name]),
                           ("a file of keys without one", ["--api-key-file", comment.name]),
                           ("empty files for TLS", ["--tls-cert", empty.name, "--tls-key", empty.name])):
            refused = subprocess.run([os.environ["DGEMMA"], "serve", "-m", Server.model, "--port", "0", *args],
                                     capture_output=True, timeout=PATIENCE)
            check(name + " does not open the server to all", refused.returncode == 2 and not refused.stdout,
                  f"{refused.returncode} {refused.stderr}")


def origins():
    site = {"Origin": "https://app.example"}
    with Server("-q") as s:
        status, headers, _ = s.request("GET", "/v1/models")
        check("no CORS headers by default", status == 200 and not any("access-control" in h for h in headers))
        check("pages of others are refused", s.request("GET", "/v1/models", None, site)[0] == 403)
        trick = {"Host": f"evil.example:{s.port}", "Origin": f"http://evil.example:{s.port}"}
        for name, headers in (("by its own page", trick), ("without saying who asks", {"Host": trick["Host"]})):
            status, _, data = s.request("GET", "/v1/models", None, headers)
            check("a name that was made to lead here, " + name, status == 403 and b"host_not_allowed" in data, data)
        check("is no matter for its health", s.request("GET", "/health", None, {"Host": trick["Host"]})[0] == 200)
        own = {"Origin": f"http://127.0.0.1:{s.port}"}
        check("the server's own page is not", s.request("GET", "/v1/models", None, own)[0] == 200)
    with Server("-q", "--cors-origin", "https://app.example", "--api-key", "k") as s:
        wish = {**site, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-stainless-os"}
        status, headers, _ = s.request("OPTIONS", CHAT, None, wish)
        check("a page asks first", status == 204 and headers["access-control-allow-origin"] == "https://app.example"
              and headers["access-control-allow-headers"] == "x-stainless-os", headers)
        status, headers, _ = s.request("GET", "/v1/models", None, {**site, "Authorization": "Bearer k"})
        check("and may then read", status == 200 and headers["access-control-allow-origin"] == "https://app.example")
        check("with a key any name will do", s.request("GET", "/v1/models", None, {"Host": "x", "Authorization": "Bearer k"})[0] == 200)
        check("others still may not", s.request("GET", "/v1/models", None, {"Origin": "https://evil.example"})[0] == 403)
    with Server("-q", "--cors-origin", "https://app.example") as s:
        check("a site that was named leads here", s.request("GET", "/v1/models", None, {"Host": "app.example"})[0] == 200)


def tls():
    import ssl
    with tempfile.TemporaryDirectory() as d:
        made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                               "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", d + "/key", "-out",
                               d + "/cert"], capture_output=True) if have_openssl() else None
        if not made or made.returncode:
            skip("TLS", "there is no openssl to make a certificate with")
            return
        with Server("-q", "--tls-cert", d + "/cert", "--tls-key", d + "/key") as s:
            import http.client
            context = ssl.create_default_context(cafile=d + "/cert")
            c = http.client.HTTPSConnection("127.0.0.1", s.port, context=context, timeout=PATIENCE)
            c.request("POST", CHAT, json.dumps(chat(stream=True)))
            r = c.getresponse()
            data = r.read()
            check("a stream over TLS", r.status == 200 and b"[DONE]" in data, data)
            plain = s.connect()
            plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            check("nothing without TLS", b"200 OK" not in read_all(plain))
        broken = subprocess.run([os.environ["DGEMMA"], "serve", "-m", "tests/fixtures/golden/sampler_finishes/model",
                                 "--port", "0", "--tls-cert", d + "/cert"], capture_output=True, timeout=PATIENCE)
        check("half of TLS is a mistake", broken.returncode == 2 and b"certificate and its key" in broken.stderr)


def six():
    try:
        socket.socket(socket.AF_INET6).bind(("::1", 0))
    except OSError:
        skip("IPv6", "this machine has none")
        return
    p = subprocess.Popen([os.environ["DGEMMA"], "serve", "-q", "-m", Server.model, "--port", "0", "--host", "::1"],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    line = p.stdout.readline().decode().strip()
    check("an address of IPv6 is printed as in a link", line.startswith("listening on http://[::1]:"), line)
    c = socket.create_connection(("::1", int(line.rsplit(":", 1)[1])), 30)
    c.sendall(b"GET /v1/models HTTP/1.1\r\nHost: [::1]:1\r\n\r\n")
    check("and answers", status_of(read_all(c)) == 200)
    c.close()
    p.send_signal(signal.SIGTERM)
    check("and ends", p.wait(20 * SLOW) == 0)


def have_openssl():
    return subprocess.run(["sh", "-c", "command -v openssl"], capture_output=True).returncode == 0


def limits():
    with Server("-q", "--max-active", "2") as s:
        held = [s.open_stream(**ENDLESS) for _ in range(2)]
        check("two run", s.wait_metric("vllm:num_requests_running", lambda n: n == 2))
        status, headers, data = s.request("POST", CHAT, chat())
        check("the third is told to come back", status == 429 and headers.get("retry-after") == "1", data)
        for c in held:
            c.close()
        check("there is room again", s.wait_active(0))
        check("and an answer", s.chat()[0] == 200)
    with Server("-q", "--max-active", "1") as s:
        short = {"max_tokens": 1, "diffusion": {"steps": 1}}
        check("whoever has an answer may ask again at once", all(s.chat(**short)[0] == 200 for _ in range(200)))
        check("also after a stream", all(status_of(read_all(s.open_stream(**short))) == 200 for _ in range(200)))
    with Server("-q", "--timeout", "1") as s:
        status, body = s.chat(**ENDLESS)
        check("an answer that takes too long", status == 408 and body["error"]["code"] == "answer_timeout", body)
        for _ in range(5):  # if all of its time goes by before it begins, no stream does
            data = read_all(s.open_stream(**ENDLESS))
            if status_of(data) == 200:
                break
        found, _ = events(data)
        check("also in a stream", found[-1]["error"]["code"] == "answer_timeout", data[-300:])
    with Server("-q", "--ping", "1") as s:
        c = s.open_stream(**ENDLESS)
        data = b""
        while b": ping" not in data and len(data) < 10000:
            data += c.recv(1000)
        check("a silent stream says that it is alive", b": ping" in data)
        c.close()


def logs():
    with Server() as s:
        s.chat("SECRETWORD")
        s.request("GET", "/nowhere%0aFORGED")
        check("a line for each request", wait_until(lambda: "POST /v1/chat/completions 200" in s.output() and " 404 " in s.output()), s.output())
        log = s.output()
        check("without the prompt", "SECRETWORD" not in log)
        check("lines cannot be forged", "\nFORGED" not in log, log)
    with Server("--log-prompts") as s:
        s.chat("SECRETWORD")
        check("unless asked", wait_until(lambda: "SECRETWORD" in s.output()))


def stalled_log():
    """Whoever reads the log has stopped: it fills up, and nothing else changes."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 16384)
    s = Server(log=os.fdopen(writing, "wb"))
    c = s.connect()
    answered = 0
    for _ in range(1000):
        c.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered += status_of(read_all(c)) == 200
    c.close()
    check("a log that nobody reads stops nobody", answered == 1000, answered)
    check("nor an answer", s.chat()[0] == 200)
    dropped = s.metric("dgemma:log_lines_dropped_total")
    check("what did not fit is counted", 100 <= dropped <= 1000, dropped)
    os.set_blocking(reading, False)
    seen = b""
    until = time.time() + 20 * SLOW
    # A line is dropped when its request ends, which can be after the next one was answered: count again.
    while time.time() < until and seen.count(b"\n") < 1001 - (dropped := s.metric("dgemma:log_lines_dropped_total")):
        try:
            seen += os.read(reading, 65536)
        except BlockingIOError:
            time.sleep(0.05)
    check("what did fit is there when it is read again", seen.count(b"\n") >= 1001 - dropped, (seen.count(b"\n"), dropped))
    check("in whole lines", all(b" GET /health 200 " in line or b" POST " in line or b" GET /metrics " in line
                                for line in seen.splitlines()), seen[:300])
    for _ in range(700):  # it is full again
        s.request("GET", "/health")
    start = time.time()
    s.process.send_signal(signal.SIGTERM)
    check("it ends all the same", s.process.wait(20 * SLOW) == 0 and time.time() - start < 10 * SLOW)
    s.log.close()
    os.close(reading)


run([status_table, without_tokenizer, large_things, aborts, dawdlers, slow_reader, crowd, full, keys, origins, tls, six, limits, logs, stalled_log])
finish()
