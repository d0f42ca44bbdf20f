#!/bin/sh
# download-gpt2.sh SIZE DIRECTORY: fetches GPT-2's files from the Hugging Face hub.
#
# SIZE is distilgpt2, gpt2, gpt2-medium, gpt2-large or gpt2-xl; HF_ENDPOINT names a mirror. A file
# is FILE.part until it is complete and its size and sha256 are what the server says, so a download
# that was cut short goes on from where it was. model.safetensors comes last: once it is there, so
# is everything else.
set -u

size=${1:-} directory=${2:-}
endpoint=${HF_ENDPOINT:-https://huggingface.co}
case $size in
gpt2 | gpt2-medium | gpt2-large | gpt2-xl) repository=openai-community/$size ;;
distilgpt2) repository=distilbert/distilgpt2 ;;
*)
    echo "there is no GPT-2 of size \"$size\": distilgpt2, gpt2, gpt2-medium, gpt2-large, gpt2-xl" >&2
    exit 2
    ;;
esac
files='config.json vocab.json merges.txt model.safetensors'

fail()
{
    echo "$1" >&2
    exit 1
}

by_hand()
{
    echo "By hand: put $files" >&2
    echo "of $endpoint/$repository into $directory/ and run this again." >&2
    echo "\`make run\` needs no download: it uses the model that comes with the sources." >&2
}

# header NAME FILE: the last value of an HTTP header in what curl saved of all redirections.
header()
{
    tr -d '\r"' <"$2" | awk -v name="$1:" 'tolower($1) == name { value = $2 } END { print value }'
}

# Bytes of the whole file as the server tells them, or nothing.
expected_size()
{
    linked=$(header x-linked-size "$1")
    range=$(header content-range "$1")
    if [ -n "$linked" ]; then
        echo "$linked"
    elif [ -n "$range" ]; then # "bytes" is $2, "100-199/200" is $3
        tr -d '\r' <"$1" | awk 'tolower($1) == "content-range:" { sub(".*/", ""); print; exit }'
    else
        header content-length "$1"
    fi
}

sha256()
{
    if command -v sha256sum >/dev/null; then
        sha256sum <"$1"
    elif command -v shasum >/dev/null; then
        shasum -a 256 <"$1"
    fi | cut -c 1-64
}

# check FILE HEADERS: is this what the server meant to send?
check()
{
    have=$(($(wc -c <"$1")))
    want=$(expected_size "$2")
    hash=$(header x-linked-etag "$2")
    if [ -n "$want" ] && [ "$have" != "$want" ]; then
        echo "$1 has $have bytes of $want" >&2
        return 1
    fi
    # Only a sha256 has 64 characters; other tags are not about the content.
    if [ ${#hash} = 64 ] && [ -n "$(sha256 "$1")" ] && [ "$(sha256 "$1")" != "$hash" ]; then
        echo "$1 has the right size but not the sha256 that the server names; starting it over" >&2
        rm -f "$1"
        return 1
    fi
}

if [ -t 2 ]; then progress=--progress-bar; else progress=--silent; fi

# fetch FILE: one attempt, going on where the last one stopped. Gives curl's exit code, or 99 if
# what came is not what it should be.
fetch()
{
    part=$directory/$1.part headers=$directory/$1.headers
    : >"$headers"
    curl --fail --location --show-error $progress --connect-timeout 20 --speed-time 60 \
        --speed-limit 1 --dump-header "$headers" --continue-at - --output "$part" \
        "$endpoint/$repository/resolve/main/$1"
    code=$?
    # 33 and HTTP's 416: this server cannot go on, or there is nothing left to go on with.
    if [ $code = 33 ] || { [ $code = 22 ] && grep -q '^HTTP[^ ]* 416' "$headers"; }; then
        check "$part" "$headers" 2>/dev/null && return 0
        rm -f "$part"
        return 33
    fi
    [ $code = 0 ] || return $code
    [ -e "$part" ] || : >"$part" # curl makes no file of an empty answer
    check "$part" "$headers" || return 99
}

get()
{
    for attempt in 1 2 3 4; do
        fetch "$1"
        code=$?
        # A timeout before the first header means the same as no connection.
        [ $code = 28 ] && [ ! -s "$directory/$1.headers" ] && code=7
        case $code in
        0)
            rm -f "$directory/$1.headers"
            mv "$directory/$1.part" "$directory/$1" || exit 1
            return
            ;;
        6 | 7 | 35 | 60)
            echo "cannot reach $endpoint: is there a network? (curl exit code $code)" >&2
            by_hand
            exit 1
            ;;
        22)
            echo "$endpoint has no $repository/resolve/main/$1, or does not give it out" >&2
            by_hand
            exit 1
            ;;
        esac
        [ $attempt = 4 ] || sleep 1
    done
    echo "$1 did not arrive whole (curl exit code $code). Run this again: it goes on from there." >&2
    exit 1
}

command -v curl >/dev/null || {
    echo "this needs curl, which is not installed" >&2
    by_hand
    exit 1
}
mkdir -p "$directory" || fail "cannot make the directory $directory"
for file in $files; do
    if [ ! -e "$directory/$file" ]; then
        echo "$endpoint/$repository: $file" >&2
        get "$file"
    fi
done
