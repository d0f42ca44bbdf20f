/* Reads the files of a directory that describe a vocabulary, into a vocab (vocab.h).
 *
 *     tokenizer.json              tokens, merges, added tokens, rules
 *     vocab.json, merges.txt      tokens and merges, beside tokenizer.json or without it; also under
 *                                 OpenAI's names encoder.json and vocab.bpe. A vocab.json of single
 *                                 characters without merges is a vocabulary of characters, like that
 *                                 of nanoGPT's first example
 *     added_tokens.json           more tokens, from spellings to ids
 *     tokenizer_config.json       more tokens (added_tokens_decoder), names of some, settings
 *     special_tokens_map.json     names of tokens
 *     chat_template.jinja         how a conversation becomes a text
 *
 * All files that are there are read, and they must agree on every token, id and merge. A rule that GPT-2's
 * tokenizer does not have is refused, because texts would get other ids. A rule that adds something to texts
 * becomes a note. Added and special tokens are found in a text only if the caller asks for it;
 * transformers' AutoTokenizer always finds them.
 *
 *   added tokens, and tokens that a file       special tokens; two ids of one token are refused, and
 *     names (bos, eos, unk, sep, pad, ...)     so are gaps among added ids
 *   special: false                             a special token all the same, with a note
 *   lstrip, rstrip, single_word: true          refused: the token would take blanks with it
 *   a special token that merges make           refused
 *   model                                      BPE without dropout, ignore_merges, prefix, suffix
 *   bytes without a token                      left out of texts, or unk_token for each, with a note;
 *                                              fuse_unk and byte_fallback are then refused
 *   normalizer                                 none; any other is refused, or a note if the caller says so
 *   pre_tokenizer, decoder                     ByteLevel with its own expression
 *   add_prefix_space                           of tokenizer_config.json in GPT-2's class, else of
 *                                              tokenizer.json: a blank in front of texts
 *   add_eos_token, do_lower_case               false; true is refused
 *   add_bos_token, a post_processor of one     a note: put the token there yourself (--bos)
 *     token and the text
 *   other post_processors                      refused
 *   tokenizer_class                            GPT2Tokenizer(Fast), PreTrainedTokenizerFast,
 *                                              TokenizersBackend
 *   clean_up_tokenization_spaces, chat         notes
 *     templates
 *   truncation, padding, model_max_length      nothing: texts are neither cut nor padded
 *   spiece.model, tokenizer.model, vocab.txt   of another kind: no vocabulary, with a note */
#ifndef TOOLS_VOCAB_FILES_H
#define TOOLS_VOCAB_FILES_H

#include "utf8.h"
#include "vocab.h"

/* The limit of files of settings, which are smaller than vocabularies. */
enum { VOCAB_MAX_SETTINGS = 1 << 22 };

/* What files say about a token. Hugging Face's tokenizers look for some added tokens before a text is
 * normalized, and for the others afterwards in the rest. They find tokens that are not special even when
 * they do not look for special ones. */
enum {
    VOCAB_BEFORE = 1,
    VOCAB_AFTER = 2,
    VOCAB_IS_SPECIAL = 4,
    VOCAB_IS_NEW = 8, /* not in the model's own vocabulary */
    VOCAB_IN_CONFIG = 16,
    VOCAB_IN_PAIR = 32,
    VOCAB_UNSAID = 64 /* a file adds it without saying whether it is looked for before or after */
};

/* The parsed files; NULL if there is no such file. */
typedef struct vocab_files {
    const char *dir;
    json_value *whole;  /* tokenizer.json */
    json_value *pair;   /* vocab.json, if it is read instead of tokenizer.json */
    json_value *added;  /* added_tokens.json */
    json_value *config; /* tokenizer_config.json */
    json_value *named;  /* special_tokens_map.json */
    json_value *model;  /* config.json */
    int ignores_normalizer;
    const char *pair_name, *merges_name; /* names of these two files, if they are read */
    char *merges;                        /* merges.txt, with pair */
    size_t merges_size;

    const json_value *unknown; /* the first token that is named without having an id */
    const char *unknown_file, *unknown_key;
    size_t unknown_key_size, n_unknown;
} vocab_files;

/* >> Tokens and merges ========================================================================= */

/* The number of ids in an object from spellings to ids: the largest id plus one. */
TOOLS_FN attn_status vocab_count(attn_ctx *ctx, const char *file, const json_value *object,
                                 size_t *n_tokens)
{
    const json_value *m;
    uint64_t id;
    size_t i;
    shown name;
    if (!object || object->kind != JSON_OBJECT || object->size == 0)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "%s: no vocabulary: expected an object from tokens to ids", file);
    for (m = object + 1, i = 0; i < object->size; i++, m += m->span) {
        if (!json_u64(m, &id) || id >= VOCAB_MAX_TOKENS)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s: the id of \"%s\" is not a whole number below %d", file,
                             show(name, m->key, m->key_size), (int)VOCAB_MAX_TOKENS);
        if (id >= *n_tokens)
            *n_tokens = (size_t)id + 1;
    }
    return ATTN_OK;
}

TOOLS_FN attn_status vocab_add_all(attn_ctx *ctx, vocab *v, const json_value *object)
{
    const json_value *m;
    uint64_t id;
    size_t i;
    for (m = object + 1, i = 0; i < object->size; i++, m += m->span)
        if (json_u64(m, &id) && vocab_add(ctx, v, (size_t)id, m->key, m->key_size))
            return ctx->status;
    return ATTN_OK;
}

/* Iterates over the merges of merges.txt: one a line, after an optional line "#version: ...". */
typedef struct merge_lines {
    const char *next, *end;
    const char *text; /* the line */
    size_t size, line;
} merge_lines;

/* Moves to the next merge; 0 at the end. */
TOOLS_FN int next_merge(merge_lines *m)
{
    while (m->next < m->end) {
        const char *end = (const char *)memchr(m->next, '\n', (size_t)(m->end - m->next));
        m->text = m->next;
        m->next = end ? end + 1 : m->end;
        m->size = (size_t)((end ? end : m->end) - m->text);
        m->line++;
        if (m->size && m->text[m->size - 1] == '\r')
            m->size--;
        if (m->size > 0 && !(m->line == 1 && m->size >= 8 && memcmp(m->text, "#version", 8) == 0))
            return 1;
    }
    return 0;
}

TOOLS_FN merge_lines merge_lines_of(const char *text, size_t size)
{
    merge_lines m;
    memset(&m, 0, sizeof m);
    m.next = text ? text + order_mark_size(text, size) : "";
    m.end = text ? text + size : m.next;
    return m;
}

TOOLS_FN attn_status vocab_read_merges(attn_ctx *ctx, vocab *v, const vocab_files *f)
{
    merge_lines m = merge_lines_of(f->merges, f->merges_size);
    shown name;
    uint32_t code;
    while (next_merge(&m))
        if (vocab_merge_text(ctx, v, m.text, m.size, f->merges_name, "line", m.line))
            return ctx->status;
    for (size_t i = 0; i < v->n_tokens && v->n_merges == 0 && !v->characters; i++) {
        const vocab_token *const t = &v->tokens[i];
        if (t->spelling && !t->special && t->spelling_size > 0 &&
            utf8_length((const unsigned char *)t->spelling, t->spelling_size, &code) !=
                t->spelling_size)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s has no merges, but no text would have the token \"%s\" without",
                             f->merges_name, show(name, t->spelling, t->spelling_size));
    }
    return ATTN_OK;
}

/* Does tokenizer.json cut texts into characters? It has no merges, and no rule before or after. */
TOOLS_FN int vocab_cuts_characters(const json_value *whole)
{
    const json_value *merges = json_get(json_get(whole, "model"), "merges");
    const json_value *decoder = json_get(whole, "decoder");
    return merges && merges->kind == JSON_ARRAY && merges->size == 0 &&
           (!json_get(whole, "pre_tokenizer") ||
            json_get(whole, "pre_tokenizer")->kind == JSON_NULL) &&
           decoder && json_is(json_get(decoder, "type"), "Fuse");
}

/* Are the tokens characters? All must be single characters, or names of special tokens in brackets. If there
 * is a file of merges, some of the characters must not be spellings of bytes. */
TOOLS_FN int vocab_is_of_characters(const vocab_files *f)
{
    const json_value *const tokens =
        f->whole ? json_get(json_get(f->whole, "model"), "vocab") : f->pair;
    merge_lines m = merge_lines_of(f->merges, f->merges_size);
    const json_value *t;
    size_t i, n_plain = f->whole != NULL, n_blank = 0;
    uint32_t code;
    if (!tokens || tokens->kind != JSON_OBJECT || next_merge(&m) ||
        (f->whole && !vocab_cuts_characters(f->whole)))
        return 0;
    for (t = tokens + 1, i = 0; i < tokens->size; i++, t += t->span) {
        const unsigned char *key = (const unsigned char *)t->key;
        if (t->key_size > 0 && utf8_length(key, t->key_size, &code) == t->key_size) {
            n_plain += vocab_byte(code) < 0;
            n_blank += code == 256 + ' ';
        } else if (t->key_size < 3 || !((key[0] == '<' && key[t->key_size - 1] == '>') ||
                                        (key[0] == '[' && key[t->key_size - 1] == ']'))) {
            return 0;
        }
    }
    return n_plain > 0 || (!f->merges && n_blank == 0);
}

TOOLS_FN size_t count_lines(const char *text, size_t size)
{
    size_t n = 1;
    for (size_t i = 0; i < size; i++)
        n += text[i] == '\n';
    return n;
}

/* "merges": ["a b", ...] or [["a", "b"], ...] */
TOOLS_FN attn_status vocab_merge_list(attn_ctx *ctx, vocab *v, const json_value *list)
{
    const json_value *m = list + 1, *left, *right;
    for (size_t i = 0; i < list->size; i++, m += m->span) {
        left = m + 1;
        right = m->kind == JSON_ARRAY && m->size == 2 ? left + left->span : NULL;
        if (m->kind == JSON_STRING) {
            if (vocab_merge_text(ctx, v, m->text, m->size, "tokenizer.json", "merge", i))
                return ctx->status;
        } else if (right && left->kind == JSON_STRING && right->kind == JSON_STRING) {
            if (vocab_merge(ctx, v, left->text, left->size, right->text, right->size,
                            "tokenizer.json", "merge", i))
                return ctx->status;
        } else {
            return tool_fail(
                ctx, ATTN_E_FORMAT,
                "tokenizer.json, merge %llu is neither a string \"a b\" nor a pair [\"a\", \"b\"]",
                TOOLS_LLU(i));
        }
    }
    return ATTN_OK;
}

/* >> Rules ===================================================================================== */

/* Refuses a rule. `done`: what would be done to texts; `advice`: what to do about it. */
TOOLS_FN attn_status vocab_refuse(attn_ctx *ctx, const char *file, const char *rule,
                                  const char *done, const char *advice)
{
    return tool_fail(ctx, ATTN_E_UNSUPPORTED, "%s: %s, so %s, which attn.h does not do; %s", file,
                     rule, done, advice);
}

/* Is a setting off? null, false, 0, "", [] and {} are. */
TOOLS_FN int vocab_is_off(const json_value *v)
{
    double number = 0;
    return !v || v->kind == JSON_NULL || v->kind == JSON_FALSE ||
           (v->kind == JSON_NUMBER ? json_double(v, &number) && number == 0
                                   : v->kind != JSON_TRUE && v->size == 0);
}

TOOLS_FN int vocab_is_on(const json_value *object, const char *key)
{
    const json_value *v = json_get(object, key);
    return v && v->kind == JSON_TRUE;
}

/* Checks the rules of tokenizer.json's model that change the ids of a text. unk_token, fuse_unk and
 * byte_fallback matter only if a byte has no token. */
TOOLS_FN attn_status vocab_check_model(attn_ctx *ctx, const json_value *model)
{
    static const struct {
        const char *key, *rule, *done, *advice;
    } rules[] = {
        {"dropout", "it has a dropout", "merges are left out at random",
         "set it to null, as it is wherever a trained model is used"},
        {"ignore_merges", "ignore_merges is true", "words may become tokens without merges",
         "set it to false if the merges make every token"},
        {"continuing_subword_prefix", "it has a continuing_subword_prefix",
         "tokens are spelled otherwise within words", "only byte-level BPE as GPT-2's is read"},
        {"end_of_word_suffix", "it has an end_of_word_suffix",
         "tokens are spelled otherwise at the ends of words",
         "only byte-level BPE as GPT-2's is read"}};
    static const char *const harmless[] = {"type",      "vocab",    "merges",
                                           "unk_token", "fuse_unk", "byte_fallback"};
    const json_value *v;
    size_t i, k;
    shown name;
    if ((v = json_get(model, "type")) != NULL && !json_is(v, "BPE"))
        return vocab_refuse(ctx, "tokenizer.json", "its model is not BPE",
                            "words become tokens otherwise", "only byte-level BPE is read");
    for (i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!vocab_is_off(json_get(model, rules[i].key)))
            return vocab_refuse(ctx, "tokenizer.json", rules[i].rule, rules[i].done,
                                rules[i].advice);
    for (i = 0, v = model + 1; i < model->size; i++, v += v->span) {
        for (k = 0; k < sizeof harmless / sizeof harmless[0]; k++)
            if (strlen(harmless[k]) == v->key_size && memcmp(harmless[k], v->key, v->key_size) == 0)
                break;
        if (k == sizeof harmless / sizeof harmless[0] && !vocab_is_off(v))
            return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                             "tokenizer.json: the model has a rule \"%s\", "
                             "which attn-convert does not know",
                             show(name, v->key, v->key_size));
    }
    return ATTN_OK;
}

/* The rule itself where a Sequence holds nothing else. `list`: the key of its list. */
TOOLS_FN const json_value *vocab_only(const json_value *rule, const char *list)
{
    const json_value *of;
    while (json_is(json_get(rule, "type"), "Sequence") && (of = json_get(rule, list)) != NULL &&
           of->kind == JSON_ARRAY && of->size == 1)
        rule = of + 1;
    return rule;
}

TOOLS_FN int vocab_has_normalizer(const json_value *root)
{
    const json_value *normalizer = json_get(root, "normalizer");
    const json_value *v = json_get(normalizer, "normalizers");
    return !vocab_is_off(normalizer) && !(v && vocab_is_off(v));
}

/* Checks what happens to a text before it is encoded, and to tokens when they are decoded. */
TOOLS_FN attn_status vocab_check_rules(attn_ctx *ctx, const vocab_files *f)
{
    static const char file[] = "tokenizer.json";
    const json_value *split = vocab_only(json_get(f->whole, "pre_tokenizer"), "pretokenizers"), *v;
    const json_value *decoder = vocab_only(json_get(f->whole, "decoder"), "decoders");
    if (vocab_check_model(ctx, json_get(f->whole, "model")))
        return ctx->status;
    if (vocab_has_normalizer(f->whole) && !f->ignores_normalizer)
        return vocab_refuse(ctx, file, "it has a normalizer", "texts are changed first",
                            "change texts so yourself and give attn-convert --ignore-normalizer");
    if (vocab_is_of_characters(f))
        return ATTN_OK;
    if (!split || !json_is(json_get(split, "type"), "ByteLevel"))
        return vocab_refuse(ctx, file, "its pre_tokenizer is not ByteLevel",
                            "texts are cut into words otherwise", "only GPT-2's words are known");
    if ((v = json_get(split, "use_regex")) != NULL && v->kind == JSON_FALSE)
        return vocab_refuse(ctx, file, "use_regex is false", "texts are not cut into words",
                            "only GPT-2's words are known");
    if (decoder && decoder->kind != JSON_NULL && !json_is(json_get(decoder, "type"), "ByteLevel"))
        return vocab_refuse(ctx, file, "its decoder is not ByteLevel", "tokens become another text",
                            "only byte-level BPE is read");
    return ATTN_OK;
}

/* Reads what the template of a post-processor puts around a text. */
TOOLS_FN attn_status vocab_check_template(attn_ctx *ctx, vocab *v, const json_value *processor)
{
    const json_value *single = json_get(processor, "single"), *part, *special, *ids;
    const json_value *tokens = json_get(processor, "special_tokens");
    uint64_t id;
    size_t i, n_texts = 0, n_others = 0;
    for (i = 0, part = single ? single + 1 : NULL; single && i < single->size;
         i++, part += part->span) {
        if (json_is(json_get(json_get(part, "Sequence"), "id"), "A")) {
            n_texts++;
            continue;
        }
        special = json_get(json_get(part, "SpecialToken"), "id");
        ids = special && special->kind == JSON_STRING
                  ? json_find(tokens, special->text, special->size)
                  : NULL;
        ids = json_get(ids, "ids");
        if (n_texts > 0 || v->first >= 0 || !ids || ids->kind != JSON_ARRAY || ids->size != 1 ||
            !json_u64(ids + 1, &id) || id >= v->n_tokens)
            n_others++;
        else
            v->first = (int32_t)id;
    }
    if (n_texts != 1 || n_others > 0)
        return vocab_refuse(ctx, "tokenizer.json",
                            "its post_processor gives something else than the text once, after one "
                            "token at most",
                            "texts get other ids", "add those yourself and set it to null");
    return ATTN_OK;
}

TOOLS_FN attn_status vocab_check_processor(attn_ctx *ctx, vocab *v, const json_value *processor,
                                           int depth)
{
    const json_value *list = json_get(processor, "processors"), *one;
    size_t i;
    if (!processor || processor->kind == JSON_NULL ||
        json_is(json_get(processor, "type"), "ByteLevel"))
        return ATTN_OK; /* about offsets, which attn.h does not give */
    if (json_is(json_get(processor, "type"), "TemplateProcessing"))
        return vocab_check_template(ctx, v, processor);
    if (depth == 0 || !json_is(json_get(processor, "type"), "Sequence") || !list ||
        list->kind != JSON_ARRAY)
        return vocab_refuse(
            ctx, "tokenizer.json", "its post_processor is neither ByteLevel nor a template",
            "texts get tokens that they do not hold", "add their ids yourself and set it to null");
    for (i = 0, one = list + 1; i < list->size; i++, one += one->span)
        if (vocab_check_processor(ctx, v, one, depth - 1))
            return ctx->status;
    return ATTN_OK;
}

/* >> Added tokens ============================================================================== */

TOOLS_FN attn_status vocab_check_flags(attn_ctx *ctx, const vocab *v, vocab_token *token,
                                       const json_value *flags)
{
    static const struct {
        const char *key, *done;
    } rules[] = {{"lstrip", "takes the blanks before it away"},
                 {"rstrip", "takes the blanks behind it away"},
                 {"single_word", "is not found within words"}};
    const json_value *normalized = json_get(flags, "normalized");
    size_t i;
    shown name;
    for (i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (vocab_is_on(flags, rules[i].key))
            return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                             "%s: the token \"%s\" has %s, so it %s, which attn.h does not do; "
                             "set it to false if your texts do without that",
                             v->name, show(name, token->spelling, token->spelling_size),
                             rules[i].key, rules[i].done);
    token->said |= !normalized                     ? VOCAB_UNSAID
                   : normalized->kind == JSON_TRUE ? VOCAB_AFTER
                                                   : VOCAB_BEFORE;
    return ATTN_OK;
}

/* Adds a token with an id, which may repeat a token of the vocabulary or be new. If v is NULL it only counts
 * ids. `flags` may be NULL. */
TOOLS_FN attn_status vocab_add_special(attn_ctx *ctx, vocab *v, size_t *n_tokens, size_t id,
                                       const char *text, size_t size, const json_value *flags)
{
    if (!v) {
        *n_tokens = id < *n_tokens ? *n_tokens : id + 1;
        return ATTN_OK;
    }
    vocab_token *token = &v->tokens[id];
    int same =
        token->spelling && token->spelling_size == size && memcmp(token->spelling, text, size) == 0;
    if (!same && vocab_add(ctx, v, id, text, size))
        return ctx->status;
    token->special = 1;
    token->special_by = token->special_by ? token->special_by : v->name;
    if (!same)
        token->said |= VOCAB_IS_NEW;
    if (vocab_is_on(flags, "special"))
        token->said |= VOCAB_IS_SPECIAL;
    return vocab_check_flags(ctx, v, token, flags);
}

/* "added_tokens": [{"id": 50256, "content": "<|endoftext|>", ...}, ...] */
TOOLS_FN attn_status vocab_added_list(attn_ctx *ctx, vocab *v, const json_value *list,
                                      size_t *n_tokens)
{
    const json_value *m = list ? list + 1 : NULL, *content;
    uint64_t id, latest = 0;
    if (!list || list->kind == JSON_NULL)
        return ATTN_OK;
    if (list->kind != JSON_ARRAY)
        return tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json: added_tokens is not a list");
    for (size_t i = 0; i < list->size; i++, m += m->span) {
        content = json_get(m, "content");
        if (!json_u64(json_get(m, "id"), &id) || id >= VOCAB_MAX_TOKENS || !content ||
            content->kind != JSON_STRING || content->size == 0)
            return tool_fail(
                ctx, ATTN_E_FORMAT,
                "tokenizer.json: entry %llu of added_tokens has no usable id and content",
                TOOLS_LLU(i));
        if (vocab_add_special(ctx, v, n_tokens, (size_t)id, content->text, content->size, m))
            return ctx->status;
        if (!v || !(v->tokens[id].said & VOCAB_IS_NEW))
            continue;
        if (id < latest)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "tokenizer.json: entry %llu of added_tokens has id %llu, behind one "
                             "with id %llu; transformers would number them in this order",
                             TOOLS_LLU(i), TOOLS_LLU(id), TOOLS_LLU(latest));
        latest = id;
    }
    return ATTN_OK;
}

/* "added_tokens_decoder": {"50256": {"content": "<|endoftext|>", ...}, ...} */
TOOLS_FN attn_status vocab_added_decoder(attn_ctx *ctx, vocab *v, const json_value *object,
                                         size_t *n_tokens)
{
    const json_value *m = object ? object + 1 : NULL, *content;
    json_value number; /* a key's text, read as a number */
    uint64_t id;
    shown name;
    if (!object || object->kind == JSON_NULL)
        return ATTN_OK;
    if (object->kind != JSON_OBJECT)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "tokenizer_config.json: added_tokens_decoder is not an object");
    for (size_t i = 0; i < object->size; i++, m += m->span) {
        memset(&number, 0, sizeof number);
        number.kind = JSON_NUMBER;
        number.text = m->key;
        number.size = m->key_size;
        content = json_get(m, "content");
        if (m->key_size == 0 || !json_u64(&number, &id) || id >= VOCAB_MAX_TOKENS || !content ||
            content->kind != JSON_STRING || content->size == 0)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "tokenizer_config.json: the entry \"%s\" of added_tokens_decoder has "
                             "no usable id and content",
                             show(name, m->key, m->key_size));
        if (vocab_add_special(ctx, v, n_tokens, (size_t)id, content->text, content->size, m))
            return ctx->status;
        if (v)
            v->tokens[id].said |= VOCAB_IN_CONFIG;
    }
    return ATTN_OK;
}

/* added_tokens.json: {"<pad>": 300, ...} */
TOOLS_FN attn_status vocab_added_map(attn_ctx *ctx, vocab *v, const json_value *object,
                                     size_t *n_tokens)
{
    const json_value *m;
    uint64_t id;
    size_t i;
    if (!object || (object->kind == JSON_OBJECT && object->size == 0))
        return ATTN_OK;
    if (vocab_count(ctx, "added_tokens.json", object, n_tokens))
        return ctx->status;
    for (i = 0, m = object + 1; i < object->size; i++, m += m->span)
        if (json_u64(m, &id) && m->key_size > 0 && /* an empty spelling is no token */
            vocab_add_special(ctx, v, n_tokens, (size_t)id, m->key, m->key_size, NULL))
            return ctx->status;
    return ATTN_OK;
}

/* Adds every token that a file adds with an id. */
TOOLS_FN attn_status vocab_add_files(attn_ctx *ctx, vocab *v, const vocab_files *f,
                                     size_t *n_tokens)
{
    if (v)
        v->name = "tokenizer.json";
    if (vocab_added_list(ctx, v, json_get(f->whole, "added_tokens"), n_tokens))
        return ctx->status;
    if (v)
        v->name = "added_tokens.json";
    if (vocab_added_map(ctx, v, f->added, n_tokens))
        return ctx->status;
    if (v)
        v->name = "tokenizer_config.json";
    return vocab_added_decoder(ctx, v, json_get(f->config, "added_tokens_decoder"), n_tokens);
}

/* >> Named tokens ============================================================================== */

/* The id of "<pad>" or {"content": "<pad>", ...}, the value of a name such as pad_token; -1 if it is not a
 * token or has no id. */
TOOLS_FN attn_status vocab_name_one(attn_ctx *ctx, vocab *v, vocab_files *f, const char *key,
                                    size_t key_size, const json_value *value, attn_token *id)
{
    const json_value *text = value->kind == JSON_OBJECT ? json_get(value, "content") : value;
    const int in_config = strcmp(v->name, "tokenizer_config.json") == 0 ? VOCAB_IN_CONFIG : 0;
    size_t found;
    shown role;
    *id = -1;
    if (!text || text->kind == JSON_NULL || (text->kind == JSON_STRING && text->size == 0))
        return ATTN_OK;
    if (text->kind != JSON_STRING)
        return tool_fail(ctx, ATTN_E_FORMAT, "%s: %s is not the text of a token", v->name,
                         show(role, key, key_size));
    if (!names_find(&v->by_spelling, text->text, text->size, &found)) {
        if (f->n_unknown++)
            return ATTN_OK;
        f->unknown = text;
        f->unknown_file = v->name;
        f->unknown_key = key;
        f->unknown_key_size = key_size;
        return ATTN_OK;
    }
    *id = (int32_t)found;
    v->tokens[found].special = 1;
    v->tokens[found].special_by =
        v->tokens[found].special_by ? v->tokens[found].special_by : v->name;
    v->tokens[found].said |= VOCAB_IS_SPECIAL | in_config;
    return value->kind == JSON_OBJECT ||
                   !(v->tokens[found].said & (VOCAB_BEFORE | VOCAB_AFTER | VOCAB_UNSAID))
               ? vocab_check_flags(ctx, v, &v->tokens[found], value)
               : ATTN_OK;
}

/* Reads a name's value: one token, or a list or an object of several. */
TOOLS_FN attn_status vocab_name(attn_ctx *ctx, vocab *v, vocab_files *f, const json_value *value)
{
    const int one =
        value->kind != JSON_ARRAY && (value->kind != JSON_OBJECT || json_get(value, "content"));
    const json_value *m = one ? value : value + 1;
    const size_t n = one ? 1 : value->size;
    attn_token id;
    for (size_t i = 0; i < n; i++, m += m->span) {
        if (vocab_name_one(ctx, v, f, value->key, value->key_size, m, &id))
            return ctx->status;
        if (id < 0 || value->key_size != 9 || memcmp(value->key + 1, "os_token", 8) != 0)
            continue;
        if (*value->key == 'b') {
            v->bos = id;
            v->bos_file = v->name;
        } else if (*value->key == 'e') {
            v->eos = id;
            v->eos_file = v->name;
        }
    }
    return ATTN_OK;
}

/* Does an entry of tokenizer_config.json name tokens? Of a role that every tokenizer has, or of the model's
 * own role such as "image_token", which transformers 5 treats as special too. */
TOOLS_FN int vocab_is_role(const json_value *m)
{
    static const char *const keys[] = {
        "bos_token",           "eos_token", "unk_token",  "sep_token",
        "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
        "extra_special_tokens"};
    static const char end[] = "_token";
    const size_t n = sizeof end - 1;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (m->key_size == strlen(keys[i]) && memcmp(m->key, keys[i], m->key_size) == 0)
            return 1;
    return m->key_size > n && memcmp(m->key + m->key_size - n, end, n) == 0 &&
           (m->kind == JSON_STRING || json_is(json_get(m, "__type"), "AddedToken"));
}

/* Reads the tokens that special_tokens_map.json and tokenizer_config.json name. */
TOOLS_FN attn_status vocab_name_files(attn_ctx *ctx, vocab *v, vocab_files *f)
{
    const json_value *m;
    size_t i;
    v->name = "special_tokens_map.json";
    for (i = 0, m = f->named ? f->named + 1 : NULL;
         f->named && f->named->kind == JSON_OBJECT && i < f->named->size; i++, m += m->span)
        if (vocab_name(ctx, v, f, m))
            return ctx->status;
    v->name = "tokenizer_config.json";
    for (i = 0, m = f->config ? f->config + 1 : NULL;
         f->config && f->config->kind == JSON_OBJECT && i < f->config->size; i++, m += m->span)
        if (vocab_is_role(m) && vocab_name(ctx, v, f, m))
            return ctx->status;
    return ATTN_OK;
}

/* The class of the tokenizer, from the vocabulary's settings or the model's; NULL: no file names it. */
TOOLS_FN const json_value *vocab_class(const vocab_files *f)
{
    const json_value *own = json_get(f->config, "tokenizer_class");
    const json_value *kind = vocab_is_off(own) ? json_get(f->model, "tokenizer_class") : own;
    return vocab_is_off(kind) ? NULL : kind;
}

TOOLS_FN int vocab_is_gpt2(const vocab_files *f)
{
    const json_value *kind = vocab_class(f);
    return !kind || json_is(kind, "GPT2Tokenizer") || json_is(kind, "GPT2TokenizerFast");
}

/* In GPT-2's class, which is the default, "<|endoftext|>" begins texts, ends texts, and is the unknown token,
 * unless the files name other tokens for all three. transformers reads special_tokens_map.json only if
 * tokenizer_config.json lists no tokens. */
TOOLS_FN void vocab_name_end(vocab *v, const vocab_files *f)
{
    static const char *const roles[] = {"bos_token", "eos_token", "unk_token"};
    const json_value *named = json_get(f->config, "added_tokens_decoder") ? NULL : f->named;
    int is_named = 0;
    size_t id;
    if (!vocab_is_gpt2(f))
        return;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        is_named |= !json_get(f->config, roles[i]) && !json_get(named, roles[i]);
    if (is_named &&
        names_find(&v->by_spelling, VOCAB_END_OF_TEXT, strlen(VOCAB_END_OF_TEXT), &id)) {
        v->tokens[id].special = 1;
        v->tokens[id].said |= VOCAB_IS_SPECIAL | VOCAB_IN_CONFIG;
        if (!(v->tokens[id].said & (VOCAB_BEFORE | VOCAB_AFTER | VOCAB_UNSAID)))
            v->tokens[id].said |= VOCAB_BEFORE;
    }
}

/* >> Checks of the whole ======================================================================= */

/* Can an occurrence of `late` overlap an occurrence of `early` that begins at the same place or later? */
TOOLS_FN int vocab_overlap(const vocab_token *late, const vocab_token *early)
{
    size_t n;
    for (size_t at = 0; at < late->spelling_size; at++) {
        n = late->spelling_size - at;
        n = n < early->spelling_size ? n : early->spelling_size;
        if ((at > 0 || early->spelling_size < late->spelling_size) &&
            memcmp(late->spelling + at, early->spelling, n) == 0)
            return 1;
    }
    return 0;
}

/* attn.h looks for all special tokens at once, at each place for the longest one. Hugging Face's tokenizers
 * look for some tokens first, and find those even inside others. Refuses vocabularies for which that
 * matters. */
TOOLS_FN attn_status vocab_check_passes(attn_ctx *ctx, vocab *v)
{
    enum { MOST_PAIRS = 1 << 23 };
    const vocab_token **sorted;
    size_t i, k, n_early = 0, n_late = 0;
    shown a, b;
    for (i = 0; i < v->n_tokens; i++) { /* of those without a word, special ones may be either */
        if (v->tokens[i].said & VOCAB_UNSAID && !(v->tokens[i].said & (VOCAB_BEFORE | VOCAB_AFTER)))
            v->tokens[i].said |=
                v->tokens[i].said & VOCAB_IS_SPECIAL ? VOCAB_BEFORE | VOCAB_AFTER : VOCAB_AFTER;
        n_early += v->tokens[i].special && v->tokens[i].said & VOCAB_BEFORE;
        n_late += v->tokens[i].special && v->tokens[i].said & VOCAB_AFTER;
    }
    if (n_early == 0 || n_late == 0)
        return ATTN_OK;
    if (n_early > MOST_PAIRS / n_late)
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: of %llu added tokens some are \"normalized\" and others are not; "
                         "with so many, make them all one or the other",
                         v->name, TOOLS_LLU(n_early + n_late));
    /* NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers */
    sorted = (const vocab_token **)arena_alloc(ctx, v->memory, n_early + n_late, sizeof *sorted);
    if (!sorted)
        return ctx->status;
    for (i = 0, n_early = n_late = 0; i < v->n_tokens; i++)
        if (v->tokens[i].special && v->tokens[i].said & VOCAB_BEFORE)
            sorted[n_early++] = &v->tokens[i];
    for (i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].special && v->tokens[i].said & VOCAB_AFTER)
            sorted[n_early + n_late++] = &v->tokens[i];
    for (i = 0; i < n_late; i++)
        for (k = 0; k < n_early; k++)
            if (sorted[n_early + i] != sorted[k] && vocab_overlap(sorted[n_early + i], sorted[k]))
                return tool_fail(
                    ctx, ATTN_E_UNSUPPORTED,
                    "the added tokens \"%s\" and \"%s\" can overlap in a text, and one is looked "
                    "for first because it is not \"normalized\"; make that the same for both",
                    show(a, sorted[n_early + i]->spelling, sorted[n_early + i]->spelling_size),
                    show(b, sorted[k]->spelling, sorted[k]->spelling_size));
    return ATTN_OK;
}

/* Checks tokens that are not in the model's own vocabulary. transformers numbers them from its size on, for
 * any ids in the files. So an id with a gap before it would be different there. */
TOOLS_FN attn_status vocab_check_ids(attn_ctx *ctx, const vocab *v, size_t n_own)
{
    size_t next = n_own;
    shown name;
    for (size_t i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].said & VOCAB_IS_NEW && i != next++)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "%s gives the added token \"%s\" id %llu, but transformers would give "
                             "it id %llu, the next behind the %llu of the vocabulary; correct the "
                             "id, or add what lies between",
                             v->tokens[i].file,
                             show(name, v->tokens[i].spelling, v->tokens[i].spelling_size),
                             TOOLS_LLU(i), TOOLS_LLU(next - 1), TOOLS_LLU(n_own));
    return ATTN_OK;
}

/* Checks names without an id, and special tokens that are missing in a tokenizer_config.json that lists
 * some: which of them count depends on the version of transformers. */
TOOLS_FN void vocab_note_doubts(attn_ctx *ctx, vocab *v, const vocab_files *f)
{
    const json_value *list = json_get(f->config, "added_tokens_decoder");
    size_t first = 0, n = 0;
    shown name, role;
    if (f->unknown)
        vocab_say(ctx, v, "%s names \"%s\" as %s, but no file gives it an id: it is left out%s",
                  f->unknown_file, show(name, f->unknown->text, f->unknown->size),
                  show(role, f->unknown_key, f->unknown_key_size),
                  f->n_unknown > 1 ? ", and so are others like it" : "");
    for (size_t i = 0; list && list->kind == JSON_OBJECT && i < v->n_tokens; i++)
        if (v->tokens[i].said & VOCAB_IS_SPECIAL && !(v->tokens[i].said & VOCAB_IN_CONFIG))
            first = n++ ? first : i;
    if (n)
        vocab_say(ctx, v,
                  "\"%s\" (id %llu)%s special by other files, but not in tokenizer_config.json's "
                  "added_tokens_decoder; here %s",
                  show(name, v->tokens[first].spelling, v->tokens[first].spelling_size),
                  TOOLS_LLU(first), n > 1 ? " and others are" : " is",
                  n > 1 ? "they are, too" : "it is, too");
}

/* Notes added tokens that are not special: Hugging Face's tokenizers find them in every text. */
TOOLS_FN void vocab_note_ordinary(attn_ctx *ctx, vocab *v)
{
    const vocab_token *first = NULL, *t;
    size_t n = 0;
    shown name;
    for (size_t i = 0; i < v->n_tokens; i++) {
        t = &v->tokens[i];
        if (t->special && t->said & (VOCAB_BEFORE | VOCAB_AFTER) && !(t->said & VOCAB_IS_SPECIAL)) {
            first = first ? first : t;
            n++;
        }
    }
    if (n)
        vocab_say(ctx, v,
                  "%llu added tokens are not special (\"%s\"%s); texts yield them, as special "
                  "ones, only with --special",
                  TOOLS_LLU(n), show(name, first->spelling, first->spelling_size),
                  n > 1 ? ", ..." : "");
}

/* Checks settings of transformers' tokenizer: refuses those that change ids, and notes those that a program
 * must apply itself. */
TOOLS_FN attn_status vocab_check_settings(attn_ctx *ctx, vocab *v, const vocab_files *f)
{
    static const char *const classes[] = {"GPT2Tokenizer", "GPT2TokenizerFast",
                                          "PreTrainedTokenizerFast", "TokenizersBackend"};
    static const char file[] = "tokenizer_config.json";
    const json_value *kind = vocab_class(f);
    size_t i;
    shown name;
    const json_value *split = vocab_only(json_get(f->whole, "pre_tokenizer"), "pretokenizers");
    v->adds_blank =
        vocab_is_on(vocab_is_gpt2(f) || !f->whole ? f->config : split, "add_prefix_space");
    if (vocab_has_normalizer(f->whole))
        vocab_say(ctx, v, "tokenizer.json's normalizer is ignored; change texts as it does");
    if (vocab_is_on(f->config, "do_lower_case"))
        return vocab_refuse(ctx, file, "do_lower_case is true",
                            "texts are written in small letters",
                            "do that yourself and set it to false");
    if (vocab_is_on(f->config, "add_eos_token"))
        return vocab_refuse(ctx, file, "add_eos_token is true",
                            "the end-of-text token is put behind texts",
                            "add its id yourself and set it to false");
    for (i = 0; kind && i < sizeof classes / sizeof classes[0] && !json_is(kind, classes[i]); i++)
        continue;
    if (i == sizeof classes / sizeof classes[0])
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: tokenizer_class is %s, which may have rules of its own; only "
                         "GPT2Tokenizer and PreTrainedTokenizerFast are known",
                         kind == json_get(f->config, "tokenizer_class") ? file : "config.json",
                         show(name, kind->text ? kind->text : "", kind->text ? kind->size : 0));
    if (json_get(json_get(f->config, "auto_map"), "AutoTokenizer"))
        return tool_fail(ctx, ATTN_E_UNSUPPORTED,
                         "%s: auto_map names a program as the tokenizer, "
                         "which attn-convert does not run",
                         file);
    if (vocab_is_on(f->config, "add_bos_token") && v->first < 0)
        v->first = v->bos >= 0 || f->whole ? v->bos : vocab_end_of_text(v);
    if (vocab_is_on(f->config, "clean_up_tokenization_spaces"))
        vocab_say(ctx, v,
                  "%s: clean_up_tokenization_spaces has transformers drop blanks before "
                  "punctuation when it decodes; attn.h gives a text back as it was",
                  file);
    return ctx->status;
}

/* Notes a chat template, which is a program in its own language that attn.h does not run. */
TOOLS_FN attn_status vocab_note_templates(attn_ctx *ctx, vocab *v, const vocab_files *f)
{
    static const char *const names[] = {"chat_template.jinja", "chat_template.json",
                                        "additional_chat_templates"};
    const char *where =
        vocab_is_off(json_get(f->config, "chat_template")) ? NULL : "tokenizer_config.json";
    char *path;
    for (size_t i = 0; !where && i < sizeof names / sizeof names[0]; i++) {
        if ((path = arena_path(ctx, v->memory, f->dir, names[i])) == NULL)
            return ctx->status;
        if (system_exists(path))
            where = names[i];
    }
    return vocab_note_around(ctx, v, where);
}

/* >> tokenizer.json beside vocab.json and merges.txt =========================================== */

TOOLS_FN attn_status vocab_compare_tokens(attn_ctx *ctx, vocab *v, const json_value *object)
{
    static const char advice[] = "keep the file that is right, and remove the other";
    const json_value *m;
    size_t i, other, none = 0;
    uint64_t id;
    shown name;
    if (vocab_count(ctx, "vocab.json", object, &none))
        return ctx->status;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): vocab_count refuses what is no object */
    for (i = 0, m = object + 1; i < object->size; i++, m += m->span) {
        if (!json_u64(m, &id)) /* cover: they were counted */
            continue;
        if (!names_find(&v->by_spelling, m->key, m->key_size, &other))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "the token \"%s\" has id %llu in vocab.json "
                             "and is not in tokenizer.json; %s",
                             show(name, m->key, m->key_size), TOOLS_LLU(id), advice);
        if (other != id)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "the token \"%s\" has id %llu in vocab.json and id %llu in %s; %s",
                             show(name, m->key, m->key_size), TOOLS_LLU(id), TOOLS_LLU(other),
                             v->tokens[other].file, advice);
        v->tokens[other].said |= VOCAB_IN_PAIR;
    }
    for (i = 0; i < v->n_tokens; i++)
        if (v->tokens[i].spelling && !v->tokens[i].special && !(v->tokens[i].said & VOCAB_IN_PAIR))
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "the token \"%s\" has id %llu in tokenizer.json "
                             "and is not in vocab.json; %s",
                             show(name, v->tokens[i].spelling, v->tokens[i].spelling_size),
                             TOOLS_LLU(i), advice);
    return ATTN_OK;
}

TOOLS_FN attn_status vocab_compare_merges(attn_ctx *ctx, const vocab *v, const char *text,
                                          size_t size)
{
    merge_lines m = merge_lines_of(text, size);
    const vocab_token *left, *right;
    size_t n = 0;
    shown a, b, c;
    for (; next_merge(&m); n++) {
        if (n == v->n_merges)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "merges.txt, line %llu is \"%s\", but tokenizer.json has only %llu "
                             "merges; keep the file that is right, and remove the other",
                             TOOLS_LLU(m.line), show(a, m.text, m.size), TOOLS_LLU(n));
        left = &v->tokens[v->merges[n][0]];
        right = &v->tokens[v->merges[n][1]];
        if (m.size != left->spelling_size + 1 + right->spelling_size ||
            memcmp(m.text, left->spelling, left->spelling_size) != 0 ||
            m.text[left->spelling_size] != ' ' ||
            memcmp(m.text + left->spelling_size + 1, right->spelling, right->spelling_size) != 0)
            return tool_fail(ctx, ATTN_E_FORMAT,
                             "merges.txt, line %llu is \"%s\", but merge %llu of tokenizer.json is "
                             "\"%s %s\"; remove the file that is wrong",
                             TOOLS_LLU(m.line), show(a, m.text, m.size), TOOLS_LLU(n),
                             show(b, left->spelling, left->spelling_size),
                             show(c, right->spelling, right->spelling_size));
    }
    if (n < v->n_merges)
        return tool_fail(ctx, ATTN_E_FORMAT,
                         "merges.txt has %llu merges, but tokenizer.json %llu; keep the file that "
                         "is right, and remove the other",
                         TOOLS_LLU(n), TOOLS_LLU(v->n_merges));
    return ATTN_OK;
}

/* What tokenizer.json says of bytes without a token. GPT-2's class of transformers does not read it. */
TOOLS_FN void vocab_read_unknown(vocab *v, const vocab_files *f)
{
    const json_value *model = json_get(f->whole, "model"), *token = json_get(model, "unk_token");
    size_t id;
    if (token && token->kind == JSON_STRING &&
        names_find(&v->by_spelling, token->text, token->size, &id))
        v->unknown = (int32_t)id;
    v->odd_rule = vocab_is_on(model, "byte_fallback")                 ? "byte_fallback"
                  : vocab_is_on(model, "fuse_unk") && v->unknown >= 0 ? "fuse_unk"
                                                                      : NULL;
}

/* The special tokens of a vocabulary of characters are those of more than one. */
TOOLS_FN void vocab_mark_characters(vocab *v)
{
    static const char *const unknown[] = {"<unk>", "[UNK]", "<UNK>", "<|unk|>"};
    size_t id;
    uint32_t code;
    for (size_t i = 0; i < v->n_tokens; i++) {
        vocab_token *const t = &v->tokens[i];
        if (t->spelling && utf8_length((const unsigned char *)t->spelling, t->spelling_size,
                                       &code) != t->spelling_size)
            t->special = 1;
    }
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0] && v->unknown < 0; i++)
        if (names_find(&v->by_spelling, unknown[i], strlen(unknown[i]), &id))
            v->unknown = (int32_t)id;
}

/* Reads the pair a piece at a time, for tokenizer.json takes memory already. */
TOOLS_FN attn_status vocab_compare_pair(attn_ctx *ctx, vocab *v, const char *dir)
{
    arena own = {NULL};
    char *path = arena_path(ctx, &own, dir, "vocab.json"), *text = NULL;
    json_value *root = NULL;
    size_t size = 0;
    if (path && system_exists(path) &&
        read_file(ctx, &own, path, VOCAB_MAX_FILE, &text, &size) == ATTN_OK &&
        json_parse(ctx, path, text, size, &root) == ATTN_OK)
        vocab_compare_tokens(ctx, v, root);
    free(root);
    arena_free(&own);
    path = ctx->status ? NULL : arena_path(ctx, &own, dir, "merges.txt");
    if (path && system_exists(path) &&
        read_file(ctx, &own, path, VOCAB_MAX_FILE, &text, &size) == ATTN_OK)
        vocab_compare_merges(ctx, v, text, size);
    arena_free(&own);
    return ctx->status;
}

/* >> Reading =================================================================================== */

/* Parses dir/name if it is there. */
TOOLS_FN attn_status vocab_parse(attn_ctx *ctx, arena *memory, const char *dir, const char *name,
                                 size_t limit, json_value **root)
{
    char *path = arena_path(ctx, memory, dir, name), *text = NULL;
    size_t size = 0;
    if (path && system_exists(path) && read_file(ctx, memory, path, limit, &text, &size) == ATTN_OK)
        json_parse(ctx, path, text, size, root);
    return ctx->status;
}

/* The file of a vocabulary of another kind in a directory; NULL: none, or no memory. */
TOOLS_FN const char *vocab_other_kind(attn_ctx *ctx, arena *memory, const char *dir)
{
    static const char *const others[] = {"spiece.model", "tokenizer.model",
                                         "sentencepiece.bpe.model", "vocab.txt"};
    const char *path;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if ((path = arena_path(ctx, memory, dir, others[i])) == NULL || system_exists(path))
            return path ? others[i] : NULL;
    return NULL;
}

/* Neither spelling of a vocabulary is there; another kind may be. */
TOOLS_FN attn_status vocab_none(attn_ctx *ctx, arena *memory, const char *dir)
{
    if (!system_is_directory(dir))
        return tool_fail(ctx, ATTN_E_IO, "there is no directory %s", dir);
    const char *other = vocab_other_kind(ctx, memory, dir);
    return tool_fail(ctx, ATTN_E_TOKENIZER,
                     "neither vocab.json with merges.txt nor tokenizer.json in %s%s%s%s", dir,
                     other ? "; " : "", other ? other : "", other ? " is of another kind" : "");
}

/* Whether a directory has a file of that name. */
TOOLS_FN int vocab_has(attn_ctx *ctx, arena *memory, const char *dir, const char *name)
{
    const char *path = arena_path(ctx, memory, dir, name);
    return path && system_exists(path);
}

/* Reads tokens and merges from a file each, under Hugging Face's names or OpenAI's. */
TOOLS_FN attn_status vocab_open_pair(attn_ctx *ctx, vocab_files *f, arena *memory, const char *dir)
{
    const int has_tokens =
        vocab_has(ctx, memory, dir, "vocab.json") || !vocab_has(ctx, memory, dir, "encoder.json");
    const int has_merges =
        vocab_has(ctx, memory, dir, "merges.txt") || !vocab_has(ctx, memory, dir, "vocab.bpe");
    FILE *file;
    f->pair_name = has_tokens ? "vocab.json" : "encoder.json";
    f->merges_name = has_merges ? "merges.txt" : "vocab.bpe";
    if (ctx->status)
        return ctx->status;
    if (!vocab_has(ctx, memory, dir, f->pair_name))
        return vocab_has(ctx, memory, dir, f->merges_name)
                   ? tool_fail(ctx, ATTN_E_IO, "there is a %s but no %s in %s", f->merges_name,
                               f->pair_name, dir)
                   : vocab_none(ctx, memory, dir);
    if (vocab_has(ctx, memory, dir, f->merges_name)) {
        const char *path = arena_path(ctx, memory, dir, f->merges_name);
        if (!path || (file = open_input(ctx, path)) == NULL)
            return ctx->status;
        read_all(ctx, memory, file, path, VOCAB_MAX_FILE, &f->merges, &f->merges_size);
        fclose(file);
    }
    if (ctx->status || vocab_parse(ctx, memory, dir, f->pair_name, VOCAB_MAX_FILE, &f->pair))
        return ctx->status;
    return f->merges || vocab_is_of_characters(f)
               ? ATTN_OK
               : tool_fail(ctx, ATTN_E_IO, "there is a %s but no %s in %s", f->pair_name,
                           f->merges_name, dir);
}

/* Parses what a directory holds; ATTN_E_TOKENIZER if there is no vocabulary. */
TOOLS_FN attn_status vocab_open(attn_ctx *ctx, vocab_files *f, arena *memory, const char *dir)
{
    memset(f, 0, sizeof *f);
    f->dir = dir;
    if (!vocab_has(ctx, memory, dir, "tokenizer.json") &&
        (ctx->status || vocab_open_pair(ctx, f, memory, dir)))
        return ctx->status;
    if (vocab_parse(ctx, memory, dir, "tokenizer.json", VOCAB_MAX_FILE, &f->whole) ||
        vocab_parse(ctx, memory, dir, "added_tokens.json", VOCAB_MAX_SETTINGS, &f->added) ||
        vocab_parse(ctx, memory, dir, "tokenizer_config.json", VOCAB_MAX_SETTINGS, &f->config) ||
        vocab_parse(ctx, memory, dir, "special_tokens_map.json", VOCAB_MAX_SETTINGS, &f->named))
        return ctx->status;
    return vocab_parse(ctx, memory, dir, "config.json", VOCAB_MAX_SETTINGS, &f->model);
}

TOOLS_FN void vocab_close(vocab_files *f) /* spellings point into the texts, not into the trees */
{
    free(f->whole);
    free(f->pair);
    free(f->added);
    free(f->config);
    free(f->named);
    free(f->model);
}

/* From the parsed files to tokens and merges. */
TOOLS_FN attn_status vocab_fill(attn_ctx *ctx, vocab *v, arena *memory, vocab_files *f)
{
    const char *file = f->whole ? "tokenizer.json" : f->pair_name;
    const json_value *model = json_get(f->whole, "model");
    const json_value *tokens = f->whole ? json_get(model, "vocab") : f->pair;
    const json_value *merges = json_get(model, "merges");
    size_t n_tokens = 0;
    if (f->whole && (!model || model->kind != JSON_OBJECT))
        return tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json has no object \"model\"");
    if (f->whole && (!merges || merges->kind != JSON_ARRAY))
        return tool_fail(ctx, ATTN_E_FORMAT, "tokenizer.json: its model has no list \"merges\"");
    if (vocab_count(ctx, file, tokens, &n_tokens) || (f->whole && vocab_check_rules(ctx, f)) ||
        vocab_add_files(ctx, NULL, f, &n_tokens) ||
        vocab_init(ctx, v, memory, file, n_tokens,
                   merges ? merges->size : count_lines(f->merges, f->merges_size)) ||
        vocab_add_all(ctx, v, tokens))
        return ctx->status;
    if (vocab_add_files(ctx, v, f, &n_tokens) || vocab_check_ids(ctx, v, tokens->size) ||
        vocab_name_files(ctx, v, f))
        return ctx->status;
    vocab_name_end(v, f);
    v->name = file;
    if (vocab_check_processor(ctx, v, json_get(f->whole, "post_processor"), 4) ||
        vocab_check_settings(ctx, v, f) || vocab_check_passes(ctx, v) ||
        vocab_note_templates(ctx, v, f))
        return ctx->status;
    vocab_note_ordinary(ctx, v);
    vocab_note_doubts(ctx, v, f);
    if (ctx->status)
        return ctx->status;
    vocab_read_unknown(v, f);
    v->characters = vocab_is_of_characters(f);
    if (v->characters)
        vocab_mark_characters(v);
    return f->whole ? vocab_merge_list(ctx, v, merges) : vocab_read_merges(ctx, v, f);
}

/* Reads the vocabulary of a directory. ATTN_E_TOKENIZER if it holds none. ctx->status must be
 * ATTN_OK before. */
TOOLS_FN attn_status vocab_load(attn_ctx *ctx, vocab *v, arena *memory, const char *dir,
                                int ignores_normalizer)
{
    vocab_files f;
    v->memory = memory;
    vocab_open(ctx, &f, memory, dir);
    f.ignores_normalizer = ignores_normalizer;
    if (ctx->status == ATTN_OK)
        vocab_fill(ctx, v, memory, &f);
    if (ctx->status == ATTN_OK && f.whole) {
        vocab_close(&f);
        memset(&f, 0, sizeof f);
        vocab_compare_pair(ctx, v, dir);
    }
    vocab_close(&f);
    return ctx->status ? ctx->status : vocab_finish(ctx, v);
}

/* The same as vocab_load, straight to a tokenizer section from malloc. `notes` may be NULL. */
TOOLS_FN attn_status vocab_read(attn_ctx *ctx, const char *dir, unsigned char **section,
                                size_t *size, FILE *notes)
{
    arena memory = {NULL};
    vocab v;
    attn_status before = ctx->status;
    memset(&v, 0, sizeof v);
    *section = NULL;
    ctx->status = ATTN_OK;
    attn_status status = vocab_load(ctx, &v, &memory, dir, 0);
    if (status == ATTN_OK)
        status = vocab_section(ctx, &v, v.n_tokens, section, size);
    if (status == ATTN_OK)
        ctx->status = before;
    if (status == ATTN_OK && notes)
        vocab_print_notes(&v, notes);
    arena_free(&memory);
    return status;
}

#endif
