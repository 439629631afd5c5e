"""The page of metrics: in Prometheus' form to the letter, and its numbers are those of the answers that were given."""
import json
import math
import re
import shutil
import subprocess
import time

from serving import ENDLESS, SLOW, Server, check, finish, read_all, run, skip, wait_until

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{((?:{NAME}="(?:[^"\\\n]|\\[\\n"])*",?)*)\}})? (\S+)')
LABEL = re.compile(rf'({NAME})="((?:[^"\\\n]|\\[\\n"])*)"')


def parse(page):
    """{family: (type, {(name, labels): value})}; throws where the page is not in the form."""
    families, current = {}, None
    assert page.endswith("\n"), "the last line does not end"
    lines = page.split("\n")[:-1]
    for i, line in enumerate(lines):
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            assert name not in families, f"{name} comes twice"
            assert lines[i + 1].startswith(f"# TYPE {name} "), f"{name} has no type"
            continue
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert kind in ("counter", "gauge", "histogram") and lines[i - 1].startswith(f"# HELP {name} "), line
            families[name] = (kind, {})
            current = name
            continue
        found = SAMPLE.fullmatch(line)
        assert found, f"no sample: {line}"
        name, labels, value = found.groups()
        kind, samples = families[current]
        own = [current + s for s in ("_bucket", "_sum", "_count")] if kind == "histogram" else [current]
        assert name in own, f"{name} in the family of {current}"
        key = (name, tuple(sorted(LABEL.findall(labels or ""))))
        assert key not in samples, f"{line} comes twice"
        samples[key] = float(value)
    return families


def check_families(families):
    for family, (kind, samples) in families.items():
        check(f"{family} has a value", samples or family == "dgemma:http_requests_total")
        check(f"{family}: only counters are totals", family.endswith("_total") == (kind == "counter"), kind)
        check(f"{family}: numbers", all(math.isfinite(v) for v in samples.values()), samples)
        if kind == "counter":
            check(f"{family} does not go below nothing", all(v >= 0 for v in samples.values()), samples)
        if kind == "histogram":
            buckets = [(float(dict(k[1])["le"]), v) for k, v in samples.items() if k[0].endswith("_bucket")]
            counts = [v for _, v in sorted(buckets)]
            count = next(v for k, v in samples.items() if k[0].endswith("_count"))
            check(f"{family}: its buckets rise", buckets == sorted(buckets) and counts == sorted(counts), buckets)
            check(f"{family}: its last has all", buckets[-1] == (math.inf, count), buckets)
            if not count:
                check(f"{family}: nothing is nothing", all(v == 0 for v in samples.values()))


class Page:
    def __init__(self, s):
        status, headers, data = s.request("GET", "/metrics")
        check("the page is there", status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
        self.text = data.decode()
        self.families = parse(self.text)

    def __getitem__(self, name):
        """The sum over labels, or one by name{label=value}."""
        name, _, wanted = name.partition("{")
        wanted = dict(x.split("=") for x in wanted.rstrip("}").split(",")) if wanted else {}
        return sum(v for _, samples in self.families.values() for k, v in samples.items()
                   if k[0] == name and wanted.items() <= dict(k[1]).items())


def form():
    with Server("--name", 'a "name"\\ of \n \u00e4\u4e2d') as s:
        check_families(Page(s).families)
        s.chat()
        page = Page(s)
        check_families(page.families)
        check("the model's name", 'model_name="a \\"name\\"\\\\ of   \u00e4\u4e2d"' in page.text)
        tool = shutil.which("promtool")
        if not tool:
            skip("promtool reads it", "there is no promtool")
            return
        told = subprocess.run([tool, "check", "metrics"], input=page.text.encode(), capture_output=True)
        # vLLM's and llama-server's names have a colon, and one of them milliseconds: that is how dashboards know them.
        other = [line for line in (told.stdout + told.stderr).decode().splitlines()
                 if line and "should not contain ':'" not in line and "diffusion_ms_per_step" not in line]
        check("promtool reads it", told.returncode in (0, 3) and not other, f"{told.returncode} {other}")


def numbers():
    with Server() as s:
        first = Page(s)
        usage, n_block = {"prompt_tokens": 0, "completion_tokens": 0, "cached_tokens": 0}, 0
        start = time.time()
        for i, fields in enumerate(({}, {"max_tokens": 40}, {"n": 3}, {"diffusion": {"canvas_length": 8}}, {"max_tokens": 3},
                                    {"stream": True, "stream_options": {"include_usage": True}})):
            text = "Hello there, number %d, how are you" % (i // 2)
            if "stream" in fields:
                data = read_all(s.open_stream(text, **fields)).decode()
                u = next(json.loads(x)["usage"] for x in re.findall(r"data: (\{.*\})", data) if '"usage":{' in x)
            else:
                status, body = s.chat(text, **fields)
                u = body["usage"]
            n = fields.get("n", 1)
            usage["prompt_tokens"] += n * u["prompt_tokens"]
            usage["completion_tokens"] += u["completion_tokens"]
        check("a bad one", s.chat(temperature=9)[0] == 400 and s.request("GET", "/nowhere")[0] == 404)
        took = time.time() - start
        pages = [Page(s)]
        # A request is counted when all of it is put away, and a page is one for the next.
        wait_until(lambda: pages[-1]["dgemma:http_requests_total"] == 8 + len(pages) and pages[-1]["dgemma:connections"] == 1 or pages.append(Page(s)))
        page = pages[-1]

        check("prompts", page["vllm:prompt_tokens_total"] == usage["prompt_tokens"], (page["vllm:prompt_tokens_total"], usage))
        check("answers", page["vllm:generation_tokens_total"] == usage["completion_tokens"],
              (page["vllm:generation_tokens_total"], usage))
        check("histograms say the same", page["vllm:request_prompt_tokens_sum"] == usage["prompt_tokens"]
              and page["vllm:request_generation_tokens_sum"] == usage["completion_tokens"])
        check("requests to the engine", page["vllm:request_success_total"] == 8 == page["vllm:request_prompt_tokens_count"],
              page["vllm:request_success_total"])
        for name in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_generation_tokens",
                     "request_inference_time_seconds"):
            check("the same requests: " + name, page[f"vllm:{name}_count"] == 8, page[f"vllm:{name}_count"])
        check("none ends before it was worked on", page["vllm:e2e_request_latency_seconds_sum"]
              >= page["vllm:request_queue_time_seconds_sum"] > 0)
        check("by status", [page["dgemma:http_requests_total{status=%d}" % k] for k in (200, 400, 404)] == [6 + len(pages), 1, 1]
              and page["dgemma:http_requests_total"] == 8 + len(pages), page["dgemma:http_requests_total"])
        check("what was encoded and what was found are all",
              page["llamacpp:prompt_tokens_total"] + page["llamacpp:prompt_tokens_cached_total"] == usage["prompt_tokens"])
        steps = page["vllm:diffusion_num_denoising_steps_total"]
        check("steps", steps == page["dgemma:steps_per_block_sum"] == page["llamacpp:diffusion_steps_total"] > 0, steps)
        check("blocks", page["llamacpp:diffusion_blocks_total"] == page["dgemma:steps_per_block_count"]
              == page["dgemma:block_seconds_count"] > 0)
        check("committed tokens", page["vllm:diffusion_num_committed_tokens_total"] >= usage["completion_tokens"])
        canvas = s.json("GET", "/props")[1]["canvas_length"]
        check("positions", 0 < page["vllm:diffusion_num_canvas_positions_total"] < steps * canvas)

        busy = page["dgemma:busy_seconds_total"]
        check("the turns are what it was busy with", page["dgemma:turn_seconds_sum"] == busy
              and page["dgemma:turn_seconds_count"] >= page["llamacpp:n_decode_total"] > 0)
        check("prompts take time", page["llamacpp:prompt_seconds_total"] > 0
              and page["vllm:request_prefill_time_seconds_sum"] == page["llamacpp:prompt_seconds_total"])
        check("a speed of prompts", page["llamacpp:prompt_tokens_seconds"] > 0)
        denoising = page["llamacpp:tokens_predicted_seconds_total"]
        check("blocks take the time of their steps", abs(page["dgemma:block_seconds_sum"] - denoising) < 1e-6 * denoising,
              (page["dgemma:block_seconds_sum"], denoising))
        check("it was busy for less than that took", 0 < busy < took + 1, (busy, took))

        check("memory", abs(page["process_resident_memory_bytes"] - s.rss()) < 0.2 * s.rss())
        check("files", wait_until(lambda: abs(page["process_open_fds"] - s.files()) <= 1) and page["process_max_fds"] > page["process_open_fds"],
              (page["process_open_fds"], s.files()))
        check("processor time", 0 < page["process_cpu_seconds_total"] and
              page["process_cpu_seconds_total"] > first["process_cpu_seconds_total"])
        check("the start", time.time() - 120 * SLOW < page["process_start_time_seconds"] <= time.time(),
              page["process_start_time_seconds"])
        check("threads", page["process_threads"] >= 4)


def alone():
    """One request after the other, nothing else: the parts add up to what the engine was busy with. Each takes all of its
    steps: an answer that settles at once is over in milliseconds, of which its beginning and end are a third."""
    with Server("-q") as s:
        before = 0, 0
        for turn in range(5):  # the machine may stand still between the parts: not each time
            for i in range(3):
                s.chat("Tell me something about the number %d, %d" % (i, turn), max_tokens=32,
                       diffusion={"steps": 16, "stability_threshold": 16})
            page = Page(s)
            now = page["llamacpp:prompt_seconds_total"] + page["dgemma:block_seconds_sum"], page["dgemma:busy_seconds_total"]
            parts, busy = (b - a for a, b in zip(before, now))
            if 0.7 * busy < parts:
                break
            before = now
        check("prompts and blocks are what it did", 0.7 * busy < parts, (parts, busy))
        check("and no more than that", now[0] <= now[1], now)


def leavers():
    with Server("-q") as s:
        c = s.open_stream(stream=False, **ENDLESS)
        s.wait_metric("vllm:num_requests_running", lambda n: n == 1)
        c.close()
        check("who leaves is counted", s.wait_metric('dgemma:http_requests_total{status="499"}', lambda n: n == 1))
        check("and none without a status", s.metric('dgemma:http_requests_total{status="0"}') == 0)


def dashboard():
    """Every name on the dashboard is one that the server has."""
    with open("docs/grafana.json") as f:
        text = f.read()
    with Server("-q") as s:
        s.chat()
        s.wait_metric("dgemma:http_requests_total", lambda n: n > 0)
        page = Page(s)
    names = {k[0] for _, samples in page.families.values() for k in samples}
    with open("server/metrics.c") as f:  # a GPU's are there where there is one
        names |= set(re.findall(r'"(dgemma:(?:gpu|device)_[a-z_]+)"', f.read()))
    asked = set(re.findall(r"(?:vllm|llamacpp|dgemma):[a-z0-9_]+|process_[a-z_]+", text))
    check("the dashboard asks for what there is", asked and asked <= names, asked - names)
    check("of a GPU, too", {n for n in names if n.startswith("dgemma:gpu_")} <= asked, names - asked)


run([form, numbers, alone, leavers, dashboard])
finish()
