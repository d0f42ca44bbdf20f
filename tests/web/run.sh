#!/bin/sh
# The module under Node, and the page in browsers: sh tests/web/run.sh BUILD COMPILER SECONDS
#
# COMPILER made the module (`make web` names it); without one nothing can be tested. PYTHON names a
# Python that has Playwright. Random clicks and keys last SECONDS in each browser; without SECONDS they are 20 rounds,
# the same each time.
set -u
build=$1 compiler=$2 clicks=${3:-20 1}
status=0

skip() { echo "skipped: $1: $2"; echo '0 passed, 0 failed, 1 skipped'; }

if [ -z "$compiler" ]; then
    skip 'the module and the page' 'there is no compiler for WebAssembly; make web names the packages'
    exit 0
fi
make --no-print-directory BUILD="$build" web || exit 1
mkdir -p "$build/web-models"
for dtype in f32 f16 q8 q4; do
    "$build/attn-convert" examples/tiny-stories "$build/web-models/$dtype.attn" --dtype $dtype --quiet || exit 1
done
# A model with a full stop (id 13) among its end tokens.
ends=$(mktemp -d)
trap 'rm -rf "$ends"' EXIT
cp examples/tiny-stories/*.* "$ends"
sed 's/"eos_token_id": 2047/"eos_token_id": [2047, 13]/' examples/tiny-stories/config.json >"$ends/config.json"
"$build/attn-convert" "$ends" "$build/web-models/ends.attn" --quiet || exit 1
if command -v node >/dev/null; then
    for variant in plain simd relaxed; do
        relaxed=
        [ $variant != relaxed ] || relaxed=$(node --experimental-wasm-relaxed-simd -e 1 2>/dev/null && echo --experimental-wasm-relaxed-simd)
        # shellcheck disable=SC2086 # no flag, or one
        node $relaxed tests/web/test_module.mjs "$build" $variant || status=1
    done
else
    skip 'the module' 'there is no node'
fi
# A page waits more than it computes, so all browsers run at the same time.
running=
for browser in ${BROWSERS:-chromium firefox}; do
    export BROWSERS="$browser"
    (
        ${PYTHON:-python3} tests/web/test_page.py "$build" "$build/web-shots" || status=1
        ${PYTHON:-python3} tests/web/test_random.py "$build" $clicks || status=1
        exit $status
    ) &
    running="$running $!"
done
for browser in $running; do wait "$browser" || status=1; done
exit $status
