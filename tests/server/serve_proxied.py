"""A socket that was opened by somebody else ($LISTEN_FDS), and who asks when proxies stand between."""
import http.client
import os
import re
import socket
import subprocess
import sys

from serving import FIXTURE, PATIENCE, THREADS, check, finish, run, skip

DGEMMA = os.environ["DGEMMA"]

# Becomes the server, as a service manager does it: the socket is file 3, and the process is the one that is meant.
LAUNCHER = """
import os, sys
fd, count, pid = int(sys.argv[1]), sys.argv[2], sys.argv[3] or str(os.getpid())
os.dup2(fd, 3, inheritable=True)
os.environ.update(LISTEN_FDS=count, LISTEN_PID=pid)
os.execv(sys.argv[4], sys.argv[4:])
"""


def launch(fd, *args, count="1", pid=""):
    """The process and its first line."""
    os.set_inheritable(fd, True)
    words = [DGEMMA, "serve", "-m", FIXTURE, "--device", "cpu", "--threads", THREADS, "--port", "0", *args]
    process = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(fd), count, pid, *words], pass_fds=[fd], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    return process, process.stdout.readline().strip()


def listening(family=socket.AF_INET, address="127.0.0.1"):
    s = socket.socket(family, socket.SOCK_STREAM)
    s.bind((address, 0))
    s.listen(64)
    return s


def get(port, path="/health", host="127.0.0.1", headers=()):
    c = http.client.HTTPConnection(host, port, timeout=PATIENCE)
    c.putrequest("GET", path)
    for name, value in headers:
        c.putheader(name, value)
    c.endheaders()
    answer = c.getresponse()
    answer.read()
    return answer.status


def end(process):
    process.terminate()
    return process.communicate(timeout=PATIENCE)[1], process.returncode


def has_six():
    try:
        listening(socket.AF_INET6, "::1").close()
        return True
    except OSError:
        return False


def case_socket():
    with listening() as s:
        port = s.getsockname()[1]
        process, line = launch(s.fileno())
        check("it says where it listens", line == f"listening on http://127.0.0.1:{port}", line)
        check("it answers there", get(port) == 200)
        # Nobody listens now but the socket, which is still ours: the next process finds who came.
        log, status = end(process)
        check("it ends well", status == 0, log)
        waiting = socket.create_connection(("127.0.0.1", port))
        waiting.sendall(b"GET /v1/models HTTP/1.0\r\n\r\n")
        process, line = launch(s.fileno())
        waiting.settimeout(PATIENCE)
        got = waiting.recv(100)
        check("one who came between two processes is answered", got.startswith(b"HTTP/1.1 "), got)
        waiting.close()
        check("a socket of this machine is for this machine", get(port, headers=[]) == 200 and named(port, "evil.example") == 403)
        end(process)


def named(port, host):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    c.request("GET", "/v1/models", headers={"Host": host})
    return c.getresponse().status


def case_socket_of_six():
    if not has_six():
        return skip("a socket of IPv6", "there is no ::1 here")
    with listening(socket.AF_INET6, "::1") as s:
        port = s.getsockname()[1]
        process, line = launch(s.fileno())
        check("an address of IPv6 is told in brackets", line == f"listening on http://[::1]:{port}", line)
        check("it answers there", get(port, host="::1") == 200)
        log, _ = end(process)
        check("the log has it", re.search(r" ::1 GET /health 200 ", log), log)


def refused(name, text, fd, **more):
    process, line = launch(fd, **more)
    log, status = process.communicate(timeout=PATIENCE)[1], process.returncode
    check(name, status not in (0, None) and text in log and not line, f"status {status}: {log}")


def case_wrong_sockets():
    with listening() as s:
        refused("two sockets", "LISTEN_FDS is 2", s.fileno(), count="2")
        refused("a count that is none", "LISTEN_FDS is x", s.fileno(), count="x")
    with open("/dev/null") as f:
        refused("a file", "is no socket", f.fileno())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))
        refused("a socket for datagrams", "no TCP socket that listens", s.fileno())
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        refused("a socket that does not listen", "no TCP socket that listens", s.fileno())
    with listening() as s:
        process, line = launch(s.fileno(), pid="1")
        check("a socket for another process is not taken", not line.endswith(f":{s.getsockname()[1]}") and line.startswith("listening"), line)
        end(process)


def clients(trusted, asked):
    """The addresses in the log after requests with these headers."""
    process, line = launch(0, *(["--trusted-proxies", trusted] if trusted else []), count="0")
    port = int(line.rsplit(":", 1)[1])
    for headers in asked:
        get(port, headers=[("X-Forwarded-For", value) for value in headers])
    log, _ = end(process)
    return re.findall(r" (\S*) GET /health 200 ", log), log


def case_forwarded():
    asked = [
        (["203.0.113.7"], "203.0.113.7"),
        (["1.1.1.1, 203.0.113.7"], "203.0.113.7"),  # the proxy's word is the last; what came before it anybody can write
        (["203.0.113.7, 10.1.2.3"], "203.0.113.7"),  # through two of ours
        (["203.0.113.7,10.1.2.3 ,\t10.9.9.9"], "203.0.113.7"),
        (["6.6.6.6", "203.0.113.7"], "203.0.113.7"),  # a field of its own, behind the one that the client sent
        (["203.0.113.7", "10.1.2.3"], "203.0.113.7"),
        (["10.1.1.1, 10.1.2.3"], "10.1.1.1"),  # all are ours: the first
        (["2001:db8::7"], "2001:db8::7"),
        (["[2001:db8::7]:4711"], "2001:db8::7"),
        (["203.0.113.7:4711"], "203.0.113.7"),
        (["203.0.113.7, fd00::12"], "203.0.113.7"),
        (["::ffff:203.0.113.7"], "203.0.113.7"),
        (["::ffff:10.1.2.3"], "10.1.2.3"),
        ([], "127.0.0.1"),
        ([""], "127.0.0.1"),
        (["unknown"], "127.0.0.1"),
        (["203.0.113.7, unknown"], "127.0.0.1"),
        (["unknown, 203.0.113.7"], "203.0.113.7"),
        (["unknown, 10.1.2.3"], "10.1.2.3"),
        (["203.0.113.7,"], "127.0.0.1"),
        ([",,,"], "127.0.0.1"),
        (["203.0.113.7 GET /forged 200"], "127.0.0.1"),
        (["203.0.113.256"], "127.0.0.1"),
        (["0x7f.1"], "127.0.0.1"),
        (["fe80::1%lo"], "127.0.0.1"),
        (["[::1"], "127.0.0.1"),
        (["[203.0.113.7]"], "127.0.0.1"),
        (["[2001:db8::7]x"], "127.0.0.1"),
        (["1" * 5000], "127.0.0.1"),
        ([", ".join(["10.1.2.3"] * 5000)], "10.1.2.3"),
        (["10.1.2.3"] * 100, "10.1.2.3"),
    ]
    got, log = clients("127.0.0.1,10.0.0.0/8,fd00::/8", [headers for headers, _ in asked])
    for (headers, want), found in zip(asked, got):
        check(f"forwarded: {[h[:60] for h in headers[:3]]}", found == want, found)
    check("every request has its line", len(got) == len(asked), log[-2000:])


def case_not_trusted():
    asked = [["203.0.113.7"], ["127.0.0.1"], []]
    for name, trusted in (("nobody is", None), ("others are", "10.0.0.0/8"), ("one bit is other", "127.0.0.0/32"), ("of IPv6", "::/1")):
        got, log = clients(trusted, asked)
        check(f"who is not trusted is not believed: {name}", got == ["127.0.0.1"] * 3, log)
    got, log = clients("0.0.0.0/0", asked)
    check("all may be trusted", got == ["203.0.113.7", "127.0.0.1", "127.0.0.1"], log)


def case_wrong_networks():
    for text in ("10.0.0.0/33", "::/129", "10.1.2.3/8", "10.0.0.0/", "10.0.0.0/-1", "10.0.0.0/08x", "localhost", "10.0.0.0/8,,::1", " ::1", "1" * 500,
                 "fd00::1/8"):
        process, line = launch(0, "--trusted-proxies", text, count="0")
        log = process.communicate(timeout=PATIENCE)[1]
        check(f"no network: {text[:40]}", process.returncode not in (0, None) and "is no address and no network" in log, log)
    process, _ = launch(0, "--trusted-proxies", ",".join(["::1"] * 65), count="0")
    log = process.communicate(timeout=PATIENCE)[1]
    check("too many networks", "more than 64" in log, log)


run([case_socket, case_socket_of_six, case_wrong_sockets, case_forwarded, case_not_trusted, case_wrong_networks])
finish()
