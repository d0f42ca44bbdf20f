# From attn.h and arguments.h to C: for each public function a call whose arguments can be spoilt one at a
# time, and for each public struct a list of its fields. Names, types and kinds come from attn.h. An argument
# is the first of these macros that arguments.h defines:
#
#     ARG_attn_feed__tokens    this parameter of this function
#     ARG_attn_token_p__tokens a parameter of this type (a pointer ends in _p) and name
#     ARG_attn_token_p         a parameter of this type
#
# What lacks an argument, and an argument that nothing takes, is listed in no_argument.

function trim(text) { gsub(/[ \t]+/, " ", text); sub(/^ /, "", text); sub(/ $/, "", text); return text }

# "const attn_model **" is attn_model_p_p.
function key_of(type)
{
    gsub(/const /, "", type); gsub(/ const/, "", type); gsub(/\*/, "_p", type); gsub(/ /, "", type)
    return type
}

function problem(text) { problems = problems "    \"" text "\",\n" }

function kind_of(type, name)
{
    if (name == "reserved") return "RESERVED"
    if (type ~ /\*$/ || type ~ /_fn$/) return "POINTER"
    if (type in enums) return "ENUM"
    if (type in structs) return "STRUCT"
    if (type ~ /^(size_t|uint[0-9]+_t|unsigned char|attn_hook_id)$/) return "UNSIGNED"
    if (type ~ /^(int|int32_t|attn_token|ptrdiff_t)$/) return "SIGNED"
    if (type ~ /^(float|double)$/) return "FLOAT"
    problem("a value of type " type " (" name "): its kind is not known to calls.awk")
    return "OTHER"
}

# One field, or the elements of a field that is an array (the first and the last of a long one).
function field(whole, path, type, name, length_, i)
{
    if (length_ && type == "char") return
    for (i = 0; i < (length_ ? length_ : 1); i++) {
        if (length_ > 4 && i > 0 && i < length_ - 1) continue
        field_at(whole, path name (length_ ? "[" i "]" : ""), type, name)
    }
}

function field_at(whole, path, type, name, kind)
{
    kind = kind_of(type, name)
    if (kind == "STRUCT") { fields(whole, path ".", structs[type]); return }
    printf "    {\"%s\", \"%s\", offsetof(%s, %s), sizeof(((%s *)0)->%s), %s},\n", \
        path, type, whole, path, whole, path, kind
}

# The list of a struct's fields, before its first use.
function need_fields(type)
{
    if (type == "" || (type in listed)) return
    listed[type] = 1
    printf "static const place fields_%s[] = {\n", type
    fields(type, "", structs[type])
    print "};"
}

# All fields of a struct's body: "size_t n_ctx, n_batch; const char *const *names; float x[4];"
function fields(whole, path, body, n, i, k, m, lines, names, type, stars, name, length_)
{
    n = split(body, lines, ";")
    for (i = 1; i <= n; i++) {
        m = split(trim(lines[i]), names, ",")
        if (m == 0 || trim(lines[i]) == "") continue
        match(names[1], /[A-Za-z0-9_]+(\[[0-9]+\])?$/)
        type = trim(substr(names[1], 1, RSTART - 1))
        for (k = 1; k <= m; k++) {
            stars = k == 1 ? "" : names[k]
            match(names[k], /[A-Za-z0-9_]+(\[[0-9]+\])?$/)
            name = substr(names[k], RSTART)
            gsub(/[^*]/, "", stars)
            length_ = 0
            if (match(name, /\[[0-9]+\]/)) {
                length_ = substr(name, RSTART + 1, RLENGTH - 2) + 0
                name = substr(name, 1, RSTART - 1)
            }
            sub(/^volatile /, "", type); gsub(/volatile /, "", type)
            field(whole, path, type stars, name, length_)
        }
    }
}

function argument(func_, type, name, i, names)
{
    names[1] = "ARG_" func_ "__" name
    names[2] = "ARG_" key_of(type) "__" name
    names[3] = "ARG_" key_of(type)
    for (i = 1; i <= 3; i++)
        if (names[i] in given) { used[names[i]] = 1; return names[i] }
    problem(func_ ": parameter " name " (" type ") has no argument")
    return ""
}

function function_(declaration, open, head, name, type, n, i, parts, p, types, names, args, list, body, whole, target)
{
    open = index(declaration, "(")
    head = trim(substr(declaration, length("ATTN_API") + 1, open - length("ATTN_API") - 1))
    match(head, /[A-Za-z0-9_]+$/)
    name = substr(head, RSTART)
    type = trim(substr(head, 1, RSTART - 1))
    n = split(substr(declaration, open + 1, length(declaration) - open - 1), parts, ",")
    body = ""; list = ""; args = ""; whole = 1
    for (i = 1; i <= n; i++) {
        p = trim(parts[i])
        if (p == "...") args = args ", 0"
        if (p == "void" || p == "...") { n = i - 1; break }
        match(p, /[A-Za-z0-9_]+$/)
        names[i] = substr(p, RSTART)
        types[i] = trim(substr(p, 1, RSTART - 1))
        target = key_of(types[i])
        p = argument(name, types[i], names[i])
        if (p == "") whole = 0
        if (kind_of(types[i], names[i]) == "POINTER")
            p = "is_null(c, " i - 1 ") ? NULL : " p
        body = body "    " types[i] (types[i] ~ /\*$/ ? "" : " ") names[i] "_ = " p ";\n"
        args = args (i > 1 ? ", " : "") names[i] "_"
        sub(/_p$/, "", target)
        target = target in structs && target != key_of(types[i]) ? target : ""
        need_fields(key_of(types[i]) in structs ? key_of(types[i]) : target)
        if (key_of(types[i]) in structs) {
            list = list sprintf("    {\"%s\", \"%s\", sizeof(%s), STRUCT, fields_%s, N(fields_%s)},\n", \
                                names[i], types[i], types[i], types[i], types[i])
            body = body "    spoil(c, " i - 1 ", NULL, &" names[i] "_);\n"
        } else {
            list = list sprintf("    {\"%s\", \"%s\", sizeof(%s), %s, %s, %s},\n", names[i], types[i], types[i], \
                                kind_of(types[i], names[i]), target ? "fields_" target : "NULL", \
                                target ? "N(fields_" target ")" : "0")
            body = body "    spoil(c, " i - 1 ", &" names[i] "_, " \
                   (target ? "(void *)(uintptr_t)" names[i] "_" : "NULL") ");\n"
        }
    }
    if (n > 0)
        printf "static const argument parameters_%s[] = {\n%s};\n", name, list
    if (whole) {
        printf "static void call_%s(call *c)\n{\n%s", name, body
        if (n == 0) printf "    (void)c;\n"
        printf "    %s(%s(%s));\n}\n\n", returning(type), name, args
    }
    table = table sprintf("    {\"%s\", %s, %s, %s, %s},\n", name, whole ? "call_" name : "NULL", \
                          returning(type), n ? "parameters_" name : "NULL", n)
}

function returning(type)
{
    if (type == "attn_status") return "STATUS"
    if (type == "void") return "NOTHING"
    if (type ~ /\*$/) return "ADDRESS"
    if (type == "attn_tensor") return "TENSOR"
    if (type == "attn_shape") return "SHAPE"
    return type ~ /^(float|double)$/ ? "REAL" : "WHOLE"
}

FNR == NR && /^#define ATTN_H$/ { inside = 1 }
FNR == NR && /^#endif \/\* ATTN_H \*\/$/ { inside = 0 }
FNR == NR {
    line = $0
    if (continued || line ~ /^#/) { continued = line ~ /\\$/; next }
    if (inside) header = header line " "
    next
}
/^#define ARG_/ { split($2, parts, "("); given[parts[1]] = 1 }

END {
    while ((from = index(header, "/*")) > 0) { # comments
        until = index(substr(header, from), "*/")
        header = substr(header, 1, from - 1) " " substr(header, from + until + 1)
    }
    header = trim(header)
    rest = header
    while (match(rest, /typedef enum attn_[a-z0-9_]+/)) {
        enums[substr(rest, RSTART + 13, RLENGTH - 13)] = 1
        rest = substr(rest, RSTART + RLENGTH)
    }
    rest = header
    while (match(rest, /typedef struct attn_[a-z0-9_]+ [{][^}]*[}]/)) {
        one = substr(rest, RSTART + 15, RLENGTH - 16)
        name = substr(one, 1, index(one, " ") - 1)
        structs[name] = substr(one, index(one, "{") + 1)
        rest = substr(rest, RSTART + RLENGTH)
    }
    print "/* Made from attn.h and arguments.h by calls.awk. */\n"
    rest = header
    while (match(rest, /ATTN_API [^;{]*\) ?;/)) {
        one = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/ ?;$/, "", one)
        function_(one)
    }
    for (name in given)
        if (!(name in used)) problem(name " is no argument of a function in attn.h")
    printf "static const function functions[] = {\n%s};\n", table
    printf "static const char *const no_argument[] = {\n%s    NULL,\n};\n", problems
}
