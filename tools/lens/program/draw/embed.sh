#!/bin/sh
# Prints the scripts and styles of lens's pages and its words as C, three lists of lines: sh embed.sh >build/lens_embedded.h
# Modules become one script: their imports go, for all names are then in one scope.
set -eu
cd "$(dirname "$0")"

lines() # NAME FILE...
{
    echo "static const char *const $1[] = {"
    shift
    sed -e '/^import .* from /d' -e 's/^export //' -e '/^ *\/\/ /d' -e '/^ *\/\*\*.*\*\/$/d' \
        -e '/^ *\/\*\*/,/\*\/$/d' -e 's/["\\?]/\\&/g' -e 's/.*/"&\\n",/' "$@"
    echo '};'
}
echo '/* Made by tools/lens/program/draw/embed.sh. */'
echo '#ifndef LENS_EMBEDDED_H'
echo '#define LENS_EMBEDDED_H'
lines lens_page_style ../../../../examples/web/draw.css page.css
lines lens_page_script ../../../../examples/web/draw.js page.js
echo 'static const char *const lens_words[] = {'
sed -e '/^#/d' -e 's/.*/"&",/' ../words/*.txt
echo '};'
echo '#endif'
