#!/bin/sh
# The programs for Windows, built by mingw-w64 and run by Wine: names and texts in UTF-8, and a console.
#
#     sh tests/platforms/windows.sh BUILD
#
# BUILD holds the programs of this system, beside which those for Windows are compared. The console needs tmux.
set -u
build=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
. tests/platforms/check.sh
WINEPREFIX=$tmp/wine WINEDEBUG=-all LC_ALL=C.UTF-8 OMP_NUM_THREADS=1
export WINEPREFIX WINEDEBUG LC_ALL OMP_NUM_THREADS
cc=x86_64-w64-mingw32-gcc
for tool in $cc wine; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; echo '0 passed, 0 failed, 1 skipped'; exit; }
done

same() # PROGRAM ARGUMENTS...: the output of the program for this system?
{
    program=$1
    shift
    "$build/$program" "$@" >"$tmp/here" 2>/dev/null
    (cd "$tmp" && wine "$program.exe" "$@" 2>/dev/null) | tr -d '\r' | cmp - "$tmp/here"
}
shows() # TEXT: waits until the console shows it
{
    for _ in $(seq 300); do
        tmux -L "$session" capture-pane -t "$session" -p >"$tmp/screen"
        grep -qF -e "$1" "$tmp/screen" && return
        sleep 0.1
    done
    cat "$tmp/screen"
    return 1
}
types() # TEXT
{
    tmux -L "$session" send-keys -t "$session" -l -- "$1"
    tmux -L "$session" send-keys -t "$session" Enter
}

for program in gpt2 score attn-convert workers; do
    source=$(find examples tools tests/programs -name "$program.c")
    check "$program compiles" $cc -std=c99 -Wall -Wextra -pedantic -Wshadow -Wconversion -Werror -O1 -DATTN_NO_SIMD \
        -DATTN_THREADS -I. "$source" -o "$tmp/$program.exe"
done
check 'threads' env -u OMP_NUM_THREADS wine "$tmp/workers.exe" "$build/tiny-stories.attn"
build=$(cd "$build" && pwd)
root=$PWD
mkdir "$tmp/日本 ü"
check 'attn-convert' wine "$tmp/attn-convert.exe" "$root/examples/tiny-stories" "$tmp/日本 ü/猫.attn"
check 'the same model' cmp "$tmp/日本 ü/猫.attn" "$build/tiny-stories.attn"
cd "$tmp" || exit
printf 'Once upon a time 猫 é' >'日本 ü/text'
printf '{"id": "é", "text": "Once upon"}\n{"text": "猫 🐈", "task": "tokens"}\n' >'日本 ü/lines'
check 'a prompt in UTF-8' same gpt2 '日本 ü/猫.attn' 'Ö 猫 🐈' -n 5 -q
check 'a prompt from a file' same gpt2 '日本 ü/猫.attn' -f '日本 ü/text' -n 5 -q
check 'a prompt from a pipe' sh -c "printf 'Ö 猫' | wine gpt2.exe '日本 ü/猫.attn' -n 0 -q | grep 'Ö 猫'"
check 'a file that is missing' sh -c "! wine gpt2.exe '日本 ü/犬.attn' x 2>&1 | grep -qv '日本 ü/犬.attn: No such file'"
check 'save and load' sh -c "printf 'Ö 猫\\n/save 日本 ü/é.json\\n/new\\n/load 日本 ü/é.json\\n/show\\n' |
    wine gpt2.exe '日本 ü/猫.attn' --repl -n 0 | grep 'Ö 猫' && test -f '日本 ü/é.json'"
check 'score' sh -c "wine score.exe '日本 ü/猫.attn' '日本 ü/lines' -o '日本 ü/ö' -q && grep -c '' '日本 ü/ö' | grep 2 &&
    grep '\"é\"' '日本 ü/ö'"

if command -v tmux >/dev/null; then
    session=attn-$$
    tmux -L "$session" new-session -d -s "$session" -x 80 -y 30 "wine gpt2.exe '日本 ü/猫.attn' -n 3"
    check 'a console' shows 'Ctrl-D ends.'
    types 'Ö 猫 and 🐈'
    types '/show'
    check 'a text in UTF-8' shows 'Ö 猫 and'
    types '/save ö.json'
    check 'a name in UTF-8' shows '(saved in ö.json)'
    check 'a pair of UTF-16' grep -q '"Ö 猫 and 🐈' ö.json
    types '/n 100000'
    types ''
    check 'a text begins' shows '(tokens: 100000)'
    sleep 1
    tmux -L "$session" send-keys -t "$session" C-c
    check 'Ctrl-C' shows '(stopped)'
    tmux -L "$session" kill-server
else
    skipped=1
    echo 'skipped: a console, for there is no tmux'
fi
wineserver -k 2>/dev/null
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
