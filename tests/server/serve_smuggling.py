"""Heads and bodies that two readers could take for two different requests: each gets one answer, 400, and a closed
connection, and nothing behind it is answered. Then the same server behind proxies that people put in front of it."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

from serving import PATIENCE, SLOW, Server, check, finish, read_all, run, skip, status_of, wait_until

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "seed": 1, "diffusion": {"steps": 1}}'
LENGTH = str(len(BODY)).encode()
INNER = b"GET /v1/models/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


def post(*headers, body=BODY):
    return CHAT + b"".join(h + b"\r\n" for h in headers) + b"\r\n" + body


def get(*lines, first=b"GET /health HTTP/1.1"):
    return b"\r\n".join((first,) + lines) + b"\r\n\r\n"


def chunked(wire):
    return post(b"Transfer-Encoding: chunked", body=wire)


HOST = b"Host: localhost"
WHOLE = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)

BAD = [
    # where the body ends
    ("a length and chunks", post(b"Content-Length: " + LENGTH, b"Transfer-Encoding: chunked", body=WHOLE)),
    ("chunks and a length", post(b"Transfer-Encoding: chunked", b"Content-Length: " + LENGTH, body=WHOLE)),
    ("two lengths", post(b"Content-Length: " + LENGTH, b"Content-Length: 3")),
    ("two lengths that agree", post(b"Content-Length: " + LENGTH, b"Content-Length: " + LENGTH)),
    ("a list of lengths", post(b"Content-Length: " + LENGTH + b", " + LENGTH)),
    ("a list of other lengths", post(b"Content-Length: 3, " + LENGTH)),
    ("a negative length", post(b"Content-Length: -1")),
    ("a length with a sign", post(b"Content-Length: +" + LENGTH)),
    ("a length in hexadecimal", post(b"Content-Length: 0x10")),
    ("a length with a fraction", post(b"Content-Length: 10.0")),
    ("a length of two words", post(b"Content-Length: 1 0")),
    ("an empty length", post(b"Content-Length:")),
    ("a length that overflows", post(b"Content-Length: 18446744073709551617")),
    ("a length of a hundred digits", post(b"Content-Length: " + b"9" * 100)),
    ("a length with a space before its colon", post(b"Content-Length : " + LENGTH)),
    ("a length with a tab before its colon", post(b"Content-Length\t: " + LENGTH)),
    ("an encoding with a space before its colon", post(b"Transfer-Encoding : chunked", body=WHOLE)),
    ("an encoding that is unknown", post(b"Transfer-Encoding: xchunked", body=WHOLE)),
    ("an encoding of two", post(b"Transfer-Encoding: gzip, chunked", body=WHOLE)),
    ("chunked twice in one", post(b"Transfer-Encoding: chunked, chunked", body=WHOLE)),
    ("chunked in two headers", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=WHOLE)),
    ("identity", post(b"Transfer-Encoding: identity", body=WHOLE)),
    ("chunked and something", post(b"Transfer-Encoding: chunked;q=1", body=WHOLE)),
    ("chunked in quotes", post(b'Transfer-Encoding: "chunked"', body=WHOLE)),
    ("a vertical tab before chunked", post(b"Transfer-Encoding: \x0bchunked", body=WHOLE)),
    ("an empty encoding", post(b"Transfer-Encoding:", body=WHOLE)),
    ("chunks in HTTP/1.0", get(HOST, b"Transfer-Encoding: chunked", first=b"POST /tokenize HTTP/1.0") + WHOLE),
    # lines
    ("a header that goes on", get(HOST, b"X-A: b", b" c")),
    ("a header that goes on after a tab", get(HOST, b"X-A: b", b"\tc")),
    ("an encoding that goes on", post(b"Transfer-Encoding:", b" chunked", body=WHOLE)),
    ("a line that begins with a space", get(b" " + HOST)),
    ("a bare CR in a header", get(HOST, b"X-A: b\rTransfer-Encoding: chunked")),
    ("a bare CR in the first line", get(HOST, first=b"GET /health\r HTTP/1.1")),
    ("CR CR LF", get(HOST + b"\r", b"X-A: b")),
    ("lines that end with LF", b"GET /health HTTP/1.1\nHost: localhost\n\n"),
    ("one line that ends with LF", b"GET /health HTTP/1.1\r\nHost: localhost\nX-A: b\r\n\r\n"),
    ("a head that ends with LF", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\n"),
    ("NUL in a value", get(HOST, b"X-A: b\0c")),
    ("NUL in a name", get(HOST, b"X\0A: b")),
    ("NUL in the target", get(HOST, first=b"GET /hea\0lth HTTP/1.1")),
    ("a control in a value", get(HOST, b"X-A: b\x01c")),
    ("DEL in a value", get(HOST, b"X-A: b\x7fc")),
    ("no colon", get(HOST, b"X-A")),
    ("no name", get(HOST, b": b")),
    ("a space in a name", get(HOST, b"X A: b")),
    ("a name that is not ASCII", get(HOST, b"X-\xe4: b")),
    ("a name in brackets", get(HOST, b"X(A): b")),
    ("empty lines", b"\r\n\r\n\r\n" + get(HOST)),
    # who is asked
    ("two hosts", get(HOST, b"Host: other")),
    ("the same host twice", get(HOST, HOST)),
    ("no host", get(b"X-A: b")),
    ("a host that is none", get(b"Host: local host")),
    ("a list of hosts", get(b"Host: localhost, other")),
    ("a host with a path", get(b"Host: localhost/x")),
    ("a host with a user", get(b"Host: a@localhost")),
    ("two keys", get(HOST, b"Authorization: Bearer a", b"Authorization: Bearer b")),
    ("two origins", get(HOST, b"Origin: http://a", b"Origin: http://b")),
    # the first line
    ("two spaces", get(HOST, first=b"GET  /health HTTP/1.1")),
    ("a tab", get(HOST, first=b"GET\t/health HTTP/1.1")),
    ("a space behind it", get(HOST, first=b"GET /health HTTP/1.1 ")),
    ("a space in the target", get(HOST, first=b"GET /he alth HTTP/1.1")),
    ("no version", get(HOST, first=b"GET /health")),
    ("only a method", get(HOST, first=b"GET")),
    ("another protocol", get(HOST, first=b"GET /health HTCPCP/1.0")),
    ("a version of two digits", get(HOST, first=b"GET /health HTTP/1.10")),
    ("a version in small letters", get(HOST, first=b"GET /health http/1.1")),
    ("a method that is none", get(HOST, first=b"G(T /health HTTP/1.1")),
    ("a target that is no path", get(HOST, first=b"GET health HTTP/1.1")),
    ("a fragment", get(HOST, first=b"GET /health#x HTTP/1.1")),
    ("a target of bytes", get(HOST, first=b"GET /\xff HTTP/1.1")),
    ("an escape that is none", get(HOST, first=b"GET /%zz HTTP/1.1")),
    ("an escaped NUL", get(HOST, first=b"GET /health%00 HTTP/1.1")),
    ("an authority for a target", get(HOST, first=b"CONNECT localhost:80 HTTP/1.1")),
    ("a whole target without a host", get(HOST, first=b"GET http:///health HTTP/1.1")),
    ("a whole target with a user", get(HOST, first=b"GET http://a@localhost/health HTTP/1.1")),
    ("a star for a path", get(HOST, first=b"GET * HTTP/1.1")),
    # chunks
    ("a chunk's size that is none", chunked(b"xyz\r\n" + BODY + b"\r\n0\r\n\r\n")),
    ("an empty size", chunked(b"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    ("a size with a sign", chunked(b"+5\r\nhello\r\n0\r\n\r\n")),
    ("a negative size", chunked(b"-5\r\nhello\r\n0\r\n\r\n")),
    ("a size with 0x", chunked(b"0x5\r\nhello\r\n0\r\n\r\n")),
    ("a space before a size", chunked(b" 5\r\nhello\r\n0\r\n\r\n")),
    ("a space behind a size", chunked(b"5 \r\nhello\r\n0\r\n\r\n")),
    ("a size that overflows", chunked(b"10000000000000005\r\nhello\r\n0\r\n\r\n")),
    ("a size with many zeros", chunked(b"0" * 100 + b"5\r\nhello\r\n0\r\n\r\n")),
    ("a size that ends with LF", chunked(b"5\nhello\r\n0\r\n\r\n")),
    ("a size that ends with CR", chunked(b"5\rhello\r\n0\r\n\r\n")),
    ("a chunk longer than it says", chunked(b"5\r\nhello!\r\n0\r\n\r\n")),
    ("a chunk that ends with LF", chunked(b"5\r\nhello\n0\r\n\r\n")),
    ("an extension with a LF", chunked(b"5;a\nb\r\nhello\r\n0\r\n\r\n")),
    ("an extension with a bare CR", chunked(b"5;a\rb\r\nhello\r\n0\r\n\r\n")),
    ("an extension with a NUL", chunked(b"5;a\0b\r\nhello\r\n0\r\n\r\n")),
    ("an extension with an open quote", chunked(b'5;a="b\r\nhello\r\n0\r\n\r\n')),
    ("an extension with a byte that is no text", chunked(b"5;a=\xff\r\nhello\r\n0\r\n\r\n")),
    ("an extension without a name", chunked(b"5;\r\nhello\r\n0\r\n\r\n")),
    ("an extension without end", chunked(b"5;" + b"a" * 100000 + b"\r\nhello\r\n0\r\n\r\n")),
    ("a trailer that is none", chunked(b"0\r\nno colon\r\n\r\n")),
    ("a trailer without a name", chunked(b"0\r\n: a\r\n\r\n")),
    ("a trailer that goes on", chunked(b"0\r\nX-A: b\r\n c\r\n\r\n")),
    ("a trailer that ends with LF", chunked(b"0\r\nX-A: b\n\r\n")),
    ("trailers without end", chunked(b"0\r\n" + b"X-A: b\r\n" * 10000 + b"\r\n")),
]

# A request in the body of another, for who reads the head of that in another way. A proxy may pass the outer one on.
NESTED = b"GET /v1/models/hidden HTTP/1.1\r\nHost: localhost\r\n\r\n"
ENDED = b"0\r\n\r\n" + NESTED


def sized(data):
    return b"Content-Length: %d" % len(data)


HIDDEN = [(name, post(*headers, body=body)) for name, headers, body in (
    ("behind the last chunk", (sized(ENDED), b"Transfer-Encoding: chunked"), ENDED),
    ("in a chunk", (b"Content-Length: 4", b"Transfer-Encoding: chunked"),
     b"%x\r\n%s\r\n0\r\n\r\n" % (len(NESTED), NESTED)),
    ("the longer length first", (sized(NESTED), b"Content-Length: 0"), NESTED),
    ("the longer length last", (b"Content-Length: 0", sized(NESTED)), NESTED),
    ("a list of lengths", (b"Content-Length: 0, %d" % len(NESTED),), NESTED),
    ("a sign", (b"Content-Length: +%d" % len(NESTED),), NESTED),
    ("a name with a space", (sized(ENDED), b"Transfer-Encoding : chunked"), ENDED),
    ("a length's name with a space", (b"Content-Length : %d" % len(NESTED),), NESTED),
    ("xchunked", (sized(ENDED), b"Transfer-Encoding: xchunked"), ENDED),
    ("chunked, identity", (sized(ENDED), b"Transfer-Encoding: chunked, identity"), ENDED),
    ("a line that goes on", (sized(ENDED), b"Transfer-Encoding:", b" chunked"), ENDED),
    ("a name that goes on", (sized(ENDED), b"X-A: b", b" Transfer-Encoding: chunked"), ENDED),
    ("a vertical tab", (sized(ENDED), b"Transfer-Encoding:\x0bchunked"), ENDED),
    ("a bare CR", (sized(ENDED), b"X-A: b\rTransfer-Encoding: chunked"), ENDED),
    ("a bare LF", (sized(ENDED), b"X-A: b\nTransfer-Encoding: chunked"), ENDED),
    ("an extension with a LF", (b"Transfer-Encoding: chunked",), b"2;\nxx\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(NESTED), NESTED)),
    ("a size with a LF", (b"Transfer-Encoding: chunked",), b"%x\n%s\r\n0\r\n\r\n" % (len(NESTED), NESTED)),
    ("a size that overflows", (b"Transfer-Encoding: chunked",), b"100000000000000000\r\n\r\n" + NESTED),
    ("a trailer", (b"Transfer-Encoding: chunked",), b"0\r\nContent-Length: 99\r\n" + NESTED[:-2] + b"\r\n"),
)]

OTHER = [
    ("a version that will come", get(HOST, first=b"GET /health HTTP/2.0"), 505),
    ("a version that was", get(HOST, first=b"GET /health HTTP/0.9"), 505),
    ("HTTP/2 without asking", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    ("an expectation that is none", post(b"Content-Length: " + LENGTH, b"Expect: tea"), 417),
    ("too many headers", get(HOST, *[b"X-%d: a" % i for i in range(200)]), 431),
    ("a long header", get(HOST, b"X-A: " + b"a" * 70000), 431),
    ("a long target", get(HOST, first=b"GET /" + b"a" * 70000 + b" HTTP/1.1"), 414),
]

# name, bytes, status, and how many requests that is
GOOD = [
    ("plain", get(HOST), [200]),
    ("spaces around a value", get(b"Host: \t localhost \t "), [200]),
    ("no space in front of one", get(b"Host:localhost", b"X-Empty:"), [200]),
    ("an empty line in front", b"\r\n" + get(HOST), [200]),
    ("a whole target", get(b"Host: other", first=b"GET http://localhost/health?x=1 HTTP/1.1"), [200]),
    ("a whole target without a path", get(b"Host: other", first=b"GET http://localhost HTTP/1.1"), [200]),
    ("a whole target with a query alone", get(HOST, first=b"GET https://localhost?a=/b HTTP/1.1"), [200]),
    ("a path with escapes", get(HOST, first=b"GET /%68ealth HTTP/1.1"), [200]),
    ("a star", get(HOST, first=b"OPTIONS * HTTP/1.1"), [204]),
    ("HTTP/1.0", get(first=b"GET /health HTTP/1.0"), [200]),
    ("two in one packet", get(HOST) + get(HOST, first=b"GET /nowhere HTTP/1.1"), [200, 404]),
    ("a body, then another", post(b"Content-Length: " + LENGTH) + get(HOST), [200, 200]),
    ("a body that nobody wants, then another",
     get(HOST, b"Content-Length: 5", first=b"POST /nowhere HTTP/1.1") + b"hello" + get(HOST), [404, 200]),
    ("a GET with a body, then another", get(HOST, b"Content-Length: 5") + b"hello" + get(HOST), [200, 200]),
    ("chunks", chunked(WHOLE) + get(HOST), [200, 200]),
    ("chunks with capitals", post(b"transfer-encoding: Chunked", body=WHOLE), [200]),
    ("small chunks", chunked(b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n"), [200]),
    ("a chunk with zeros", chunked(b"000%X\r\n%s\r\n000\r\n\r\n" % (len(BODY), BODY)), [200]),
    ("extensions", chunked(b'%x;a=b;c="d e"\r\n%s\r\n0;last\r\n\r\n' % (len(BODY), BODY)) + get(HOST), [200, 200]),
    ("trailers", chunked(WHOLE[:-2] + b"X-Sum: 1\r\nContent-Length: 99\r\n\r\n") + get(HOST), [200, 200]),
    ("HEAD has no body", get(HOST, first=b"HEAD /health HTTP/1.1") + get(HOST), [200, 200]),
    ("one that wants to end", get(HOST, b"Connection: close") + get(HOST), [200]),
    ("one that wants to end, in a list", get(HOST, b"Connection: TE, Close") + get(HOST), [200]),
]


def all_of(c, seconds=20):
    """What comes until the server closes the connection; None: it did not."""
    c.settimeout(seconds * SLOW)
    data = b""
    try:
        while True:
            piece = c.recv(65536)
            if not piece:
                return data
            data += piece
    except ConnectionResetError:
        return data
    except TimeoutError:
        return None


def send(c, data):
    try:
        c.sendall(data)
    except OSError:
        pass


def refused(s):
    for name, data, status in [(n, d, 400) for n, d in BAD + HIDDEN] + OTHER:
        c = s.connect()
        send(c, data + INNER)
        got = all_of(c)
        check(name + ": the connection is closed", got is not None)
        got = got or b""
        check(name + f": {status}", status_of(got) == status, got[:200])
        check(name + ": one answer", got.count(b"HTTP/1.1 ") == 1, got[:600])
        check(name + ": in the form of errors", b'"message"' in got and b"Connection: close" in got, got[:600])
        check(name + ": nothing behind it", not (b"smuggled" in got or b"hidden" in got), got[:600])
        c.close()


def in_pieces(s):
    """The same, byte by byte, is the same."""
    for name, data in BAD:
        if len(data) > 400:
            continue
        c = s.connect()
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(data)):
            send(c, data[i:i + 1])
        got = all_of(c) or b""
        check(name + " in pieces", status_of(got) == 400 and got.count(b"HTTP/1.1 ") == 1, got[:200])
        c.close()


def statuses(data):
    """Of the answers in a row, each with a length or in chunks; HEAD's is known by its brackets."""
    found = []
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        found.append(status_of(head))
        lower = head.lower()
        if b"content-length: " in lower and not rest.startswith(b"HTTP/1.1 "):
            rest = rest[int(lower.split(b"content-length: ")[1].split(b"\r\n")[0]):]
        data = rest
    return found


def accepted(s):
    for name, data, want in GOOD:
        for piece in (len(data), 1):
            c = s.connect()
            c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for i in range(0, len(data), piece):
                send(c, data[i:i + piece])
            if want[-1] != 200 or b"Connection:" not in data:
                send(c, get(HOST, b"Connection: close", first=b"GET /v1/models/last HTTP/1.1"))
                expected = want + [404]
            else:
                expected = want
            if b"HTTP/1.0" in data:
                expected = want
            got = all_of(c)
            check(f"{name} ({piece} at a time)", got is not None and statuses(got) == expected,
                  f"{statuses(got or b'')} {expected} {(got or b'')[:500]}")
            c.close()


def asks_first(s):
    c = s.connect()
    c.sendall(post(b"Content-Length: " + LENGTH, b"Expect: 100-continue", body=b""))
    check("who asks first is told to go on", c.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n")
    c.sendall(BODY)
    check("and answered", status_of(read_all(c)) == 200)
    c.sendall(get(HOST))
    check("on a connection that stays", status_of(read_all(c)) == 200)
    c.close()
    c = s.connect()
    c.sendall(get(HOST, b"Content-Length: 5", b"Expect: 100-continue", first=b"POST /nowhere HTTP/1.1"))
    got = all_of(c)
    check("or told why not", got is not None and status_of(got) == 404 and b"100 Continue" not in got, got)
    c.close()


def alone():
    with Server("-q") as s:
        refused(s)
        in_pieces(s)
        accepted(s)
        asks_first(s)
        check("they are counted", s.metric('dgemma:http_requests_total{status="400"}') >= len(BAD))
        check("nobody is left", s.wait_metric("dgemma:connections", lambda n: n == 1))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


NGINX = """
daemon off; pid {dir}/nginx.pid; error_log stderr crit; worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {dir}/b; proxy_temp_path {dir}/p; fastcgi_temp_path {dir}/f;
    uwsgi_temp_path {dir}/u; scgi_temp_path {dir}/s;
    upstream back {{ server 127.0.0.1:{back}; keepalive 8; }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
            proxy_request_buffering off;
        }}
    }}
}}
"""

HAPROXY = """
global
    maxconn 256
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    http-reuse always
frontend f
    bind 127.0.0.1:{port}
    default_backend b
backend b
    server s 127.0.0.1:{back}
"""


class Front:
    """A proxy in front of a server; to the tests it is the server."""

    connect, request, json, chat, open_stream = Server.connect, Server.request, Server.json, Server.chat, Server.open_stream
    patience = Server.patience

    def __init__(self, program, config, arguments, back):
        self.folder = tempfile.TemporaryDirectory()
        self.port = free_port()
        path = self.folder.name + "/config"
        with open(path, "w") as f:
            f.write(config.format(dir=self.folder.name, port=self.port, back=back))
        self.process = subprocess.Popen([program, *arguments, path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if not wait_until(lambda: self.process.poll() is not None or self.answers()) or self.process.poll() is not None:
            raise RuntimeError(f"{program} did not start: {self.process.stderr.read()}")

    def answers(self):
        try:
            self.connect().close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE)
        self.process.stderr.close()
        self.folder.cleanup()


def throw(front, data):
    """Sends it, and looks for a while whether anything comes back."""
    c = front.connect()
    c.settimeout(SLOW)
    send(c, data)
    try:
        while c.recv(65536):
            pass
    except OSError:
        pass
    c.close()


def behind(program, config, arguments):
    name = os.path.basename(program)
    found = shutil.which(program) or shutil.which("/usr/sbin/" + program)
    if not found:
        skip(f"behind {name}", f"there is no {name}")
        return
    with Server() as s:
        front = Front(found, config, arguments, s.port)
        try:
            before = s.metric("dgemma:http_requests_total")
            check(f"an answer through {name}", front.chat()[0] == 200)
            stream = read_all(front.open_stream())
            check(f"a stream through {name}", b"[DONE]" in stream, stream[-300:])
            c = front.connect()
            c.sendall(chunked(WHOLE))
            check(f"chunks through {name}", status_of(read_all(c)) == 200)
            c.close()
            with ThreadPoolExecutor(16) as pool:
                list(pool.map(lambda shape: throw(front, shape[1]), BAD + HIDDEN))
            # Whoever comes next on the connections that the proxy keeps gets an answer of their own.
            for _ in range(20):
                status, headers, data = front.request("GET", "/health")
                check(f"the next one through {name} gets its own answer", status == 200 and b'"ok"' in data, data)
            check(f"requests came through {name}", s.metric("dgemma:http_requests_total") > before + 20)
            front.request("GET", "/v1/models/last")
            check(f"the last one through {name} is in the log", wait_until(lambda: "/v1/models/last" in s.output()))
            check(f"nothing is smuggled through {name}", b"hidden" not in s.output().encode(),
                  [line for line in s.output().splitlines() if "hidden" in line])
        finally:
            front.stop()


def behind_nginx():
    behind("nginx", NGINX, ["-c"])


def behind_haproxy():
    behind("haproxy", HAPROXY, ["-db", "-q", "-f"])


run([alone, behind_nginx, behind_haproxy])
finish()
