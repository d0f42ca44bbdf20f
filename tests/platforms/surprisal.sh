#!/bin/sh
# tools/surprisal on every build: each prints the bytes of tests/fixtures/surprisal/bytes.csv and predictors-bytes.csv,
# and writes the vectors whose checksums are in vectors-bytes.txt, and the receipt that BUILD/surprisal writes.
# Builds that this machine lacks are named and left out.
#
#     sh tests/platforms/surprisal.sh BUILD [WORD]...
#
# BUILD/tiny-stories.attn and BUILD/surprisal must be there. With words, only the builds whose line has one of them are made.
set -u
build=$1
shift
only=$*
out=$build/surprisal-builds
fixtures=tests/fixtures/surprisal
mkdir -p "$out"
ok=0 bad=0

wasi='-include examples/web/no_signals.h -D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS
    -DATTN_NO_MMAP -Wl,-z,stack-size=1048576 -lwasi-emulated-signal -lwasi-emulated-getpid -lwasi-emulated-process-clocks'

prints() # RUNNER NAME FIXTURE OPTION...: these bytes, for the texts with these options
{
    runner=$1 program=$2 fixture=$3
    shift 3
    $runner "$out/$program" "$build/tiny-stories.attn" "$fixtures/texts.txt" -q "$@" </dev/null >"$out/$program.csv" 2>"$out/log" &&
        cmp "$out/$program.csv" "$fixtures/$fixture"
}

vectors() # RUNNER NAME: the files of vectors of three texts have these checksums.
{
    runner=$1 program=$2
    rm -f "$out"/vectors.*
    head -n 3 "$fixtures/texts.txt" >"$out/three.txt"
    for kind in 'npz --pooling mean' 'safetensors --pooling last --dtype f16'; do
        # shellcheck disable=SC2086 # words
        $runner "$out/$program" "$build/tiny-stories.attn" "$out/three.txt" -q --vectors 'blocks.*.hook_resid_post' \
            --vectors-file "$out/vectors."$kind </dev/null 2>"$out/log" >"$out/$program.csv"
    done
    (cd "$out" && cksum vectors.npz vectors.safetensors) | cmp - "$fixtures/vectors-bytes.txt"
}

receipts() # RUNNER NAME: the receipt has the bytes of this machine's, and so the same digest of all rows
{
    for program in "$build/surprisal" "$1 $out/$2"; do
        rm -f "$out/receipt.json"
        $program "$build/tiny-stories.attn" "$fixtures/texts.txt" -q --rank --receipt "$out/receipt.json" \
            </dev/null >"$out/$2.csv" 2>"$out/log" || return
        [ "$program" != "$build/surprisal" ] || mv "$out/receipt.json" "$out/here.json"
    done
    cmp "$out/here.json" "$out/receipt.json"
}

wanted() # LINE
{
    [ -n "$only" ] || return 0
    for word in $only; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

while IFS='|' read -r name runner compiler; do
    wanted "$name $compiler" || continue
    name=$(echo "$name" | tr -d ' ')
    # shellcheck disable=SC2086 # words
    case $compiler in *wasm*) more=$wasi ;; *) more= ;; esac
    if ! $compiler -I. tools/surprisal/surprisal.c $more -lm -o "$out/$name" >"$out/log" 2>&1; then
        echo "absent     $name:$compiler"
    elif prints "$runner" "$name" bytes.csv --rank --top 2 &&
        prints "$runner" "$name" predictors-bytes.csv --layers all --entropy-reduction --renyi 0.3 --spillover 1 &&
        vectors "$runner" "$name" && receipts "$runner" "$name"; then
        ok=$((ok + 1))
        echo "ok         $name:$compiler"
    else
        bad=$((bad + 1))
        echo "DIFFERS    $name:$compiler"
        head -3 "$out/log"
    fi
done <<'END'
avx2 || gcc -O2 -mavx2 -mfma -DATTN_NO_DISPATCH
contracted || gcc -O3 -std=gnu11 -march=native -ffp-contract=fast -DATTN_NO_DISPATCH
best || gcc -O2 -fopenmp
plain || gcc -O1 -DATTN_NO_SIMD
clang || clang -O2 -march=native -DATTN_NO_DISPATCH
i686 || gcc -m32 -O1 -static -msse2 -mfpmath=sse
aarch64 | qemu-aarch64 -cpu max | aarch64-linux-gnu-gcc -O1 -static
s390x | qemu-s390x | s390x-linux-gnu-gcc -O1 -static -fexcess-precision=fast
wasm | node --no-warnings tests/platforms/wasi.mjs | clang-16 --target=wasm32-wasi -O2
wasm-simd | node --no-warnings tests/platforms/wasi.mjs | clang-16 --target=wasm32-wasi -O2 -msimd128
END
echo "$ok builds print the same bytes"
[ $bad = 0 ] && [ $ok -gt 0 ]
