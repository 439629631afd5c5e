#!/bin/sh
# Every prompt that people are shown, in documents, in help, by `make run`, in the chat and on the page, is one that the model
# which comes with dgemma answers sensibly: prompts.txt says how. From the environment: DGEMMA.
. tests/support/shell_test.sh

table=tests/pocket/prompts.txt
if [ ! -e models/pocket/pocket.gguf ] || ! command -v python3 >/dev/null 2>&1; then
    skip "prompts that people are shown" "models/pocket/pocket.gguf is not in this tree, or there is no python3"
    finish
fi

if [ -n "${SAN:-}" ]; then
    skip "prompts that people are shown" "a sanitized build gives the same answers, slowly"
    finish
fi

# One on each line, as they are written there. Where text comes through a pipe, or from a video, it is the reader's own; gaps
# (those with a suffix) are beyond this model, and the document says so where it shows one.
cat >"$temp/shown.py" <<'END'
import glob, re

def strings(pattern, paths, text=lambda s: s):
    for path in paths:
        for line in text(open(path, encoding="utf-8").read()).splitlines():
            if "| dgemma" not in line and "--video" not in line and '"suffix"' not in line:
                yield from re.findall(pattern, line)

documents = ["README.md", *glob.glob("docs/*.md"), "docs/man/dgemma.1"]
code = sorted(glob.glob("cli/cmd_*.c"))
joined = lambda s: re.sub(r'"\n\s*"', "", s).replace('\\"', '"').replace("\\n", "\n")
shown = set()
for paths, text in ((documents, lambda s: s), (code, joined)):
    shown.update(strings(r'dgemma (?:run|chat) .*?"([^"|]+)"\s*(?:#.*|always.*|watch.*)?$', paths, text))
    shown.update(strings(r'"role": "user", "content": "([^"]+)"', paths, text))
    shown.update(strings(r'"prompt": "([^"]+)"|chat_prompt = "([^"]+)"', paths, lambda s: text(s)))
shown.update(strings(r"^    > (.+)$", documents))
shown.update(strings(r'^sample "([^"]+)"', ["tools/first_run.sh"]))
page = open("ui/app.js", encoding="utf-8").read()
shown.update(re.findall(r"'([^']+)'", re.search(r"const SAMPLES = \[(.*?)\]", page, re.S).group(1)))
shown.update(re.findall(r"value = '(What[^']+)'", open("ui/attach.js", encoding="utf-8").read()))
first = re.search(r'try_first\[\] =\s*"([^;]+)";', joined(open("cli/cmd_chat.c", encoding="utf-8").read())).group(1)
shown.update(re.findall(r"[A-Z][^.?]*[.?]", first))
for prompt in sorted({p if isinstance(p, str) else p[0] or p[1] for p in shown}):
    print(prompt)
END
python3 "$temp/shown.py" >"$temp/shown" || echo "the prompts could not be found" >>"$temp/shown"
check "documents, chat, page and make run show some" test "$(wc -l <"$temp/shown")" -ge 8

in_table() { grep -qF -- "$1 | " "$table" || { echo "$1"; return 1; }; }
while IFS= read -r prompt; do
    check "shown: $prompt" in_table "$prompt"
done <"$temp/shown"

# A red circle, and a tool.
picture=$temp/circle.png tools=$temp/tools.json
python3 - "$picture" <<'END'
import struct, sys, zlib
n = 144
rows = b"".join(b"\0" + b"".join(b"\xd6\x1c\x24" if (x - 72) ** 2 + (y - 72) ** 2 < 1296 else b"\xfa\xfa\xfa" for x in range(n)) for y in range(n))
chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
open(sys.argv[1], "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", n, n, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
echo '[{"type": "function", "function": {"name": "get_weather", "description": "Get the weather in a city.", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]' >"$tools"

answers() {
    # shellcheck disable=SC2086 # options are words
    "$DGEMMA" run -q $3 "$1" >"$temp/answer" 2>/dev/null </dev/null || return 1
    cat "$temp/answer"
    grep -qE -- "$2" "$temp/answer"
}
grep -v '^#' "$table" | while IFS= read -r row; do
    prompt=${row%% | *} rest=${row#* | }
    options=${rest#*|}
    case $options in *'$picture'*) options="--image $picture" ;; *'$tools'*) options="--tools $tools" ;; esac
    pattern=${rest%%|*}
    pattern=${pattern% }
    check "answered: $prompt" answers "$prompt" "$pattern" "$options"
    echo "$n_passed $n_failed" >"$temp/sums"
done >"$temp/asked"
cat "$temp/asked"
read -r n_passed n_failed <"$temp/sums"
finish
