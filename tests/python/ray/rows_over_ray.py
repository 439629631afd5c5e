"""ChatMapper on a real Ray cluster of this machine: several workers, of which one is killed, give what one process gives.

    rows_over_ray.py [ROWS] [MODEL]
"""
import os
import signal
import sys
import tempfile
import threading
import time

import dgemma
import numpy
import ray

N_ROW = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
MODEL = os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else "tests/fixtures/golden/sampler_finishes/model")
OPTIONS = {"model": MODEL, "model_options": {"device": "cpu", "threads": 1}, "max_tokens": 8, "max_denoise_steps": 2}
ROWS = [{"id": f"row {i}", "prompt": f"Question {i}: what is {i % 97} + {i % 31}?"} for i in range(N_ROW)]
failures = 0


class Noted(dgemma.ChatMapper):
    """Leaves its process's number where the test finds it."""

    def __init__(self, folder, **options):
        with open(os.path.join(folder, str(os.getpid())), "w", encoding="utf-8"):
            pass
        super().__init__(**options)


def check(name, ok, detail=""):
    global failures
    failures += not ok
    print(("ok: " if ok else "FAILED: ") + name, detail if not ok else "", flush=True)


def alone():
    mapper, found = dgemma.ChatMapper(**OPTIONS), {}
    for at in range(0, N_ROW, 25):
        rows = ROWS[at:at + 25]
        out = mapper({key: numpy.array([r[key] for r in rows]) for key in ("id", "prompt")})
        found.update(zip(out["id"], out["answer"]))
    return {str(k): v for k, v in found.items()}


def killer(folder, killed):
    """Once the workers run, one of them dies."""
    while not os.listdir(folder):
        time.sleep(0.05)
    time.sleep(2)
    victim = int(sorted(os.listdir(folder))[0])
    os.kill(victim, signal.SIGKILL)
    killed.append(victim)


def over_ray(workers, want):
    with tempfile.TemporaryDirectory() as folder:
        killed = []
        threading.Thread(target=killer, args=(folder, killed), daemon=True).start()
        start = time.time()
        ds = ray.data.from_items(ROWS, override_num_blocks=4 * workers)
        ds = ds.map_batches(Noted, fn_constructor_kwargs={"folder": folder, **OPTIONS}, batch_size=25,
                            compute=ray.data.ActorPoolStrategy(size=workers))
        rows = ds.take_all()
        seconds = time.time() - start
        started = len(os.listdir(folder))
    got = {r["id"]: r["answer"] for r in rows}
    print(f"   {workers} workers: {len(rows)} rows in {seconds:.0f} s, processes {started}, killed {killed}", flush=True)
    check(f"{workers} workers: one was killed, and another came", len(killed) == 1 and started > workers, (killed, started))
    check(f"{workers} workers: every row is answered once", len(rows) == N_ROW == len(got), len(rows))
    check(f"{workers} workers: the same as in one process", got == want, [k for k in want if got.get(k) != want[k]][:3])
    check(f"{workers} workers: no row failed", all(not r["error"] for r in rows))


want = alone()
check("one process answers", len(want) == N_ROW)
os.environ["RAY_worker_niceness"] = "0"  # they are not to stand behind everything else that runs here
ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ray.data.DataContext.get_current().enable_progress_bars = False
for number in (2, 4):
    over_ray(number, want)
ray.shutdown()
sys.exit(1 if failures else 0)
