/* What the suites that run models share: models made by the converter, sessions, tokens, logits,
 * what hooks see, and the activations that numpy worked out (golden/make_golden.py). */
#ifndef MODELS_H
#define MODELS_H

#include "fixture.h"
#include "tools/write/model_file.h"

#define LLU(x) ((unsigned long long)(x))

static inline attn_model *converted(const char *from, const char *name, const char *options)
{
    const char *const path = test_tmp(name);
    char command[512];
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    snprintf(command, sizeof command, TEST_BUILD "/attn-convert --quiet %s %s %s", from, path,
             options);
    if (CHECKF(system(command) == 0, "%s failed", command))
        OK(&ctx, attn_model_open(&ctx, &model, path, NULL));
    return model;
}

static inline size_t vocab_of(const attn_model *model)
{
    return attn_model_config(model)->n_vocab;
}

/* n_ctx and n_batch may be 0 for the usual ones. */
static inline attn_session *session_on(attn_ctx *ctx, const attn_model *model, size_t n_ctx,
                                       size_t n_batch)
{
    attn_session *session = NULL;
    attn_session_desc desc = {.n_ctx = n_ctx, .n_batch = n_batch};
    OK(ctx, attn_session_new(ctx, &session, model, &desc));
    return session;
}

/* Gives sessions one workspace, so that they can join a batch. */
static inline void share_workspace(attn_ctx *ctx, attn_session *const *sessions, size_t n,
                                   size_t n_batch)
{
    attn_workspace *workspace = NULL;
    attn_workspace_desc desc = {.n_batch = n_batch};
    OK(ctx, attn_workspace_new(ctx, &workspace, attn_session_model(sessions[0]), &desc));
    for (size_t i = 0; i < n; i++)
        OK(ctx, attn_session_set_workspace(ctx, sessions[i], workspace));
    attn_workspace_free(workspace);
}

/* The names of every activation, those on request too. */
static const char *const every_name[] = {"*",
                                         "*.hook_result",
                                         "*.hook_attn_in",
                                         "*.hook_q_input",
                                         "*.hook_k_input",
                                         "*.hook_v_input",
                                         "*.hook_mlp_in"};
enum { N_EVERY_NAME = sizeof every_name / sizeof every_name[0] };

static inline int32_t *random_tokens(const attn_model *model, size_t n, uint64_t seed)
{
    attn_token *tokens = (int32_t *)pool_new(n * sizeof *tokens);
    random_state = seed * 2 + 1;
    for (size_t i = 0; i < n; i++)
        tokens[i] = (int32_t)random_below(vocab_of(model));
    return tokens;
}

static inline attn_feed_item item_of(attn_session *session, const attn_token *tokens, size_t n,
                                     float *logits)
{
    attn_feed_item item = {.session = session, .tokens = tokens, .n_tokens = n, .logits = logits};
    return item;
}

/* Feeds `step` tokens a call (0: cuts at random) and gives all logits, [n, n_vocab]. */
enum { RANDOM_CUTS = 0 };
static inline float *feed_all(attn_ctx *ctx, attn_session *session, const attn_token *tokens,
                              size_t n, size_t step)
{
    const size_t n_vocab = vocab_of(attn_session_model(session));
    float *logits = (float *)pool_new(n * n_vocab * sizeof *logits);
    size_t take;
    memset(logits, 0xFF, n * n_vocab * sizeof *logits); /* NaN */
    for (size_t at = 0; at < n; at += take) {
        take = step == RANDOM_CUTS ? 1 + random_below(13) : step;
        take = take < n - at ? take : n - at;
        attn_feed_item item = item_of(session, tokens + at, take, logits + at * n_vocab);
        if (!OK(ctx, attn_feed_batch(ctx, &item, 1)))
            break;
        CHECK(attn_session_logits(session) &&
              memcmp(attn_session_logits(session), item.logits + (take - 1) * n_vocab,
                     n_vocab * sizeof *logits) == 0);
    }
    return logits;
}

/* The same in a session of its own. */
static inline float *logits_of(attn_ctx *ctx, const attn_model *model, size_t n_batch,
                               const attn_token *tokens, size_t n, size_t step)
{
    attn_session *session = session_on(ctx, model, 0, n_batch);
    float *logits = session ? feed_all(ctx, session, tokens, n, step)
                            : (float *)pool_new(n * vocab_of(model) * sizeof(float));
    attn_session_free(session);
    return logits;
}

/* Numbers [rows, width] that must be the same, bit by bit. */
static inline int same_floats(const float *got, const float *want, size_t rows, size_t width,
                              const char *what)
{
    size_t i;
    if (!got || !want)
        return CHECKF(0, "%s: no numbers", what);
    for (i = 0; i < rows * width && memcmp(got + i, want + i, sizeof *got) == 0; i++)
        ;
    return CHECKF(i == rows * width,
                  "%s: number %llu of row %llu is %.9g (%a), expected the bits of %.9g (%a)", what,
                  LLU(i % width), LLU(i / width), (double)got[i], (double)got[i], (double)want[i],
                  (double)want[i]);
}

static inline int same_logits(const float *got, const float *want, size_t rows,
                              const attn_model *model, const char *what)
{
    return same_floats(got, want, rows, vocab_of(model), what);
}

static inline int differ(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) != 0;
}

static inline float *entry(attn_tensor x, size_t i, size_t j, size_t k)
{
    return (float *)x.data + (ptrdiff_t)i * x.stride[0] + (ptrdiff_t)j * x.stride[1] +
           (ptrdiff_t)k * x.stride[2];
}

/* Ten tokens for a case to which it does not matter which. */
static const int32_t ten[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1};

/* A random model of golden/, whose activations numpy worked out in float64. */
static inline attn_model *golden(const char *name)
{
    char from[64], to[64];
    snprintf(from, sizeof from, "tests/golden/%s", name);
    snprintf(to, sizeof to, "%s.attn", name);
    return converted(from, to, "--no-tokenizer");
}

/* The included model. */
static inline attn_model *included(void)
{
    attn_ctx ctx = alone();
    attn_model *model = NULL;
    OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
    return model;
}

static inline float *row_of(float *logits, size_t row, const attn_model *model)
{
    return logits + row * vocab_of(model);
}

static inline attn_generate_desc greedily(size_t max_tokens)
{
    attn_generate_desc d = {.max_tokens = max_tokens};
    return d;
}

/* The bytes of an open model in memory that may be changed, at a multiple of 64 in the pool. */
static inline unsigned char *editable(const char *path, size_t *size)
{
    unsigned char *file = test_read(path, size);
    if (!CHECK(file))
        return NULL;
    unsigned char *copy = (unsigned char *)pool_new(*size + 64);
    copy += (64 - (uintptr_t)copy % 64) % 64;
    memcpy(copy, file, *size);
    free(file);
    return copy;
}

static inline attn_session *fed(attn_ctx *ctx, const attn_model *on, const attn_token *tokens,
                                size_t n)
{
    attn_session *session = session_on(ctx, on, 0, 0);
    OK(ctx, attn_feed(ctx, session, tokens, n));
    return session;
}

static inline attn_sampler_desc sampler_of(float temperature, uint64_t seed)
{
    attn_sampler_desc desc = {.temperature = temperature, .seed = seed};
    return desc;
}

/* Drafts of n tokens; 0: the usual number, below 0: none. */
static inline void set_drafts(attn_generate_desc *desc, int n)
{
    desc->no_draft = n < 0;
    desc->n_draft = n > 0 ? (size_t)n : 0;
}

/* attn_generate with room for ids and a place for their number, each of which may be NULL. The room is
 * enough for desc->max_tokens. */
static inline attn_status generate_ids(attn_ctx *ctx, attn_token *ids, size_t *n_ids,
                                       attn_session *session, const char *prompt,
                                       const attn_generate_desc *desc)
{
    attn_generation made = {.tokens = ids,
                            .room = ids ? desc && desc->max_tokens ? desc->max_tokens : 100 : 0};
    attn_status status = attn_generate(ctx, &made, session, prompt, desc);
    if (n_ids)
        *n_ids = made.n_tokens;
    return status;
}

/* ---- what hooks see ---- */

typedef struct seen {
    char name[64];
    size_t layer;
    const attn_session *session;
    size_t first;
    attn_tensor value; /* a dense copy */
} seen;
typedef struct sight {
    size_t n;
    seen all[4000];
} sight;

static inline sight *new_sight(void)
{
    sight *s = (sight *)pool_new(sizeof *s);
    s->n = 0;
    return s;
}

/* A hook that keeps what it sees. */
static inline int note(const attn_activation *a, void *user)
{
    sight *s = (sight *)user;
    seen *one = &s->all[s->n];
    if (!CHECK(s->n < sizeof s->all / sizeof s->all[0]))
        return 1;
    s->n++;
    snprintf(one->name, sizeof one->name, "%s", a->name);
    one->layer = a->layer;
    one->session = a->session;
    one->first = a->first;
    one->value = laid_out(a->value, ATTN_F32, LAYOUT_DENSE);
    return 0;
}

/* The latest activation of this name; a zeroed tensor if there was none. */
static inline attn_tensor latest(const sight *s, const char *name)
{
    attn_tensor none;
    for (size_t i = s->n; i-- > 0;)
        if (strcmp(s->all[i].name, name) == 0)
            return s->all[i].value;
    memset(&none, 0, sizeof none);
    test_fail(__FILE__, __LINE__, "%s was not seen", name);
    return none;
}

static inline int do_nothing(const attn_activation *a, void *user)
{
    (void)a, (void)user;
    return 0;
}

/* What one hook makes of a text: its logits, and what `sees` (may be NULL) shows. */
static inline float *hooked(const attn_model *model, const attn_token *tokens, size_t n,
                            size_t step, const char *pattern, attn_hook_fn fn, void *user,
                            const char *sees, sight *s)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, model, 0, 0);
    if (pattern)
        OK(&ctx, attn_hook(&ctx, NULL, session, pattern, fn, user));
    if (sees)
        OK(&ctx, attn_hook(&ctx, NULL, session, sees, note, s));
    float *logits = feed_all(&ctx, session, tokens, n, step);
    attn_session_free(session);
    return logits;
}

/* ---- golden references ---- */

/* reference.safetensors: {"name":{"dtype":"F32","shape":[..],"data_offsets":[from,to]},...}
 * The next tensor after `at` (NULL: the first); gives where to go on, or NULL at the end. */
static inline const char *next_stored(const unsigned char *file, const char *at, char name[64],
                                      attn_tensor *value)
{
    const char *const header = (const char *)file + 8;
    const char *const data = header + (file[0] | file[1] << 8);
    const char *p = at ? at : header;
    attn_shape shape = {0, {1, 1, 1, 1}};
    p = memchr(p, '"', (size_t)(data - p)) ? strchr(p, '"') : NULL;
    if (!p)
        return NULL;
    size_t length = strcspn(++p, "\"");
    memcpy(name, p, length);
    name[length] = 0;
    for (p = strstr(p, "\"shape\":[") + 9; *p != ']'; p += *p == ',')
        shape.dim[shape.ndim++] = (size_t)strtoul(p, (char **)(uintptr_t)&p, 10);
    p = strstr(p, "\"data_offsets\":[") + 16;
    *value = attn_borrow((void *)(uintptr_t)(data + strtoul(p, NULL, 10)), ATTN_F32, shape);
    return strchr(p, '}');
}

/* A zeroed tensor if there is none of this name. */
static inline attn_tensor stored_tensor(const unsigned char *file, const char *wanted)
{
    char name[64];
    attn_tensor value;
    const char *at = NULL;
    while ((at = next_stored(file, at, name, &value)) != NULL)
        if (strcmp(name, wanted) == 0)
            return value;
    memset(&value, 0, sizeof value);
    return value;
}

static inline int32_t *stored_tokens(const unsigned char *file, size_t *n)
{
    const attn_tensor stored = stored_tensor(file, "tokens"); /* I64, little-endian */
    attn_token *tokens = (int32_t *)pool_new(stored.shape[0] * sizeof *tokens);
    for (*n = 0; *n < stored.shape[0]; ++*n)
        tokens[*n] = ((const unsigned char *)stored.data)[8 * *n] |
                     ((const unsigned char *)stored.data)[8 * *n + 1] << 8;
    return tokens;
}

#endif
