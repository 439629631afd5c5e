#!/bin/sh
# tools/mutate.py on a tree of one file whose `unit_tests` is a script: what is noticed, what is not, what does
# not apply, what hangs.
. tests/support/shell_test.sh

tree=$temp/tree
mkdir -p "$tree/src" "$tree/tests"
cat >"$tree/src/sum.sh" <<'END'
add() { echo $(($1 + $2)); }
last() {
    echo "$2"; }
END
cat >"$tree/Makefile" <<'END'
build/mutant/unit_tests: src/sum.sh
	sh -n src/sum.sh
	mkdir -p build/mutant
	{ cat src/sum.sh; echo '[ "$$1" = none ] && { echo "0 passed, 0 failed, 0 skipped"; exit; }'; \
	  echo '[ "$$(add 2 3)" = 5 ] || exit 1; echo "1 passed, 0 failed, 0 skipped"'; } > $@
	sed -i '1i #!/bin/sh' $@
	chmod +x $@
END

# outcome STATUS LINE...: the tool's status on the list from standard input, and lines it prints.
outcome() {
    want=$1
    shift
    cat >"$tree/tests/mutations.txt"
    python3 tools/mutate.py --tree "$tree" --jobs 2 --limit 1 >"$temp/out" 2>&1
    status=$?
    cat "$temp/out"
    [ "$status" -eq "$want" ] || return 1
    for line in "$@"; do
        grep -qF -- "$line" "$temp/out" || { echo "missing: $line"; return 1; }
    done
}

check "what is noticed, and what is not" outcome 1 "killed: src/sum.sh: the sum is a product" \
    "FAILED: survived: src/sum.sh: the first comes last" "1 passed, 1 failed, 0 skipped" <<'END'
@ src/sum.sh: sums
the sum is a product
- $1 + $2
+ $1 * $2
the first comes last
- last() { echo "$2"
+ last() { echo "$1"
END
check "text that is not there, or twice" outcome 1 "its text occurs 0 times" "its text occurs 2 times" \
    "0 passed, 2 failed, 0 skipped" <<'END'
@ src/sum.sh: sums
absent
- $1 - $2
+ $1
ambiguous
- echo
+ print
END
check "a file that is not there" outcome 1 "does not apply: src/other.sh" <<'END'
@ src/other.sh: sums
gone
- a
+ b
END
check "what does not compile" outcome 1 "FAILED: does not compile: src/sum.sh: a brace too many" <<'END'
@ src/sum.sh: sums
a brace too many
- echo $(($1 + $2)); }
+ echo $(($1 + $2)); } }
END
check "what hangs is noticed" outcome 0 "killed: src/sum.sh: forever" "1 passed, 0 failed, 0 skipped" <<'END'
@ src/sum.sh: sums
forever
- echo $(($1 + $2))
+ while :; do sleep 1; done
END
check "tests that are skipped have not noticed" outcome 1 "FAILED: survived: src/sum.sh: nothing is left to test" <<'END'
@ src/sum.sh: sums
nothing is left to test
- last() { echo "$2"; }
+ echo "0 passed, 0 failed, 1 skipped"; exit
END
check "a suite that does not exist is no evidence" outcome 1 "FAILED: none does not pass as the code is" <<'END'
@ src/sum.sh: none
the sum is a product
- $1 + $2
+ $1 * $2
END
printf 'build/mutant/other: build/mutant/unit_tests\n\tcp $< $@\n' >>"$tree/Makefile"
check "a suite of another program" outcome 0 "killed: src/sum.sh: the sum is a product (other:sums" <<'END'
@ src/sum.sh: other:sums
the sum is a product
- $1 + $2
+ $1 * $2
END
check "one that has nothing to say" outcome 1 "FAILED: other:none does not pass as the code is" <<'END'
@ src/sum.sh: other:none
the sum is a product
- $1 + $2
+ $1 * $2
END
check "the tree itself is left alone" grep -qF '$1 + $2' "$tree/src/sum.sh"
check "every mutation of ours is listed" sh -c \
    'python3 tools/mutate.py --list | tail -n 1 | grep -qE "^([6-9][0-9]|[0-9]{3,}) mutations$"'
check "and every one applies" python3 tools/mutate.py --list
printf '@ src/sum.sh: sums\ngone\n- no such text\n+ b\n' >"$temp/stale.txt"
check "one that the code has left behind" fails_saying "gone (sums) FAILED: does not apply" \
    python3 tools/mutate.py --tree "$tree" --list "$temp/stale.txt"
finish
