#!/usr/bin/env python3
"""Prints attn.h's table of character kinds (attn__runs): which code points GPT-2's pattern counts
as letters (\\p{L}), numbers (\\p{N}) and white space (\\s), as runs of equal kind from U+0000 on.

    make_unicode_tables.py                       from this Python's unicodedata
    make_unicode_tables.py ranges.json VARIANT   from VARIANT's lists "L" and "N" of [first, last]

attn.h has Unicode 15.0, which is what the `regex` module knew that made GPT-2's reference vectors
(version 2.5.123); Python 3.12 has the same. Later versions only turn code points that were
unassigned into letters and numbers, which GPT-2 never saw in training.
"""
import json
import sys
import textwrap
import unicodedata

OTHER, LETTER, NUMBER, SPACE = range(4)
# The property White_Space, which has been the same 25 code points since Unicode 6.3.
WHITE_SPACE = [*range(9, 14), 32, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029,
               0x202F, 0x205F, 0x3000]
N_CODE_POINTS = 0x110000


def kinds_from_python():
    kinds = bytearray({"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(c))[0], OTHER)
                      for c in range(N_CODE_POINTS))
    return kinds, unicodedata.unidata_version


def kinds_from_ranges(path, variant):
    kinds = bytearray(N_CODE_POINTS)
    with open(path, encoding="utf-8") as file:
        ranges = json.load(file)[variant]
    for key, kind in ("L", LETTER), ("N", NUMBER):
        for first, last in ranges[key]:
            kinds[first:last + 1] = bytes([kind]) * (last + 1 - first)
    return kinds, variant


def runs(kinds):
    """[length, kind] of each run; the last one, of kind OTHER to the end, is left out."""
    out = []
    for kind in kinds:
        if out and out[-1][1] == kind:
            out[-1][0] += 1
        else:
            out.append([1, kind])
    assert out[-1][1] == OTHER
    return out[:-1]


def written(number):
    """In base 26: upper-case letters, then the last digit as a lower-case letter."""
    digits = chr(ord("a") + number % 26)
    while number >= 26:
        number //= 26
        digits = chr(ord("A") + number % 26) + digits
    return digits


def main(arguments):
    kinds, source = kinds_from_ranges(*arguments) if arguments else kinds_from_python()
    for c in WHITE_SPACE:
        kinds[c] = SPACE
    found = runs(kinds)
    text = "".join(written(length * 4 + kind) for length, kind in found)
    print(f"from {source}: {len(found)} runs", file=sys.stderr)
    print(f"enum {{ ATTN__N_RUNS = {len(found)} }};")
    print("static const char attn__runs[] =")
    print("\n".join(f'    "{line}"' for line in textwrap.wrap(text, 94)) + ";")


if __name__ == "__main__":
    main(sys.argv[1:])
