# The page of a notebook, from what it printed with the marks of marks.h:
#
#     awk -f page.awk -v source=000_scores.c -v style=page.css -v pages='000_scores ...' output >page.html
#
# A page follows the run. A row has the lines that ran, and beside them what they printed. Before a function
# or a type is used for the first time, it is shown as a whole with its comment; if it prints, its lines come when
# they run. What ran before is not shown again: what it prints is beside the call, or in a loop beside
# the line once more.
#
# An item is a function, type or table with its comment; items are numbered from 1.
function escaped(s) { gsub(/&/, "\\&amp;", s); gsub(/</, "\\&lt;", s); gsub(/>/, "\\&gt;", s); return s }
function base(path) { sub(/.*\//, "", path); return path }

# ---- reading the sources ----

# A line without comments, strings and the names of members
function words_of(s,  p) {
    gsub(/"([^"\\]|\\.)*"/, "\"\"", s)
    if (inside) { p = index(s, "*/"); if (!p) return ""; s = substr(s, p + 2); inside = 0 }
    gsub(/\/\*[^*]*\*\//, " ", s)
    if ((p = index(s, "/*")) > 0) { s = substr(s, 1, p - 1); inside = 1 }
    gsub(/(->|\.)[A-Za-z_]+/, " ", s)
    return s
}

function read_source(path,  file, line, n, i, start, comment, comment_end, in_comment, depth, s, opened) {
    file = base(path)
    if (file in n_lines) return
    n_lines[file] = 0
    while ((getline line <path) > 0) {
        text[file, ++n] = line
        bare[file, n] = words_of(line)
    }
    close(path)
    n_lines[file] = n
    for (i = 1; i <= n; i++) {
        line = text[file, i]
        if (!start && line ~ /^\/\*/) {
            comment = i; in_comment = 1
        }
        if (!start && in_comment) {
            if (line ~ /\*\/$/) {
                in_comment = 0
                if (!(file in head)) { head[file] = comment; head_end[file] = i }
                tail[file] = comment; comment_end = i
            }
            continue
        }
        if (!start && (line ~ /^#/ || line ~ /^$/)) {
            if (line ~ /^#include ".*h"/ && line !~ /"(attn|notebook|torch|reference|format)\.h"/) {
                s = line; sub(/.*include "/, "", s); sub(/".*/, "", s)
                headers[++n_headers] = folder s
            }
            while (line ~ /^#/ && text[file, i] ~ /\\$/) i++
            comment = 0
            continue
        }
        if (!start) { start = i; depth = 0 }
        s = line; opened = gsub(/\{/, "", s); depth += opened
        s = line; depth -= gsub(/\}/, "", s)
        if (depth == 0 && line ~ /[;}]$/) {
            add_item(file, comment && comment_end == start - 1 ? comment : 0, start, i)
            start = comment = 0
            tail[file] = 0
        }
    }
}

function add_item(file, comment, from, to,  k, i, s, line, words, m) {
    k = ++n_items
    file_of[k] = file; comment_of[k] = comment; first[k] = from; last[k] = to; shown[k] = from - 1
    for (i = from; i <= to; i++) { item_at[file, i] = k; s = s "\n" text[file, i] }
    line = text[file, from]
    if (s ~ /\n[^\n]*enum \{/) {
        for (; match(s, /[A-Z][A-Z0-9_]+/); s = substr(s, RSTART + RLENGTH)) define(substr(s, RSTART, RLENGTH), k)
    } else if (match(line, /^typedef struct [a-z_]+/)) {
        define(substr(line, 16, RLENGTH - 15), k)
    } else if (match(line, /^typedef [^(]*\(\*[a-z_]+/)) {
        s = substr(line, RSTART, RLENGTH); sub(/.*\*/, "", s); define(s, k)
    } else if (line ~ /^[a-z].*\(/ && line !~ /=/) {
        s = line; sub(/\(.*/, "", s); sub(/.*[ *]/, "", s); define(s, k); name_of[k] = s; is_function[k] = 1
    } else {
        s = line; sub(/(\[| =|;).*/, "", s); sub(/.*[ *]/, "", s); define(s, k)
    }
}
function define(word, k) { if (!(word in item_of)) item_of[word] = k }

# The first line from `from` on in which item k has this word; 0: none
function mention(k, word, from,  i) {
    for (i = from > first[k] ? from : first[k]; i <= last[k]; i++)
        if ((" " bare[file_of[k], i] " ") ~ ("[^A-Za-z0-9_]" word "[^A-Za-z0-9_]")) return i
    return 0
}
function statement_end(k, i) {
    while (i < last[k] && text[file_of[k], i] !~ /([;{}]|\*\/)$/) i++
    return i
}
function statement_begin(k, i) {
    while (i > first[k] && text[file_of[k], i - 1] !~ /([;{}]|\*\/|^)$/) i--
    return i
}

# ---- rows ----

function end_row(  code) {
    if (row_code == "" && row_prose == "" && row_out == "") return
    print "<section>"
    if (row_prose != "") print "<div class=\"prose\">" row_prose "</div>"
    if (row_code != "")
        printf "<pre class=\"code%s\"><b>%s:%d</b>\n%s</pre>\n", row_dim ? " again" : "", row_file, row_line,
            coloured(row_code)
    if (row_out != "") print "<div class=\"out\">" row_out "</div>"
    print "</section>"
    row_code = row_prose = row_out = ""; row_dim = 0
}
function add_out(s, is_html,  gap) {
    if (is_html) { row_out = row_out s; return }
    gap = s ~ /^\n/ ? "\n\n" : "\n"
    gsub(/^\n+|\n+$/, "", s)
    if (s == "") return
    if (row_out ~ /<\/pre>$/) row_out = substr(row_out, 1, length(row_out) - 6) gap escaped(s) "</pre>"
    else row_out = row_out "<pre>" escaped(s) "</pre>"
}
# Comments and strings, line by line
function coloured(s,  lines, n, i, out, line, p) {
    n = split(s, lines, "\n")
    for (i = 1; i <= n; i++) {
        line = escaped(lines[i])
        if (in_note) {
            p = index(line, "*/")
            if (p) { line = "<i>" substr(line, 1, p + 1) "</i>" substr(line, p + 2); in_note = 0 }
            else line = "<i>" line "</i>"
        } else if ((p = index(line, "/*")) > 0) {
            in_note = index(substr(line, p), "*/") == 0
            line = substr(line, 1, p - 1) "<i>" substr(line, p) "</i>"
        }
        out = out (i > 1 ? "\n" : "") line
    }
    in_note = 0
    return out
}

function outdented(s,  lines, n, i) {
    n = split(s, lines, "\n")
    for (i = 1; i <= n; i++) if (lines[i] !~ /^    /) return s
    s = substr(lines[1], 5)
    for (i = 2; i <= n; i++) s = s "\n" substr(lines[i], 5)
    return s
}

# A comment as paragraphs; what is indented stands as it is.
function prose(file, from, to,  i, line, out, block, kind, now) {
    for (i = from; i <= to + 1; i++) {
        line = i > to ? "" : text[file, i]
        sub(/ ?\*\/$/, "", line); sub(/^\/\* ?/, "", line); sub(/^ \* ?/, "", line)
        now = line ~ /^ |^In the notebook/ || (kind == "pre" && line ~ /  /) ? "pre" : line == "" ? "" : "p"
        if (now != kind || now == "") {
            if (kind == "p") out = out (block ~ /^Exercise/ ? "<p class=\"exercise\">" : "<p>") block "</p>"
            if (kind == "pre") out = out "<pre>" outdented(block) "</pre>"
            block = ""; kind = now
        }
        if (now == "p") block = block (block == "" ? "" : " ") escaped(line)
        if (now == "pre") block = block (block == "" ? "" : "\n") escaped(line)
    }
    return out
}

# What the lines use and was not shown yet, as a whole
function show_used(k, from, to,  i, s, word, used) {
    for (i = from; i <= to; i++) {
        s = bare[file_of[k], i]
        while (match(s, /[A-Za-z_][A-Za-z0-9_]*/)) {
            word = substr(s, RSTART, RLENGTH); s = substr(s, RSTART + RLENGTH)
            if (!(word in item_of)) continue
            used = item_of[word]
            if (is_function[used] && !is_function[k]) continue # a member of that name
            if (used == k || shown[used] >= first[used] || prints[used] || asked[used]++) continue
            show_lines(used, last[used]); owner = 0
        }
    }
}

# A row of the lines of item k that were not shown yet, up to line `to`
function show_lines(k, to,  from, i) {
    from = shown[k] + 1
    if (from > to) return
    show_used(k, from, to)
    end_row()
    shown[k] = to
    row_file = file_of[k]; row_line = from; owner = k
    if (from == first[k]) {
        if (row_file != main && !(row_file in introduced)) {
            introduced[row_file] = 1
            row_prose = prose(row_file, head[row_file], head_end[row_file])
        }
        if (comment_of[k] && comment_of[k] != head[row_file])
            row_prose = row_prose prose(row_file, comment_of[k], from - 1)
    }
    while (from < to && text[row_file, from] == "") from++
    for (i = from; i <= to; i++) row_code = row_code text[row_file, i] (i < to ? "\n" : "")
}
function show_again(k, line,  i, to) {
    end_row()
    row_file = file_of[k]; row_line = statement_begin(k, line); owner = k; row_dim = 1
    to = statement_end(k, line)
    for (i = row_line; i <= to; i++) row_code = row_code text[row_file, i] (i < to ? "\n" : "")
}

# ---- the run ----

# The item that the latest function calls on its way to item k, which it calls itself or not; 0: none
function way(from, k, depth,  line, i, used) {
    if (mention(from, name_of[k], first[from] + 1)) return k
    if (depth == 0) return 0
    for (i = 1; i <= n_items; i++)
        if (i != from && is_function[i] && mention(from, name_of[i], first[from] + 1) &&
            way(i, k, depth - 1)) return i
    return 0
}

# Puts calls on the stack until item k is at its top.
function call(k, caller,  parent, next_item, line) {
    while (n_stack > 0 && stack[n_stack] != k) {
        parent = stack[n_stack]
        next_item = way(parent, k, 3)
        if (!next_item) break
        line = mention(parent, name_of[next_item], shown[parent] + 1)
        if (line) show_lines(parent, statement_end(parent, line))
        else if (row_out != "" && n_stack == 1)
            show_again(parent, mention(parent, name_of[next_item], first[parent] + 1))
        stack[++n_stack] = next_item; callers[n_stack] = next_item == k ? caller : ""
    }
    if (n_stack == 0 || stack[n_stack] != k) { stack[++n_stack] = k; callers[n_stack] = caller }
}
function leave(  k) {
    k = stack[n_stack--]
    if (shown[k] >= last[k]) return
    if (owner == k) { # the lines after the latest print
        row_code = row_code rest(k)
    } else {
        show_lines(k, last[k])
    }
}
# The lines of item k that were not shown yet
function rest(k,  s, i) {
    for (i = shown[k] + 1; i <= last[k]; i++) s = s "\n" text[file_of[k], i]
    shown[k] = last[k]
    return s
}

function event(file, line, caller, s, html,  k, i, to) {
    k = item_at[file, line]
    if (!k) { add_out(s, 0); add_out(html, 1); return }
    for (i = n_stack; i > 0 && !(stack[i] == k && (callers[i] == caller || callers[i] == "")); i--)
        ;
    if (i > 0) {
        while (n_stack > i) leave()
        callers[i] = caller
    } else {
        while (n_stack > 1 && !way(stack[n_stack], k, 3)) leave()
        if (n_stack > 1 && stack[n_stack] == k) leave()
        call(k, caller)
    }
    to = statement_end(k, line)
    if (to > shown[k]) {
        if (owner == k && open_line) { # a line of text that is not at its end
            for (i = shown[k] + 1; i <= to; i++) row_code = row_code "\n" text[file, i]
            shown[k] = to
        } else {
            show_lines(k, to)
        }
    } else if (n_stack == 1 && !open_line && line != latest_line &&
               !(owner == k && line >= row_line && row_out == "")) {
        show_again(k, line)
    }
    latest_line = line
    if (open_line && html == "") {
        sub(/<\/pre>$/, "", row_out)
        row_out = row_out escaped(s) "</pre>"
    } else {
        add_out(s, 0)
    }
    add_out(html, 1)
    open_line = s !~ /\n$/
}

BEGIN {
    RS = "\036"
    while ((getline line <style) > 0) css = css line
    close(style)
    RS = "\n"
    main = base(source)
    folder = substr(source, 1, length(source) - length(main))
    read_source(source)
    for (n = 1; n <= n_headers; n++) read_source(headers[n])
    n = split(pages, names, " ")
    for (i = 1; i <= n; i++)
        if (names[i] ".c" == main) links = links "<b>" names[i] "</b>"
        else links = links "<a href=\"" names[i] ".html\">" names[i] "</a>"
    links = "<nav aria-label=\"notebooks\">" links "</nav>"
    RS = "\036"
}
/^L/ {
    n_events++
    end = index($0, "\n")
    split(substr($0, 2, end - 2), words, /[: ]/)
    files[n_events] = base(words[1]); lines[n_events] = words[2]; from[n_events] = words[3]
    printed[n_events] = substr($0, end + 1)
    prints[item_at[files[n_events], lines[n_events]]] = 1
    next
}
/^H/ { html[n_events] = substr($0, 2) }
END {
    title = text[main, 1]
    sub(/^\/\* /, "", title); sub(/[.,;].*/, "", title)
    print "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">"
    print "<meta name=\"viewport\" content=\"width=device-width\">"
    print "<title>" escaped(title) "</title>\n<style>" css "</style>\n" links
    print "<h1>" escaped(title) "</h1>"
    print "<div class=\"prose\">" prose(main, head[main], head_end[main]) "</div>"
    # functions that lead to one that prints come when it runs, too
    do {
        changed = 0
        for (k = 1; k <= n_items; k++)
            for (i = 1; i <= n_items && !prints[k] && is_function[k]; i++)
                if (i != k && prints[i] && is_function[i] && mention(k, name_of[i], first[k] + 1))
                    prints[k] = changed = 1
    } while (changed)
    stack[++n_stack] = item_of["main"]
    for (e = 1; e <= n_events; e++) event(files[e], lines[e], from[e], printed[e], html[e])
    while (n_stack > 0) leave()
    end_row()
    if (tail[main])
        print "<details><summary>The answer to the exercise</summary>" prose(main, tail[main], n_lines[main]) \
            "</details>"
    print links
}
