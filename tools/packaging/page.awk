# The page that mandoc makes of attn.3, for a browser: a style and a table of contents, which mandoc makes
# of mdoc pages alone, and code as it stands, where mandoc breaks every line twice and begins a block
# anew at each empty line.
BEGIN { RS = "\001" }
{
    gsub(/<br\/>\n/, "")
    gsub(/<\/pre>\n<p class="Pp"><\/p>\n<pre>\n/, "\n\n")
    gsub(/<p class="Pp"><\/p>\n/, "")
    rest = $0
    while (match(rest, /<h1 class="Sh" id="[^"]*">/)) {
        id = substr(rest, RSTART + 19, RLENGTH - 21)
        rest = substr(rest, RSTART + RLENGTH)
        title = substr(rest, 1, index(rest, "</h1>") - 1)
        gsub(/<[^>]*>/, "", title)
        contents = contents "<a href=\"#" id "\">" title "</a>\n"
    }
    gsub(/&/, "\\\\&", contents)
    sub(/<div class="manual-text">/, "<nav aria-label=\"contents\">\n" contents "</nav>\n&")
    sub(/<\/head>/, "<style>\n" \
        ":root { color-scheme: light dark }\n" \
        "body { max-width: 60em; margin: 0 auto; padding: 0 1em; font: 16px/1.5 sans-serif }\n" \
        "h1 { font-size: 1.3em; margin: 2em 0 .5em } h1 a { color: inherit; text-decoration: none }\n" \
        "pre { background: #8882; padding: .5em; overflow: auto; font: 14px/1.35 monospace }\n" \
        "nav { columns: 16em; font-size: .85em } nav a { display: block; text-decoration: none }\n" \
        "@media (min-width: 85em) { body { margin-left: 19em }\n" \
        "  nav { position: fixed; left: 0; top: 0; bottom: 0; width: 17em; padding: 1em; overflow: auto;\n" \
        "    columns: auto } }\n" \
        "</style>\n</head>")
    printf "%s", $0
}
