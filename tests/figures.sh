#!/bin/sh
# What can be counted about the tests, one "name: number" a line. With --check: a page that quotes one
# of these, as "142 checksums", must quote it right; what differs is printed, and the status is 1.
#
#     sh tests/figures.sh [--check] [BUILD]
cd "$(dirname "$0")/.." || exit
check=
[ "$1" != --check ] || { check=1; shift; }
build=${1:-build}
pages=$(find . -name '.?*' -prune -o -path ./build -prune -o -name '*.md' -print)
figures=$(
    echo "suites: $("$build/test" --list | cut -d/ -f1 | sort -u | wc -l)"
    echo "cases: $("$build/test" --list | wc -l)"
    echo "checksums: $(grep -c '^fused ' tests/fixtures/checksums.txt)"
    echo "public functions: $(grep -c '^ATTN_API' attn.h)"
    echo "NOLINTs: $(cat attn.h $(find examples tools tests -name '*.[ch]') | grep -c '/\* NOLINT')"
    echo "cover marks: $(cat attn.h $(find examples tools -name '*.[ch]') | grep -c 'cover: .*\*/')"
)
[ "$check" ] || { echo "$figures"; exit; }
echo "$figures" | {
    status=0
    while IFS=: read -r name number; do
        grep -noE "[0-9][0-9,]* $name" $pages 2>/dev/null | while IFS=: read -r page line quoted; do
            [ "$(echo "${quoted%% *}" | tr -d ,)" = "${number# }" ] || echo "$page:$line: $quoted, counted$number"
        done | grep . && status=1
    done
    exit $status
}
