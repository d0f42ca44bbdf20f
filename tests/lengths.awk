# Names what is too long to be read at once: functions above 70 lines, which only tests may have, and
# files above 2,000 lines, of which attn.h is the only one; in attn.h, lines above 100 characters, since
# clang-format leaves comments as they are; in a page (*.md) rows of a table above 120 characters, and
# lines of prose above 150. Sources are formatted, so a function's body begins and ends with a bracket
# that has a line of its own. Run it with LC_ALL=C: in attn.h, bytes inside a character are not counted.

function complain(what, n, unit, most)
{
    printf "%s has %d %s; expected at most %d\n", what, n, unit, most
    failed = 1
}

function end_file()
{
    if (lines > 2000 && name !~ /(^|\/)attn\.h$/)
        complain(name, lines, "lines", 2000)
}

FNR == 1 { end_file(); name = FILENAME; begin = 1; body = code = 0 }
{ lines = FNR }
name ~ /(^|\/)attn\.h$/ {
    text = $0
    gsub(/[\200-\277]/, "", text)
    if (length(text) > 100)
        complain(name ":" FNR ": the line", length(text), "characters", 100)
}
/^ *```/ { code = !code }
name ~ /\.md$/ {
    if (/^\|/ && length > 120)
        complain(name ":" FNR ": the row", length, "characters", 120)
    else if (!code && !/^    / && length > 150)
        complain(name ":" FNR ": the line", length, "characters", 150)
    next
}
/^[{]$/ { body = begin }
/^[}]$/ && body {
    if (FNR - body + 1 > 70 && name !~ /^(\.\/)?tests\//)
        complain(name ":" body ": the function", FNR - body + 1, "lines", 70)
    body = 0
}
/^$|^\/\*|^ \*|^#|[;}]$/ { begin = FNR + 1 }
END { end_file(); exit failed }
