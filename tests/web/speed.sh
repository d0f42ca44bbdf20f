#!/bin/sh
# The rows of the page's table of speeds: sh tests/web/speed.sh BUILD [ROUNDS]
#
# Native AVX2 and the module's two variants with SIMD in turns, so that what else the machine does
# slows all alike; the best of the rounds (3) counts. Each is a rate per second of processor time, on
# one thread. BUILD is one in which `make web-test` ran. Models are those of BUILD/web-models and any
# that MODELS names.
set -eu
build=$1 rounds=${2:-3}
relaxed=$(node --experimental-wasm-relaxed-simd -e 1 2>/dev/null && echo --experimental-wasm-relaxed-simd || true)
models=$(for dtype in f32 f16 q8 q4; do echo "$build/web-models/$dtype.attn"; done)
for round in $(seq "$rounds"); do
    for model in $models ${MODELS:-}; do
        echo "$model native $("$build/tests/web-native" --speed "$model")"
        for variant in relaxed simd; do
            # shellcheck disable=SC2086 # no flag, or one
            echo "$model $variant $(node $relaxed tests/web/test_module.mjs "$build" $variant --speed "$model")"
        done
    done
done | awk '{
    key = $1 " " $2
    if (!(key in reading)) order[++n] = key
    if ($(NF - 12) > reading[key]) reading[key] = $(NF - 12)
    if ($(NF - 5) > writing[key]) writing[key] = $(NF - 5)
}
END {
    print "model, variant: tokens/s of a prompt of 128; a token at a time"
    for (i = 1; i <= n; i++) print order[i] ": " reading[order[i]] "; " writing[order[i]]
}'
