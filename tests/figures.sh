#!/bin/sh
# What can be counted about the tests, one "name: number" a line; pages point here and quote none of it.
#
#     sh tests/figures.sh [BUILD]
cd "$(dirname "$0")/.." || exit
build=${1:-build}
echo "suites: $("$build/test" --list | cut -d/ -f1 | sort -u | wc -l)"
echo "cases: $("$build/test" --list | wc -l)"
echo "checksums: $(grep -c '^fused ' tests/fixtures/checksums.txt)"
echo "public functions: $(grep -c '^ATTN_API' attn.h)"
echo "NOLINTs: $(cat attn.h $(find examples tools tests -name '*.[ch]') | grep -c '/\* NOLINT')"
echo "cover marks: $(cat attn.h $(find examples tools -name '*.[ch]') | grep -c 'cover: .*\*/')"
