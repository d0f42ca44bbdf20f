/* Reads GGUF, versions 2 and 3, little-endian, of architecture gpt2.
 *
 *     "GGUF"  u32 version  u64 n_tensors  u64 n_keys
 *     each key:    string name, u32 type, value          (string: u64 size, then bytes)
 *     each tensor: string name, u32 n_dims, u64 dims[], u32 type, u64 offset
 *     the tensors' data, from the next multiple of general.alignment on
 *
 * Dimensions are listed fastest first; in the other order linear layers are [out, in]. The vocabulary is
 * among the keys. Everything before the data is read in one pass. Only the values of the keys that matter
 * here are kept. */
#ifndef TOOLS_GGUF_H
#define TOOLS_GGUF_H

#include "card.h"

typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_N_TYPES
} gguf_type;

/* The least size of a value in bytes; its exact size if the type has a fixed size. */
TOOLS_FN size_t gguf_type_size(uint32_t type)
{
    static const unsigned char sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8};
    return sizes[type];
}

typedef struct gguf_string {
    const char *text;
    size_t size;
} gguf_string;

typedef struct gguf_value {
    int present;
    uint32_t type; /* of the value; of the elements if is_array */
    int is_array;
    uint64_t number; /* whole numbers; negative ones as two's complement */
    double real;     /* F32 and F64 */
    gguf_string string;
    gguf_string *strings; /* arrays of strings */
    int64_t *numbers;     /* arrays of whole numbers */
    size_t count;         /* elements of an array */
} gguf_value;

typedef struct gguf_reader {
    attn_ctx *ctx;
    source *s;
    source_file *f;
    uint64_t at;
} gguf_reader;

/* The keys that matter here. Those from NAME to LICENSE say what the model is. */
#define GGUF_KEYS(KEY)                                                                             \
    KEY(ARCHITECTURE, "general.architecture")                                                      \
    KEY(ALIGNMENT, "general.alignment")                                                            \
    KEY(CONTEXT, "gpt2.context_length")                                                            \
    KEY(WIDTH, "gpt2.embedding_length")                                                            \
    KEY(LAYERS, "gpt2.block_count")                                                                \
    KEY(INNER, "gpt2.feed_forward_length")                                                         \
    KEY(HEADS, "gpt2.attention.head_count")                                                        \
    KEY(HEADS_KV, "gpt2.attention.head_count_kv")                                                  \
    KEY(EPSILON, "gpt2.attention.layer_norm_epsilon")                                              \
    KEY(TOKENIZER, "tokenizer.ggml.model")                                                         \
    KEY(PRE, "tokenizer.ggml.pre")                                                                 \
    KEY(TOKENS, "tokenizer.ggml.tokens")                                                           \
    KEY(TOKEN_TYPES, "tokenizer.ggml.token_type")                                                  \
    KEY(MERGES, "tokenizer.ggml.merges")                                                           \
    KEY(ADD_BOS, "tokenizer.ggml.add_bos_token")                                                   \
    KEY(ADD_EOS, "tokenizer.ggml.add_eos_token")                                                   \
    KEY(ADD_BLANK, "tokenizer.ggml.add_space_prefix")                                              \
    KEY(TEMPLATE, "tokenizer.chat_template")                                                       \
    KEY(BOS, "tokenizer.ggml.bos_token_id")                                                        \
    KEY(EOS, "tokenizer.ggml.eos_token_id")                                                        \
    KEY(PART, "split.no")                                                                          \
    KEY(PARTS, "split.count")                                                                      \
    KEY(NAME, "general.name")                                                                      \
    KEY(SOURCE, "general.source.url")                                                              \
    KEY(SOURCE_REPO, "general.source.repo_url")                                                    \
    KEY(SOURCE_HUB, "general.source.huggingface.repository")                                       \
    KEY(SOURCE_URL, "general.url")                                                                 \
    KEY(LICENSE, "general.license")

#define GGUF_KEY_NUMBER(key, name) KEY_##key,
#define GGUF_KEY_NAME(key, name)   name,
enum { GGUF_KEYS(GGUF_KEY_NUMBER) N_KEYS };

TOOLS_FN const char *gguf_key(int key)
{
    static const char *const keys[N_KEYS] = {GGUF_KEYS(GGUF_KEY_NAME)};
    return keys[key];
}

TOOLS_FN attn_status gguf_bytes(gguf_reader *g, void *bytes, uint64_t size, const char *what)
{
    if (g->at + size > SOURCE_MAX_HEADER && size <= g->f->size - g->at)
        return tool_fail(
            g->ctx, ATTN_E_FORMAT,
            "%s: %s ends beyond byte %d, the most that can be in front of the tensors' data",
            g->f->name, what, (int)SOURCE_MAX_HEADER);
    if (size > g->f->size - g->at)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s ends at byte %llu, in the middle of %s: "
                         "the file was cut short, or a size in it lies",
                         g->f->name, TOOLS_LLU(g->f->size), what);
    if (fread(bytes, 1, (size_t)size, g->f->file) != (size_t)size)
        return tool_fail(g->ctx, ATTN_E_IO, "cannot read %s", g->f->name);
    g->at += size;
    return ATTN_OK;
}

TOOLS_FN attn_status gguf_u32(gguf_reader *g, uint32_t *number, const char *what)
{
    unsigned char bytes[4] = {0};
    const attn_status status = gguf_bytes(g, bytes, 4, what);
    *number = get_u32(bytes);
    return status;
}

TOOLS_FN attn_status gguf_u64(gguf_reader *g, uint64_t *number, const char *what)
{
    unsigned char bytes[8] = {0};
    const attn_status status = gguf_bytes(g, bytes, 8, what);
    *number = get_u64(bytes);
    return status;
}

/* Reads a count of elements of at least `each` bytes, which must fit into the file. */
TOOLS_FN attn_status gguf_count(gguf_reader *g, uint64_t *count, uint64_t each, const char *what)
{
    if (gguf_u64(g, count, what))
        return g->ctx->status;
    if (*count > (g->f->size - g->at) / each)
        return tool_fail(
            g->ctx, ATTN_E_FORMAT,
            "%s: %llu as the size of %s is more than the rest of the file has room for", g->f->name,
            TOOLS_LLU(*count), what);
    return ATTN_OK;
}

/* Reads a string; skips it if `string` is NULL. */
TOOLS_FN attn_status gguf_text(gguf_reader *g, gguf_string *string, const char *what)
{
    uint64_t size;
    attn_status status = gguf_count(g, &size, 1, what);
    for (; !status && !string && size > sizeof g->s->raw; size -= sizeof g->s->raw)
        status = gguf_bytes(g, g->s->raw, sizeof g->s->raw, what);
    if (status || !string)
        return status ? status : gguf_bytes(g, g->s->raw, size, what);
    char *text = (char *)arena_alloc(g->ctx, &g->s->memory, (size_t)size + 1, 1);
    string->text = text;
    string->size = (size_t)size;
    return text ? gguf_bytes(g, text, size, what) : g->ctx->status;
}

/* Reads a number of any simple type. */
TOOLS_FN attn_status gguf_scalar(gguf_reader *g, uint32_t type, gguf_value *v, const char *what)
{
    unsigned char bytes[8] = {0};
    const size_t size = gguf_type_size(type);
    const int is_signed =
        type == GGUF_I8 || type == GGUF_I16 || type == GGUF_I32 || type == GGUF_I64;
    if (gguf_bytes(g, bytes, size, what))
        return g->ctx->status;
    if (is_signed && bytes[size - 1] & 0x80)
        memset(bytes + size, 0xff, sizeof bytes - size);
    v->number = get_u64(bytes);
    if (type == GGUF_F32)
        v->real = (double)float_from_bits((uint32_t)v->number);
    if (type == GGUF_F64)
        memcpy(&v->real, &v->number, sizeof v->real);
    return ATTN_OK;
}

/* Reads an array. It keeps only strings and whole numbers, and nothing if v is NULL. */
TOOLS_FN attn_status gguf_array(gguf_reader *g, gguf_value *v, int depth, const char *what)
{
    uint32_t type;
    uint64_t count;
    gguf_value element;
    if (gguf_u32(g, &type, what))
        return g->ctx->status;
    if (depth > 4)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s: %s is arrays inside each other, more than 4 deep", g->f->name, what);
    if (type >= GGUF_N_TYPES)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s: %s is an array of type %u, which GGUF does not have", g->f->name,
                         what, (unsigned)type);
    if (gguf_count(g, &count, gguf_type_size(type), what))
        return g->ctx->status;
    if (v && count > VOCAB_MAX_TOKENS)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s: %s has %llu elements; %d is the most that it can have", g->f->name,
                         what, TOOLS_LLU(count), (int)VOCAB_MAX_TOKENS);
    if (v) {
        v->is_array = 1;
        v->type = type;
        v->count = (size_t)count;
        if (type == GGUF_STRING)
            v->strings =
                (gguf_string *)arena_alloc(g->ctx, &g->s->memory, v->count, sizeof *v->strings);
        else
            v->numbers =
                (int64_t *)arena_alloc(g->ctx, &g->s->memory, v->count, sizeof *v->numbers);
        if (!v->strings && !v->numbers)
            return g->ctx->status;
    }
    for (uint64_t i = 0; i < count; i++) {
        if (type == GGUF_STRING  ? gguf_text(g, v ? &v->strings[i] : NULL, what)
            : type == GGUF_ARRAY ? gguf_array(g, NULL, depth + 1, what)
                                 : gguf_scalar(g, type, &element, what))
            return g->ctx->status;
        if (v && type != GGUF_STRING && type != GGUF_ARRAY)
            v->numbers[i] = (int64_t)element.number;
    }
    return ATTN_OK;
}

/* Reads a value of any type; skips it if v is NULL. */
TOOLS_FN attn_status gguf_any(gguf_reader *g, gguf_value *v, const char *what)
{
    gguf_value ignored;
    uint32_t type;
    if (gguf_u32(g, &type, what))
        return g->ctx->status;
    if (type >= GGUF_N_TYPES)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s: the type of %s is %u, which GGUF does not have", g->f->name, what,
                         (unsigned)type);
    if (v)
        v->type = type;
    if (type == GGUF_STRING)
        return gguf_text(g, v ? &v->string : NULL, what);
    if (type == GGUF_ARRAY)
        return gguf_array(g, v, 0, what);
    return gguf_scalar(g, type, v ? v : &ignored, what);
}

/* Reads all keys; `values` gets those that matter here. */
TOOLS_FN attn_status gguf_read_keys(gguf_reader *g, uint64_t n_keys, gguf_value *values)
{
    int key;
    for (uint64_t i = 0; i < n_keys; i++) {
        const char *name = (const char *)g->s->raw;
        uint64_t size;
        shown what;
        if (gguf_count(g, &size, 1, "a key's name"))
            return g->ctx->status;
        if (size >= sizeof g->s->raw)
            return tool_fail(g->ctx, ATTN_E_FORMAT,
                             "%s: a key's name has %llu bytes; GGUF allows 65535", g->f->name,
                             TOOLS_LLU(size));
        if (gguf_bytes(g, g->s->raw, size, "a key's name"))
            return g->ctx->status;
        for (key = 0; key < N_KEYS; key++)
            if (strlen(gguf_key(key)) == size && memcmp(gguf_key(key), name, (size_t)size) == 0)
                break;
        show(what, name, (size_t)size);
        if (key < N_KEYS && values[key].present)
            return tool_fail(g->ctx, ATTN_E_FORMAT, "%s: the key %s appears twice", g->f->name,
                             what);
        if (gguf_any(g, key < N_KEYS ? &values[key] : NULL, what))
            return g->ctx->status;
        if (key < N_KEYS)
            values[key].present = 1;
    }
    return ATTN_OK;
}

/* Reads a whole number that is not negative. */
TOOLS_FN attn_status gguf_number(gguf_reader *g, const gguf_value *values, int key,
                                 uint64_t *number)
{
    const gguf_value *v = &values[key];
    const int real = v->type == GGUF_F32 || v->type == GGUF_F64;
    if (!v->present || v->is_array || real || v->type == GGUF_STRING || v->number > INT32_MAX)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         v->present ? "%s: %s is not a usable number" : "%s has no key %s",
                         g->f->name, gguf_key(key));
    *number = v->number;
    return ATTN_OK;
}

TOOLS_FN int gguf_is(const gguf_value *v, const char *text)
{
    return v->present && !v->is_array && v->type == GGUF_STRING && v->string.size == strlen(text) &&
           memcmp(v->string.text, text, v->string.size) == 0;
}

TOOLS_FN attn_status gguf_read_config(gguf_reader *g, const gguf_value *values)
{
    const gguf_value *v = &values[KEY_ARCHITECTURE];
    source *s = g->s;
    uint64_t id;
    shown name;
    if (!gguf_is(v, "gpt2"))
        return tool_fail(g->ctx, ATTN_E_UNSUPPORTED,
                         "%s: its architecture is %s; only gpt2 is supported", g->f->name,
                         v->string.text ? show(name, v->string.text, v->string.size) : "not given");
    if (gguf_number(g, values, KEY_CONTEXT, &s->n_ctx) ||
        gguf_number(g, values, KEY_WIDTH, &s->d_model) ||
        gguf_number(g, values, KEY_LAYERS, &s->n_layer) ||
        gguf_number(g, values, KEY_INNER, &s->d_mlp) ||
        gguf_number(g, values, KEY_HEADS, &s->n_head))
        return g->ctx->status;
    if (values[KEY_HEADS_KV].present &&
        (gguf_number(g, values, KEY_HEADS_KV, &id) || id != s->n_head))
        return tool_fail(g->ctx, ATTN_E_UNSUPPORTED,
                         "%s: %s differs from %s; GPT-2 has as many heads for keys as for queries",
                         g->f->name, gguf_key(KEY_HEADS_KV), gguf_key(KEY_HEADS));
    v = &values[KEY_EPSILON];
    if (!v->present || v->is_array || (v->type != GGUF_F32 && v->type != GGUF_F64))
        return tool_fail(g->ctx, ATTN_E_FORMAT, "%s has no usable %s", g->f->name,
                         gguf_key(KEY_EPSILON));
    s->ln_eps = v->real;
    s->bos = s->eos = SOURCE_UNSAID;
    if (values[KEY_BOS].present && !gguf_number(g, values, KEY_BOS, &id))
        s->bos = (int64_t)id;
    if (values[KEY_EOS].present && !gguf_number(g, values, KEY_EOS, &id))
        s->eos = (int64_t)id;
    return g->ctx->status;
}

/* ggml's data types. Those of SOURCE_OTHER cannot be converted; their names are for messages. */
TOOLS_FN const char *gguf_dtype(uint32_t type, source_dtype *dtype)
{
    static const struct {
        uint32_t type;
        const char *name;
        source_dtype dtype;
    } known[] = {
        {0, "F32", SOURCE_F32},        {1, "F16", SOURCE_F16},       {30, "BF16", SOURCE_BF16},
        {28, "F64", SOURCE_F64},       {2, "Q4_0", SOURCE_Q4_0},     {3, "Q4_1", SOURCE_Q4_1},
        {6, "Q5_0", SOURCE_Q5_0},      {7, "Q5_1", SOURCE_Q5_1},     {8, "Q8_0", SOURCE_Q8_0},
        {10, "Q2_K", SOURCE_Q2_K},     {11, "Q3_K", SOURCE_Q3_K},    {12, "Q4_K", SOURCE_Q4_K},
        {13, "Q5_K", SOURCE_Q5_K},     {14, "Q6_K", SOURCE_Q6_K},    {20, "IQ4_NL", SOURCE_IQ4_NL},
        {23, "IQ4_XS", SOURCE_IQ4_XS}, {9, "Q8_1", SOURCE_OTHER},    {15, "Q8_K", SOURCE_OTHER},
        {16, "IQ2_XXS", SOURCE_OTHER}, {17, "IQ2_XS", SOURCE_OTHER}, {18, "IQ3_XXS", SOURCE_OTHER},
        {19, "IQ1_S", SOURCE_OTHER},   {21, "IQ3_S", SOURCE_OTHER},  {22, "IQ2_S", SOURCE_OTHER},
        {24, "I8", SOURCE_OTHER},      {25, "I16", SOURCE_OTHER},    {26, "I32", SOURCE_OTHER},
        {27, "I64", SOURCE_OTHER},     {29, "IQ1_M", SOURCE_OTHER},  {34, "TQ1_0", SOURCE_OTHER},
        {35, "TQ2_0", SOURCE_OTHER},   {39, "MXFP4", SOURCE_OTHER}};
    size_t i;
    for (i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].type == type) {
            *dtype = known[i].dtype;
            return known[i].name;
        }
    *dtype = SOURCE_OTHER;
    return NULL;
}

TOOLS_FN attn_status gguf_read_tensor(gguf_reader *g)
{
    source_tensor *t = source_add(g->ctx, g->s);
    uint32_t n_dims, type;
    gguf_string name;
    char number[24];
    shown text;
    if (!t || gguf_text(g, &name, "a tensor's name"))
        return g->ctx->status;
    t->name = (char *)(uintptr_t)name.text; /* in the arena, like every name */
    t->file = g->f;
    show(text, name.text, name.size);
    if (gguf_u32(g, &n_dims, text))
        return g->ctx->status;
    if (memchr(name.text, 0, name.size))
        return tool_fail(g->ctx, ATTN_E_FORMAT, "%s: the tensor name \"%s\" holds a zero byte",
                         g->f->name, text);
    if (n_dims == 0 || n_dims > SOURCE_MAX_DIMS)
        return tool_fail(g->ctx, ATTN_E_FORMAT,
                         "%s: the tensor %s has %u dimensions; expected 1 to 4", g->f->name, text,
                         (unsigned)n_dims);
    t->ndim = (int)n_dims;
    for (uint32_t i = 0; i < n_dims; i++)
        if (gguf_u64(g, &t->shape[n_dims - 1 - i], text))
            return g->ctx->status;
    if (gguf_u32(g, &type, text) || gguf_u64(g, &t->offset, text))
        return g->ctx->status;
    t->dtype_name = gguf_dtype(type, &t->dtype);
    if (!t->dtype_name) {
        snprintf(number, sizeof number, "number %u", (unsigned)type);
        t->dtype_name = arena_text(g->ctx, &g->s->memory, number, strlen(number));
    }
    return g->ctx->status;
}

/* Sets the offsets of the tensors, when the beginning of the data is known. */
TOOLS_FN attn_status gguf_place(gguf_reader *g, uint64_t start, uint64_t alignment)
{
    shown name, dims;
    for (size_t i = 0; i < g->s->n_tensors; i++) {
        source_tensor *t = &g->s->tensors[i];
        const uint64_t count = shape_count(t->ndim, t->shape);
        const uint64_t room = start < g->f->size ? g->f->size - start : 0;
        const unsigned block = t->dtype == SOURCE_OTHER ? 1 : source_blocks[t->dtype].count;
        show(name, t->name, strlen(t->name));
        if (t->shape[t->ndim - 1] % block)
            return tool_fail(g->ctx, ATTN_E_FORMAT,
                             "%s: %s of shape %s cannot be %s, whose rows are blocks of %u",
                             g->f->name, name, show_shape(dims, t->ndim, t->shape), t->dtype_name,
                             block);
        if (count > UINT64_MAX / 8 || t->offset % alignment || t->offset > room ||
            (t->dtype != SOURCE_OTHER && source_size(t->dtype, count) > room - t->offset))
            return tool_fail(
                g->ctx, ATTN_E_FORMAT,
                "%s: %s of shape %s at byte %llu of the data does not fit in the %llu bytes "
                "there; was the file cut short?",
                g->f->name, name, show_shape(dims, t->ndim, t->shape), TOOLS_LLU(t->offset),
                TOOLS_LLU(room));
        t->size = t->dtype == SOURCE_OTHER ? 0 : source_size(t->dtype, count);
        t->offset += start;
    }
    return source_check_overlaps(g->ctx, g->s, 0);
}

/* ggml's types of tokens. */
enum {
    GGUF_TOKEN_NORMAL = 1,
    GGUF_TOKEN_UNKNOWN,
    GGUF_TOKEN_CONTROL,
    GGUF_TOKEN_USER,
    GGUF_TOKEN_UNUSED,
    GGUF_TOKEN_BYTE
};

TOOLS_FN int gguf_is_true(const gguf_value *v)
{
    return v->present && !v->is_array && v->type == GGUF_BOOL && v->number != 0;
}

/* Reads settings about tokens around a text, and notes a chat template. */
TOOLS_FN attn_status gguf_read_around(gguf_reader *g, const gguf_value *values)
{
    vocab *v = &g->s->vocabulary;
    const int64_t bos = g->s->bos;
    shown name;
    if (gguf_is_true(&values[KEY_ADD_EOS]))
        return tool_fail(
            g->ctx, ATTN_E_UNSUPPORTED,
            "%s: %s is true, so the end-of-text token is put behind texts, which attn.h does "
            "not do; add its id yourself, and give --tokenizer DIR or --no-tokenizer",
            g->f->name, gguf_key(KEY_ADD_EOS));
    if (gguf_is_true(&values[KEY_ADD_BOS]))
        v->first = bos < 0                                                  ? vocab_end_of_text(v)
                   : (uint64_t)bos < v->n_tokens && v->tokens[bos].spelling ? (int32_t)bos
                                                                            : -1;
    v->adds_blank = gguf_is_true(&values[KEY_ADD_BLANK]);
    show(name, g->f->name, strlen(g->f->name));
    return vocab_note_around(g->ctx, v, values[KEY_TEMPLATE].string.size > 0 ? name : NULL);
}

TOOLS_FN attn_status gguf_read_vocab(gguf_reader *g, const gguf_value *values)
{
    const gguf_value *tokens = &values[KEY_TOKENS], *types = &values[KEY_TOKEN_TYPES];
    const gguf_value *merges = &values[KEY_MERGES], *pre = &values[KEY_PRE];
    vocab *v = &g->s->vocabulary;
    shown name;
    if (!values[KEY_TOKENIZER].present || gguf_is(&values[KEY_TOKENIZER], "no_vocab"))
        return ATTN_OK;
    if (!gguf_is(&values[KEY_TOKENIZER], "gpt2") ||
        (pre->present && !gguf_is(pre, "gpt-2") && !gguf_is(pre, "gpt2") &&
         !gguf_is(pre, "default"))) {
        const gguf_value *odd =
            gguf_is(&values[KEY_TOKENIZER], "gpt2") ? pre : &values[KEY_TOKENIZER];
        tool_fail(g->ctx, ATTN_E_UNSUPPORTED,
                  "%s: its tokenizer is \"%s\"; "
                  "only gpt2's is supported (--no-tokenizer converts without)",
                  g->f->name,
                  show(name, odd->string.text ? odd->string.text : "", odd->string.size));
        return g->ctx->status;
    }
    if (!tokens->is_array || tokens->type != GGUF_STRING || !merges->is_array ||
        merges->type != GGUF_STRING ||
        (types->present && (!types->is_array || types->count != tokens->count)))
        return tool_fail(g->ctx, ATTN_E_FORMAT, "%s: %s, %s and %s do not make a vocabulary",
                         g->f->name, gguf_key(KEY_TOKENS), gguf_key(KEY_TOKEN_TYPES),
                         gguf_key(KEY_MERGES));
    if (vocab_init(g->ctx, v, &g->s->memory, g->f->name, tokens->count, merges->count))
        return g->ctx->status;
    for (size_t i = 0; i < tokens->count; i++) {
        const gguf_string *t = &tokens->strings[i];
        const int64_t type =
            types->present && types->numbers ? types->numbers[i] : (int64_t)GGUF_TOKEN_NORMAL;
        if (type == GGUF_TOKEN_UNUSED)
            continue;
        if (vocab_add(g->ctx, v, i, t->text, t->size))
            return g->ctx->status;
        v->tokens[i].special = type == GGUF_TOKEN_CONTROL || type == GGUF_TOKEN_UNKNOWN ||
                               type == GGUF_TOKEN_USER ||
                               (t->size == strlen(VOCAB_END_OF_TEXT) &&
                                memcmp(t->text, VOCAB_END_OF_TEXT, t->size) == 0);
    }
    for (size_t i = 0; i < merges->count; i++)
        if (vocab_merge_text(g->ctx, v, merges->strings[i].text, merges->strings[i].size,
                             g->f->name, "merge", i))
            return g->ctx->status;
    g->s->has_vocab = !vocab_finish(g->ctx, v) && !gguf_read_around(g, values);
    return g->ctx->status;
}

/* Opens a GGUF file and reads its header and its keys, up to the list of tensors. */
TOOLS_FN attn_status gguf_begin(gguf_reader *g, const char *path, gguf_value *values,
                                uint64_t *n_tensors)
{
    unsigned char magic[4];
    uint32_t version;
    uint64_t n_keys;
    if ((g->f = source_open(g->ctx, g->s, path)) == NULL || gguf_bytes(g, magic, 4, "its header") ||
        gguf_u32(g, &version, "its header"))
        return g->ctx->status;
    if (version != 2 && version != 3)
        return tool_fail(
            g->ctx, ATTN_E_VERSION,
            "%s is GGUF of version %u%s; versions 2 and 3, little-endian, are supported",
            g->f->name, (unsigned)version, version & 0xffff ? "" : " or big-endian");
    if (gguf_count(g, n_tensors, 24, "its list of tensors") ||
        gguf_count(g, &n_keys, 12, "its list of keys") || gguf_read_keys(g, n_keys, values))
        return g->ctx->status;
    if (values[KEY_PARTS].number > 1)
        return tool_fail(
            g->ctx, ATTN_E_UNSUPPORTED,
            "%s is part %llu of the %llu parts of a model; llama.cpp's `llama-gguf-split "
            "--merge FIRST_PART.gguf WHOLE.gguf` makes one file of them",
            g->f->name, TOOLS_LLU(values[KEY_PART].number + 1),
            TOOLS_LLU(values[KEY_PARTS].number));
    return ATTN_OK;
}

/* Reads the list of tensors. */
TOOLS_FN attn_status gguf_end(gguf_reader *g, const gguf_value *values, uint64_t n_tensors)
{
    uint64_t alignment = 32;
    if (values[KEY_ALIGNMENT].present && gguf_number(g, values, KEY_ALIGNMENT, &alignment))
        return g->ctx->status;
    if (alignment == 0 || alignment > 1 << 20)
        return tool_fail(g->ctx, ATTN_E_FORMAT, "%s: general.alignment is %llu, which cannot be",
                         g->f->name, TOOLS_LLU(alignment));
    for (uint64_t i = 0; i < n_tensors; i++)
        if (gguf_read_tensor(g))
            return g->ctx->status;
    g->s->names = NAMES_GGUF;
    return gguf_place(g, (g->at + alignment - 1) / alignment * alignment, alignment)
               ? g->ctx->status
               : source_index(g->ctx, g->s);
}

/* What the file says of its model. */
TOOLS_FN attn_status gguf_read_card(gguf_reader *g, const gguf_value *values)
{
    for (int key = KEY_NAME; key <= KEY_LICENSE && !g->ctx->status; key++)
        if (values[key].string.text)
            card_say(g->ctx, g->s,
                     key == KEY_NAME      ? SAID_NAME
                     : key == KEY_LICENSE ? SAID_LICENSE
                                          : SAID_SOURCE,
                     gguf_key(key), values[key].string.text, values[key].string.size);
    return g->ctx->status;
}

TOOLS_FN attn_status gguf_open(attn_ctx *ctx, source *s, const char *path, int want_vocab)
{
    gguf_reader g = {ctx, s, NULL, 0};
    gguf_value values[N_KEYS] = ATTN_ZERO;
    uint64_t n_tensors;
    if (gguf_begin(&g, path, values, &n_tensors) || gguf_read_config(&g, values) ||
        gguf_end(&g, values, n_tensors) || gguf_read_card(&g, values))
        return ctx->status;
    s->config_name = "its metadata";
    s->linears_out_in = 1;
    const source_tensor *table =
        source_find(s, "token_embd.weight"); /* no key has the number of tokens */
    s->n_vocab = table && table->ndim == 2 ? table->shape[0] : values[KEY_TOKENS].count;
    return want_vocab ? gguf_read_vocab(&g, values) : ATTN_OK;
}

/* Reads the tensors of a GGUF file that is not a model, for example a control vector. Its key
 * general.architecture must have this value. */
TOOLS_FN attn_status gguf_open_tensors(attn_ctx *ctx, source *s, const char *path,
                                       const char *architecture)
{
    gguf_reader g = {ctx, s, NULL, 0};
    gguf_value values[N_KEYS] = ATTN_ZERO;
    uint64_t n_tensors;
    shown name;
    if (gguf_begin(&g, path, values, &n_tensors))
        return ctx->status;
    if (!gguf_is(&values[KEY_ARCHITECTURE], architecture)) {
        const gguf_string *found = &values[KEY_ARCHITECTURE].string;
        return tool_fail(
            ctx, ATTN_E_UNSUPPORTED, "%s: its architecture is %s; expected %s", g.f->name,
            found->text ? show(name, found->text, found->size) : "not given", architecture);
    }
    return gguf_end(&g, values, n_tensors);
}

#endif
