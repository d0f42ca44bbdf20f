# Names what is too long to be read at once: functions above 70 lines, which only tests may have, and
# files above 2,000 lines, of which attn.h is the only one. Sources are formatted, so a function's body
# begins and ends with a bracket that has a line of its own.

function complain(what, lines, most)
{
    printf "%s has %d lines; expected at most %d\n", what, lines, most
    failed = 1
}

function end_file()
{
    if (lines > 2000 && name !~ /(^|\/)attn\.h$/)
        complain(name, lines, 2000)
}

FNR == 1 { end_file(); name = FILENAME; begin = 1; body = 0 }
{ lines = FNR }
/^[{]$/ { body = begin }
/^[}]$/ && body {
    if (FNR - body + 1 > 70 && name !~ /^(\.\/)?tests\//)
        complain(name ":" body ": the function", FNR - body + 1, 70)
    body = 0
}
/^$|^\/\*|^ \*|^#|[;}]$/ { begin = FNR + 1 }
END { end_file(); exit failed }
