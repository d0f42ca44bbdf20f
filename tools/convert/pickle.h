/* Reads what Python's pickle wrote, protocols 2 to 5, without Python: a program of a small stack machine, whose
 * instructions are one byte and their operands. Nothing that a file names is called or imported: a class or function is
 * its name, an object its fields. Only what PyTorch puts around numbers is understood:
 *
 *     _rebuild_tensor_v2(storage, offset, shape, stride ...)      a tensor, which stays in the file
 *     _rebuild_parameter(tensor ...)                              the tensor
 *     OrderedDict, defaultdict                                    a dict
 *
 * Values may name one another in a circle; who walks through them takes care. A pickle takes memory in proportion to its
 * size: what it copies again and again, by its memo, is counted. */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include "zip.h"

enum { PICKLE_MAX = 1 << 24, PICKLE_SHARE = 144 }; /* bytes; and those of memory for each of them */

typedef enum pickle_kind { /* pickle_ops has these numbers */
                           PICKLE_NONE,
                           PICKLE_FALSE,
                           PICKLE_TRUE,
                           PICKLE_WHOLE,
                           PICKLE_NUMBER,
                           PICKLE_TEXT, /* or bytes; also a whole number of more than 64 bits, lowest byte first */
                           PICKLE_LIST,  /* or a tuple, or a set */
                           PICKLE_DICT,  /* or an object, by its fields */
                           PICKLE_CLASS, /* or a function: its name without that of its module */
                           PICKLE_STORAGE, /* numbers of a tensor: its key in `text`, how many in `whole` */
                           PICKLE_TENSOR /* the same, with a shape; `text` NULL: of a kind that is not known here */
} pickle_kind;

typedef struct pickle_value {
    pickle_kind kind;
    int is_open; /* for checkpoint.h: it is walked through */
    int64_t whole;
    double number;
    const char *text; /* [size] */
    size_t size;
    struct pickle_value **items; /* [n]; of a dict each key and its value */
    size_t n, room;
    source_tensor
        *tensor; /* its offset and strides count elements, its size is that of one; 0: not known */
} pickle_value;

typedef struct pickle {
    attn_ctx *ctx;
    arena *memory;
    const char *name; /* of the file */
    const unsigned char *begin, *at, *end;
    pickle_value **stack, **memo; /* a place for each byte is enough; NULL: a mark */
    size_t n, n_memo;
    pickle_value storages; /* a list */
    size_t left;           /* bytes of memory */
    int breaks_off;
} pickle;

/* >> Values ==================================================================================== */

TOOLS_COLD attn_status pickle_fail(const pickle *p, const char *what)
{
    return p->ctx->status ? p->ctx->status
                          : tool_fail(p->ctx, ATTN_E_FORMAT, "%s: byte %llu of its pickle: %s",
                                      p->name, TOOLS_LLU(p->at - p->begin), what);
}

TOOLS_COLD void *pickle_alloc(pickle *p, size_t count, size_t size)
{
    if (p->ctx->status || count > p->left / size) {
        pickle_fail(p, "it asks for more memory than a checkpoint of its size");
        return NULL;
    }
    p->left -= count * size;
    return arena_alloc(p->ctx, p->memory, count, size);
}

/* Appends n items to a list or a dict. */
TOOLS_COLD void pickle_append(pickle *p, pickle_value *to, pickle_value *const *items, size_t n)
{
    const size_t most = 2 * (to->n + n), size = sizeof(void *);
    pickle_value **larger = to->items;
    if (to->room - to->n < n) {
        if ((larger = (pickle_value **)pickle_alloc(p, most, size)) == NULL)
            return;
        for (size_t i = 0; i < to->n; i++)
            larger[i] = to->items[i];
        to->room = most;
    }
    for (size_t i = 0; i < n; i++)
        larger[to->n + i] = items[i];
    to->items = larger;
    to->n += n;
}

TOOLS_COLD int pickle_is(const pickle_value *v, pickle_kind kind, const char *text)
{
    return v && v->kind == kind && v->size == strlen(text) && memcmp(v->text, text, v->size) == 0;
}

/* The value of a key of a dict; NULL: it has none. */
TOOLS_COLD pickle_value *pickle_get(const pickle_value *v, const char *key)
{
    for (size_t i = 0; v && v->kind == PICKLE_DICT && i + 1 < v->n; i += 2)
        if (pickle_is(v->items[i], PICKLE_TEXT, key))
            return v->items[i + 1];
    return NULL;
}

/* Item i of a list, which has this kind; NULL: it has not. */
TOOLS_COLD pickle_value *pickle_item(const pickle_value *v, size_t i, pickle_kind kind)
{
    return v && v->kind == PICKLE_LIST && i < v->n && v->items[i]->kind == kind ? v->items[i]
                                                                                : NULL;
}

/* Reads item i of a list; 0: it is no whole number of 0 or more. */
TOOLS_COLD int pickle_whole(const pickle_value *list, size_t i, uint64_t *number)
{
    const pickle_value *const v = pickle_item(list, i, PICKLE_WHOLE);
    *number = v ? (uint64_t)v->whole : 0;
    return v && v->whole >= 0;
}

/* >> The stack ================================================================================= */

/* Puts a new value on top; NULL after a message. */
TOOLS_COLD pickle_value *pickle_push(pickle *p, pickle_kind kind)
{
    pickle_value *const v = (pickle_value *)pickle_alloc(p, 1, sizeof *v);
    if (v) {
        v->kind = kind;
        p->stack[p->n++] = v;
    }
    return v;
}

/* The place of the first of the n values on top; n 0: of those above the highest mark. */
TOOLS_COLD size_t pickle_first(pickle *p, uint64_t n)
{
    size_t first = p->n;
    while (first > 0 && p->stack[first - 1] && (n == 0 || p->n - first < n))
        first--;
    if (n ? p->n - first < n : first == 0)
        pickle_fail(p, n ? "a value is taken from an empty stack" : "there is no mark");
    return first;
}

/* The value on top; NULL after a message. */
TOOLS_COLD pickle_value *pickle_top(pickle *p)
{
    const size_t first = pickle_first(p, 1);
    return p->ctx->status ? NULL : p->stack[first];
}

/* The next bytes; NULL after a message. */
TOOLS_COLD const unsigned char *pickle_take(pickle *p, uint64_t size)
{
    if (p->ctx->status || size > (uint64_t)(p->end - p->at)) {
        p->breaks_off = !p->ctx->status;
        pickle_fail(p, "it breaks off");
        return NULL;
    }
    p->at += size;
    return p->at - size;
}

/* A number of so many bytes, the lowest first; 0 after a message. */
TOOLS_COLD uint64_t pickle_u(pickle *p, uint64_t size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    uint64_t n = 0;
    for (uint64_t i = 0; bytes && i < size; i++)
        n |= (uint64_t)bytes[i] << 8 * i;
    return n;
}

TOOLS_COLD pickle_value *pickle_push_text(pickle *p, pickle_kind kind, const void *text,
                                          uint64_t size)
{
    pickle_value *const v = text ? pickle_push(p, kind) : NULL;
    if (v) {
        v->text = (const char *)text;
        v->size = (size_t)size;
    }
    return v;
}

/* >> Tensors =================================================================================== */

/* Gives a storage or a tensor the type of this name. */
TOOLS_COLD void pickle_set_type(pickle *p, pickle_value *v, const pickle_value *type)
{
    static const struct {
        const char *name;
        source_dtype dtype;
        unsigned size;
    } known[] = {{"FloatStorage", SOURCE_F32, 4},     {"HalfStorage", SOURCE_F16, 2},
                 {"BFloat16Storage", SOURCE_BF16, 2}, {"DoubleStorage", SOURCE_F64, 8},
                 {"LongStorage", SOURCE_OTHER, 8},    {"IntStorage", SOURCE_OTHER, 4},
                 {"ShortStorage", SOURCE_OTHER, 2},   {"CharStorage", SOURCE_OTHER, 1},
                 {"ByteStorage", SOURCE_OTHER, 1},    {"BoolStorage", SOURCE_OTHER, 1}};
    source_tensor *const t = (source_tensor *)pickle_alloc(p, 1, sizeof *t);
    char *const name = t ? (char *)pickle_alloc(p, type->size + 1, 1) : NULL;
    if (!name)
        return;
    memcpy(name, type->text, type->size);
    t->dtype_name = name;
    t->dtype = SOURCE_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0) {
            t->dtype = known[i].dtype;
            t->size = known[i].size;
        }
    v->tensor = t;
}

/* ("storage", class, key, device, numel ...) */
TOOLS_COLD void pickle_do_storage(pickle *p, uint64_t n)
{
    const pickle_value *const id = pickle_top(p), *const type = pickle_item(id, 1, PICKLE_CLASS),
                              *const key = pickle_item(id, 2, PICKLE_TEXT);
    if (!pickle_is(pickle_item(id, 0, PICKLE_TEXT), PICKLE_TEXT, "storage") || !type || !key ||
        !pickle_whole(id, 4, &n)) {
        pickle_fail(p, "it names something outside that is no storage of PyTorch's");
        return;
    }
    p->n--;
    pickle_value *const v = pickle_push_text(p, PICKLE_STORAGE, key->text, key->size);
    if (v) {
        v->whole = (int64_t)n;
        pickle_set_type(p, v, type);
        pickle_append(p, &p->storages, &v, 1);
    }
}

/* Does a tensor lie within these elements? */
TOOLS_COLD int pickle_fits(const source_tensor *t, uint64_t numel)
{
    uint64_t last = t->offset;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return t->offset <= numel;
        if (t->stride[i] && t->shape[i] - 1 > (UINT64_MAX - last) / t->stride[i])
            return 0;
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return last < numel;
}

/* Makes *v a tensor of (storage, offset, shape, stride, requires_grad, hooks ...). One of more dimensions than models have
 * has none here. */
TOOLS_COLD void pickle_set_tensor(pickle *p, pickle_value *v, const pickle_value *args)
{
    const pickle_value *const of = pickle_item(args, 0, PICKLE_STORAGE),
                              *const shape = pickle_item(args, 2, PICKLE_LIST),
                              *const stride = pickle_item(args, 3, PICKLE_LIST);
    source_tensor *const t = (source_tensor *)pickle_alloc(p, 1, sizeof *t);
    int good = v && t && of && of->tensor && shape && stride && shape->n == stride->n;
    if (good) {
        *v = *of;
        *t = *of->tensor;
        v->kind = PICKLE_TENSOR;
        v->tensor = t;
        t->ndim = shape->n > SOURCE_MAX_DIMS ? 0 : (int)shape->n;
        good = pickle_whole(args, 1, &t->offset);
    }
    for (size_t i = 0; good && i < (size_t)t->ndim; i++)
        good = pickle_whole(shape, i, &t->shape[i]) && pickle_whole(stride, i, &t->stride[i]);
    if (!good)
        pickle_fail(p, "a tensor without a storage, an offset, a shape and strides");
    else if (!pickle_fits(t, (uint64_t)v->whole) && shape->n <= SOURCE_MAX_DIMS)
        pickle_fail(p, "a tensor that reaches beyond its storage");
}

/* >> Objects =================================================================================== */

/* Puts on top what a call of `of` with `args` makes: one of the shapes above, or an object without fields. */
TOOLS_COLD void pickle_call(pickle *p, const pickle_value *of, const pickle_value *args)
{
    static const char made[] = "_rebuild_";
    const pickle_value *const pairs = pickle_item(args, 0, PICKLE_LIST), *pair;
    if (pickle_is(of, PICKLE_CLASS, "_rebuild_from_type_v2") &&
        pickle_item(args, 0, PICKLE_CLASS) && pickle_item(args, 2, PICKLE_LIST)) {
        of = args->items[0]; /* (function, type, arguments, state) */
        args = args->items[2];
    }
    const int is_made = of->size >= sizeof made && memcmp(of->text, made, sizeof made - 1) == 0;
    pickle_value *const v = pickle_push(p, is_made ? PICKLE_TENSOR : PICKLE_DICT);
    if (pickle_is(of, PICKLE_CLASS, "_rebuild_tensor_v2"))
        pickle_set_tensor(p, v, args);
    else if (v && args->n &&
             (pickle_is(of, PICKLE_CLASS, "_rebuild_parameter") ||
              pickle_is(of, PICKLE_CLASS, "_rebuild_parameter_with_state")))
        p->stack[p->n - 1] = args->items[0];
    else if (v && is_made)
        pickle_set_type(p, v, of);
    for (size_t i = 0; v && !is_made && pairs && i < pairs->n; i++)
        if ((pair = pickle_item(pairs, i, PICKLE_LIST)) != NULL && pair->n == 2)
            pickle_append(p, v, pair->items, 2);
}

/* >> The machine =============================================================================== */

TOOLS_COLD void pickle_do_make(pickle *p, uint64_t kind)
{
    pickle_push(p, (pickle_kind)kind);
}

TOOLS_COLD void pickle_do_whole(pickle *p, uint64_t size)
{
    pickle_value *const v = pickle_push(p, PICKLE_WHOLE);
    if (v)
        v->whole = (int64_t)pickle_u(p, size);
}

/* A whole number of so many bytes, with a sign. */
TOOLS_COLD void pickle_do_signed(pickle *p, uint64_t size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    pickle_value *const v = pickle_push_text(p, size > 8 ? PICKLE_TEXT : PICKLE_WHOLE, bytes, size);
    uint64_t n = bytes && size && bytes[size - 1] >= 128 ? UINT64_MAX : 0;
    for (uint64_t i = size; v && size <= 8 && i > 0; i--)
        n = n << 8 | bytes[i - 1];
    if (v)
        v->whole = (int64_t)n;
}

TOOLS_COLD void pickle_do_long(pickle *p, uint64_t size)
{
    pickle_do_signed(p, pickle_u(p, size));
}

/* A double, its highest byte first. */
TOOLS_COLD void pickle_do_number(pickle *p, uint64_t size)
{
    pickle_value *const v = pickle_push(p, PICKLE_NUMBER);
    uint64_t bits = 0;
    for (; size > 0; size--)
        bits = bits << 8 | pickle_u(p, 1);
    if (v)
        memcpy(&v->number, &bits, sizeof bits);
}

TOOLS_COLD void pickle_do_text(pickle *p, uint64_t size)
{
    size = pickle_u(p, size);
    pickle_push_text(p, PICKLE_TEXT, pickle_take(p, size), size);
}

TOOLS_COLD void pickle_do_list(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n), count = p->n - first;
    pickle_value *const v = pickle_push(p, PICKLE_LIST);
    if (v) {
        pickle_append(p, v, p->stack + first, count);
        p->n = n ? first + 1 : first;
        p->stack[p->n - 1] = v;
    }
}

/* Items for the list or dict below them, which has n for each; n more than 4: n - 4, and all above a mark. A list of a class
 * of its own has none here. */
TOOLS_COLD void pickle_do_items(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n > 4 ? 0 : n), count = p->n - first;
    if (p->ctx->status)
        return;
    p->n = n > 4 ? first - 1 : first;
    pickle_value *const to = pickle_top(p);
    const int is_pairs = n % 4 == 2, is_dict = to && to->kind == PICKLE_DICT;
    if (to && ((is_pairs && count % 2) || (!is_dict && (is_pairs || to->kind != PICKLE_LIST))))
        pickle_fail(p, "items for what has none");
    else if (to && is_pairs == is_dict)
        pickle_append(p, to, p->stack + first, count);
}

TOOLS_COLD void pickle_do_pop(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n);
    if (!p->ctx->status)
        p->n = n ? first : first - 1;
}

/* The value on top once more, or that of the memo. */
TOOLS_COLD void pickle_do_again(pickle *p, uint64_t n)
{
    const uint64_t at = pickle_u(p, n), most = (uint64_t)(p->end - p->begin);
    pickle_value *const v = n == 0 ? pickle_top(p) : at < most ? p->memo[at] : NULL;
    if (v)
        p->stack[p->n++] = v;
    else
        pickle_fail(p, "a memo that nothing was written to");
}

TOOLS_COLD void pickle_do_memo(pickle *p, uint64_t size)
{
    const uint64_t at = size ? pickle_u(p, size) : p->n_memo;
    pickle_value *const v = pickle_top(p);
    if (at >= (uint64_t)(p->end - p->begin))
        pickle_fail(p, "a memo beyond all that was written");
    if (!p->ctx->status) {
        p->memo[at] = v;
        p->n_memo = at < p->n_memo ? p->n_memo : (size_t)at + 1;
    }
}

/* Calls the class or function that stands before its arguments; n 3: and before arguments with names. */
TOOLS_COLD void pickle_do_call(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n);
    pickle_value *const *const call = p->stack + first;
    if (!p->ctx->status && call[0]->kind == PICKLE_CLASS && call[1]->kind == PICKLE_LIST) {
        p->n = first;
        pickle_call(p, call[0], call[1]);
    } else {
        pickle_fail(p, "a call of what is no class and no function");
    }
}

/* Gives an object the fields of its state: a dict, or a tuple of two. Other values have no fields that matter here. */
TOOLS_COLD void pickle_do_build(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n);
    if (p->ctx->status)
        return;
    const pickle_value *const state = p->stack[first + 1];
    p->n = first + 1;
    for (size_t i = 0; i < 2; i++) {
        const pickle_value *const part =
            state->kind == PICKLE_DICT && i == 0 ? state : pickle_item(state, i, PICKLE_DICT);
        if (part && p->stack[first]->kind == PICKLE_DICT)
            pickle_append(p, p->stack[first], part->items, part->n);
    }
}

/* The class whose module and name are in the n lines that follow. */
TOOLS_COLD void pickle_do_lines(pickle *p, uint64_t n)
{
    const unsigned char *line = p->at;
    for (; n > 0; n--)
        for (line = p->at; pickle_take(p, 1) && p->at[-1] != '\n';)
            continue;
    if (!p->ctx->status)
        pickle_push_text(p, PICKLE_CLASS, line, (uint64_t)(p->at - line) - 1);
}

/* The same for two texts on top. */
TOOLS_COLD void pickle_do_class(pickle *p, uint64_t n)
{
    const size_t first = pickle_first(p, n);
    const pickle_value *const name = p->ctx->status ? NULL : p->stack[first + 1];
    if (name && name->kind == PICKLE_TEXT) {
        p->n = first;
        pickle_push_text(p, PICKLE_CLASS, name->text, name->size);
    } else {
        pickle_fail(p, "the name of a class that is no text");
    }
}

TOOLS_COLD void pickle_do_skip(pickle *p, uint64_t size)
{
    pickle_take(p, size);
}

TOOLS_COLD void pickle_do_mark(pickle *p, uint64_t n)
{
    p->stack[p->n++] = NULL;
    (void)n;
}

/* The instructions, each with a digit for what does it: the size of an operand, a number of values (0: those above a mark),
 * or a kind. */
static const struct {
    void (*run)(pickle *p, uint64_t n);
    const char *ops;
} pickle_ops[] = {{pickle_do_make, "N0\2111\2102)6]6\2176}7"},
                  {pickle_do_mark, "(0"},
                  {pickle_do_whole, "K1M2"},
                  {pickle_do_signed, "J4"},
                  {pickle_do_long, "\2121\2134"},
                  {pickle_do_number, "G8"},
                  {pickle_do_text, "U1T4X4\2141\2158C1B4\2168\2268"},
                  {pickle_do_list, "t0\2210\2051\2062\2073"},
                  {pickle_do_items, "a1s2e5\2205u6"},
                  {pickle_do_pop, "0110"},
                  {pickle_do_again, "20h1j4"},
                  {pickle_do_memo, "q1r4\2240"},
                  {pickle_do_call, "R2\2012\2223"},
                  {pickle_do_build, "b2"},
                  {pickle_do_lines, "c2"},
                  {pickle_do_class, "\2232"},
                  {pickle_do_skip, "\2001\2258"}, /* the protocol, the size of a frame */
                  {pickle_do_storage, "Q0"}};

/* Runs the next pickle. NULL after a message. */
TOOLS_COLD pickle_value *pickle_next(pickle *p)
{
    const unsigned char *op;
    char what[40];
    p->n = p->n_memo = 0;
    while ((op = pickle_take(p, 1)) != NULL && *op != '.') {
        const char *found = NULL;
        for (size_t i = 0; !found && i < sizeof pickle_ops / sizeof pickle_ops[0]; i++)
            for (const char *at = pickle_ops[i].ops; !found && *at; at += 2)
                if ((unsigned char)*at == *op) {
                    found = at;
                    pickle_ops[i].run(p, (uint64_t)(at[1] - '0'));
                }
        snprintf(what, sizeof what, "the unknown instruction %02x", *op);
        if (!found)
            pickle_fail(p, what);
    }
    return pickle_top(p);
}

/* >> PyTorch's files =========================================================================== */

/* A file of torch.save: what it has, and where its storages lie. */
typedef struct pickle_file {
    source_file *file;
    pickle_value *root;
    zip_archive zip; /* of the older format, its storages */
    char *folder;    /* of the storages: "archive/data/" */
    size_t seen;     /* values that were looked at: see checkpoint.h */
} pickle_file;

/* Takes the file's bytes from `offset` on as pickles. */
TOOLS_COLD attn_status pickle_begin(attn_ctx *ctx, source *s, pickle *p, source_file *file,
                                    uint64_t offset, uint64_t size)
{
    unsigned char *const bytes = (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)size + 1, 1);
    memset(p, 0, sizeof *p);
    p->ctx = ctx;
    p->memory = &s->memory;
    p->name = file->name;
    p->left = (1 << 16) + PICKLE_SHARE * (size_t)size;
    p->stack = (pickle_value **)pickle_alloc(p, (size_t)size + 1, sizeof(void *));
    p->memo = (pickle_value **)pickle_alloc(p, (size_t)size + 1, sizeof(void *));
    p->begin = p->at = bytes;
    p->end = bytes ? bytes + size : NULL;
    return ctx->status ? ctx->status : source_bytes(ctx, file, offset, bytes, (size_t)size);
}

/* The zip archive: FOLDER/data.pkl, and FOLDER/data/KEY for each storage. */
TOOLS_COLD attn_status pickle_open_zip(attn_ctx *ctx, source *s, pickle_file *f)
{
    static const char suffix[] = "data.pkl";
    enum { N_SUFFIX = sizeof suffix - 1 };
    const zip_member *m = NULL;
    char word[4] = "";
    pickle p;
    if (zip_open(ctx, s, &f->zip, f->file))
        return ctx->status;
    for (size_t i = 0; !m && i < f->zip.n_members; i++) {
        m = &f->zip.members[i];
        if (m->name_size < N_SUFFIX ||
            memcmp(m->name + m->name_size - N_SUFFIX, suffix, N_SUFFIX) != 0)
            m = NULL;
    }
    if (!m || m->size > PICKLE_MAX)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s is a zip archive, but no file of torch.save: %s",
                         f->file->name, m ? "its data.pkl is too large" : "it has no data.pkl");
    const size_t n = m->name_size - N_SUFFIX;
    f->folder = (char *)arena_alloc(ctx, &s->memory, n + sizeof "data/", 1);
    if (!f->folder || pickle_begin(ctx, s, &p, f->file, m->offset, m->size))
        return ctx->status;
    f->root = pickle_next(&p);
    memcpy(f->folder, m->name, n);
    m = zip_find(&f->zip, f->folder, "byteorder", 9);
    memcpy(f->folder + n, "data/", sizeof "data/");
    if (m && !ctx->status && m->size == 3 && !source_bytes(ctx, f->file, m->offset, word, 3) &&
        strcmp(word, "big") == 0)
        tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s has big-endian numbers", f->file->name);
    return ctx->status;
}

/* Notes where the storages of the older format lie: one after the other from byte `at` on, in the order of `keys`, each behind
 * its number of elements. */
TOOLS_COLD attn_status pickle_place(attn_ctx *ctx, source *s, pickle_file *f,
                                    const pickle_value *keys, const pickle_value *storages,
                                    uint64_t at)
{
    const size_t n = keys->kind == PICKLE_LIST ? keys->n : 0;
    zip_archive *const z = &f->zip;
    unsigned char count[8];
    size_t i;
    z->members = (zip_member *)arena_alloc(ctx, &s->memory, n + 1, sizeof *z->members);
    if (!z->members || names_init(ctx, &s->memory, &z->by_name, n))
        return ctx->status;
    for (i = 0; i < n; i++)
        if (keys->items[i]->kind == PICKLE_TEXT)
            names_add(&z->by_name, keys->items[i]->text, keys->items[i]->size, &i);
    for (size_t k = 0; k < storages->n; k++)
        if (names_find(&z->by_name, storages->items[k]->text, storages->items[k]->size, &i))
            z->members[i].size = storages->items[k]->tensor->size;
    for (i = 0; i < n; i++) {
        zip_member *const m = &z->members[i];
        m->offset = at + 8;
        if (at > f->file->size || source_bytes(ctx, f->file, at, count, 8) || m->size == 0 ||
            get_u64(count) > (f->file->size - m->offset) / m->size)
            return tool_fail(
                ctx, ATTN_E_FORMAT,
                "%s was cut short, or has storages of another kind: one lies at byte %llu",
                f->file->name, TOOLS_LLU(at));
        m->size *= get_u64(count);
        at = m->offset + m->size;
    }
    z->n_members = n;
    return ATTN_OK;
}

/* Before PyTorch 1.6: pickles of a magic number, a version, the machine, the value and the keys of its storages; then
 * each storage's number of elements, and its elements. The pickles are small, and the weights are not needed for them. */
TOOLS_COLD attn_status pickle_open_old(attn_ctx *ctx, source *s, pickle_file *f)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    pickle p;
    f->folder = arena_text(ctx, &s->memory, "", 0);
    for (uint64_t most = 1 << 18; f->folder; most = PICKLE_MAX) {
        ctx->status = ATTN_OK;
        if (pickle_begin(ctx, s, &p, f->file, 0, most < f->file->size ? most : f->file->size))
            return ctx->status;
        f->root = pickle_next(&p);
        if (pickle_is(f->root, PICKLE_TEXT, magic)) { /* else a pickle without tensors */
            for (int i = 0; i < 3; i++)
                f->root = pickle_next(&p);
            const pickle_value *const keys = pickle_next(&p);
            if (keys)
                return pickle_place(ctx, s, f, keys, &p.storages, (uint64_t)(p.at - p.begin));
        }
        if (!p.breaks_off || most >= f->file->size || most == PICKLE_MAX)
            break;
    }
    return ctx->status;
}

/* Do these 8 bytes begin such a file, and not safetensors, which begins with the size of its header? */
TOOLS_COLD int pickle_begins(const unsigned char *bytes)
{
    return memcmp(bytes, "PK\3\4", 4) == 0 ||
           (bytes[0] == 0x80 && get_u64(bytes) >= SOURCE_MAX_HEADER);
}

TOOLS_COLD attn_status pickle_open(attn_ctx *ctx, source *s, pickle_file *f, const char *path)
{
    unsigned char head[4];
    memset(f, 0, sizeof *f);
    if ((f->file = source_open(ctx, s, path)) == NULL)
        return ctx->status;
    return zip_has(ctx, f->file, 0, head, 4, "PK\3\4") ? pickle_open_zip(ctx, s, f)
                                                       : pickle_open_old(ctx, s, f);
}

#endif
