/* What the tests of lens share: how it is run, the JSON that it prints, the included model. Include this
 * last (command.h says why). */
#ifndef LENS_TOOL_H
#define LENS_TOOL_H

#include "tests/support/fixture.h"
#include "tests/support/printed_answer.h"
#include "tools/lens/metric.h"
#include "tools/lens/save.h"
#include "tests/support/command.h"

#define LENS  TEST_BUILD "/lens "
#define MODEL TEST_BUILD "/tiny-stories.attn "
#define TMP   TEST_TMP

/* A command that succeeds and says at most what -o wrote. */
static inline int works(const char *command)
{
    const int code = run("%s", command);
    return CHECKF(code == 0 && (err_size == 0 || (strncmp(err, "wrote ", 6) == 0 &&
                                                  strchr(err, '\n') == err + err_size - 1)),
                  "%s: exit code %d (%s)", command, code, err);
}

static inline char *read_text(const char *path)
{
    size_t size;
    char *bytes = (char *)test_read(path, &size);
    CHECKF(bytes != NULL, "%s cannot be read", path);
    return bytes;
}

static inline size_t occurrences_in(const char *path, const char *word)
{
    char *const text = read_text(path);
    const size_t n = text ? occurrences(text, word) : 0;
    free(text);
    return n;
}

/* A directory below TMP with an autoencoder of width 192, random but for its shape, or a transcoder. */
static inline void write_autoencoder(const char *name, const char *cfg)
{
    static const char *const tensors[] = {"W_dec", "W_enc", "b_dec", "b_enc"};
    attn_ctx ctx = {0};
    attn_tensor values[4];
    random_state = 5;
    values[0] = random_tensor(2, 30, 192);
    values[1] = random_tensor(2, 192, 30);
    values[2] = random_tensor(1, 192);
    values[3] = random_tensor(1, 30);
    CHECK(run("mkdir -p " TMP "%s", name) == 0);
    OK(&ctx,
       lens_save(&ctx, test_text(TMP "%s/sae_weights.safetensors", name), tensors, values, 4));
    test_write(test_text(TMP "%s/cfg.json", name), cfg, strlen(cfg));
    attn_ctx_free(&ctx);
}

/* ---- JSON that it prints ---- */

static json_value *root;

static inline void tear_down(void)
{
    free(root);
    root = NULL;
    forget();
}

static inline const json_value *parse(const char *command)
{
    attn_ctx ctx = {0};
    free(root);
    root = NULL;
    if (works(command))
        OK(&ctx, json_parse(&ctx, "output", out, out_size, &root));
    return root;
}

/* %.9g gives a float back, bit by bit. */
static inline void is_float(const json_value *v, float want, const char *what)
{
    const double got = number(v);
    CHECKF((float)got == want, "%s is %.9g, the library gives %.9g", what, got, (double)want);
}

/* A tensor of a .safetensors file in memory. */
static inline attn_tensor safetensor(const unsigned char *file, const char *name)
{
    attn_tensor none = {0};
    attn_shape shape = {0, {1, 1, 1, 1}};
    size_t header = 0;
    for (int i = 8; i-- > 0;)
        header = header << 8 | file[i];
    char *p = strstr((char *)(uintptr_t)file + 8, test_text("\"%s\":{", name));
    if (!p || p > (const char *)file + 8 + header)
        return none;
    for (p = strstr(p, "\"shape\":[") + 9; *p != ']'; p += *p == ',')
        shape.dim[shape.ndim++] = (size_t)strtoul(p, &p, 10);
    p = strstr(p, "\"data_offsets\":[") + 16;
    return attn_borrow(file + 8 + header + strtoul(p, NULL, 10), ATTN_F32, shape);
}

/* The included model and a text for it. */
typedef struct story {
    attn_ctx ctx;
    attn_model *model;
    attn_session *session;
    int32_t tokens[64];
    size_t n;
} story;

#define SCOPED_STORY SCOPED(close_story) story
static inline void close_story(story *s)
{
    attn_session_free(s->session);
    attn_ctx_free(&s->ctx);
    attn_model_close(s->model);
}

static inline int open_story(story *s, const char *path, const char *text)
{
    s->n = 64;
    return OK(&s->ctx, attn_model_open(&s->ctx, &s->model, path, NULL)) &&
           OK(&s->ctx, attn_session_new(&s->ctx, &s->session, s->model, NULL)) &&
           (!text || OK(&s->ctx, attn_encode(&s->ctx, s->tokens, &s->n,
                                             attn_model_tokenizer(s->model), text, strlen(text))));
}

#define TINY      TEST_BUILD "/tiny-stories.attn"
#define TEXT      "Tom and Lily saw a cat. Tom and Lily ran"
#define CLEAN     "Tom was a boy. He"
#define CORRUPTED "Tom was a girl. He"

/* The included model twice, with a clean and a corrupted text, and the pair of these texts. */
static inline int open_pair(story *clean, story *corrupted, lens_pair *pair)
{
    if (!open_story(clean, TINY, CLEAN) || !open_story(corrupted, TINY, CORRUPTED) ||
        !EQUAL(clean->n, corrupted->n))
        return 0;
    pair->clean = clean->tokens;
    pair->corrupted = corrupted->tokens;
    pair->n_tokens = clean->n;
    return 1;
}

#endif
