#!/bin/sh
# `make gpt2` against a file server on this machine. Run from the top of the repository, after make;
# ends in "N passed, N failed, N skipped". Needs python3 (for the server) and curl.
set -u
passed=0 failed=0
tmp=${BUILD:-build}/test-tmp/download
model=examples/tiny-stories
if ! command -v python3 >/dev/null || ! command -v curl >/dev/null; then
    echo "skipped download: no python3 or no curl"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

rm -rf "$tmp"
mkdir -p "$tmp"
python3 tests/programs/file_server.py "$model" "$tmp/log" >"$tmp/port" &
server=$!
trap 'kill $server 2>/dev/null' EXIT
while [ ! -s "$tmp/port" ]; do sleep 0.1; done
endpoint=http://127.0.0.1:$(cat "$tmp/port")

# fetch SIZE: into $tmp/SIZE; leaves the exit code in $code and what was said in $tmp/out.
fetch()
{
    HF_ENDPOINT=$endpoint sh tools/download-gpt2.sh "$1" "$tmp/$1" >"$tmp/out" 2>&1
    code=$?
}

# check NAME CONDITION...
check()
{
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED download/$name: not so: $*"
        cat "$tmp/out"
    fi
}
says() { grep -q "$1" "$tmp/out"; }
same() { cmp -s "$tmp/$1/$2" "$model/$2"; }
all_same()
{
    for file in config.json vocab.json merges.txt model.safetensors; do
        same "$1" $file || return 1
    done
    [ "$(ls "$tmp/$1" | wc -l)" -eq 4 ] # no .part, no .headers
}

fetch gpt2
check good [ $code = 0 ]
check good all_same gpt2

requests=$(wc -l <"$tmp/log")
fetch gpt2
check "nothing to do" [ $code = 0 ]
check "nothing to do" [ "$(wc -l <"$tmp/log")" = "$requests" ]

mv "$tmp/gpt2/model.safetensors" "$tmp/whole"
head -c 1000000 "$tmp/whole" >"$tmp/gpt2/model.safetensors.part"
fetch gpt2
check resumed [ $code = 0 ]
check resumed all_same gpt2
check resumed grep -q '^gpt2/model.safetensors 1000000$' "$tmp/log"

mv "$tmp/gpt2/model.safetensors" "$tmp/gpt2/model.safetensors.part"
fetch gpt2
check "complete but not renamed" [ $code = 0 ]
check "complete but not renamed" all_same gpt2

rm "$tmp/gpt2/model.safetensors"
head -c 999 /dev/zero >"$tmp/gpt2/model.safetensors.part"
fetch gpt2
check "a wrong beginning starts over" [ $code = 0 ]
check "a wrong beginning starts over" all_same gpt2

mkdir "$tmp/gpt2-xl"
head -c 1000 "$model/config.json" >"$tmp/gpt2-xl/config.json.part"
head -c 1000 "$model/vocab.json" >"$tmp/gpt2-xl/vocab.json.part"
fetch gpt2-xl
check "no ranges" [ $code = 0 ]
check "no ranges" all_same gpt2-xl

fetch gpt2-medium
check truncated [ $code = 1 ]
check truncated says 'did not arrive whole'
check truncated [ ! -e "$tmp/gpt2-medium/config.json" ]
check truncated [ -s "$tmp/gpt2-medium/config.json.part" ]

fetch gpt2-large
check "wrong sha256" [ $code = 1 ]
check "wrong sha256" says 'not the sha256'
check "wrong sha256" [ ! -e "$tmp/gpt2-large/config.json" ]

fetch distilgpt2
check "missing file" [ $code = 1 ]
check "missing file" says 'has no distilbert/distilgpt2/resolve/main/model.safetensors'
check "missing file" [ ! -e "$tmp/distilgpt2/model.safetensors" ]

fetch gpt3
check "unknown size" [ $code = 2 ]
check "unknown size" says 'there is no GPT-2 of size "gpt3"'

# The whole recipe, conversion included, in a build directory with copies of the built programs.
mkdir "$tmp/build"
for file in flags attn.o gpt2 attn-convert; do # the oldest first, which make looks at
    cp -p "${BUILD:-build}/$file" "$tmp/build"
done
HF_ENDPOINT=$endpoint make BUILD="$tmp/build" SIZE=gpt2 gpt2 >"$tmp/out" 2>&1
code=$?
check "make gpt2" [ $code = 0 ]
"${BUILD:-build}/attn-convert" --quiet examples/tiny-stories "$tmp/same.attn" --name gpt2 \
    --source https://huggingface.co/openai-community/gpt2 --license mit
check "make gpt2" cmp "$tmp/build/gpt2.attn" "$tmp/same.attn"
check "make gpt2" [ "$(grep -c -- '-std=c99' "$tmp/out")" = 0 ]

kill $server
wait $server 2>/dev/null
rm -rf "$tmp/gpt2"
fetch gpt2
check "no server" [ $code = 1 ]
check "no server" says "cannot reach $endpoint: is there a network?"
check "no server" says 'make run'
HF_ENDPOINT=$endpoint make BUILD="$tmp/build" SIZE=gpt2-xl gpt2 >"$tmp/out" 2>&1
code=$?
check "make gpt2 without a server" [ $code != 0 ]
check "make gpt2 without a server" says "cannot reach $endpoint"
check "make gpt2 without a server" [ ! -e "$tmp/build/gpt2-xl.attn" ]

rm -rf "$tmp"
echo "$passed passed, $failed failed, 0 skipped"
[ $failed = 0 ]
