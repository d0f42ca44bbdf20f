#!/bin/sh
# Prints the scripts and styles of lens's pages and its words as C, each a list of texts: sh embed.sh >build/lens_embedded.h
# Modules become one script: their imports go, for all names are then in one scope.
set -eu
cd "$(dirname "$0")"

texts() # NAME BEGINS: of the lines of standard input. One for which BEGINS holds (in awk, n: bytes so far) begins a text.
{
    echo "static const char *const $1[] = {"
    sed -e 's/["\\?]/\\&/g' -e 's/.*/"&\\n"/' |
        awk "NR > 1 && ($2) { n = 0; print \",\" } { n += length; print }"
    echo '};'
}
lines() # NAME FILE...: texts of less than the 4,095 bytes that every compiler takes, without comments and indentation
{
    name=$1
    shift
    sed -e '/^import .* from /d' -e 's/^export //' -e '/^ *\/\/ /d' -e '/^ *\/\*\*.*\*\/$/d' \
        -e '/^ *\/\*\*/,/\*\/$/d' -e '/^\/\*.*\*\/$/d' -e 's/^ *//' -e '/^$/d' "$@" | texts "$name" 'n + length > 4000'
}
echo '/* Made by tools/lens/program/draw/embed.sh. */'
echo '#ifndef LENS_EMBEDDED_H'
echo '#define LENS_EMBEDDED_H'
lines lens_page_style ../../../../examples/web/draw.css page.css
lines lens_page_script ../../../../examples/web/draw.js page.js
sed -e '/^#/d' ../words/*.txt | texts lens_words '/^"= /'
echo '#endif'
