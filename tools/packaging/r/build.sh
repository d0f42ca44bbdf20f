#!/bin/sh
# Makes the R package: sh tools/packaging/r/build.sh BUILD. BUILD has attn-convert and surprisal. The header, the
# included model and the expected numbers of the tests are copied in; the result is BUILD/attn_VERSION.tar.gz.
set -eu
build=$1
here=tools/packaging/r/attn
place=$build/r/attn
rm -rf "$build/r"
mkdir -p "$build/r"
cp -R "$here" "$build/r"
# CRAN refuses pragmas that turn warnings off.
sed '/^#pragma GCC diagnostic ignored/d' attn.h >"$place/src/attn.h"
# What the package includes, without R's headers and the scripts of pages, and what it does on Windows.
for header in $(${CC:-cc} -MM -MG -I. "$here/src/calls.c" | tr -s ' \\' '\n' | grep '^tools/.*h$') tools/write/wide.h; do
    mkdir -p "$place/src/${header%/*}"
    cp "$header" "$place/src/$header"
done
sh tools/lens/program/draw/embed.sh >"$place/src/lens_embedded.h"
version=$(sed -n 's/^#define ATTN_VERSION_[MP][AIT][JNT][OC][RH] *//p' attn.h | paste -sd . -)
fact() # KEY: what tools/packaging/publishing.txt says; nothing, if nobody has said it
{
    sed -n "s/^$1: *//p" tools/packaging/publishing.txt | head -1
}
# Without a person the package can be built and checked, but CRAN would not take it.
name=$(fact name) email=$(fact email) url=$(fact url) tracker=$(fact tracker)
sed -e "s/@VERSION@/$version/; s/@GIVEN@/${name% *}/; s/@FAMILY@/${name##* }/; s/@EMAIL@/$email/" \
    -e "s/\"\", \"\", email = \"\"/\"The attn.h authors\", email = \"attn@example.org\"/" \
    -e "s,@URL@,$url,; s,@TRACKER@,$tracker,; /^URL: *$/d; /^BugReports: *$/d" \
    "$here/DESCRIPTION" >"$place/DESCRIPTION"
mkdir -p "$place/inst/extdata"
sed "s/@VERSION@/$version/; s,@URL@,$url,g" "$here/inst/CITATION" >"$place/inst/CITATION"
"$build/attn-convert" -q examples/tiny-stories "$place/inst/extdata/tiny-stories.attn" --dtype f16
cp tests/fixtures/surprisal/texts.txt "$place/tests"
surprisal()
{
    "$build/surprisal" "$place/inst/extdata/tiny-stories.attn" -q "$@"
}
surprisal "$place/tests/texts.txt" >"$place/tests/expected.csv"
cat >"$place/tests/items.csv" <<'END'
s,n,tokens
The old_man  the boats.,np np vp dp dp,3
"_A__b ""c""",x x y,4
END
sed '2,$s/_/ /g' "$place/tests/items.csv" >"$place/tests/words.csv"
surprisal "$place/tests/items.csv" -c s --by region --rank --top 2 --regions _ >"$place/tests/marked.csv"
surprisal "$place/tests/words.csv" -c s --by token --unit nats --region-names n >"$place/tests/named.csv"
# The vignette is made by the package itself, so it is installed first.
mkdir -p "$build/r/library"
(
    cd "$build"
    R CMD INSTALL --no-docs -l r/library r/attn >r/log 2>&1 || { cat r/log; exit 1; }
    rm -f r/attn/src/*.o r/attn/src/*.so
    R_LIBS=$PWD/r/library R CMD build r/attn
)
