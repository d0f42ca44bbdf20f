#!/bin/sh
# The header's manual and API as a manual page, then the file format and what versions renamed:
# sh tools/packaging/docs.sh attn.h >attn.3
#
# mandoc makes one HTML page of it with a table of contents, and man shows it. Of the standard tools
# it is the one that reads text as the header has it: doxygen wants marks of its own in every
# comment, and pandoc knows no C. A block of lines is a paragraph if it looks like one, that is, if
# nothing in it is aligned; anything else is shown as it stands.
set -eu
version=$(sed -n 's/^.define ATTN_VERSION_[MP][AIT][JNT][OC][RH] *\([0-9][0-9]*\)$/\1/p' "$1" | paste -sd. -)
awk -v version="$version" -v day="$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d 2>/dev/null || date +%Y-%m-%d)" '
function plain(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.\047]/, "\\\\\\&&", s); return s }
function heading(s) { flush(); sub(/^ */, "", s); printf ".SH %s\n", plain(s); first = 1 }
function flush(  i) { # what was gathered: a paragraph, or lines as they stand
    while (n > 0 && block[n] ~ /^ *$/) n--
    if (n == 0) return
    if (!first) print ".PP"
    if (literal) print ".nf"
    for (i = 1; i <= n; i++) print plain(block[i])
    if (literal) print ".fi"
    n = literal = first = 0
}
function gather(s, indent) { # aligned: two blanks within, or an indentation of its own
    if (n == 0 && s ~ /^ *$/) return
    block[++n] = s = substr(s, indent + 1)
    if (s ~ /^ |[^.]  +[^ ]/) literal = 1
}
BEGIN { printf ".TH ATTN.H 3 \"%s\" \"attn.h %s\" \"Library Functions Manual\"\n", day, version }
/^attn\.h - / && !manual { # the first line of the header
    sub(/  +version.*/, ""); sub(/ - /, " \\- "); printf ".SH NAME\n%s\n", $0; manual = 1; next
}
manual == 1 && /^\*\/$/ { flush(); manual = 2 }
manual == 1 && /^>>/ { next }
manual == 1 && /^[A-Z]/ { contents = /^TABLE/; if (!contents) heading($0); next }
manual == 1 && contents { next } # marks of the source; a page has contents of its own
manual == 1 && /^$/ { flush(); next }
manual == 1 { gather($0, 4); next }

/^\/\* >>api-/ { # a section of the API: comments are text, declarations stand as they are
    heading("API: " substr($2, 7)); api = 1; comment = $0 !~ /\*\/$/; next
}
/^#ifdef __cplusplus/ && api { # at the end of the API it closes a brace
    gather($0, 0); literal = 1; getline
    if (/^}/) { n = literal = api = 0 }
}
/^\/\* >>format / { heading("FILE FORMAT"); api = comment = 1; alone = 1; next }
/^\/\* >>changes / { changes = 1 }
changes && /^ \* VERSIONS$/ { heading("VERSIONS"); api = comment = 1; alone = 1; next }
!api { next }
/^$/ { flush(); next }
/^\/\* / && !comment { flush(); comment = 1; sub(/^\/\*/, " *") }
comment {
    last = /\*\/$/; sub(/^ \* ?/, ""); sub(/ *\*\/$/, "")
    if ($0 ~ /^ *$/) flush(); else gather($0, 0)
    if (last) { flush(); comment = 0; api = !alone }
    next
}
{ gather($0, 0); literal = 1 }' "$1"
