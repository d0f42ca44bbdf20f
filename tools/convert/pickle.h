/* Reads what Python's pickle wrote, protocols 2 to 5, without Python: a program of a small stack machine, whose
 * instructions are one byte and their operands. Nothing that a file names is called or imported: a class or function is
 * its name, an object its fields. Only what PyTorch and NumPy put around numbers is understood:
 *
 *     torch._utils._rebuild_tensor_v2(storage, offset, shape, stride ...)      a tensor, which stays in the file
 *     torch._utils._rebuild_parameter(tensor ...)                              the tensor
 *     collections.OrderedDict, defaultdict                                     a dict
 *     torch.Size, set, frozenset                                               a list, as tuples are
 *     numpy.core.multiarray.scalar                                             a number
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
    PICKLE_FLAG,
    PICKLE_WHOLE,
    PICKLE_NUMBER,
    PICKLE_TEXT,
    PICKLE_BYTES, /* also a whole number of more than 64 bits, lowest byte first */
    PICKLE_LIST,  /* or a tuple, or a set */
    PICKLE_DICT,
    PICKLE_GLOBAL, /* a class or a function: "module.name" */
    PICKLE_OBJECT, /* its class in `text`, its fields as a dict has them, its arguments */
    PICKLE_STORAGE,
    PICKLE_TENSOR
} pickle_kind;

/* A storage has dtype, numel and, in `text`, its key. A tensor is a view of one. */
typedef struct pickle_view {
    source_dtype dtype;
    unsigned element; /* bytes */
    uint64_t numel;
    const struct pickle_value *storage, *type; /* torch.float32, or a storage's class */
    uint64_t offset; /* in elements; of a storage of the older format in bytes of the file */
    int ndim;        /* -1: more than SOURCE_MAX_DIMS */
    uint64_t shape[SOURCE_MAX_DIMS], stride[SOURCE_MAX_DIMS];
} pickle_view;

typedef struct pickle_value {
    pickle_kind kind;
    int64_t whole; /* or a flag */
    double number;
    const char *text; /* [size] */
    size_t size;
    struct pickle_value **items; /* [n]; of a dict each key and its value */
    size_t n, room;
    struct pickle_value *args; /* of an object: a list, or NULL */
    pickle_view *view;
} pickle_value;

typedef struct pickle {
    attn_ctx *ctx;
    arena *memory;
    const char *name; /* of the file */
    const unsigned char *begin, *at, *end;
    pickle_value **stack, **memo;                        /* [n_stack], [n_memo] */
    size_t n_stack, stack_room, n_memo, memo_room, left; /* bytes of memory */
    int breaks_off;
    pickle_value *storages; /* a list of those that it named, each time */
} pickle;

/* >> Values ==================================================================================== */

TOOLS_COLD attn_status pickle_fail(pickle *p, const char *what)
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

/* Room for one more in a list of values. */
TOOLS_COLD attn_status pickle_grow(pickle *p, pickle_value ***list, size_t n, size_t *room)
{
    if (n < *room)
        return ATTN_OK;
    pickle_value **const larger = (pickle_value **)pickle_alloc(p, 2 * n + 8, sizeof *larger);
    if (larger && n)
        memcpy((void *)larger, (const void *)*list, n * sizeof *larger);
    if (!larger)
        return p->ctx->status;
    *list = larger;
    *room = 2 * n + 8;
    return ATTN_OK;
}

TOOLS_COLD attn_status pickle_append(pickle *p, pickle_value *list, pickle_value *item)
{
    if (pickle_grow(p, &list->items, list->n, &list->room))
        return p->ctx->status;
    list->items[list->n++] = item;
    return ATTN_OK;
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

/* Item i of a list; NULL: it is no list, or has fewer. */
TOOLS_COLD pickle_value *pickle_item(const pickle_value *v, size_t i)
{
    return v && v->kind == PICKLE_LIST && i < v->n ? v->items[i] : NULL;
}

/* >> The stack ================================================================================= */

TOOLS_COLD attn_status pickle_push(pickle *p, pickle_value *v)
{
    if (!v || pickle_grow(p, &p->stack, p->n_stack, &p->stack_room))
        return p->ctx->status;
    p->stack[p->n_stack++] = v;
    return ATTN_OK;
}

/* Takes the value on top; NULL after a message. */
TOOLS_COLD pickle_value *pickle_pop(pickle *p)
{
    if (p->n_stack == 0 || p->stack[p->n_stack - 1]->kind == PICKLE_MARK) {
        pickle_fail(p, "a value is taken from an empty stack");
        return NULL;
    }
    return p->stack[--p->n_stack];
}

TOOLS_COLD pickle_value *pickle_top(pickle *p)
{
    pickle_value *const v = pickle_pop(p);
    p->n_stack += v != NULL;
    return v;
}

/* Takes what lies above the highest mark, and the mark: a list. NULL after a message. */
TOOLS_COLD pickle_value *pickle_pop_to_mark(pickle *p)
{
    size_t first = p->n_stack;
    while (first > 0 && p->stack[first - 1]->kind != PICKLE_MARK)
        first--;
    if (first == 0) {
        pickle_fail(p, "there is no mark");
        return NULL;
    }
    pickle_value *const list = pickle_new(p, PICKLE_LIST);
    for (size_t i = first; list && i < p->n_stack; i++)
        if (pickle_append(p, list, p->stack[i]))
            return NULL;
    p->n_stack = first - 1;
    return list;
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

/* A line without its end; NULL after a message. */
TOOLS_COLD const char *pickle_line(pickle *p, size_t *size)
{
    const unsigned char *const line = p->at, *const end = (const unsigned char *)memchr(
                                                 line, '\n', (size_t)(p->end - line));
    if (!end) {
        pickle_take(p, UINT64_MAX);
        return NULL;
    }
    p->at = end + 1;
    *size = (size_t)(end - line);
    return (const char *)line;
}

TOOLS_COLD attn_status pickle_push_text(pickle *p, pickle_kind kind, const void *text, size_t size)
{
    pickle_value *const v = text ? pickle_new(p, kind) : NULL;
    if (v) {
        v->text = (const char *)text;
        v->size = size;
    }
    return pickle_push(p, v);
}

/* Text whose size is a number of so many bytes. */
TOOLS_COLD attn_status pickle_sized_text(pickle *p, pickle_kind kind, size_t size_of_size)
{
    const uint64_t size = pickle_u(p, size_of_size);
    return p->ctx->status ? p->ctx->status
                          : pickle_push_text(p, kind, pickle_take(p, size), (size_t)size);
}

TOOLS_COLD attn_status pickle_push_whole(pickle *p, pickle_kind kind, int64_t whole)
{
    pickle_value *const v = pickle_new(p, kind);
    if (v)
        v->whole = whole;
    return pickle_push(p, v);
}

TOOLS_COLD attn_status pickle_push_number(pickle *p, double number)
{
    pickle_value *const v = pickle_new(p, PICKLE_NUMBER);
    if (v)
        v->number = number;
    return pickle_push(p, v);
}

/* A whole number of `size` bytes with a sign. */
TOOLS_COLD attn_status pickle_long(pickle *p, uint64_t size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    uint64_t n = bytes && size && bytes[size - 1] >= 128 ? UINT64_MAX : 0;
    if (!bytes || size > 8)
        return pickle_push_text(p, PICKLE_BYTES, bytes, (size_t)size);
    for (uint64_t i = size; i > 0; i--)
        n = n << 8 | bytes[i - 1];
    return pickle_push_whole(p, PICKLE_WHOLE, (int64_t)n);
}

/* >> Tensors =================================================================================== */

/* By the end of a storage's class, or of a dtype's name. */
TOOLS_COLD void pickle_dtype(pickle_view *view, const pickle_value *type)
{
    static const struct {
        const char *storage, *name;
        source_dtype dtype;
        unsigned element;
    } known[] = {{"FloatStorage", "float32", SOURCE_F32, 4},
                 {"HalfStorage", "float16", SOURCE_F16, 2},
                 {"BFloat16Storage", "bfloat16", SOURCE_BF16, 2},
                 {"DoubleStorage", "float64", SOURCE_F64, 8},
                 {"LongStorage", "int64", SOURCE_OTHER, 8},
                 {"IntStorage", "int32", SOURCE_OTHER, 4},
                 {"ShortStorage", "int16", SOURCE_OTHER, 2},
                 {"CharStorage", "int8", SOURCE_OTHER, 1},
                 {"ByteStorage", "uint8", SOURCE_OTHER, 1},
                 {"BoolStorage", "bool", SOURCE_OTHER, 1},
                 {"UntypedStorage", "", SOURCE_OTHER, 1}};
    const char *last = type->text;
    for (size_t i = 0; i < type->size; i++)
        last = type->text[i] == '.' ? type->text + i + 1 : last;
    const size_t length = type->size - (size_t)(last - type->text);
    view->type = type;
    view->dtype = SOURCE_OTHER;
    view->element = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if ((strlen(known[i].storage) == length && memcmp(known[i].storage, last, length) == 0) ||
            (length && strlen(known[i].name) == length &&
             memcmp(known[i].name, last, length) == 0)) {
            view->dtype = known[i].dtype;
            view->element = known[i].element;
        }
}

TOOLS_COLD pickle_value *pickle_new_view(pickle *p, pickle_kind kind, const pickle_value *of)
{
    pickle_value *const v = pickle_new(p, kind);
    if (!v || (v->view = (pickle_view *)pickle_alloc(p, 1, sizeof *v->view)) == NULL)
        return NULL;
    pickle_dtype(v->view, of);
    return v;
}

/* ("storage", class, key, device, numel ...) */
TOOLS_COLD attn_status pickle_storage(pickle *p, unsigned unused)
{
    (void)unused;
    const pickle_value *const id = pickle_pop(p), *const of = pickle_item(id, 1),
                              *const key = pickle_item(id, 2), *const numel = pickle_item(id, 4);
    if (!id || !pickle_is(pickle_item(id, 0), PICKLE_TEXT, "storage") || !of ||
        of->kind != PICKLE_GLOBAL || !key || key->kind != PICKLE_TEXT || !numel ||
        numel->kind != PICKLE_WHOLE || numel->whole < 0)
        return pickle_fail(p, "it names something outside that is no storage of PyTorch's");
    pickle_value *const v = pickle_new_view(p, PICKLE_STORAGE, of);
    if (!v)
        return p->ctx->status;
    v->text = key->text;
    v->size = key->size;
    v->view->numel = (uint64_t)numel->whole;
    return p->storages && pickle_append(p, p->storages, v) ? p->ctx->status : pickle_push(p, v);
}

/* Does a tensor lie within its storage? */
TOOLS_COLD int pickle_fits(const pickle_view *t, const pickle_view *of)
{
    const uint64_t bytes =
        of->element && of->numel <= UINT64_MAX / of->element ? of->numel * of->element : 0;
    const uint64_t numel = t->element ? bytes / t->element : 0;
    uint64_t last = t->offset;
    for (int i = 0; i < t->ndim; i++) {
        if (t->shape[i] == 0)
            return t->offset <= numel;
        if (t->stride[i] && t->shape[i] - 1 > (UINT64_MAX - last) / t->stride[i])
            return 0;
        last += (t->shape[i] - 1) * t->stride[i];
    }
    return t->ndim < 0 || t->element == 0 || last < numel;
}

/* (storage, offset, shape, stride, requires_grad, hooks ...); v3 has its dtype at place 6. NULL after a message. */
TOOLS_COLD pickle_value *pickle_tensor(pickle *p, const pickle_value *args, int is_v3)
{
    const pickle_value *const of = pickle_item(args, 0), *const offset = pickle_item(args, 1),
                              *const shape = pickle_item(args, 2),
                              *const stride = pickle_item(args, 3),
                              *const dtype = pickle_item(args, 6);
    if (!of || of->kind != PICKLE_STORAGE || !offset || offset->kind != PICKLE_WHOLE ||
        offset->whole < 0 || !shape || shape->kind != PICKLE_LIST || !stride ||
        stride->kind != PICKLE_LIST || shape->n != stride->n ||
        (is_v3 && (!dtype || dtype->kind != PICKLE_GLOBAL))) {
        pickle_fail(p, "a tensor without a storage, an offset, a shape and strides");
        return NULL;
    }
    pickle_value *const v = pickle_new_view(p, PICKLE_TENSOR, of);
    if (!v)
        return NULL;
    pickle_view *const t = v->view;
    *t = *of->view;
    if (is_v3)
        pickle_dtype(t, dtype);
    t->storage = of;
    t->offset = (uint64_t)offset->whole;
    t->ndim = shape->n > SOURCE_MAX_DIMS ? -1 : (int)shape->n;
    for (int i = 0; i < t->ndim; i++) {
        const pickle_value *const n = shape->items[i], *const step = stride->items[i];
        if (n->kind != PICKLE_WHOLE || n->whole < 0 || step->kind != PICKLE_WHOLE ||
            step->whole < 0) {
            pickle_fail(p, "a shape or stride that is no whole number");
            return NULL;
        }
        t->shape[i] = (uint64_t)n->whole;
        t->stride[i] = (uint64_t)step->whole;
    }
    if (!pickle_fits(t, of->view)) {
        pickle_fail(p, "a tensor that reaches beyond its storage");
        return NULL;
    }
    return v;
}

/* >> Objects =================================================================================== */

/* The text is latin-1 as UTF-8, as protocol 2 has bytes. */
TOOLS_COLD pickle_value *pickle_latin1(pickle *p, const pickle_value *text)
{
    pickle_value *const v = pickle_new(p, PICKLE_BYTES);
    char *const bytes =
        v && text && text->kind == PICKLE_TEXT ? (char *)pickle_alloc(p, text->size + 1, 1) : NULL;
    if (!bytes)
        return v;
    for (size_t i = 0; i < text->size; i++) {
        const unsigned char c = (unsigned char)text->text[i];
        const int is_pair = c >= 0xC2 && c <= 0xC3 && i + 1 < text->size;
        bytes[v->size++] = is_pair ? (char)((c & 3) << 6 | (text->text[i + 1] & 63)) : (char)c;
        i += (size_t)is_pair;
    }
    v->text = bytes;
    return v;
}

/* A number of NumPy: its dtype, and its bytes. None: of another dtype than a float or a whole number of 8 bytes or fewer. */
TOOLS_COLD pickle_value *pickle_scalar(pickle *p, const pickle_value *args)
{
    const pickle_value *const dtype = pickle_item(args, 0), *const bytes = pickle_item(args, 1),
                              *const code = dtype ? pickle_item(dtype->args, 0) : NULL;
    pickle_value *const v = pickle_new(p, PICKLE_NONE);
    if (!v || !code || code->kind != PICKLE_TEXT || code->size < 2 || !bytes ||
        bytes->kind != PICKLE_BYTES || bytes->size != (size_t)(code->text[code->size - 1] - '0') ||
        bytes->size > 8)
        return v;
    unsigned char raw[8] = {0};
    memcpy(raw, bytes->text, bytes->size);
    const uint64_t bits = get_u64(raw);
    const uint32_t low = get_u32(raw);
    const char letter = code->text[code->size - 2];
    float single;
    v->kind = letter == 'f' ? PICKLE_NUMBER : letter == 'b' ? PICKLE_FLAG : PICKLE_WHOLE;
    v->whole = (int64_t)bits;
    memcpy(&single, &low, sizeof single);
    memcpy(&v->number, &bits, sizeof v->number);
    if (bytes->size == 4)
        v->number = (double)single;
    else if (letter == 'f' && bytes->size != 8)
        v->kind = PICKLE_NONE;
    return v;
}

/* What a call of `of` with `args` makes: one of the shapes above, or an object without fields. NULL after a message. */
TOOLS_COLD pickle_value *pickle_call(pickle *p, const pickle_value *of, pickle_value *args)
{
    enum {
        MAKES_TENSOR,
        MAKES_TENSOR_3,
        MAKES_FIRST,
        MAKES_PAIRS,
        MAKES_EMPTY,
        MAKES_LATIN1,
        MAKES_SCALAR,
        MAKES_TYPED
    };
    static const struct {
        const char *name;
        int makes;
    } known[] = {{"torch._utils._rebuild_tensor_v2", MAKES_TENSOR},
                 {"torch._utils._rebuild_tensor_v3", MAKES_TENSOR_3},
                 {"torch._utils._rebuild_tensor", MAKES_TENSOR},
                 {"torch._utils._rebuild_parameter", MAKES_FIRST},
                 {"torch._utils._rebuild_parameter_with_state", MAKES_FIRST},
                 {"torch._tensor._rebuild_from_type_v2", MAKES_TYPED},
                 {"torch.Size", MAKES_FIRST},
                 {"builtins.set", MAKES_FIRST},
                 {"builtins.frozenset", MAKES_FIRST},
                 {"builtins.list", MAKES_FIRST},
                 {"builtins.tuple", MAKES_FIRST},
                 {"__builtin__.set", MAKES_FIRST},
                 {"__builtin__.frozenset", MAKES_FIRST},
                 {"collections.OrderedDict", MAKES_PAIRS},
                 {"builtins.dict", MAKES_PAIRS},
                 {"collections.defaultdict", MAKES_EMPTY},
                 {"_codecs.encode", MAKES_LATIN1},
                 {"numpy.core.multiarray.scalar", MAKES_SCALAR},
                 {"numpy._core.multiarray.scalar", MAKES_SCALAR}};
    const pickle_value *const first = pickle_item(args, 0);
    size_t i = 0;
    while (i < sizeof known / sizeof known[0] && !pickle_is(of, PICKLE_GLOBAL, known[i].name))
        i++;
    const int makes = i < sizeof known / sizeof known[0] ? known[i].makes : -1;
    if (makes == MAKES_TENSOR || makes == MAKES_TENSOR_3)
        return pickle_tensor(p, args, makes == MAKES_TENSOR_3);
    if (makes == MAKES_FIRST && first)
        return args->items[0];
    if (makes == MAKES_TYPED && args->n > 2) /* (function, type, arguments, state) */
        return pickle_is(first, PICKLE_GLOBAL, known[i].name)
                   ? pickle_new(p, PICKLE_NONE)
                   : pickle_call(p, first, args->items[2]);
    if (makes == MAKES_LATIN1)
        return pickle_latin1(p, first);
    if (makes == MAKES_SCALAR)
        return pickle_scalar(p, args);
    pickle_value *const v =
        pickle_new(p, makes == MAKES_FIRST                           ? PICKLE_LIST
                      : makes == MAKES_PAIRS || makes == MAKES_EMPTY ? PICKLE_DICT
                                                                     : PICKLE_OBJECT);
    if (!v)
        return NULL;
    v->text = of->text;
    v->size = of->size;
    v->args = args && args->kind == PICKLE_LIST ? args : NULL;
    for (i = 0; makes == MAKES_PAIRS && first && first->kind == PICKLE_LIST && i < first->n; i++) {
        pickle_value *const key = pickle_item(first->items[i], 0), *const value = pickle_item(
                                                                       first->items[i], 1);
        if (key && value && (pickle_append(p, v, key) || pickle_append(p, v, value)))
            return NULL;
    }
    return v;
}

/* Gives an object the fields of its state: a dict, or a tuple of dicts. Other values have no fields that matter here. */
TOOLS_COLD attn_status pickle_build(pickle *p, unsigned unused)
{
    (void)unused;
    const pickle_value *const state = pickle_pop(p);
    pickle_value *const object = state ? pickle_top(p) : NULL;
    if (!object)
        return p->ctx->status;
    for (size_t part = 0; object->kind == PICKLE_OBJECT && part < 2; part++) {
        const pickle_value *const dict =
            state->kind == PICKLE_DICT ? (part ? NULL : state) : pickle_item(state, part);
        for (size_t i = 0; dict && dict->kind == PICKLE_DICT && i < dict->n; i++)
            if (pickle_append(p, object, dict->items[i]))
                return p->ctx->status;
    }
    return ATTN_OK;
}

/* Appends what lies above the mark to the list or dict below it, which has `step` items for each of its own. */
TOOLS_COLD attn_status pickle_extend(pickle *p, pickle_value *items, size_t step)
{
    pickle_value *const to = items ? pickle_top(p) : NULL;
    if (!to)
        return p->ctx->status;
    if (items->n % step || (to->kind == PICKLE_DICT) != (step == 2 && to->kind != PICKLE_OBJECT) ||
        (to->kind != PICKLE_DICT && to->kind != PICKLE_LIST && to->kind != PICKLE_OBJECT))
        return pickle_fail(p, "items for what has none");
    for (size_t i = 0; i < items->n; i++)
        if (pickle_append(p, to, items->items[i]))
            return p->ctx->status;
    return ATTN_OK;
}

/* A list of the n values on top. */
TOOLS_COLD pickle_value *pickle_pop_n(pickle *p, size_t n)
{
    pickle_value *const list = pickle_new(p, PICKLE_LIST);
    for (size_t i = n; list && i > 0; i--)
        if (p->n_stack < i || p->stack[p->n_stack - i]->kind == PICKLE_MARK) {
            pickle_fail(p, "a value is taken from an empty stack");
            return NULL;
        } else if (pickle_append(p, list, p->stack[p->n_stack - i])) {
            return NULL;
        }
    p->n_stack -= list ? n : 0;
    return list;
}

/* >> The machine =============================================================================== */

/* "module.name" of two texts. */
TOOLS_COLD attn_status pickle_global(pickle *p, const char *module, size_t module_size,
                                     const char *name, size_t name_size)
{
    char *const text =
        module && name ? (char *)pickle_alloc(p, module_size + name_size + 2, 1) : NULL;
    if (!text)
        return p->ctx->status;
    memcpy(text, module, module_size);
    text[module_size] = '.';
    memcpy(text + module_size + 1, name, name_size);
    return pickle_push_text(p, PICKLE_GLOBAL, text, module_size + 1 + name_size);
}

TOOLS_COLD attn_status pickle_put(pickle *p, uint64_t at)
{
    pickle_value *const v = pickle_top(p);
    if (!v)
        return p->ctx->status;
    if (at > (uint64_t)(p->at - p->begin)) /* a number for each instruction is enough */
        return pickle_fail(p, "a memo beyond all that was written");
    while (p->n_memo <= at) {
        if (pickle_grow(p, &p->memo, p->n_memo, &p->memo_room))
            return p->ctx->status;
        p->memo[p->n_memo++] = NULL;
    }
    p->memo[at] = v;
    return ATTN_OK;
}

TOOLS_COLD attn_status pickle_recall(pickle *p, uint64_t at)
{
    return at < p->n_memo && p->memo[at] ? pickle_push(p, p->memo[at])
                                         : pickle_fail(p, "a memo that nothing was written to");
}

/* >> Instructions, each with an argument of its own ============================================ */

TOOLS_COLD attn_status pickle_do_constant(pickle *p, unsigned kind_and_flag)
{
    return pickle_push_whole(p, (pickle_kind)(kind_and_flag >> 1), kind_and_flag & 1);
}

TOOLS_COLD attn_status pickle_do_whole(pickle *p, unsigned size)
{
    const uint64_t n = pickle_u(p, size);
    return pickle_push_whole(p, PICKLE_WHOLE, size == 4 ? (int32_t)(uint32_t)n : (int64_t)n);
}

TOOLS_COLD attn_status pickle_do_long(pickle *p, unsigned size)
{
    return pickle_long(p, pickle_u(p, size));
}

/* A double, its highest byte first. */
TOOLS_COLD attn_status pickle_do_double(pickle *p, unsigned size)
{
    const unsigned char *const bytes = pickle_take(p, size);
    uint64_t bits = 0;
    double number;
    for (size_t i = 0; bytes && i < size; i++)
        bits = bits << 8 | bytes[i];
    memcpy(&number, &bits, sizeof number);
    return pickle_push_number(p, number);
}

TOOLS_COLD attn_status pickle_do_text(pickle *p, unsigned size)
{
    return pickle_sized_text(p, PICKLE_TEXT, size);
}

TOOLS_COLD attn_status pickle_do_bytes(pickle *p, unsigned size)
{
    return pickle_sized_text(p, PICKLE_BYTES, size);
}

TOOLS_COLD attn_status pickle_do_empty(pickle *p, unsigned kind)
{
    return pickle_push(p, pickle_new(p, (pickle_kind)kind));
}

/* A list or dict of what lies above the mark. */
TOOLS_COLD attn_status pickle_do_collect(pickle *p, unsigned kind)
{
    pickle_value *const v = pickle_pop_to_mark(p);
    if (v)
        v->kind = (pickle_kind)kind;
    return pickle_push(p, v);
}

TOOLS_COLD attn_status pickle_do_tuple(pickle *p, unsigned n)
{
    return pickle_push(p, pickle_pop_n(p, n));
}

TOOLS_COLD attn_status pickle_do_append(pickle *p, unsigned step)
{
    return pickle_extend(p, pickle_pop_n(p, step), step);
}

TOOLS_COLD attn_status pickle_do_extend(pickle *p, unsigned step)
{
    return pickle_extend(p, pickle_pop_to_mark(p), step);
}

TOOLS_COLD attn_status pickle_do_pop(pickle *p, unsigned to_mark)
{
    return (to_mark ? pickle_pop_to_mark(p) : pickle_pop(p)) ? ATTN_OK : p->ctx->status;
}

TOOLS_COLD attn_status pickle_do_twice(pickle *p, unsigned unused)
{
    (void)unused;
    return pickle_push(p, pickle_top(p));
}

TOOLS_COLD attn_status pickle_do_put(pickle *p, unsigned size)
{
    return pickle_put(p, pickle_u(p, size));
}

TOOLS_COLD attn_status pickle_do_memoize(pickle *p, unsigned unused)
{
    (void)unused;
    return pickle_put(p, p->n_memo);
}

TOOLS_COLD attn_status pickle_do_recall(pickle *p, unsigned size)
{
    return pickle_recall(p, pickle_u(p, size));
}

TOOLS_COLD attn_status pickle_do_skip(pickle *p, unsigned size)
{
    return pickle_take(p, size) ? ATTN_OK : p->ctx->status;
}

/* A class by two lines, or by two texts on the stack. */
TOOLS_COLD attn_status pickle_do_global(pickle *p, unsigned is_on_stack)
{
    size_t sizes[2] = {0, 0};
    if (!is_on_stack) {
        const char *const module = pickle_line(p, &sizes[0]), *const name =
                                                                  module ? pickle_line(p, &sizes[1])
                                                                         : NULL;
        return pickle_global(p, module, sizes[0], name, sizes[1]);
    }
    const pickle_value *const name = pickle_pop(p), *const module = name ? pickle_pop(p) : NULL;
    if (!module || module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT)
        return pickle_fail(p, "the name of a class that is no text");
    return pickle_global(p, module->text, module->size, name->text, name->size);
}

/* Calls the class or function below its arguments, above which its named ones may lie. */
TOOLS_COLD attn_status pickle_do_call(pickle *p, unsigned has_names)
{
    if (has_names && !pickle_pop(p))
        return p->ctx->status;
    pickle_value *const args = pickle_pop(p);
    const pickle_value *const of = args ? pickle_pop(p) : NULL;
    if (!of || of->kind != PICKLE_GLOBAL || args->kind != PICKLE_LIST)
        return pickle_fail(p, "a call of what is no class and no function");
    return pickle_push(p, pickle_call(p, of, args));
}

typedef struct pickle_op {
    unsigned char op;
    attn_status (*run)(pickle *p, unsigned argument);
    unsigned argument;
} pickle_op;

static const pickle_op pickle_ops[] = {
    {'N', pickle_do_constant, PICKLE_NONE << 1},
    {0x88, pickle_do_constant, PICKLE_FLAG << 1 | 1},
    {0x89, pickle_do_constant, PICKLE_FLAG << 1},
    {'K', pickle_do_whole, 1},
    {'M', pickle_do_whole, 2},
    {'J', pickle_do_whole, 4},
    {0x8a, pickle_do_long, 1},
    {0x8b, pickle_do_long, 4},
    {'G', pickle_do_double, 8},
    {'X', pickle_do_text, 4},
    {'T', pickle_do_text, 4},
    {0x8c, pickle_do_text, 1},
    {'U', pickle_do_text, 1},
    {0x8d, pickle_do_text, 8},
    {'B', pickle_do_bytes, 4},
    {'C', pickle_do_bytes, 1},
    {0x8e, pickle_do_bytes, 8},
    {0x96, pickle_do_bytes, 8},
    {'(', pickle_do_empty, PICKLE_MARK},
    {')', pickle_do_empty, PICKLE_LIST},
    {']', pickle_do_empty, PICKLE_LIST},
    {0x8f, pickle_do_empty, PICKLE_LIST},
    {'}', pickle_do_empty, PICKLE_DICT},
    {'t', pickle_do_collect, PICKLE_LIST},
    {0x91, pickle_do_collect, PICKLE_LIST},
    {0x85, pickle_do_tuple, 1},
    {0x86, pickle_do_tuple, 2},
    {0x87, pickle_do_tuple, 3},
    {'a', pickle_do_append, 1},
    {'s', pickle_do_append, 2},
    {'e', pickle_do_extend, 1},
    {0x90, pickle_do_extend, 1},
    {'u', pickle_do_extend, 2},
    {'0', pickle_do_pop, 0},
    {'1', pickle_do_pop, 1},
    {'2', pickle_do_twice, 0},
    {'q', pickle_do_put, 1},
    {'r', pickle_do_put, 4},
    {0x94, pickle_do_memoize, 0},
    {'h', pickle_do_recall, 1},
    {'j', pickle_do_recall, 4},
    {'c', pickle_do_global, 0},
    {0x93, pickle_do_global, 1},
    {'R', pickle_do_call, 0},
    {0x81, pickle_do_call, 0},
    {0x92, pickle_do_call, 1},
    {'b', pickle_build, 0},
    {'Q', pickle_storage, 0},
    {0x80, pickle_do_skip, 1}, /* the protocol */
    {0x95, pickle_do_skip, 8}  /* the size of a frame */
};

/* Runs one pickle of the bytes [*at, end), and moves *at behind it. Appends the storages that it names to a list, or NULL. NULL
 * after a message; *at is NULL then if the bytes break off. */
TOOLS_COLD pickle_value *pickle_read(attn_ctx *ctx, arena *memory, const char *name,
                                     const unsigned char **at, const unsigned char *end,
                                     pickle_value *storages)
{
    pickle p = {ctx, memory, name, *at, *at, end, NULL, NULL, 0, 0, 0, 0, 1 << 16, 0, storages};
    p.left += PICKLE_SHARE * (size_t)(end - *at);
    const size_t n_ops = sizeof pickle_ops / sizeof pickle_ops[0];
    char what[40];
    while (!ctx->status) {
        const unsigned char *const op = pickle_take(&p, 1);
        size_t i = 0;
        if (op && *op == '.') {
            *at = p.at;
            return pickle_pop(&p);
        }
        while (op && i < n_ops && pickle_ops[i].op != *op)
            i++;
        if (op && i < n_ops) {
            pickle_ops[i].run(&p, pickle_ops[i].argument);
        } else if (op) {
            snprintf(what, sizeof what, "the unknown instruction %02x", *op);
            pickle_fail(&p, what);
        }
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
    const unsigned char *at = bytes, *const end = bytes + most;
    pickle_value *values[5];
    if (!bytes || !storages || source_bytes(ctx, f->file, 0, bytes, (size_t)most))
        return ctx->status;
    storages->kind = PICKLE_LIST;
    for (int i = 0; i < 5; i++) {
        values[i] = pickle_read(ctx, &s->memory, f->file->name, &at, end, storages);
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
    const uint64_t all = f->file->size < PICKLE_MAX ? f->file->size : PICKLE_MAX;
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
