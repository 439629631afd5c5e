#!/usr/bin/env python3
"""What `dgemma quantize` writes, judged by llama.cpp: its loader, its dequantisation, its graph.

    llama_judge.py DGEMMA LLAMA [--model MODEL.gguf] [TYPE...]

LLAMA is the folder of programs of a llama.cpp build that knows the architecture diffusion-gemma (pull request
24423) with llama-diffusion-gemma-eval and llama-quantize in it. For each type the model is written by `dgemma
quantize`, and then

  loads     llama.cpp makes F32 of the file: every tensor is read by its loader and dequantised by its functions
  logits    of that F32 file by llama.cpp, against those of the file by `dgemma verify` with products in floats:
            a canvas behind a prompt, all words of all rows
  answer    what llama.cpp says from that F32 file in a few passes, each of which sees the words and, through
            self-conditioning, the logits of the last
  as it is  logits of llama.cpp from the file itself, whose products round inputs to 8 or 16 bits, against those
            of its F32 file: that it runs, and what its kernels lose; no judgement

and the vision tower, where the model has one beside it, is written by --mmproj and encodes a picture in
llama-mtmd-debug, where the build has that.

The exit status is 1 when a file does not load or run, when logits are further off than ALLOWED, or when the answer
is wrong; 77 when there is no such build."""
import argparse
import array
import json
import math
import os
import re
import subprocess
import sys
import tempfile

TYPES = "BF16 F16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_D Q4_0 Q4_1 IQ4_NL IQ4_XS MXFP4_MOE".split()
ALLOWED = 2e-4  # what traces of transformers are allowed too (docs/testing.md)
PASSES = 5
QUESTION = ("<bos><|turn>user\nWhat is the capital of France?<turn|>\n<|turn>model\n"
            "<|channel>thought\n<channel|>")
ANSWER = "Paris"


class Failed(Exception):
    pass


def call(*command):
    """What a program prints, or its last words."""
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=600)
    if run.returncode:
        words = (run.stderr.strip() or run.stdout.strip() or "nothing was printed").splitlines()
        raise Failed(f"{os.path.basename(command[0])}: status {run.returncode}: {words[-1][:200]}")
    return run.stdout + run.stderr


def read_floats(path):
    values = array.array("f")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    return values


def distance(got, wanted):
    if len(got) != len(wanted):
        raise Failed(f"{len(got)} logits beside {len(wanted)}")
    off = sum((a - b) ** 2 for a, b in zip(got, wanted))
    return math.sqrt(off / sum(b * b for b in wanted))


class Judge:
    def __init__(self, args, folder):
        self.dgemma, self.model, self.folder = args.dgemma, args.model, folder
        self.programs = args.llama
        reference = json.loads(call(self.dgemma, "verify", "--record", self.model))
        self.prompt, self.canvas = reference["prompt"], reference["canvas"]
        with open(self.path("question.txt"), "w") as file:
            file.write(QUESTION)
        said = call(self.dgemma, "tokenize", "-m", self.model, "--markers", "-f", self.path("question.txt"))
        self.question = [int(word) for word in said.split()]

    def path(self, name):
        return os.path.join(self.folder, name)

    def program(self, name):
        return os.path.join(self.programs, name)

    def logits(self, model, prompt, canvas, last=None):
        """llama.cpp's, of all rows of the canvas; `last`: those of the pass before."""
        for name, words in (("prompt", prompt), ("canvas", canvas)):
            with open(self.path(name), "wb") as file:
                array.array("i", words).tofile(file)
        more = []
        if last:
            more = [self.path("last")]
            with open(self.path("last"), "wb") as file:
                last.tofile(file)
        call(self.program("llama-diffusion-gemma-eval"), model, self.path("prompt"), self.path("canvas"),
             self.path("logits"), *more)
        return read_floats(self.path("logits"))

    def ours(self, model, logits):
        """How far `dgemma verify` is from them."""
        n = len(logits) // len(self.canvas)
        rows = [list(logits[i * n:(i + 1) * n]) for i in range(len(self.canvas))]
        with open(self.path("reference.json"), "w") as file:
            json.dump({"prompt": self.prompt, "canvas": self.canvas, "logits": rows, "allowed": 1.0}, file)
        said = call(self.dgemma, "verify", "--kv-type", "f32", "--profile", "float", "--reference",
                    self.path("reference.json"), model)
        found = re.search(r"logits of \d+ rows: off by ([0-9.e+-]+)", said)
        if not found:
            raise Failed("dgemma verify said: " + said)
        return float(found[1])

    def answer(self, model):
        canvas, last = self.canvas, None
        for _ in range(PASSES):
            last = self.logits(model, self.question, canvas, last)
            n = len(last) // len(canvas)
            canvas = [max(range(i * n, (i + 1) * n), key=last.__getitem__) - i * n for i in range(len(canvas))]
        text = call(self.dgemma, "tokenize", "-m", self.model, "-d", ",".join(map(str, canvas)))
        return text.split("<turn|>")[0].strip()

    def judge(self, kind):
        mine, wide = self.path(kind + ".gguf"), self.path("wide.gguf")
        call(self.dgemma, "quantize", "-q", "--type", kind, self.model, mine)
        call(self.program("llama-quantize"), "--allow-requantize", mine, wide, "F32")
        exact = self.logits(wide, self.prompt, self.canvas)
        ours, native = self.ours(mine, exact), distance(self.logits(mine, self.prompt, self.canvas), exact)
        answer = self.answer(wide)
        os.remove(mine)
        os.remove(wide)
        good = ours <= ALLOWED and math.isfinite(native) and ANSWER in answer
        print(f"{kind:10} {'yes':>6} {ours:10.1e} {100 * native:9.2f} %  {answer[:60]}{'' if good else '   WRONG'}",
              flush=True)
        return good

    def judge_tower(self):
        """Whether libmtmd loads the tower and comes to the end of a picture."""
        program, tower, mine = self.program("llama-mtmd-debug"), self.path("mmproj.gguf"), self.path("beside.gguf")
        if not os.path.exists(program):
            print(f"{'mmproj':10} skipped: no llama-mtmd-debug in that folder")
            return True
        call(self.dgemma, "quantize", "-q", "--type", "Q8_0", "--mmproj", tower, self.model, mine)
        said = call(program, "-m", mine, "--mmproj", tower, "-p", "encode", "-n", "96", "--image", "rainbow")
        sums = re.findall(r"sum = (\S+)", said)
        good = bool(sums) and all(math.isfinite(float(x)) for x in sums)
        print(f"{'mmproj':10} {'yes':>6}  {len(sums)} steps of the tower{'' if good else '   WRONG'}", flush=True)
        return good


def main():
    parser = argparse.ArgumentParser(description="llama.cpp judges what `dgemma quantize` writes")
    parser.add_argument("dgemma")
    parser.add_argument("llama", help="folder of llama.cpp's programs")
    parser.add_argument("--model", default="models/pocket/pocket.gguf")
    parser.add_argument("types", nargs="*", metavar="TYPE")
    args = parser.parse_args()
    for name in ("llama-diffusion-gemma-eval", "llama-quantize"):
        if not os.path.exists(os.path.join(args.llama, name)):
            print(f"skipped: {args.llama} has no {name}")
            return 77
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        judge = Judge(args, folder)
        print(f"{'type':10} {'loads':>6} {'logits':>10} {'as it is':>11}  answer")
        for kind in args.types or TYPES + ["mmproj"]:
            try:
                bad += not (judge.judge_tower() if kind == "mmproj" else judge.judge(kind))
            except Failed as error:
                bad += 1
                print(f"{kind:10} FAILED {error}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
