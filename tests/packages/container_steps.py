"""Runs the steps of packaging/Containerfile without a container engine: container_steps.py BASE.tar FOLDER.

Each stage is a folder that begins as BASE, and what a stage does happens in a chroot there. Then the image is run as an engine
would run it, as its user and in a network of its own, and asked. An instruction that is not known here is an error. Needs root."""
import ctypes
import fcntl
import glob
import http.client
import json
import os
import re
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import time

FILE = "packaging/Containerfile"
BASE = "debian:{}-slim"
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}


def instructions():
    """(NAME, rest), with continued lines joined and comments gone."""
    text = "".join(line for line in open(FILE) if not line.lstrip().startswith("#"))
    for line in text.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest.strip()


class Stage:
    def __init__(self, root, base):
        self.root, self.workdir, self.user, self.entry, self.command, self.health = root, "/", "0", [], [], []
        os.makedirs(root)
        subprocess.run(["tar", "-C", root, "-xf", base], check=True)
        for file in ("resolv.conf", "hosts"):
            shutil.copy(f"/etc/{file}", f"{root}/etc/{file}")

    def popen(self, words, **more):
        """In the stage, with a /proc and a /dev that end with it."""
        enter = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot --userspec="$1" "$0" sh -c \'cd "$0" && exec "$@"\' "$2" "${@:3}"'
        return subprocess.Popen(["unshare", "--mount", "--propagation", "private", "bash", "-c", enter, self.root, f"{self.user}:{self.user}",
                                 self.workdir, *words], env=ENVIRONMENT, **more)

    def run(self, words):
        status = self.popen(words).wait()
        if status:
            sys.exit(f"status {status}: {shlex.join(words)}")

    def copy(self, words, stages):
        source = None
        if words[0].startswith("--from="):
            source = stages[words.pop(0)[len("--from="):]].root
        *files, to = words
        to = os.path.join(self.root, os.path.join(self.workdir, to).lstrip("/"))
        os.makedirs(to, exist_ok=True)
        if source is None and files == ["."]:
            ignored = [f"--exclude=./{line.strip()}" for line in open(".dockerignore") if not line.startswith("**/")]
            pack = subprocess.Popen(["tar", *ignored, "--exclude=__pycache__", "-cf", "-", "."], stdout=subprocess.PIPE)
            subprocess.run(["tar", "-C", to, "--no-same-owner", "-xf", "-"], stdin=pack.stdout, check=True)
            if pack.wait():
                sys.exit("the tree cannot be copied")
            return
        for pattern in files:
            found = glob.glob(os.path.join(source or ".", pattern.lstrip("/")))
            if not found:
                sys.exit(f"COPY: there is no {pattern}")
            for file in found:
                shutil.copy(file, to)


def build(base, folder):
    stages, stage, arguments = {}, None, {}
    for name, rest in instructions():
        if name == "ARG":
            key, _, value = rest.partition("=")
            arguments[key] = value
        elif name == "FROM":
            rest = re.sub(r"\$\{(\w+)\}", lambda m: arguments[m[1]], rest)
            image, _, alias = rest.partition(" AS ")
            release = os.path.basename(base).removesuffix(".tar")
            if image != BASE.format(release):
                sys.exit(f"{image} is not {BASE.format(release)}")
            stage = Stage(f"{folder}/stage{len(stages)}", base)
            stages[alias or str(len(stages))] = stage
        elif name == "RUN":
            print("RUN", rest, flush=True)
            stage.run(["/bin/sh", "-c", rest])
        elif name == "COPY":
            stage.copy(shlex.split(rest), stages)
        elif name == "WORKDIR":
            stage.workdir = rest
            os.makedirs(stage.root + rest, exist_ok=True)
        elif name == "USER":
            stage.user = rest
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(stage, "entry" if name == "ENTRYPOINT" else "command", json.loads(rest))
        elif name == "HEALTHCHECK":
            stage.health = json.loads(rest[rest.index("CMD ") + 4:])
        elif name not in ("LABEL", "VOLUME", "EXPOSE"):
            sys.exit(f"{name} is not known to this test")
    return stage


def network_of_its_own():
    new_network = 0x40000000
    if ctypes.CDLL(None, use_errno=True).unshare(new_network):
        sys.exit("there can be no network of its own: " + os.strerror(ctypes.get_errno()))
    get_flags, set_flags, is_up = 0x8913, 0x8914, 1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(s, get_flags, request))[1]
        fcntl.ioctl(s, set_flags, struct.pack("16sh14x", b"lo", flags | is_up))


def ask():
    body = json.dumps({"messages": [{"role": "user", "content": "What is the capital of France?"}]})
    c = http.client.HTTPConnection("127.0.0.1", 8080, timeout=60)
    c.request("POST", "/v1/chat/completions", body)
    return json.load(c.getresponse())["choices"][0]["message"]["content"]


def main():
    image = build(sys.argv[1], sys.argv[2])
    assert image.user not in ("0", "root"), "the image runs as root"
    once = image.popen([*image.entry, "run", "What is the capital of France?"], stdout=subprocess.PIPE)
    assert b"Paris" in once.communicate()[0], "dgemma run"
    network_of_its_own()
    assert image.popen(image.health, stderr=subprocess.DEVNULL).wait() != 0, "healthy before it runs"
    server = image.popen([*image.entry, *image.command])
    try:
        for _ in range(150):
            if image.popen(image.health, stderr=subprocess.DEVNULL).wait() == 0:
                break
            time.sleep(0.2)
        else:
            sys.exit("the health check never succeeds")
        assert "Paris" in ask()
    finally:
        server.terminate()
        assert server.wait() == 0, "the server does not end well"
    print("the image answers")


main()
