#!/bin/sh
# The page of `dgemma serve` as C: one document with styles and scripts in it, and the policy that lets exactly those run.
#
#   embed_page.sh INDEX STYLE SCRIPT...    on standard output
#
# The document has the lines <!-- style --> and <!-- script -->; scripts are joined in their order, as one module.
set -eu
LC_ALL=C
export LC_ALL
index=$1 style=$2
shift 2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cp "$style" "$work/style"
cat "$@" >"$work/script"
# What stands between the tags is what browsers hash, so nothing in it may end it early.
if grep -qi '</script\|<!--' "$work/script" || grep -qi '</style' "$work/style"; then
    echo "embed_page.sh: a script or style has a tag in it that would end it" >&2
    exit 1
fi
for mark in style script; do
    [ "$(grep -c "^ *<!-- $mark -->\$" "$index")" -eq 1 ] || {
        echo "embed_page.sh: $index must have one line <!-- $mark -->" >&2
        exit 1
    }
done

awk -v style="$work/style" -v script="$work/script" '
function paste(file,    line) {
    while ((getline line < file) > 0)
        print line
}
/^ *<!-- style -->$/ { printf "<style>"; paste(style); print "</style>"; next }
/^ *<!-- script -->$/ { printf "<script type=\"module\">"; paste(script); print "</script>"; next }
{ print }
' "$index" >"$work/page"

hex() { sha256sum <"$1" | cut -d ' ' -f 1; }

# Six hexadecimal digits are four of base 64; 64 of them leave 4, which become three and a "=".
hash() {
    hex "$1" | awk '
    {
        digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
        for (i = 1; i <= 66; i += 6) {
            n = 0
            for (k = 0; k < 6; k++)
                n = n * 16 + (i + k <= 64 ? index("0123456789abcdef", substr($0, i + k, 1)) - 1 : 0)
            out = out substr(digits, int(n / 262144) + 1, 1) substr(digits, int(n / 4096) % 64 + 1, 1) \
                substr(digits, int(n / 64) % 64 + 1, 1) substr(digits, n % 64 + 1, 1)
        }
        print substr(out, 1, 43) "="
    }'
}

cat <<END
/* Made by tools/embed_page.sh. */
#include "page.h"

const char dg_page_etag[] = "\"$(hex "$work/page" | cut -c 1-32)\"";

const char dg_page_policy[] =
    "default-src 'none'; script-src 'sha256-$(hash "$work/script")'; "
    "style-src 'sha256-$(hash "$work/style")'; connect-src 'self'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

const unsigned char dg_page[] = {
END
od -An -v -tu1 "$work/page" | sed 's/  */,/g; s/^,//; s/$/,/'
cat <<END
};

const size_t dg_page_size = sizeof dg_page;
END
