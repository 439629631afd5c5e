#!/bin/sh
# tools/embed_page.sh: one document, with a policy that allows exactly its own style and script.
. tests/support/shell_test.sh

printf '<html>\n    <!-- style -->\n<p>é\n<!-- script -->\n' >"$temp/index.html"
printf 'p { color: red }\n' >"$temp/style.css"
printf 'const a = "\\n&";\n' >"$temp/a.js"
printf 'const b = 1;\n' >"$temp/b.js"
embed() { (cd "$temp" && sh "$OLDPWD/tools/embed_page.sh" "$@"); }
page() { sed -n '/^const unsigned char/,/^};/p' "$temp/page.c" | grep '^[0-9]' | tr ',' '\n' | sed '/^$/d'; }

# The numbers back as bytes: octal escapes, which every printf knows.
bytes() { page | while read -r n; do printf '%b' "\\0$(printf '%o' "$n")"; done; }
makes_one_document() {
    embed index.html style.css a.js b.js >"$temp/page.c" || return 1
    printf '<html>\n<style>p { color: red }\n</style>\n<p>é\n<script type="module">const a = "\\n&";\nconst b = 1;\n</script>\n' >"$temp/want"
    bytes | cmp - "$temp/want"
}
hash_of() { python3 -c 'import base64, hashlib, sys; print(base64.b64encode(hashlib.sha256(sys.stdin.buffer.read()).digest()).decode())'; }
hashes_fit() {
    cat "$temp/a.js" "$temp/b.js" | hash_of | sed "s/^/script-src 'sha256-/" | grep -qFf - "$temp/page.c" &&
        hash_of <"$temp/style.css" | sed "s/^/style-src 'sha256-/" | grep -qFf - "$temp/page.c"
}
compiles() { printf '#include <stddef.h>\n' >"$temp/page.h" && ${CC:-cc} -c -o "$temp/page.o" "$temp/page.c"; }

check "one document" makes_one_document
if command -v python3 >/dev/null 2>&1; then
    check "the hashes are those of its parts" hashes_fit
else
    skip "the hashes are those of its parts" "there is no python3"
fi
check "it compiles" compiles
printf 'const c = "</Script>";\n' >"$temp/c.js"
check "a script that ends itself" fails_saying "would end it" embed index.html style.css c.js
printf '<html>\n<!-- style -->\n' >"$temp/index.html"
check "a document without its marks" fails_saying "one line <!-- script -->" embed index.html style.css a.js
finish
