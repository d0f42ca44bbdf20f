#!/bin/sh
# examples/zip.c on every pair of builds: what one build compressed, each other one restores. Compressed files are
# equal, byte for byte. Builds that this machine lacks are named and left out.
#
#     sh tests/platforms/zip.sh BUILD [WORD]...
#
# BUILD/tiny-stories.attn must be there. With words, only the builds whose line has one of them are made. With FILE=PATH
# in the environment, that file is compressed instead of three small texts: a megabyte takes minutes.
set -u
build=$1
shift
only=$*
out=$build/zip-pairs
model=$build/tiny-stories.attn
mkdir -p "$out"
OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY
printf 'Once upon a time there was a little dog. He liked to play in the park with his red ball.\n' >"$out/story"
printf 'caf\303\251 \377\376\000\001 \360\237\220' >"$out/bytes"
: >"$out/empty"
texts='story bytes empty'
[ -z "${FILE-}" ] || { texts=file; cp "$FILE" "$out/file" || exit 1; }
cat >"$out/builds" <<'END'
x86-64 || gcc -O2 -fopenmp
x86-64-plain || gcc -O1 -DATTN_NO_SIMD
x86-64-clang || clang -O1
i686 || gcc -m32 -O1 -static -msse2 -mfpmath=sse
i686-cross || i686-linux-gnu-gcc -O1 -static -msse2 -mfpmath=sse
aarch64 | qemu-aarch64 -cpu max | aarch64-linux-gnu-gcc -O1 -static
s390x | qemu-s390x | s390x-linux-gnu-gcc -O1 -static -fexcess-precision=fast
wasm | node --no-warnings tests/platforms/wasi.mjs | clang-16 --target=wasm32-wasi -O2
wasm-simd | node --no-warnings tests/platforms/wasi.mjs | clang-16 --target=wasm32-wasi -O2 -msimd128
END

wanted() # LINE
{
    [ -n "$only" ] || return 0
    for word in $only; do
        case $1 in *"$word"*) return 0 ;; esac
    done
    return 1
}

builds=
while IFS='|' read -r name runner compiler; do
    wanted "$name $compiler" || continue
    name=$(echo "$name" | tr -d ' ')
    # shellcheck disable=SC2086 # words
    if $compiler -I. examples/zip.c -lm -o "$out/$name" 2>"$out/log" &&
        { $runner "$out/$name" 2>>"$out/log"; [ $? = 2 ]; }; then # it says how it is used
        builds="$builds $name"
        echo "$runner" >"$out/$name.runner"
    else
        echo "absent     $name:$compiler"
    fi
done <"$out/builds"

run() # NAME ARGUMENT...
{
    name=$1
    shift
    # shellcheck disable=SC2046 # words
    $(cat "$out/$name.runner") "$out/$name" "$@"
}

ok=0 bad=0
for text in $texts; do
    for a in $builds; do
        run "$a" "$model" "$out/$text" "$out/$text.$a" || { bad=$((bad + 1)); continue; }
        cmp "$out/$text.$a" "$out/$text.$(echo $builds | cut -d ' ' -f 1)" || bad=$((bad + 1))
        for b in $builds; do
            if run "$b" -d "$model" "$out/$text.$a" "$out/back" && cmp "$out/$text" "$out/back"; then
                ok=$((ok + 1))
            else
                echo "DIFFERS    $text: compressed by $a, restored by $b"
                bad=$((bad + 1))
            fi
        done
    done
done
echo "$ok restored as they were, $bad not; builds:$builds"
[ "$bad" = 0 ] && [ "$ok" -gt 0 ]
