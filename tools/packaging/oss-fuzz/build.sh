#!/bin/bash -eu
# OSS-Fuzz runs this in the repository: a target for each kind of input that a stranger may have made, its corpus and
# dictionary beside it, and the model that some targets read. Targets run in $OUT, where they keep their files.
#
#     OUT=$(mktemp -d) CC=clang CFLAGS='-O1 -g -fsanitize=address,fuzzer-no-link' LIB_FUZZING_ENGINE=-fsanitize=fuzzer \
#         bash tools/packaging/oss-fuzz/build.sh
make -s CC=cc CFLAGS= build/attn-convert
build/attn-convert examples/tiny-stories "$OUT/tiny-stories.attn" 2>"$OUT/convert.log"
common=(-std=c99 -I. -Itests/fuzz -DATTN_NO_SIMD '-DTEST_BUILD="."')
# shellcheck disable=SC2086 # CFLAGS are words
$CC $CFLAGS "${common[@]}" -DATTN_IMPLEMENTATION -x c -c attn.h -o "$OUT/attn.o"
for target in attn huggingface pickle gguf llmc vocab tokenizer session sampler hooks lens surprisal; do
    case $target in huggingface | pickle | gguf | llmc | vocab) source=convert ;; *) source=$target ;; esac
    # shellcheck disable=SC2086
    $CC $CFLAGS "${common[@]}" -DATTN__IMPLEMENTED -DTARGET="fuzz_$target" tests/fuzz/driver.c "tests/fuzz/fuzz_$source.c" \
        "$OUT/attn.o" $LIB_FUZZING_ENGINE -o "$OUT/$target" -lm
    (cd "tests/fuzz/corpus/$target" && zip -qr "$OUT/${target}_seed_corpus.zip" .)
    [ ! -f "tests/fuzz/$target.dict" ] || cp "tests/fuzz/$target.dict" "$OUT"
done
rm "$OUT/attn.o" "$OUT/convert.log"
