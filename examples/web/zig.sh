#!/bin/sh
# clang for WebAssembly, as the Python package ziglang has it: sh zig.sh PYTHON ARGUMENTS of clang
#
# zig cc compiles. It takes only some of the linker's options, so it is asked what it would link, and zig's own
# wasm-ld does so with all of them. Its stack is first, which is not where clang-16 puts it.
set -eu
python=$1 compile='' link=--no-stack-first out=a.out
shift
zig() { "$python" -m ziglang "$@"; }
case " $* " in *' -c '*) zig cc "$@"; exit ;; esac
parts=$(mktemp -d)
trap 'rm -rf "$parts"' EXIT
while [ $# -gt 0 ]; do
    case $1 in
    -Wl,*) link="$link $(echo "${1#-Wl,}" | tr , ' ')" ;;
    -o) out=$2 && shift ;;
    -l*) ;; # zig's libc has them
    *.o) link="$link $1" ;;
    *) compile="$compile $1" ;;
    esac
    shift
done
# shellcheck disable=SC2086 # lists of words
zig cc $compile -c -o "$parts/made.o"
echo 'int main(void) { return 0; }' >"$parts/empty.c"
# shellcheck disable=SC2086,SC2046 # the order of the objects is that of their functions in the table
zig wasm-ld $link "$parts/made.o" $(zig cc --target=wasm32-wasi $(echo "$compile" | grep -o -e '-mexec-model=[a-z]*') -O2 -v "$parts/empty.c" -o "$parts/empty" 2>&1 |
    sed -n 's/^wasm-ld //p' | tr ' ' '\n' | grep -e '^--entry' -e '^_' -e 'crt1' -e '\.a$') -o "$out"
