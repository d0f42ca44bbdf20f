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
version=$(sed -n 's/^#define ATTN_VERSION_\(MAJOR\|MINOR\|PATCH\) *//p' attn.h | paste -sd . -)
sed -i.old "s/^Version: .*/Version: $version/" "$place/DESCRIPTION"
rm "$place/DESCRIPTION.old"
mkdir -p "$place/inst/extdata"
"$build/attn-convert" -q examples/tiny-stories "$place/inst/extdata/tiny-stories.attn" --dtype f16
cp tests/fixtures/surprisal/texts.txt "$place/tests"
"$build/surprisal" "$place/inst/extdata/tiny-stories.attn" -q "$place/tests/texts.txt" >"$place/tests/expected.csv"
(cd "$build" && R CMD build r/attn)
