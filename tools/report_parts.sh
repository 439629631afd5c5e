# report_parts.sh, read by gpu_report.sh and cpu_report.sh: the parts of a report, each with a log in $out.
# ONLY: a pattern of the parts to run, as 'step-*'.
failed=0
n_part=0
trap 'rm -f "$out/model.gguf"' EXIT
trap 'exit 130' INT TERM

within() { timeout 900 "$@"; }

# part NAME COMMAND...: its last LINES_SHOWN lines are shown; a command that ends with 77 could not be run here
part() {
    name=$1
    shift
    # shellcheck disable=SC2254 # a pattern
    case $name in
    ${ONLY:-*}) ;;
    *) return ;;
    esac
    n_part=$((n_part + 1))
    "$@" >"$out/$name.log" 2>&1
    case $? in
    0) echo "== $name" ;;
    77) echo "== $name skipped" ;;
    *)
        echo "== $name FAILED ($*)"
        failed=1
        ;;
    esac
    tail -n "${LINES_SHOWN:-4}" "$out/$name.log"
}

# The end of a report: fails if a part did, or none was run.
finish() {
    [ "$n_part" -gt 0 ] || { echo "no part is called ${ONLY-}" && exit 1; }
    exit "$failed"
}

# Sixteen requests to pocket, each with a seed of its own.
requests() {
    for i in $(seq 16); do
        printf '{"custom_id":"%d","method":"POST","url":"/v1/chat/completions","body":{"seed":%d,' "$i" "$i"
        printf '"max_tokens":200,"messages":[{"role":"user","content":"Tell me a story about %d foxes."}]}}\n' "$i"
    done
}

# answers NAME OPTION...: what pocket says to each of the requests, as `ID TEXT`, in order, in $out/NAME.txt
answers() {
    answered=$1
    shift
    [ -f "$out/requests.jsonl" ] || requests >"$out/requests.jsonl"
    rm -f "$out/$answered".*jsonl
    within "$BUILD/dgemma" batch -q "$@" "$out/requests.jsonl" "$out/$answered.jsonl" || {
        cat "$out/$answered.errors.jsonl"
        return 1
    }
    sed -n 's/.*"custom_id":"\([0-9]*\)".*"content":"\(\([^"\\]\|\\.\)*\)".*/\1 \2/p' "$out/$answered.jsonl" |
        sort >"$out/$answered.txt"
    [ "$(wc -l <"$out/$answered.txt")" -eq 16 ] || { echo 'not all were answered' && return 1; }
}

# with_file TYPE GIGABYTES COMMAND...: the command with $model, a synthetic model's file of about that size,
# written just now, if there is room for it
with_file() {
    type=$1 room=$2 model=$out/model.gguf
    shift 2
    [ "$(df -Pk "$out" | awk 'NR == 2 {print $4}')" -gt "$((room * 1000000))" ] || {
        echo "no room for a file of $room GB"
        return 77
    }
    rm -f "$model"
    within "$BUILD/dgemma" synth --type "$type" -o "$model" && cat "$model" >/dev/null && "$@"
    status=$?
    rm -f "$model"
    return "$status"
}

# pocket OPTION...: all of its evaluation
pocket() {
    # shellcheck disable=SC2046 # a list of files
    within "$BUILD/pocket_eval" "$@" -m models/pocket/pocket.gguf \
        $(ls models/pocket/eval/*.jsonl models/pocket/eval/*.txt)
}
