#!/bin/sh
# The same bits everywhere: builds tests/platforms/portability.c in every way that this machine can, runs it,
# and compares with tests/fixtures/checksums.txt. Installs nothing: what is missing is named.
#
#     sh tests/platforms/portability.sh BUILD [WORD]...
#
# BUILD/attn-convert, gpt2 and attn-verify must be there. With words, only the rows that have all of them are done:
# `sh tests/platforms/portability.sh build clang` or `... build s390x`.
set -u
build=$1
shift
out=$build/portability
table=tests/fixtures/checksums.txt
log=$out/log
mkdir -p "$out/models"
: >"$log"
WINEDEBUG=-all
WINEPREFIX=$(cd "$out" && pwd)/wine
OMP_WAIT_POLICY=passive # up to 8 threads, on however few processors
export WINEDEBUG WINEPREFIX OMP_WAIT_POLICY
echo 'int main(void) { return 0; }' >"$out/probe.c"

for model in plain odd narrow long tiny-stories; do
    from=tests/golden/$model
    [ -d "$from" ] || from=examples/$model
    for dtype in f32 f16 q8 q4; do
        "$build/attn-convert" "$from" "$out/models/$model-$dtype.attn" --dtype $dtype \
            >>"$log" 2>&1 || { tail -1 "$log"; exit 1; }
        "$build/gpt2" "$out/models/$model-$dtype.attn" --ids '1 2 3 4 1 2' -n 24 --temperature 0.8 \
            --top-k 30 --top-p 0.95 --repeat-penalty 1.1 --seed 7 -q \
            --receipt "$out/models/$model-$dtype.json" >>"$log" 2>&1 || { tail -1 "$log"; exit 1; }
        "$build/attn-verify" "$out/models/$model-$dtype.attn" "$out/models/$model-$dtype.json" \
            >>"$log" 2>&1 || { tail -1 "$log"; exit 1; }
    done
done

ok=0 differ=0 absent=0
verdict() # WORD: one row of the matrix, and the reason if there is one
{
    printf '%-14s %-13s %-26s %s\n' "$1" "$arch" "$compiler" "$options${2:+  ($2)}"
}

# row ARCH COMPILER OPTIONS [RUNNER [THREADS]]: what runs the program here, and how many threads to
# try besides one.
row()
{
    arch=$1 compiler=$2 options=$3 runner=${4-} threads=${5-}
    for word in $only; do
        case " $arch $compiler $options $runner " in *"$word"*) ;; *) return ;; esac
    done
    program=$out/program
    case "$arch $compiler" in
    windows*) program=$program.exe ;;
    *emcc) program=$program.js ;;
    wasm*) program=$program.wasm ;;
    esac
    for tool in ${compiler%% *} ${runner%% *}; do
        if ! command -v "$tool" >/dev/null; then
            absent=$((absent + 1))
            verdict 'not installed' "no $tool"
            return
        fi
    done
    rm -f "$program"
    # shellcheck disable=SC2086 # options and runners are lists of words
    if ! { $compiler $options "$out/probe.c" -o "$program" -lm &&
        timeout 60 $runner "$program"; } >>"$log" 2>&1; then
        absent=$((absent + 1))
        verdict 'not installed' 'an empty program does not build or run'
        return
    fi
    start=$(date +%s)
    echo "== $arch $compiler $options" >>"$log"
    # shellcheck disable=SC2086
    if $compiler -std=c99 $options -I. tests/platforms/portability.c -o "$program" -lm >>"$log" 2>&1 &&
        timeout "${LIMIT:-900}" $runner "$program" "$out/models" $table $threads \
            >"$out/result" 2>&1; then
        ok=$((ok + 1))
        verdict ok "$(grep -c ' of ' "$out/result") x $(sed -n 's/.* of //p' "$out/result" |
            head -1) sums, $(($(date +%s) - start)) s"
    else
        differ=$((differ + 1))
        verdict DIFFERS 'or fails'
        tail -8 "$out/result"
        tail -3 "$log"
    fi
    cat "$out/result" >>"$log" 2>/dev/null
    rm -f "$out/program"* "$out/result"
}

only=$*
host=$(uname -m)
for compiler in gcc clang; do
    row "$host" $compiler '-O2 -fopenmp' '' '2 3 4 5 6 7 8'
    for level in -O0 -O1 -Os '-O3 -march=native' '-std=gnu99 -O2 -march=native'; do
        row "$host" $compiler "$level -fopenmp" '' 3
    done
    row "$host" $compiler '-O2 -pthread -D_DEFAULT_SOURCE -DATTN_THREADS' '' '2 3 4 5 6 7 8'
    row "$host" $compiler '-O2'
    row "$host" $compiler '-O2 -DATTN_NO_SIMD'
    row "$host" $compiler '-O2 -DATTN_NO_DISPATCH'
    row "$host" $compiler '-O2 -DATTN_NO_MMAP'
    if grep -q ' avx2 ' /proc/cpuinfo 2>/dev/null; then
        row "$host" $compiler '-O2 -DATTN_NO_DISPATCH -march=haswell'
        row "$host" $compiler '-std=gnu99 -O2 -DATTN_NO_SIMD -march=haswell'
    fi
    if grep -q ' avx512_vnni' /proc/cpuinfo 2>/dev/null; then
        row "$host" $compiler '-O2 -DATTN_NO_DISPATCH -march=haswell -mavx512vl -mavx512vnni'"\
 -D__AVXVNNI__ -include tests/compile/avx_vnni.h"
    fi
done
row aarch64 aarch64-linux-gnu-gcc '-O2 -static' 'qemu-aarch64 -cpu max'
row aarch64 aarch64-linux-gnu-gcc '-O2 -static -march=armv8.2-a+dotprod' 'qemu-aarch64 -cpu cortex-a76'
row aarch64 aarch64-linux-gnu-gcc '-O2 -static -march=armv8.6-a' 'qemu-aarch64 -cpu max'
row aarch64 aarch64-linux-gnu-gcc '-O2 -static -DATTN_NO_SIMD' qemu-aarch64
row aarch64 'clang --target=aarch64-linux-gnu' '-O2 -static' qemu-aarch64
row aarch64 aarch64-linux-gnu-gcc '-O2 -static -pthread -D_DEFAULT_SOURCE -DATTN_THREADS' \
    'qemu-aarch64 -cpu max' 3
row s390x s390x-linux-gnu-gcc '-O2 -static -fexcess-precision=fast' qemu-s390x
row s390x 'clang --target=s390x-linux-gnu' '-O2 -static' qemu-s390x
row armhf arm-linux-gnueabihf-gcc '-O2 -static' qemu-arm
row armhf arm-linux-gnueabihf-gcc '-O2 -static -mfpu=neon-vfpv4' qemu-arm
row i686 i686-linux-gnu-gcc '-O2 -static -msse2 -mfpmath=sse' qemu-i386
row i686 i686-linux-gnu-gcc '-O2 -static -msse2 -mfpmath=sse -DATTN_NO_SIMD' qemu-i386
row i686 'gcc -m32' '-O2 -static -msse2 -mfpmath=sse'
row windows-64 x86_64-w64-mingw32-gcc '-O2 -static' wine
row windows-64 x86_64-w64-mingw32-gcc '-O2 -static -DATTN_NO_SIMD' wine
row windows-64 x86_64-w64-mingw32-gcc '-O2 -static -fopenmp' wine 3
row windows-64 x86_64-w64-mingw32-gcc '-O2 -static -DATTN_THREADS' wine 3
row windows-32 i686-w64-mingw32-gcc '-O2 -static -msse2 -mfpmath=sse' wine
row wasm 'clang --target=wasm32-wasi' '-O2' 'node --no-warnings tests/platforms/wasi.mjs'
row wasm 'clang-16 --target=wasm32-wasi' '-O2 -msimd128' 'node --no-warnings tests/platforms/wasi.mjs'
row wasm 'clang-16 --target=wasm32-wasi' '-O2 -msimd128 -mrelaxed-simd' \
    'node --no-warnings --experimental-wasm-relaxed-simd tests/platforms/wasi.mjs'
row wasm emcc '-O1 -sNODERAWFS=1 -sALLOW_MEMORY_GROWTH=1 -sSINGLE_FILE=1' node

echo "$ok ok, $differ differ, $absent not installed; the details are in $log"
[ $differ = 0 ] && [ $ok -gt 0 ]
