/* What the tests of lens share: how it is run, the JSON that it prints, the included model. Include this
 * last (command.h says why). */
#ifndef LENS_TOOL_H
#define LENS_TOOL_H

#include "printed_json.h"
#include "command.h"

#define LENS  TEST_BUILD "/lens "
#define MODEL TEST_BUILD "/tiny-stories.attn "
#define TMP   "build/test-tmp/lens-tool/"

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

/* The included model and a text for it. */
typedef struct story {
    attn_ctx ctx;
    attn_model *model;
    attn_session *session;
    int32_t tokens[64];
    size_t n;
} story;

static inline int open_story(story *s, const char *path, const char *text)
{
    memset(s, 0, sizeof *s);
    s->n = 64;
    return OK(&s->ctx, attn_model_open(&s->ctx, &s->model, path, NULL)) &&
           OK(&s->ctx, attn_session_new(&s->ctx, &s->session, s->model, NULL)) &&
           (!text || OK(&s->ctx, attn_encode(&s->ctx, s->tokens, &s->n,
                                             attn_model_tokenizer(s->model), text, strlen(text))));
}

static inline void close_story(story *s)
{
    attn_session_free(s->session);
    attn_ctx_free(&s->ctx);
    attn_model_close(s->model);
}

#define TINY TEST_BUILD "/tiny-stories.attn"
#define TEXT "Tom and Lily saw a cat. Tom and Lily ran"

#endif
