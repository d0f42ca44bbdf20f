/* Vocabularies in directories: every way to write one down that Hugging Face's tokenizers and
 * transformers have, with the ids that they give (make_vocabulary_fixtures.py). */
#include "tools/common/vocab_files.h"
#include "tests/support/test.h"
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define FIXTURES "tests/fixtures/vocabularies/"

/* One directory of cases.tsv while its lines are followed. */
typedef struct scene {
    char name[128], dir[512];
    attn_ctx ctx;
    arena memory;
    vocab v;
    unsigned char *section;
    attn_tokenizer *tokenizer;
    int is_read, is_refused;
    size_t n_texts, n_notes;
} scene;

static void scene_path(const scene *s, const char *file, char path[700])
{
    snprintf(path, 700, "%s/%s", s->dir, file);
}

/* Reads the directory, once all of its files are there. */
static void scene_read(scene *s)
{
    size_t size = 0;
    if (s->is_read)
        return;
    s->is_read = 1;
    if (vocab_load(&s->ctx, &s->v, &s->memory, s->dir, 0) == ATTN_OK &&
        vocab_section(&s->ctx, &s->v, s->v.n_tokens, &s->section, &size) == ATTN_OK)
        attn_tokenizer_new(&s->ctx, &s->tokenizer, s->section, size);
}

/* What was said must have been expected: every note has a line of its own. */
static void scene_end(scene *s)
{
    const vocab_note *note;
    size_t n = 0;
    if (!s->name[0])
        return;
    for (note = s->v.notes; note; note = note->next)
        n++;
    CHECKF(s->is_refused || s->tokenizer, "%s: %s", s->name, s->ctx.message);
    CHECKF(s->is_refused || (n == s->n_notes && s->n_texts > 0), "%s: %zu notes, expected %zu (%s)",
           s->name, n, s->n_notes, n ? s->v.notes->text : "none");
    attn_tokenizer_free(s->tokenizer);
    free(s->section);
    arena_free(&s->memory);
    attn_ctx_free(&s->ctx);
    memset(s, 0, sizeof *s);
}

static void scene_begin(scene *s, const char *name)
{
    scene_end(s);
    snprintf(s->name, sizeof s->name, "%s", name);
    snprintf(s->dir, sizeof s->dir, "%s", test_tmp("vocabulary"));
    CHECK(run("rm -rf %s && mkdir %s", s->dir, s->dir) == 0);
    s->v.first = -1;
}

/* A file with the first `old` replaced, or copied if that is NULL. */
static void scene_copy(const scene *s, const char *from, const char *file, const char *old,
                       const char *made)
{
    char path[700], *out_text;
    size_t size, head, n = old ? strlen(old) : 0, m = old ? strlen(made) : 0;
    SCOPED_TEXT text = (char *)test_read(from, &size);
    char *at = text ? (old ? strstr(text, old) : text) : NULL;
    if (CHECKF(at != NULL, "%s: %s holds no %s", s->name, from, old ? old : "text") &&
        CHECK((out_text = (char *)malloc(size + m + 1)) != NULL)) {
        head = (size_t)(at - text);
        memcpy(out_text, text, head);
        if (m)
            memcpy(out_text + head, made, m);
        memcpy(out_text + head + m, at + n, size - head - n);
        scene_path(s, file, path);
        test_write(path, out_text, size + m - n);
        free(out_text);
    }
}

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* A text and its ids; the text must come back too, but where special tokens are letters. */
static void scene_ids(scene *s, const char *hex, const char *ids, int special, int is_lost)
{
    char text[256], back[1024], line[1024] = "";
    int32_t got[256];
    size_t n = strlen(hex) / 2, n_ids = 0, size = 0, at = 0;
    scene_read(s);
    s->n_texts++;
    if (!s->tokenizer || !CHECK(n < sizeof text))
        return;
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    n_ids = 256;
    OK(&s->ctx,
       (special ? attn_encode_special : attn_encode)(&s->ctx, got, &n_ids, s->tokenizer, text, n));
    for (size_t i = 0; i < n_ids; i++)
        at += (size_t)snprintf(line + at, sizeof line - at, i ? " %ld" : "%ld", (long)got[i]);
    CHECKF(strcmp(line, ids) == 0, "%s: \"%.*s\" is %s, expected %s", s->name, (int)n, text, line,
           ids);
    size = sizeof back;
    OK(&s->ctx, attn_decode(&s->ctx, back, &size, s->tokenizer, got, n_ids));
    if (is_lost)
        CHECKF(size != n || memcmp(text, back, n) != 0, "%s: \"%.*s\" is whole", s->name, (int)n,
               text);
    else
        CHECKF(size == n && memcmp(text, back, n) == 0, "%s: \"%.*s\" became \"%.*s\"", s->name,
               (int)n, text, (int)size, back);
}

static void scene_note(scene *s, const char *text)
{
    const vocab_note *note;
    scene_read(s);
    s->n_notes++;
    for (note = s->v.notes; note && !strstr(note->text, text); note = note->next)
        continue;
    CHECKF(note != NULL, "%s: no note says \"%s\" (%s)", s->name, text,
           s->v.notes ? s->v.notes->text : s->ctx.message);
}

static void scene_refused(scene *s, const char *text)
{
    scene_read(s);
    s->is_refused = 1;
    CHECKF(s->ctx.status != ATTN_OK && !s->tokenizer && strstr(s->ctx.message, text),
           "%s: said \"%s\", expected \"%s\"", s->name, s->ctx.message, text);
    CHECKF(strlen(s->ctx.message) + 1 < sizeof s->ctx.message, "%s: a message that is cut off: %s",
           s->name, s->ctx.message);
}

static void follow(scene *s, char *const words[4])
{
    char path[700], *at;
    if (strcmp(words[0], "case") == 0) {
        scene_begin(s, words[1]);
    } else if (strcmp(words[0], "take") == 0) {
        snprintf(path, sizeof path, FIXTURES "%s", words[1]);
        scene_copy(s, path, words[1], NULL, NULL);
    } else if (strcmp(words[0], "edit") == 0) {
        scene_path(s, words[1], path);
        scene_copy(s, path, words[1], words[2], words[3]);
    } else if (strcmp(words[0], "file") == 0) {
        scene_path(s, words[1], path);
        test_write(path, words[2], strlen(words[2]));
    } else if (strcmp(words[0], "rows") == 0) {
        for (at = words[2]; (at = strchr(at, 0x1f)) != NULL;)
            *at++ = '\n';
        scene_path(s, words[1], path);
        test_write(path, words[2], strlen(words[2]));
    } else if (strcmp(words[0], "ids") == 0) {
        scene_ids(s, words[1], words[2], 1, 0);
    } else if (strcmp(words[0], "lost") == 0) {
        scene_ids(s, words[1], words[2], 1, 1);
    } else if (strcmp(words[0], "letters") == 0) {
        scene_ids(s, words[1], words[2], 0, 0);
    } else if (strcmp(words[0], "first") == 0) {
        scene_read(s);
        CHECKF(s->v.first == atoi(words[1]), "%s: first %ld", s->name, (long)s->v.first);
    } else if (strcmp(words[0], "note") == 0) {
        scene_note(s, words[1]);
    } else if (CHECKF(strcmp(words[0], "refused") == 0, "an unknown line: %s", words[0])) {
        scene_refused(s, words[1]);
    }
}

static void follow_file(const char *path, size_t n_least)
{
    static scene s;
    size_t size, n_lines = 0, i;
    char *text = (char *)test_read(path, &size), *line = text, *end;
    for (; line && *line; line = end + 1, n_lines++) {
        char *words[4] = {line, line, line, line};
        end = strchr(line, '\n');
        *end = 0;
        for (i = 1; i < 4 && (words[i] = strchr(words[i - 1], '\t')) != NULL; i++)
            *words[i]++ = 0;
        for (; i < 4; i++)
            words[i] = end; /* "" */
        follow(&s, words);
    }
    scene_end(&s);
    CHECK(n_lines > n_least);
    free(text);
}

TEST(as_transformers_read_them)
{
    follow_file(FIXTURES "cases.tsv", 300);
}

/* A blank in front of texts (make_blank_fixtures.py). */
TEST(as_transformers_put_blanks)
{
    follow_file(FIXTURES "blank.tsv", 1300);
}

/* Bytes and characters that a vocabulary lacks (make_lossy_fixtures.py). */
TEST(as_transformers_lose_them)
{
    follow_file(FIXTURES "lossy.tsv", 200);
}
