#!/bin/sh
# MSVC's dialect as near as clang can show it here: sh tests/platforms/msvc.sh
#
# clang parses attn.h for Windows as clang-cl does (_MSC_VER is set, __GNUC__ is not), in C and in C++,
# without and with -U__clang__: then the header takes the code that is for cl.exe alone. Variable-length
# arrays and extensions of GNU C are errors. Microsoft's headers are not to be had here; mingw-w64's
# serve, without the macros in which they take cl.exe for older than it is. Nothing is linked or run.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
passed=0 failed=0
from=/usr/share/mingw-w64/include
if ! command -v clang >/dev/null || [ ! -f $from/windows.h ]; then
    echo "skipped: MSVC's dialect needs clang and the headers of mingw-w64 (Debian: mingw-w64-common)"
    echo '0 passed, 0 failed, 1 skipped'
    exit 0
fi
cp -R $from "$tmp/include"
sed -e '/define __attribute__(x)/d' -e 's/__declspec(\(noreturn\|deprecated\|nothrow\))$//' $from/_mingw.h >"$tmp/include/_mingw.h"

parses() # WORDS OF OPTIONS
{
    # shellcheck disable=SC2086 # options are a list of words
    if clang --target=x86_64-pc-windows-msvc -fms-compatibility-version=19.36 -idirafter "$tmp/include" \
        -fsyntax-only -ferror-limit=5 -Wall -Wextra -pedantic -Wvla -Wgnu -Wshadow -Werror -Wno-language-extension-token \
        -DATTN_IMPLEMENTATION $1 attn.h >"$tmp/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $1"
        grep -A3 'error:' "$tmp/out" | head -20
    fi
}
for language in '-x c -std=c99' '-x c -std=c11' '-x c++ -std=c++14' '-x c++ -std=c++20'; do
    parses "$language"
    parses "$language -DATTN_NO_SIMD"
    parses "$language -DATTN_NO_MMAP -DATTN_NO_SIMD"
    parses "$language -U__clang__ -U__GNUC__"
done
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
