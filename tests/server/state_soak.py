"""What --state keeps, for a while: clients that upload, delete, run batches and chain responses, and a server that is killed
at random under them. In the end everything that was acknowledged is there, every line of every batch was answered once.

    state_soak.py [--seconds N] [--seed N]"""
import argparse
import http.client
import os
import random
import signal
import tempfile
import threading
import time

from serve_batches import FINAL, answers, asked, create, look, said, wait
from serve_files import content, has_sqlite, listed, upload
from serve_stored import kept, respond
from serving import Server, check, finish, skip

GONE = (OSError, ValueError, AssertionError, KeyError, http.client.HTTPException)


class Ledger:
    """What clients were told."""

    def __init__(self):
        self.lock = threading.Lock()
        self.files, self.deleted = {}, set()
        self.batches, self.cancelled = {}, set()
        self.responses = {}

    def work(self, s, seed):
        rng = random.Random(seed)
        try:
            while True:
                rng.choice((self.file, self.file, self.batch, self.response, self.response))(s, rng)
        except GONE:
            return

    def file(self, s, rng):
        data = rng.randbytes(rng.randrange(1, 200000))
        status, made = upload(s, data)
        with self.lock:
            if status == 200:
                self.files[made["id"]] = data
            victim = rng.choice(sorted(self.files)) if self.files and rng.random() < 0.6 else None
            self.deleted.add(victim)  # from here on either is right
        if victim:
            s.json("DELETE", f"/v1/files/{victim}")

    def batch(self, s, rng):
        with self.lock:
            if sum(look(s, {"id": b})["status"] not in FINAL for b in self.batches) > 3:
                return
        names = [f"{rng.randrange(10)}-{i}" for i in range(rng.randrange(1, 12))]
        made = create(s, asked(names))
        with self.lock:
            self.batches[made["id"]] = names
        if rng.random() < 0.2:
            with self.lock:
                self.cancelled.add(made["id"])
            s.json("POST", f"/v1/batches/{made['id']}/cancel")

    def response(self, s, rng):
        with self.lock:
            before = rng.choice(list(self.responses.values())) if self.responses and rng.random() < 0.5 else None
        status, made = respond(s, f"n{rng.randrange(100)}", **({"previous_response_id": before["id"]} if before else {}))
        if status == 200:
            with self.lock:
                self.responses[made["id"]] = made

    def check(self, s):
        there = set(listed(s))
        check("files that were acknowledged", set(self.files) - self.deleted <= there, len(self.files))
        check("are as they were", all(content(s, i) == d for i, d in self.files.items() if i in there))
        check("responses", all(kept(s, r) == (200, r) for r in self.responses.values()), len(self.responses))
        texts, ok = {}, True
        for batch, names in self.batches.items():
            done = wait(s, {"id": batch}, seconds=120)
            got = answers(s, done["output_file_id"]) if done["output_file_id"] else {}
            whole = done["status"] == "completed" and set(got) == set(names)
            ok = ok and (whole or (batch in self.cancelled and done["status"] == "cancelled" and set(got) <= set(names)))
            for name, one in got.items():  # a name is a line: the same one in every batch
                ok = ok and texts.setdefault(name, said(one)) == said(one)
        check("batches: every line once, the same each time", ok and texts, len(self.batches))
        check("no strays", set(os.listdir(f"{self.folder}/files")) == set(listed(s)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    rng, ledger, n_killed = random.Random(args.seed), Ledger(), 0
    until = time.time() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        ledger.folder = folder
        while time.time() < until:
            s = Server("-q", "--state", folder)
            threads = [threading.Thread(target=ledger.work, args=(s, rng.random())) for _ in range(4)]
            for t in threads:
                t.start()
            time.sleep(rng.choice((0.05, 0.3, 1, 3)) * rng.random())
            s.process.send_signal(signal.SIGKILL)
            s.process.wait()
            n_killed += 1
            for t in threads:
                t.join()
        print(f"killed {n_killed} times; {len(ledger.files)} files, {len(ledger.batches)} batches, {len(ledger.responses)} responses")
        with Server("-q", "--state", folder) as s:
            ledger.check(s)


if __name__ == "__main__":
    if has_sqlite():
        main()
    else:
        skip("what --state keeps, killed at random", "dgemma was built without SQLite")
    finish()
