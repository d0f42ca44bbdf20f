/* What a checkpoint says of itself: its name, where it comes from, its license. The first that says
 * something counts:
 *
 *   options              --name, --source, --license
 *   a directory          the YAML front matter of README.md: model_name, or the name in model-index;
 *                        base_model; license. Then config.json: model_name; _name_or_path, unless it is a
 *                        path; license
 *   a GGUF file          general.name; general.source.url, .repo_url or .huggingface.repository, or
 *                        general.url; general.license
 *
 * It also has SHA-256 of the files with the weights. */
#ifndef TOOLS_CARD_H
#define TOOLS_CARD_H

#include "config.h"
#include "source.h"
#include "tools/common/sha256.h"
#include "tools/common/utf8.h"

enum {
    CARD_MAX_TEXT = 1000,
    CARD_MAX_README = 1 << 16
}; /* bytes; of README.md its beginning is read */

/* Is it UTF-8 without control characters, not empty and not long? */
TOOLS_FN int card_is_text(const char *text, size_t size)
{
    uint32_t code = 0;
    size_t at, n;
    for (at = 0; at < size && size <= CARD_MAX_TEXT; at += n) {
        n = utf8_length((const unsigned char *)text + at, size - at, &code);
        if (n == 0 || code < ' ' || (code >= 0x7F && code < 0xA0))
            return 0;
    }
    return size > 0 && at == size;
}

/* Notes what `from` says, unless something was said already. */
TOOLS_FN attn_status card_say(attn_ctx *ctx, source *s, source_said what, const char *from,
                              const char *text, size_t size)
{
    static const char *const names[] = {"name", "source", "license"};
    if (s->said[what] || size == 0)
        return ATTN_OK;
    if (!card_is_text(text, size)) {
        source_note(
            "the %s in %s is not UTF-8, has a control character or more than %d bytes; left out",
            names[what], from, (int)CARD_MAX_TEXT);
        return ATTN_OK;
    }
    s->said[what] = arena_text(ctx, &s->memory, text, size);
    return s->said[what] ? ATTN_OK : ctx->status;
}

/* >> README.md ================================================================================= */

/* The value of a line of YAML: without blanks, quotes and a comment around it. */
TOOLS_FN const char *card_scalar(const char *text, const char *end, size_t *size)
{
    const char *at;
    while (text < end && (*text == ' ' || *text == '\t'))
        text++;
    if (text < end && (*text == '"' || *text == '\'')) {
        at = (const char *)memchr(text + 1, *text, (size_t)(end - text - 1));
        *size = at ? (size_t)(at - text - 1) : 0;
        return text + 1;
    }
    for (at = text; at < end && !(*at == '#' && (at == text || at[-1] == ' ')); at++)
        continue;
    while (at > text && (at[-1] == ' ' || at[-1] == '\t' || at[-1] == '\r'))
        at--;
    *size = (size_t)(at - text);
    return text;
}

/* The first entry of a list, which begins at `text`: of "- gpt2" or "- name: gpt2". */
TOOLS_FN const char *card_entry(const char *text, const char *end, size_t *size)
{
    const char *const stop = (const char *)memchr(text, '\n', (size_t)(end - text));
    end = stop ? stop : end;
    while (text < end && *text == ' ')
        text++;
    *size = 0;
    if (end - text < 2 || *text != '-' || text[1] != ' ')
        return text;
    text += 2;
    if (end - text > 5 && memcmp(text, "name:", 5) == 0)
        text += 5;
    return card_scalar(text, end, size);
}

/* Reads the front matter, between two lines "---". It is not needed, so what is not understood is left
 * out. */
TOOLS_FN attn_status card_read_front(attn_ctx *ctx, source *s, const char *text, const char *end)
{
    static const struct {
        const char *key;
        source_said what;
    } keys[] = {{"model_name:", SAID_NAME},
                {"model-index:", SAID_NAME},
                {"base_model:", SAID_SOURCE},
                {"license:", SAID_LICENSE}};
    const char *line = text, *next, *value;
    size_t i, n, size;
    for (; line < end && !ctx->status; line = next) {
        const char *stop = (const char *)memchr(line, '\n', (size_t)(end - line));
        next = stop ? stop + 1 : end;
        stop = stop ? stop : end;
        if (stop - line >= 3 && memcmp(line, "---", 3) == 0) {
            if (line > text)
                break;
            continue;
        }
        if (line == text) /* no front matter */
            break;
        for (i = 0; i < sizeof keys / sizeof keys[0]; i++) {
            n = strlen(keys[i].key);
            if ((size_t)(stop - line) < n || memcmp(line, keys[i].key, n) != 0)
                continue;
            value = card_scalar(line + n, stop, &size);
            if (size == 0)
                value = card_entry(next, end, &size);
            card_say(ctx, s, keys[i].what, "README.md", value, size);
        }
    }
    return ctx->status;
}

TOOLS_FN attn_status card_read_readme(attn_ctx *ctx, source *s, const char *dir)
{
    char *const path = arena_path(ctx, &s->memory, dir, "README.md");
    FILE *file = path && !system_not_a_file(path) ? system_open(path, "rb") : NULL;
    if (!file)
        return ctx->status; /* ATTN_OK if there is none that can be read */
    char *text = (char *)arena_alloc(ctx, &s->memory, CARD_MAX_README, 1);
    size_t size = text ? fread(text, 1, CARD_MAX_README, file) : 0;
    fclose(file);
    return text ? card_read_front(ctx, s, text + order_mark_size(text, size), text + size)
                : ctx->status;
}

/* >> config.json =============================================================================== */

/* Is it a name on the Hugging Face hub, "gpt2" or "openai-community/gpt2", and not a path? */
TOOLS_FN int card_is_hub_name(const char *text, size_t size)
{
    size_t n_slashes = 0;
    for (size_t i = 0; i < size; i++) {
        n_slashes += text[i] == '/';
        if (!text[i] ||
            !strchr("-._/0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", text[i]))
            return 0;
    }
    return size > 0 && text[0] != '.' && text[0] != '/' && text[size - 1] != '/' && n_slashes <= 1;
}

TOOLS_FN attn_status card_read_config(attn_ctx *ctx, source *s, const json_value *root)
{
    static const char *const keys[] = {"model_name", "_name_or_path", "license"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !ctx->status; i++) {
        const json_value *v = json_get(root, keys[i]);
        if (v && v->kind == JSON_STRING && (i != 1 || card_is_hub_name(v->text, v->size)))
            card_say(ctx, s, (source_said)i, "config.json", v->text, v->size);
    }
    return ctx->status;
}

/* >> The checkpoint ============================================================================= */

/* The opened file whose name follows `name`; the first for NULL. */
TOOLS_FN source_file *card_next_file(const source *s, const char *name)
{
    source_file *f, *best = NULL;
    for (f = s->files; f; f = f->next)
        if ((!name || strcmp(f->name, name) > 0) && (!best || strcmp(f->name, best->name) < 0))
            best = f;
    return best;
}

/* SHA-256 of the files with the weights, in the order of their names. */
TOOLS_FN attn_status card_sum(attn_ctx *ctx, source *s, char sum[SHA256_HEX])
{
    unsigned char digest[SHA256_SIZE];
    source_file *f = NULL;
    sha256 h;
    sha256_begin(&h);
    for (; s; s = s->adapter)
        while ((f = card_next_file(s, f ? f->name : NULL)) != NULL)
            for (uint64_t at = 0; at < f->size; at += sizeof s->raw) {
                const uint64_t left = f->size - at;
                const size_t n = left < sizeof s->raw ? (size_t)left : sizeof s->raw;
                if (lens_is_stopped(ctx))
                    return tool_fail(ctx, ATTN_STOPPED, "interrupted");
                if (source_bytes(ctx, f, at, s->raw, n))
                    return ctx->status;
                sha256_add(&h, s->raw, n);
            }
    sha256_end(&h, digest);
    sha256_hex(sum, digest, SHA256_SIZE);
    return ATTN_OK;
}

#endif
