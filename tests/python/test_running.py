"""Leaving early, callbacks, threads, loops, and what must not hold up what."""
import asyncio
import gc
import os
import subprocess
import sys
import threading
import time

import dgemma
import pytest
from test_answers import ENDLESS, PARIS


def wait_until(done, seconds=120):
    until = time.time() + seconds
    while not done() and time.time() < until:
        time.sleep(0.01)
    return done()


def test_leaving_the_loop_cancels(model):
    seen = []
    stream = model.stream("Hello", drafts=True, on_step=lambda s: seen.append(s.step), **ENDLESS)
    for event in stream:
        if event.kind == "draft":
            break
    n = len(seen)
    time.sleep(0.2)
    assert len(seen) <= n + 1
    with pytest.raises(dgemma.Error, match="closed"):
        next(iter(stream))


def test_a_stream_that_nobody_wants_is_cancelled(model):
    seen = []
    stream = model.stream("Hello", on_step=lambda s: seen.append(s.step), **ENDLESS)
    assert wait_until(lambda: seen)
    del stream
    gc.collect()
    n = len(seen)
    time.sleep(0.2)
    assert len(seen) <= n + 1


def test_cancel_from_another_thread(model):
    stream = model.stream("Hello", **ENDLESS)
    threading.Timer(0.1, stream.cancel).start()
    assert stream.result().finish_reason == "cancelled"


def test_close_from_another_thread(model):
    """Whatever moment it comes at, nobody touches what is freed."""
    for i in range(30):
        stream = model.stream("Hello", drafts=True, **ENDLESS)
        others = [threading.Timer(0.002 * i, f) for f in (stream.close, stream.cancel, stream.close)]
        for other in others:
            other.start()
        try:
            stream.result()
        except dgemma.Error as e:
            assert "closed" in str(e)
        for other in others:
            other.join()
    assert model.chat(PARIS).text


def test_close_in_a_callback_cancels(model):
    streams = []

    def on_step(step):
        if streams:
            streams[0].close()

    streams.append(model.stream("Hello", on_step=on_step, **ENDLESS))
    assert streams[0].result().finish_reason == "cancelled"


def test_a_stream_that_ends_in_a_callback(model):
    """Its last reference goes on the model's own thread."""
    kept, seen = [], []

    def on_step(step):
        seen.append(step.step)
        kept.clear()

    kept.append(model.stream("Hello", on_step=on_step, **ENDLESS))
    assert wait_until(lambda: seen)
    n = len(seen)
    time.sleep(0.2)
    assert len(seen) <= n + 1 and model.chat(PARIS).text


def test_with(model):
    with model.stream("Hello", **ENDLESS) as stream:
        assert stream.answer.text == ""
    with pytest.raises(dgemma.Error):
        stream.result()


# ---- steps ----

def test_steps_see_the_canvas_and_may_change_it(model):
    steps = []

    def look(step):
        steps.append((step.block, step.step, len(step.canvas), step.finished, float(max(step.entropy))))

    answer = model.chat(PARIS, on_step=look)
    assert len(steps) == answer.stats.n_steps and steps[-1][3]
    assert all(n == model.info["canvas_length"] for _, _, n, _, _ in steps)

    def told(scribble):
        """The uncertainty of the second step, which looks at what the first one left."""
        entropies = []

        def on_step(step):
            entropies.append(list(step.entropy))
            for i in range(len(step.canvas) if scribble else 0):
                step.canvas[i] = 7

        model.chat(PARIS, on_step=on_step, max_denoise_steps=2, stability_threshold=100)
        return entropies[1]

    assert told(False) == told(False) != told(True)


def test_a_step_may_end_the_answer(model):
    assert model.chat("Hello", on_step=lambda s: s.step < 2, **ENDLESS).finish_reason == "cancelled"


def test_what_a_step_says_no_with(model):
    numpy = pytest.importorskip("numpy")
    assert model.chat("Hello", on_step=lambda s: numpy.bool_(s.step < 2), **ENDLESS).finish_reason == "cancelled"


def test_steps_may_be_kept(model):
    """What they say is theirs: nothing in it changes, nor can be changed, when the step is over."""
    kept, told = [], []

    def on_step(step):
        kept.append(step)
        told.append([list(x) for x in (step.canvas, step.argmax, step.entropy, step.accepted)])

    model.chat(PARIS, on_step=on_step)
    assert len(told) > 1 and told[0] != told[-1]
    assert told == [[list(x) for x in (s.canvas, s.argmax, s.entropy, s.accepted)] for s in kept]

    def shortens(step):
        step.canvas = [1, 2]

    with pytest.raises(ValueError, match="canvas"):
        model.chat(PARIS, on_step=shortens)


def test_what_a_step_raises_arrives(model):
    def fails(step):
        raise KeyError("on purpose")

    with pytest.raises(KeyError, match="on purpose"):
        model.chat("Hello", on_step=fails)
    assert model.chat(PARIS).text


# ---- threads ----

def test_the_gil_is_free_while_c_works(model):
    """A thread that counts goes on while this one waits for an answer."""
    stream = model.stream("Hello", **ENDLESS)

    def count():
        for _ in range(100):
            time.sleep(0.001)
        stream.cancel()

    thread = threading.Thread(target=count)
    thread.start()
    assert stream.result().finish_reason == "cancelled"
    thread.join()


def test_many_threads(model):
    want = {i: model.chat(f"What is {i} + 1?").tokens for i in range(8)}
    got = {}

    def ask(i):
        got[i] = model.chat(f"What is {i} + 1?").tokens

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == want


# ---- loops ----

def test_async(model):
    async def main():
        answers = await asyncio.gather(*(model.achat(f"What is {i} + 1?") for i in range(8)))
        text = [e.text async for e in model.stream(PARIS) if e.kind == "text"]
        more = await model.agenerate("Once", max_tokens=8)
        found = await model.adecide("The sun shines.", {"warm": dgemma.YesNo("Is it warm?")})
        return answers, "".join(text), more, found

    answers, text, more, found = asyncio.run(main())
    assert [a.tokens for a in answers] == [model.chat(f"What is {i} + 1?").tokens for i in range(8)]
    assert text == model.chat(PARIS).text and more.stats and "warm" in found
    asyncio.run(main())  # in another loop, too


def test_a_loop_goes_on_meanwhile(model):
    async def main():
        task = asyncio.create_task(model.achat("Hello", **ENDLESS))
        ticks = 0
        for _ in range(20):
            await asyncio.sleep(0.005)
            ticks += 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return ticks

    assert asyncio.run(main()) == 20


def test_a_cancelled_task_cancels_the_answer(model):
    seen = []

    async def main():
        task = asyncio.create_task(model.achat("Hello", on_step=lambda s: seen.append(s.step), **ENDLESS))
        while not seen:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    n = len(seen)
    time.sleep(0.2)
    assert len(seen) <= n + 1


def test_a_cancelled_decision_leaves_nothing_behind():
    """The thread that decides is through when its task is: the model may be closed."""
    async def main():
        with dgemma.Model(device="cpu", threads=1) as m:
            questions = {str(i): dgemma.YesNo(f"Is {i} even?") for i in range(30)}
            ended, begun, go_on = [], threading.Event(), threading.Event()
            decide = m.decide

            def held(*a, **kw):
                begun.set()
                answers = decide(*a, **kw)
                go_on.wait()
                ended.append(True)
                return answers

            m.decide = held
            task = asyncio.create_task(m.adecide("Numbers.", questions, samples=8))
            while not begun.is_set():
                await asyncio.sleep(0.01)
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            assert not ended
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task
            return ended

    assert asyncio.run(main()) == [True]


def test_a_stream_that_another_task_closes(model):
    async def main():
        stream = model.stream("Hello", **ENDLESS)
        task = asyncio.create_task(stream.aresult())
        await asyncio.sleep(0.05)
        stream.close()
        with pytest.raises(dgemma.Error, match="closed"):
            await asyncio.wait_for(task, 120)

    asyncio.run(main())


def test_leaving_an_async_loop(model):
    seen = []

    async def main():
        async for event in model.stream("Hello", drafts=True, on_step=lambda s: seen.append(s.step), **ENDLESS):
            if event.kind == "draft":
                break
        await asyncio.sleep(0)  # the loop closes what was left
        n = len(seen)
        await asyncio.sleep(0.2)
        assert len(seen) <= n + 1

    asyncio.run(main())


# ---- processes ----

def run_python(code, *before):
    return subprocess.run([sys.executable, *before, "-c", code], capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_is_told_to_make_its_own(model):
    r = run_python("import dgemma, os\nm = dgemma.Model(device='cpu', threads=1)\npid = os.fork()\nif pid == 0:\n"
                   "    try: m.chat('Hello')\n    except dgemma.Error as e: print(e)\n    os._exit(0)\n"
                   "os.waitpid(pid, 0)\nprint(m.chat('Hello').finish_reason)")
    assert r.returncode == 0 and "before fork" in r.stdout and "stop" in r.stdout, r.stderr


def test_a_program_may_end_at_any_time():
    r = run_python("import dgemma\nm = dgemma.Model(device='cpu', threads=1)\ns = m.stream('Hello', on_step=lambda s: None, "
                   "max_denoise_steps=100000, stability_threshold=100000)\nnext(iter(s))\nprint('left')")
    assert r.returncode == 0 and r.stdout == "left\n" and not r.stderr, r.stderr
    kept = run_python("import dgemma\nm = dgemma.Model(device='cpu', threads=1)\ns = m.stream('Hello', on_step=lambda s: None, "
                      "max_denoise_steps=100000, stability_threshold=100000)\nprint('left')")
    assert kept.returncode == 0 and kept.stdout == "left\n" and not kept.stderr, kept.stderr


def test_without_numpy():
    r = run_python("import sys\nsys.modules['numpy'] = None\nimport dgemma\nm = dgemma.Model(device='cpu', threads=1)\n"
                   "d = [e for e in m.stream('Hello', drafts=True) if e.kind == 'draft'][-1]\n"
                   "seen = []\nm.chat('Hello', on_step=lambda s: seen.append(list(s.argmax)[:3]))\n"
                   "print(type(d.tokens).__name__, d.tokens.typecode, len(d.entropy), bool(seen))")
    assert r.returncode == 0 and r.stdout.startswith("array i 64 True"), r.stdout + r.stderr


def test_ctrl_c_is_heard():
    code = ("import dgemma, signal, threading, _thread\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "m = dgemma.Model(device='cpu', threads=1)\n"
            "try:\n    threading.Timer(0.3, _thread.interrupt_main).start()\n    m.chat('Hello', max_denoise_steps=100000, stability_threshold=100000)\n"
            "except KeyboardInterrupt:\n    print('heard')\n")
    r = run_python(code)
    assert r.returncode == 0 and r.stdout == "heard\n", r.stdout + r.stderr
