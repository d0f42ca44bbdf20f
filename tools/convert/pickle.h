/* Reads what Python's pickle wrote, protocols 2 to 5, without Python: a program of a small stack machine, whose
 * instructions are one byte and their operands. Nothing that a file names is called or imported: a class or function is
 * its name, an object its fields. Only what PyTorch puts around numbers is understood:
 *
 *     torch._utils._rebuild_tensor_v2(storage, offset, shape, stride ...)      a tensor, which stays in the file
 *     torch._utils._rebuild_parameter(tensor ...)                              the tensor
 *     collections.OrderedDict, defaultdict                                     a dict
 *
 * Values may name one another in a circle; who walks through them counts how deep they are. A pickle takes memory in
 * proportion to its size: what it copies again and again, by its memo, is counted. */
#ifndef TOOLS_PICKLE_H
#define TOOLS_PICKLE_H

#include "zip.h"

enum { PICKLE_MAX = 1 << 24, PICKLE_SHARE = 128 }; /* bytes; and those of memory for each of them */

typedef enum pickle_kind {
    PICKLE_MARK,
    PICKLE_NONE,
    PICKLE_FALSE,
    PICKLE_TRUE,
    PICKLE_WHOLE,
    PICKLE_NUMBER,
    PICKLE_TEXT,
    PICKLE_BYTES, /* also a whole number of more than 64 bits, lowest byte first */
    PICKLE_LIST,  /* or a tuple, or a set */
    PICKLE_DICT,
    PICKLE_GLOBAL, /* a class or a function: "module.name" */
    PICKLE_OBJECT, /* its class in `text`, its fields as a dict has them */
    PICKLE_STORAGE,
    PICKLE_TENSOR
} pickle_kind;

/* A storage has type, numel and, in `text`, its key. A tensor is a view of one. */
typedef struct pickle_view {
    source_dtype dtype;
    unsigned element;                          /* bytes; 0: unknown */
    const struct pickle_value *type, *storage; /* torch.FloatStorage, ... */
    uint64_t numel;
    uint64_t offset; /* in elements; of a storage of the older format in bytes of the file */
    int ndim;        /* -1: more than SOURCE_MAX_DIMS */
    uint64_t shape[SOURCE_MAX_DIMS], stride[SOURCE_MAX_DIMS];
} pickle_view;

typedef struct pickle_value {
    pickle_kind kind;
    int64_t whole;
    double number;
    const char *text; /* [size] */
    size_t size;
    struct pickle_value **items; /* [n]; of a dict each key and its value */
    size_t n, room;
    pickle_view *view;
} pickle_value;

typedef struct pickle {
    attn_ctx *ctx;
    arena *memory;
    const char *name; /* of the file */
    const unsigned char *begin, *at, *end;
    pickle_value stack, memo, *storages; /* lists; the last, of those that it named, or NULL */
    size_t left;                         /* bytes of memory */
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
    if (count > p->left / size) {
        pickle_fail(p, "it asks for more memory than a checkpoint of its size");
        return NULL;
    }
    p->left -= count * size;
    return arena_alloc(p->ctx, p->memory, count, size);
}

TOOLS_COLD pickle_value *pickle_new(pickle *p, pickle_kind kind)
{
    pickle_value *const v = (pickle_value *)pickle_alloc(p, 1, sizeof *v);
    if (v)
        v->kind = kind;
    return v;
}

TOOLS_COLD attn_status pickle_append(pickle *p, pickle_value *list, pickle_value *item)
{
    if (item && list->n == list->room) {
        pickle_value **const larger =
            (pickle_value **)pickle_alloc(p, 2 * list->n + 8, sizeof(void *));
        if (larger && list->n)
            memcpy((void *)larger, (const void *)list->items, list->n * sizeof(void *));
        list->items = larger ? larger : list->items;
        list->room = larger ? 2 * list->n + 8 : list->room;
    }
    if (!p->ctx->status && item)
        list->items[list->n++] = item;
    return p->ctx->status;
}

TOOLS_COLD int pickle_is(const pickle_value *v, pickle_kind kind, const char *text)
{
    return v && v->kind == kind && v->size == strlen(text) && memcmp(v->text, text, v->size) == 0;
}

/* The value of a key of a dict or of an object; NULL: it has none. */
TOOLS_COLD pickle_value *pickle_get(const pickle_value *v, const char *key)
{
    for (size_t i = 0; v && (v->kind == PICKLE_DICT || v->kind == PICKLE_OBJECT) && i + 1 < v->n;
         i += 2)
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

TOOLS_COLD attn_status pickle_push(pickle *p, pickle_value *v)
{
    return pickle_append(p, &p->stack, v);
}

/* The value on top; NULL after a message. */
TOOLS_COLD pickle_value *pickle_top(pickle *p)
{
    if (p->stack.n > 0 && p->stack.items[p->stack.n - 1]->kind != PICKLE_MARK)
        return p->stack.items[p->stack.n - 1];
    pickle_fail(p, "a value is taken from an empty stack");
    return NULL;
}

TOOLS_COLD pickle_value *pickle_pop(pickle *p)
{
    pickle_value *const v = pickle_top(p);
    p->stack.n -= v != NULL;
    return v;
}

/* Takes a list of the n values on top; n SIZE_MAX: of those above the highest mark, and the mark. NULL after a message. */
TOOLS_COLD pickle_value *pickle_pop_list(pickle *p, size_t n)
{
    size_t first = p->stack.n;
    while (first > 0 && p->stack.n - first < n && p->stack.items[first - 1]->kind != PICKLE_MARK)
        first--;
    if (n == SIZE_MAX ? first == 0 : p->stack.n - first < n) {
        pickle_fail(p, n == SIZE_MAX ? "there is no mark" : "a value is taken from an empty stack");
        return NULL;
    }
    pickle_value *const list = pickle_new(p, PICKLE_LIST);
    for (size_t i = first; list && i < p->stack.n; i++)
        pickle_append(p, list, p->stack.items[i]);
    p->stack.n = first - (n == SIZE_MAX);
    return p->ctx->status ? NULL : list;
}

/* >> Operands ================================================================================== */

/* The next bytes; NULL after a message. */
TOOLS_COLD const unsigned char *pickle_take(pickle *p, uint64_t size)
{
    if (size > (uint64_t)(p->end - p->at)) {
        p->breaks_off = 1;
        pickle_fail(p, "it breaks off");
        return NULL;
    }
    p->at += size;
    return p->at - size;
}

/* A little-endian number of so many bytes; 0 after a message. */
TOOLS_COLD uint64_t pickle_u(pickle *p, size_t size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    uint64_t n = 0;
    for (size_t i = 0; bytes && i < size; i++)
        n |= (uint64_t)bytes[i] << 8 * i;
    return n;
}

TOOLS_COLD attn_status pickle_push_text(pickle *p, pickle_kind kind, const void *text,
                                        uint64_t size)
{
    pickle_value *const v = text ? pickle_new(p, kind) : NULL;
    if (v) {
        v->text = (const char *)text;
        v->size = (size_t)size;
    }
    return pickle_push(p, v);
}

TOOLS_COLD attn_status pickle_push_line(pickle *p)
{
    const unsigned char *const line = p->at;
    const void *const end = memchr(line, '\n', (size_t)(p->end - line));
    const uint64_t size = end ? (uint64_t)((const unsigned char *)end - line) : 0;
    return pickle_take(p, end ? size + 1 : UINT64_MAX)
               ? pickle_push_text(p, PICKLE_TEXT, line, size)
               : p->ctx->status;
}

TOOLS_COLD attn_status pickle_push_whole(pickle *p, int64_t whole)
{
    pickle_value *const v = pickle_new(p, PICKLE_WHOLE);
    if (v)
        v->whole = whole;
    return pickle_push(p, v);
}

/* A whole number of `size` bytes with a sign. */
TOOLS_COLD attn_status pickle_long(pickle *p, uint64_t size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    uint64_t n = bytes && size && bytes[size - 1] >= 128 ? UINT64_MAX : 0;
    if (!bytes || size > 8)
        return pickle_push_text(p, PICKLE_BYTES, bytes, size);
    for (uint64_t i = size; i > 0; i--)
        n = n << 8 | bytes[i - 1];
    return pickle_push_whole(p, (int64_t)n);
}

/* A double, its highest byte first. */
TOOLS_COLD attn_status pickle_double(pickle *p)
{
    const unsigned char *const bytes = pickle_take(p, 8);
    pickle_value *const v = bytes ? pickle_new(p, PICKLE_NUMBER) : NULL;
    uint64_t bits = 0;
    for (size_t i = 0; v && i < 8; i++)
        bits = bits << 8 | bytes[i];
    if (v)
        memcpy(&v->number, &bits, sizeof bits);
    return pickle_push(p, v);
}

/* >> Tensors =================================================================================== */

TOOLS_COLD pickle_value *pickle_new_view(pickle *p, pickle_kind kind, const pickle_value *type)
{
    static const struct {
        const char *type;
        source_dtype dtype;
        unsigned element;
    } known[] = {{"torch.FloatStorage", SOURCE_F32, 4},     {"torch.HalfStorage", SOURCE_F16, 2},
                 {"torch.BFloat16Storage", SOURCE_BF16, 2}, {"torch.DoubleStorage", SOURCE_F64, 8},
                 {"torch.LongStorage", SOURCE_OTHER, 8},    {"torch.IntStorage", SOURCE_OTHER, 4},
                 {"torch.ShortStorage", SOURCE_OTHER, 2},   {"torch.CharStorage", SOURCE_OTHER, 1},
                 {"torch.ByteStorage", SOURCE_OTHER, 1},    {"torch.BoolStorage", SOURCE_OTHER, 1}};
    pickle_value *const v = pickle_new(p, kind);
    if (!v || (v->view = (pickle_view *)pickle_alloc(p, 1, sizeof *v->view)) == NULL)
        return NULL;
    v->view->type = type;
    v->view->dtype = SOURCE_OTHER;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (pickle_is(type, PICKLE_GLOBAL, known[i].type)) {
            v->view->dtype = known[i].dtype;
            v->view->element = known[i].element;
        }
    return v;
}

/* ("storage", class, key, device, numel ...) */
TOOLS_COLD attn_status pickle_storage(pickle *p)
{
    const pickle_value *const id = pickle_pop(p), *const type = pickle_item(id, 1, PICKLE_GLOBAL),
                              *const key = pickle_item(id, 2, PICKLE_TEXT);
    uint64_t numel;
    if (!pickle_is(pickle_item(id, 0, PICKLE_TEXT), PICKLE_TEXT, "storage") || !type || !key ||
        !pickle_whole(id, 4, &numel))
        return pickle_fail(p, "it names something outside that is no storage of PyTorch's");
    pickle_value *const v = pickle_new_view(p, PICKLE_STORAGE, type);
    if (!v)
        return p->ctx->status;
    v->text = key->text;
    v->size = key->size;
    v->view->numel = numel;
    return p->storages && pickle_append(p, p->storages, v) ? p->ctx->status : pickle_push(p, v);
}

/* Does a tensor lie within its storage? */
TOOLS_COLD int pickle_fits(const pickle_view *t)
{
    uint64_t last = t->offset;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return t->offset <= t->numel;
        if (t->stride[i] && t->shape[i] - 1 > (UINT64_MAX - last) / t->stride[i])
            return 0;
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return t->ndim < 0 || last < t->numel;
}

/* (storage, offset, shape, stride, requires_grad, hooks ...). NULL after a message. */
TOOLS_COLD pickle_value *pickle_tensor(pickle *p, const pickle_value *args)
{
    const pickle_value *const of = pickle_item(args, 0, PICKLE_STORAGE),
                              *const shape = pickle_item(args, 2, PICKLE_LIST),
                              *const stride = pickle_item(args, 3, PICKLE_LIST);
    pickle_value *const v = of ? pickle_new_view(p, PICKLE_TENSOR, of->view->type) : NULL;
    int good = v && shape && stride && shape->n == stride->n;
    if (good) {
        good = pickle_whole(args, 1, &v->view->offset);
        v->view->storage = of;
        v->view->numel = of->view->numel;
        v->view->ndim = shape->n > SOURCE_MAX_DIMS ? -1 : (int)shape->n;
        for (int i = 0; i < v->view->ndim; i++)
            good = good && pickle_whole(shape, (size_t)i, &v->view->shape[i]) &&
                   pickle_whole(stride, (size_t)i, &v->view->stride[i]);
    }
    if (good && pickle_fits(v->view))
        return v;
    pickle_fail(p, good ? "a tensor that reaches beyond its storage"
                        : "a tensor without a storage, an offset, a shape and strides");
    return NULL;
}

/* >> Objects =================================================================================== */

/* The class or function whose module and name are on top. */
TOOLS_COLD attn_status pickle_global(pickle *p)
{
    const pickle_value *const path = pickle_pop_list(p, 2),
                              *const module = pickle_item(path, 0, PICKLE_TEXT),
                              *const name = pickle_item(path, 1, PICKLE_TEXT);
    if (!module || !name)
        return pickle_fail(p, "the name of a class that is no text");
    const size_t size = module->size + 1 + name->size;
    char *const text = (char *)pickle_alloc(p, size, 1);
    if (!text)
        return p->ctx->status;
    memcpy(text, module->text, module->size);
    text[module->size] = '.';
    memcpy(text + module->size + 1, name->text, name->size);
    return pickle_push_text(p, PICKLE_GLOBAL, text, size);
}

/* What a call of `of` with `args` makes: one of the shapes above, or an object without fields. NULL after a message. */
TOOLS_COLD pickle_value *pickle_call(pickle *p, const pickle_value *of, const pickle_value *args)
{
    const pickle_value *const pairs = pickle_item(args, 0, PICKLE_LIST),
                              *const within = pickle_item(args, 2, PICKLE_LIST),
                              *const made = pickle_item(args, 0, PICKLE_GLOBAL);
    if (pickle_is(of, PICKLE_GLOBAL, "torch._utils._rebuild_tensor_v2"))
        return pickle_tensor(p, args);
    if (pickle_is(of, PICKLE_GLOBAL, "torch._utils._rebuild_parameter") ||
        pickle_is(of, PICKLE_GLOBAL, "torch._utils._rebuild_parameter_with_state"))
        return args->n ? args->items[0] : pickle_new(p, PICKLE_NONE);
    if (pickle_is(of, PICKLE_GLOBAL, "torch._tensor._rebuild_from_type_v2") && within && made &&
        !pickle_is(made, PICKLE_GLOBAL, "torch._tensor._rebuild_from_type_v2"))
        return pickle_call(p, made, within); /* (function, type, arguments, state) */
    const int is_dict = pickle_is(of, PICKLE_GLOBAL, "collections.OrderedDict") ||
                        pickle_is(of, PICKLE_GLOBAL, "collections.defaultdict");
    pickle_value *const v = pickle_new(p, is_dict ? PICKLE_DICT : PICKLE_OBJECT);
    for (size_t i = 0; v && is_dict && pairs && i < pairs->n; i++) {
        const pickle_value *const pair = pickle_item(pairs, i, PICKLE_LIST);
        if (!pair || pair->n != 2)
            pickle_fail(p, "a dict of what are no pairs");
        else if (!pickle_append(p, v, pair->items[0]))
            pickle_append(p, v, pair->items[1]);
        if (p->ctx->status)
            return NULL;
    }
    if (v) {
        v->text = of->text;
        v->size = of->size;
    }
    return v;
}

/* Calls the class or function below its arguments. */
TOOLS_COLD attn_status pickle_do_call(pickle *p)
{
    const pickle_value *const call = pickle_pop_list(p, 2),
                              *const of = pickle_item(call, 0, PICKLE_GLOBAL),
                              *const args = pickle_item(call, 1, PICKLE_LIST);
    if (!of || !args)
        return pickle_fail(p, "a call of what is no class and no function");
    return pickle_push(p, pickle_call(p, of, args));
}

/* Gives an object the fields of its state: a dict, or a tuple of dicts. Other values have no fields that matter here. */
TOOLS_COLD attn_status pickle_build(pickle *p)
{
    const pickle_value *const state = pickle_pop(p);
    pickle_value *const object = state ? pickle_top(p) : NULL;
    for (size_t part = 0; object && object->kind == PICKLE_OBJECT && part < 2; part++) {
        const pickle_value *const dict = state->kind == PICKLE_DICT
                                             ? (part ? NULL : state)
                                             : pickle_item(state, part, PICKLE_DICT);
        for (size_t i = 0; dict && i < dict->n; i++)
            if (pickle_append(p, object, dict->items[i]))
                break;
    }
    return p->ctx->status;
}

/* Appends items to the list or dict on top, which has `step` for each of its own. */
TOOLS_COLD attn_status pickle_extend(pickle *p, const pickle_value *items, size_t step)
{
    pickle_value *const to = items ? pickle_top(p) : NULL;
    if (to && (items->n % step ||
               (to->kind != PICKLE_OBJECT && to->kind != (step == 2 ? PICKLE_DICT : PICKLE_LIST))))
        return pickle_fail(p, "items for what has none");
    for (size_t i = 0; to && i < items->n; i++)
        if (to->kind != PICKLE_OBJECT || step == 2)
            pickle_append(p, to, items->items[i]);
    return p->ctx->status;
}

TOOLS_COLD attn_status pickle_put(pickle *p, uint64_t at)
{
    pickle_value *const v = pickle_top(p);
    if (v && at > (uint64_t)(p->at - p->begin)) /* a number for each instruction is enough */
        return pickle_fail(p, "a memo beyond all that was written");
    while (v && p->memo.n <= at)
        if (pickle_append(p, &p->memo, v))
            return p->ctx->status;
    if (v)
        p->memo.items[at] = v;
    return p->ctx->status;
}

/* >> The machine =============================================================================== */

TOOLS_COLD attn_status pickle_sized(pickle *p, pickle_kind kind, size_t size_of_size)
{
    const uint64_t size = pickle_u(p, size_of_size);
    return pickle_push_text(p, kind, pickle_take(p, size), size);
}

/* Does an instruction that works on the stack. */
TOOLS_COLD attn_status pickle_do_stack(pickle *p, unsigned op)
{
    char what[40];
    uint64_t at;
    switch (op) {
    case 't':
    case 0x91:
        return pickle_push(p, pickle_pop_list(p, SIZE_MAX));
    case 0x85:
    case 0x86:
    case 0x87:
        return pickle_push(p, pickle_pop_list(p, op - 0x84));
    case 'a':
    case 's':
        return pickle_extend(p, pickle_pop_list(p, op == 'a' ? 1 : 2), op == 'a' ? 1 : 2);
    case 'e':
    case 0x90:
    case 'u':
        return pickle_extend(p, pickle_pop_list(p, SIZE_MAX), op == 'u' ? 2 : 1);
    case '0':
        return pickle_pop(p) ? ATTN_OK : p->ctx->status;
    case '1':
        return pickle_pop_list(p, SIZE_MAX) ? ATTN_OK : p->ctx->status;
    case '2':
        return pickle_push(p, pickle_top(p));
    case 'q':
    case 'r':
        return pickle_put(p, pickle_u(p, op == 'q' ? 1 : 4));
    case 0x94:
        return pickle_put(p, p->memo.n);
    case 'h':
    case 'j':
        at = pickle_u(p, op == 'h' ? 1 : 4);
        return at < p->memo.n ? pickle_push(p, p->memo.items[at])
                              : pickle_fail(p, "a memo that nothing was written to");
    case 0x92: /* named arguments */
        return pickle_pop(p) ? pickle_do_call(p) : p->ctx->status;
    case 'R':
    case 0x81:
        return pickle_do_call(p);
    case 'b':
        return pickle_build(p);
    case 0x80: /* the protocol; the size of a frame */
    case 0x95:
        return pickle_take(p, op == 0x80 ? 1 : 8) ? ATTN_OK : p->ctx->status;
    default:
        snprintf(what, sizeof what, "the unknown instruction %02x", op);
        return pickle_fail(p, what);
    }
}

/* Does an instruction. */
TOOLS_COLD attn_status pickle_do(pickle *p, unsigned op)
{
    switch (op) {
    case 'K':
    case 'M':
        return pickle_push_whole(p, (int64_t)pickle_u(p, op == 'K' ? 1 : 2));
    case 'J':
        return pickle_push_whole(p, (int32_t)(uint32_t)pickle_u(p, 4));
    case 0x8a:
    case 0x8b:
        return pickle_long(p, pickle_u(p, op == 0x8a ? 1 : 4));
    case 'G':
        return pickle_double(p);
    case 'U':
    case 0x8c:
        return pickle_sized(p, PICKLE_TEXT, 1);
    case 'T':
    case 'X':
        return pickle_sized(p, PICKLE_TEXT, 4);
    case 0x8d:
        return pickle_sized(p, PICKLE_TEXT, 8);
    case 'C':
        return pickle_sized(p, PICKLE_BYTES, 1);
    case 'B':
        return pickle_sized(p, PICKLE_BYTES, 4);
    case 0x8e:
    case 0x96:
        return pickle_sized(p, PICKLE_BYTES, 8);
    case 'c':
        for (int i = 0; i < 2 && !p->ctx->status; i++)
            pickle_push_line(p);
        return pickle_global(p);
    case 0x93:
        return pickle_global(p);
    case 'Q':
        return pickle_storage(p);
    default:
        return pickle_do_stack(p, op);
    }
}

/* Runs one pickle of the bytes [*at, end), and moves *at behind it. Appends the storages that it names to a list, or NULL. NULL
 * after a message; *at is NULL then if the bytes break off. */
TOOLS_COLD pickle_value *pickle_read(attn_ctx *ctx, arena *memory, const char *name,
                                     const unsigned char **at, const unsigned char *end,
                                     pickle_value *storages)
{
    static const char empty[] = "N\x89\x88()]\x8f}"; /* instructions that make these values */
    static const pickle_kind kinds[] = {PICKLE_NONE, PICKLE_FALSE, PICKLE_TRUE, PICKLE_MARK,
                                        PICKLE_LIST, PICKLE_LIST,  PICKLE_LIST, PICKLE_DICT};
    pickle p = ATTN_ZERO;
    p.ctx = ctx;
    p.memory = memory;
    p.name = name;
    p.begin = p.at = *at;
    p.end = end;
    p.storages = storages;
    p.left = (1 << 16) + PICKLE_SHARE * (size_t)(end - *at);
    while (!ctx->status) {
        const unsigned char *const op = pickle_take(&p, 1);
        if (op && *op == '.') {
            *at = p.at;
            return pickle_pop(&p);
        }
        const char *const known = op && *op ? strchr(empty, *op) : NULL;
        if (known)
            pickle_push(&p, pickle_new(&p, kinds[known - empty]));
        else if (op)
            pickle_do(&p, *op);
    }
    *at = p.breaks_off ? NULL : p.at;
    return NULL;
}

/* >> PyTorch's files =========================================================================== */

/* A file of torch.save: what it has, and where its storages lie. */
typedef struct pickle_file {
    source_file *file;
    pickle_value *root;
    zip_archive zip; /* n_members 0: the older format, */
    const char *prefix;
    size_t prefix_size;
    const pickle_value *storages; /* whose views' offset is in the file, */
    name_table places;            /* by their keys */
    size_t seen;                  /* values that were looked at: see checkpoint.h */
} pickle_file;

/* The zip archive: PREFIX/data.pkl, and PREFIX/data/KEY for each storage. */
TOOLS_COLD attn_status pickle_open_zip(attn_ctx *ctx, source *s, pickle_file *f)
{
    static const char suffix[] = "data.pkl";
    const zip_member *found = NULL;
    if (zip_open(ctx, s, &f->zip, f->file))
        return ctx->status;
    for (size_t i = 0; i < f->zip.n_members; i++) {
        const zip_member *const m = &f->zip.members[i];
        const size_t n = sizeof suffix - 1;
        if (m->name_size >= n && memcmp(m->name + m->name_size - n, suffix, n) == 0)
            found = found && found->name_size <= m->name_size ? found : m;
    }
    if (!found || found->size > PICKLE_MAX)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s is a zip archive, but no file of torch.save: %s",
                         f->file->name, found ? "its data.pkl is too large" : "it has no data.pkl");
    f->prefix = found->name;
    f->prefix_size = found->name_size - (sizeof suffix - 1);
    const zip_member *const order = zip_find(&f->zip, f->prefix, f->prefix_size, "byteorder", 9);
    char word[8] = "";
    if (order && order->size < sizeof word &&
        source_bytes(ctx, f->file, order->offset, word, (size_t)order->size))
        return ctx->status;
    if (strcmp(word, "big") == 0)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s has big-endian numbers", f->file->name);
    unsigned char *const bytes =
        (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)found->size + 1, 1);
    const unsigned char *at = bytes;
    if (!bytes || source_bytes(ctx, f->file, found->offset, bytes, (size_t)found->size))
        return ctx->status;
    f->root = pickle_read(ctx, &s->memory, f->file->name, &at, bytes + found->size, NULL);
    return ctx->status;
}

/* Notes where the storages of the older format lie: one after the other from byte `at` on, in the order of `keys`, each behind
 * its number of elements. */
TOOLS_COLD attn_status pickle_place_all(attn_ctx *ctx, source *s, pickle_file *f,
                                        const pickle_value *keys, const pickle_value *storages,
                                        uint64_t at)
{
    const size_t n = keys->kind == PICKLE_LIST ? keys->n : 0;
    if (names_init(ctx, &s->memory, &f->places, storages->n))
        return ctx->status;
    for (size_t i = 0; i < storages->n; i++) {
        size_t number = i;
        names_add(&f->places, storages->items[i]->text, storages->items[i]->size, &number);
    }
    for (size_t i = 0; i < n; i++) {
        const pickle_value *const key = keys->items[i];
        size_t number = 0;
        if (key->kind != PICKLE_TEXT || !names_find(&f->places, key->text, key->size, &number))
            return tool_fail(ctx, ATTN_E_FORMAT, "%s: a storage that no tensor has", f->file->name);
        pickle_view *const view = storages->items[number]->view;
        if (at > f->file->size || f->file->size - at < 8 ||
            (view->element && view->numel > (f->file->size - at - 8) / view->element))
            return tool_fail(ctx, ATTN_E_FORMAT, "%s was cut short: a storage lies beyond its end",
                             f->file->name);
        view->offset = at + 8;
        at += 8 + view->numel * view->element;
    }
    f->storages = storages;
    return ATTN_OK;
}

/* Where the bytes of a storage begin, and how many it has; 0 after a message. */
TOOLS_COLD uint64_t pickle_place(attn_ctx *ctx, const pickle_file *f, const pickle_value *storage,
                                 uint64_t *size)
{
    char name[128];
    size_t number = 0;
    shown key;
    const int length = snprintf(name, sizeof name, "data/%.*s",
                                (int)(storage->size < 99 ? storage->size : 99), storage->text);
    const zip_member *const m =
        f->zip.n_members ? zip_find(&f->zip, f->prefix, f->prefix_size, name, (size_t)length)
                         : NULL;
    if (m) {
        *size = m->size;
        return m->offset;
    }
    if (f->storages && names_find(&f->places, storage->text, storage->size, &number) &&
        f->storages->items[number]->view->offset) {
        *size = storage->view->numel * storage->view->element;
        return f->storages->items[number]->view->offset;
    }
    tool_fail(ctx, ATTN_E_FORMAT, "%s has no storage %s", f->file->name,
              show(key, storage->text, storage->size));
    return 0;
}

/* Before PyTorch 1.6: pickles of a magic number, a version, the machine, the value and the keys of its storages; then
 * each storage's number of elements, and its elements. Reads what begins in `most` bytes. *cut: they were too few. */
TOOLS_COLD attn_status pickle_open_part(attn_ctx *ctx, source *s, pickle_file *f, uint64_t most,
                                        int *cut)
{
    static const char magic[] = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    unsigned char *const bytes = (unsigned char *)arena_alloc(ctx, &s->memory, (size_t)most + 1, 1);
    pickle_value *const storages =
        (pickle_value *)arena_alloc(ctx, &s->memory, 1, sizeof *storages);
    const unsigned char *at = bytes;
    pickle_value *values[5];
    if (!bytes || !storages || source_bytes(ctx, f->file, 0, bytes, (size_t)most))
        return ctx->status;
    storages->kind = PICKLE_LIST;
    for (int i = 0; i < 5; i++) {
        values[i] = pickle_read(ctx, &s->memory, f->file->name, &at, bytes + most, storages);
        *cut = !at;
        if (!values[i])
            return ctx->status;
        if (i == 0 && !pickle_is(values[0], PICKLE_BYTES, magic)) {
            f->root = values[0]; /* a pickle without tensors */
            return ATTN_OK;
        }
    }
    f->root = values[3];
    return pickle_place_all(ctx, s, f, values[4], storages, (uint64_t)(at - bytes));
}

/* The pickles are small, and the weights behind them are not needed to read them. */
TOOLS_COLD attn_status pickle_open_old(attn_ctx *ctx, source *s, pickle_file *f)
{
    const uint64_t all = f->file->size < PICKLE_MAX ? f->file->size : (uint64_t)PICKLE_MAX;
    for (uint64_t most = 1 << 16;; most *= 4) {
        int cut = 0;
        most = most < all ? most : all;
        if (!pickle_open_part(ctx, s, f, most, &cut) || !cut || most == all)
            return ctx->status;
        ctx->status = ATTN_OK;
    }
}

TOOLS_COLD attn_status pickle_open(attn_ctx *ctx, source *s, pickle_file *f, const char *path)
{
    unsigned char head[4] = {0};
    memset(f, 0, sizeof *f);
    if (!(f->file = source_open(ctx, s, path)) ||
        (f->file->size >= 4 && source_bytes(ctx, f->file, 0, head, 4)))
        return ctx->status;
    return memcmp(head, "PK\3\4", 4) == 0 ? pickle_open_zip(ctx, s, f) : pickle_open_old(ctx, s, f);
}

#endif
