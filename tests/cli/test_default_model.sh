#!/bin/sh
# Commands without a model use the pocket model: from the source tree, from where it is installed, or not at all.
# From the environment: DGEMMA.
. tests/support/shell_test.sh

model=tests/fixtures/golden/sampler_finishes/model    # stands for it: any name may be that of a folder

# tree NAME PROGRAM MODEL: a copy of the program and of a model, at these places below $temp/NAME
tree() {
    mkdir -p "$temp/$1/${2%/*}" "$temp/$1/${3%/*}"
    cp "$DGEMMA" "$temp/$1/$2"
    cp -r "$model" "$temp/$1/$3"
}

# answers PROGRAM MODEL: it runs, and says once where its model is
answers() {
    "$temp/$1" run -n 20 hi >"$temp/out" 2>"$temp/err" </dev/null || { cat "$temp/err"; return 1; }
    cat "$temp/err"
    [ -s "$temp/out" ] && [ "$(grep -c 'pocket model' "$temp/err")" = 1 ] && grep -q "$2" "$temp/err"
}

# every_command PROGRAM
every_command() {
    for words in inspect 'tokenize hi' 'verify --record' 'run -n 4 hi' 'chat -n 4 -p hi'; do
        # shellcheck disable=SC2086 # they are words
        "$temp/$1" $words >/dev/null 2>"$temp/err" </dev/null || { echo "$words"; cat "$temp/err"; return 1; }
        [ "$(grep -c 'pocket model' "$temp/err")" = 1 ] || { echo "$words"; cat "$temp/err"; return 1; }
    done
}

tree build build/dgemma models/pocket/pocket.gguf
check "from build/" answers build/build/dgemma 'models/pocket/pocket.gguf'
check "every command" every_command build/build/dgemma
tree config build/release/dgemma models/pocket/pocket.gguf
check "from build/CONFIGURATION/" answers config/build/release/dgemma 'models/pocket/pocket.gguf'
ln -s "$temp/config/build/release/dgemma" "$temp/link"
check "through a link" answers link 'models/pocket/pocket.gguf'
tree installed bin/dgemma share/dgemma/pocket.gguf
check "from PREFIX/bin/" answers installed/bin/dgemma 'share/dgemma/pocket.gguf'

quiet() { "$temp/build/build/dgemma" run -q -n 20 hi >"$temp/out" 2>"$temp/err" </dev/null && [ -s "$temp/out" ] && [ ! -s "$temp/err" ]; }
check "a quiet run says nothing of it" quiet

named_model() {
    "$temp/build/build/dgemma" run -m "$model" -q -n 20 hi >/dev/null 2>"$temp/err" </dev/null && [ ! -s "$temp/err" ]
}
check "not where a model is named" named_model

mkdir -p "$temp/a/b/c"
cp "$DGEMMA" "$temp/a/b/c/dgemma"
if [ -e /usr/local/share/dgemma/pocket.gguf ]; then
    skip "nowhere to be found" "it is installed on this machine"
else
    for words in 'run hi' 'chat' 'inspect' 'tokenize hi' 'verify'; do
        # shellcheck disable=SC2086
        check "nowhere to be found: $words" fails_saying "$temp/a/b/c/../../models/pocket/pocket.gguf" "$temp/a/b/c/dgemma" $words
    done
fi
finish
