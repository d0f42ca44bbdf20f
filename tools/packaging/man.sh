#!/bin/sh
# A manual page made of all of a program's own pages of help, which --help all prints:
# sh tools/packaging/man.sh PROGRAM NAME VERSION >NAME.1
set -eu
help=$(COLUMNS=80 "$1" --help all)
printf '%s\n' "$help" | awk -v name="$2" -v version="$3" -v called="${1##*/}" \
    -v day="$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d 2>/dev/null || date +%Y-%m-%d)" '
function plain(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); sub(/^[.\047]/, "\\\\\\&&", s); return s }
function heading(s) { # below the first page, which has no name, headings belong to the page they are on
    printf "%s %s\n", page ? ".SS" : ".SH", page ? s : toupper(s); table = 0; gap = 0; fresh = 1; calls = s == "Examples"
}
BEGIN { printf ".TH %s 1 \"%s\" \"attn.h %s\" \"User Commands\"\n.SH NAME\n", toupper(name), day, version }
/^Usage: / { usage = 1 }
usage && NF {
    sub(/^(Usage:|      ) /, ""); sub("^" called " ", "")
    if (page) { printf "%s.B %s\n%s\n", fresh ? "" : ".br\n", name, plain($0); fresh = 0; next }
    synopsis = synopsis (synopsis ? ".br\n" : "") ".B " name "\n" plain($0) "\n"; next
}
usage { usage = 0; if (page) gap = 1; else first = 1; next }
first && !done { # its first sentence is the summary of the page; the rest waits for it
    summary = summary (summary ? " " : "") $0; held = held (held ? "\n" : "") $0
    if (summary !~ /\.( |$)/ && NF && $0 !~ /:$/) next
    done = 1; $0 = held; sub(/\. .*|\.$|:$/, "", summary); sub(/ \(.*\)/, "", summary); sub(/: .*/, "", summary)
    printf "%s \\- %s\n.SH SYNOPSIS\n%s.SH DESCRIPTION\n", name, plain(tolower(substr(summary, 1, 1)) substr(summary, 2)), synopsis
    first = 0
}
/^$/ { gap = 1; skip = 0; next }
/^Further options, see / { skip = 1 }
skip { next } # they are on the first page, which is above
calls { sub("^  " called " ", "  " name " ") }
/^[a-z-]+:$/ { sub(/:/, ""); page = ""; heading($0); page = $0; next }
/^[A-Z][a-z, ]*( \(.*\))?:$/ { sub(/( \(.*\))?:$/, ""); heading($0); next }
/^Exit codes: / { heading("exit status"); sub(/^Exit codes: /, "") }
/^  / && match($0, /^  +[^ ].*[^ ]  +/) && RLENGTH < 30 { # a term and its explanation
    term = substr($0, 1, RLENGTH); rest = substr($0, RLENGTH + 1)
    gsub(/^ +| +$/, "", term)
    printf ".TP\n.B %s\n%s\n", plain(term), plain(rest); table = 1; gap = 0; next
}
/^ / { sub(/^ +/, ""); if (!table && !fresh) print ".br"; print plain($0); gap = fresh = 0; next }
{ fresh = 0 }
{ if (table) { heading("notes") } else if (gap) print ".PP"; print plain($0); gap = 0 }
END { print ".SH SEE ALSO\nattn.h, whose first pages are the manual of the library" }'
