/* The converter's readers of GGUF and of llm.c's files: what is refused with which message, keys and
 * tokens of every type. The files come from numpy (make_convert_fixtures.py). */
#include "tests/support/converting.h"

SUITE_WITH(NULL, forget);

/* >> Files of bytes that are none ============================================================== */

/* Overwrites one byte behind the first occurrence of a text. */
static void patch(unsigned char *bytes, size_t size, const char *after, size_t skip, unsigned byte)
{
    char *at = find_bytes((char *)bytes, size, after);
    if (CHECKF(at != NULL, "no %s", after))
        at[strlen(after) + skip] = (char)byte;
}

TEST(gguf_that_is_none)
{
    static const struct {
        const char *after;
        size_t skip;
        unsigned byte;
        const char *text;
    } cases[] = {
        {"GGUF", 0, 1, "GGUF of version 1; versions 2 and 3"},
        {"GGUF", 0, 0, "GGUF of version 0 or big-endian"},
        {"GGUF", 11, 0x7f, "as the size of its list of tensors is more than"},
        {"GGUF", 19, 0x7f, "as the size of its list of keys is more than"},
        {"general.architecture", 4 + 8, 'b', "its architecture is bpt2; only gpt2"},
        {"gpt2.block_count", 4, 3, "blk.2.attn_norm.weight is missing"},
        {"gpt2.block_count", 4, 1, "asks for the tensor blk.1."},
        {"gpt2.block_count", 0, 77, "the type of gpt2.block_count is 77"},
        {"gpt2.block_coun", 0, 'x', "has no key gpt2.block_count"},
        {"gpt2.attention.head_count", 4, 5, "gpt2.attention.head_count_kv differs from"},
        {"gpt2.context_length", 4, 17, "position_embd.weight is [16, 32], but its metadata asks"},
        {"general.alignment", 4, 0, "general.alignment is 0"},
        {"general.alignment", 7, 1, "general.alignment is 16777280"},
        {"gpt2.attention.head_count_kv", 4, 2, "as many heads for keys as for queries"},
        {"tokenizer.ggml.token_type", 16 + 4 * 298, 5, "merge 42"}, /* a token that is unused */
        {"tokenizer.ggml.merge", 0, 'x', "do not make a vocabulary"},
        {"tokenizer.ggml.tokens", 15, 0x7f, "as the size of tokenizer.ggml.tokens is more than"},
        {"tokenizer.ggml.pre", 4 + 8, 'G', "its tokenizer is \"Gpt-2\"; only gpt2's"},
        {"tokenizer.ggml.merges", 8 + 8 + 8, '!', "merge 0"},
        {"general.nam", 0, 'E', ""}, /* another name is fine */
        {"blk.0.attn_qkv.weight", 0, 9, "has 9 dimensions"},
        {"blk.0.attn_qkv.weight", 4, 64, "blk.0.attn_qkv.weight"},
        {"blk.0.attn_qkv.weight", 4, 33, "[96, 33] cannot be Q8_0, whose rows are blocks of 32"},
        {"blk.0.attn_qkv.weight", 20, 12, "[96, 32] cannot be Q4_K, whose rows are blocks of 256"},
        {"blk.0.attn_qkv.weight", 20, 22,
         "is of type IQ2_S; supported are F32, F16, BF16, F64, Q2"},
        {"blk.0.attn_qkv.weight", 20, 99, "is of type number 99"},
        {"blk.0.attn_qkv.weight", 24, 1, "does not fit"},
        {"blk.0.attn_qkv.weight", 27, 1, "does not fit"},
        {"blk.0.attn_norm.weight", 17, 0x10, "overlap"},
        {"blk.0.attn_norm.weigh", 0, 'T', "blk.0.attn_norm.weight is missing"},
        {"blk.0.attn_norm.weigh", 0, 0, "holds a zero byte"},
        {"blk.0.attn_norm.bia", 0, 'S', "blk.0.attn_norm.bias is missing"}};
    enum { N_NESTED = 200000 };
    static unsigned char nested[37 + 12 * N_NESTED];
    size_t size;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *bytes;
    char path[512], *at;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    if (!CHECK(whole && (bytes = (unsigned char *)malloc(size)) != NULL))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(bytes, whole, size);
        patch(bytes, size, cases[i].after, cases[i].skip, cases[i].byte);
        test_write(path, bytes, size);
        if (cases[i].text[0])
            refused(path, "", cases[i].text);
        else
            CHECK(run(TEST_BUILD "/attn-convert %s %s", path, test_tmp("x.attn")) == 0);
    }
    for (size_t i = 0; i < size; i += i < 24 ? 4 : 1 + size / 60) { /* cut anywhere */
        test_write(path, whole, i);
        refused(path, "", "");
    }
    memcpy(bytes, whole, size);
    at = find_bytes((char *)bytes, size, "tokenizer.ggml.eos_token_id");
    if (CHECK(at != NULL)) {
        memcpy(at, "tokenizer.ggml.bos", 18);
        test_write(path, bytes, size);
        refused(path, "", "the key tokenizer.ggml.bos_token_id appears twice");
    }
    memcpy(nested, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\11\0\0\0", 37);
    for (size_t i = 0; i < N_NESTED; i++)
        memcpy(nested + 37 + 12 * i, "\11\0\0\0\1\0\0\0\0\0\0\0", 12);
    test_write(path, nested, sizeof nested);
    refused(path, "", "a is arrays inside each other, more than 4 deep");
    memcpy(bytes, whole, size);
    patch(bytes, size, "GGUF", 0, 2); /* version 2 has the same layout */
    test_write(path, bytes, size);
    CHECK(run(TEST_BUILD "/attn-convert %s %s", path, test_tmp("x.attn")) == 0);
    free(whole);
    free(bytes);
}

/* Puts a key of any type in front of the keys of a GGUF file: `value` is what follows the type.
 * Another key, as long as it takes, has the tensors' data move by a multiple of its alignment. */
static unsigned char *with_key(const unsigned char *bytes, size_t *size, const char *key,
                               unsigned type, const char *value, size_t value_size)
{
    const size_t n = strlen(key), own = 8 + n + 4 + value_size, padding = 64 - (own + 13) % 64;
    const size_t added = own + 13 + padding;
    unsigned char *made = (unsigned char *)calloc(1, *size + added), *p = made + 24;
    if (!CHECK(made != NULL))
        return NULL;
    memcpy(made, bytes, 24);
    put_u64(made + 16, get_u64(bytes + 16) + 2);
    put_u64(p, n);
    memcpy(p + 8, key, n);
    put_u32(p + 8 + n, type);
    memcpy(p + 12 + n, value, value_size);
    p += own;
    put_u64(p, padding); /* 8 bytes, the name, 4 for the type, which is 0, and a byte */
    memset(p + 8, 'x', padding);
    memcpy(p + 13 + padding, bytes + 24, *size - 24);
    *size += added;
    return made;
}

/* Every type that a key can have, for keys that mean nothing here and for those that do. */
TEST(gguf_keys)
{
    static const struct {
        const char *without, *key; /* the former is renamed */
        unsigned type;
        const char *value;
        size_t size;
        const char *text; /* of the refusal, or "" */
    } cases[] = {
        {"", "u8", 0, "\377", 1, ""},
        {"", "i8", 1, "\377", 1, ""},
        {"", "u16", 2, "\377\377", 2, ""},
        {"", "i16", 3, "\377\377", 2, ""},
        {"", "u32", 4, "\377\377\377\377", 4, ""},
        {"", "i32", 5, "\377\377\377\377", 4, ""},
        {"", "f32", 6, "\377\377\377\377", 4, ""},
        {"", "bool", 7, "\1", 1, ""},
        {"", "string", 8, "\2\0\0\0\0\0\0\0ab", 10, ""},
        {"", "array", 9, "\1\0\0\0\2\0\0\0\0\0\0\0\1\377", 14, ""},
        {"", "u64", 10, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "i64", 11, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "f64", 12, "\377\377\377\377\377\377\377\377", 8, ""},
        {"", "beyond", 13, "", 0, "the type of beyond is 13, which GGUF does not have"},
        {"", "array", 9, "\15\0\0\0\1\0\0\0\0\0\0\0", 12, "array is an array of type 13"},
        {"gpt2.block_count", "gpt2.block_count", 0, "\2", 1, ""},
        {"gpt2.block_count", "gpt2.block_count", 11, "\2\0\0\0\0\0\0\0", 8, ""},
        {"gpt2.block_count", "gpt2.block_count", 5, "\376\377\377\377", 4, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 1, "\376", 1, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 6, "\0\0\0\100", 4, "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 12, "\0\0\0\0\0\0\0\100", 8,
         "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 8, "\1\0\0\0\0\0\0\0002", 9,
         "not a usable number"},
        {"gpt2.block_count", "gpt2.block_count", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "not a usable number"},
        {"gpt2.embedding_length", "", 0, "\0", 1, "has no key gpt2.embedding_length"},
        {"gpt2.feed_forward_length", "", 0, "\0", 1, "has no key gpt2.feed_forward_length"},
        {"gpt2.context_length", "", 0, "\0", 1, "has no key gpt2.context_length"},
        {"gpt2.attention.head_count\4", "", 0, "\0", 1, "has no key gpt2.attention.head_count"},
        {"gpt2.attention.head_count_kv", "", 0, "\0", 1, ""},
        {"gpt2.attention.head_count_kv", "gpt2.attention.head_count_kv", 6, "\0\0\0\100", 4,
         "differs from"},
        {"general.architecture", "", 0, "\0", 1, "its architecture is not given"},
        {"general.architecture", "general.architecture", 0, "\2", 1, "architecture is not given"},
        {"general.architecture", "general.architecture", 9,
         "\10\0\0\0\1\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0gpt2", 24, "architecture is not given"},
        {"general.architecture", "general.architecture", 8, "\4\0\0\0\0\0\0\0gptj", 12,
         "its architecture is gptj"},
        {"general.alignment", "general.alignment", 10, "\100\0\0\0\0\0\0\0", 8, ""},
        {"general.alignment", "general.alignment", 6, "\0\0\0\102", 4, "not a usable number"},
        {"layer_norm_epsilon", "", 0, "\0", 1, "no usable gpt2.attention.layer_norm_epsilon"},
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 12,
         "\361\150\343\210\265\370\344\076", 8, ""}, /* 1e-5 */
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 4, "\0\0\0\0", 4, "no usable"},
        {"layer_norm_epsilon", "gpt2.attention.layer_norm_epsilon", 9,
         "\6\0\0\0\1\0\0\0\0\0\0\0\0\0\0\75", 16, "no usable"},
        {"bos_token_id", "tokenizer.ggml.bos_token_id", 8, "\1\0\0\0\0\0\0\0002", 9,
         "bos_token_id is not a usable number"},
        {"eos_token_id", "tokenizer.ggml.eos_token_id", 6, "\0\0\0\100", 4,
         "eos_token_id is not a usable number"},
        {"tokenizer.ggml.model", "tokenizer.ggml.model", 8, "\5\0\0\0\0\0\0\0llama", 13,
         "its tokenizer is \"llama\""},
        {"tokenizer.ggml.model", "tokenizer.ggml.model", 0, "\0", 1, "its tokenizer is \"\""},
        {"tokenizer.ggml.model", "", 0, "\0", 1, ""}, /* then there is no tokenizer */
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\4\0\0\0\0\0\0\0gpt2", 12, ""},
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\7\0\0\0\0\0\0\0default", 15, ""},
        {"tokenizer.ggml.pre", "tokenizer.ggml.pre", 8, "\6\0\0\0\0\0\0\0llama3", 14,
         "its tokenizer is \"llama3\""},
        {"tokenizer.ggml.tokens", "", 0, "\0", 1, "do not make a vocabulary"},
        {"tokenizer.ggml.tokens", "tokenizer.ggml.tokens", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "do not make a vocabulary"},
        {"tokenizer.ggml.merges", "tokenizer.ggml.merges", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2", 13,
         "do not make a vocabulary"},
        {"tokenizer.ggml.token_type", "", 0, "\0", 1, ""},
        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", 0, "\1", 1, "do not make"},
        {"tokenizer.ggml.token_type", "tokenizer.ggml.token_type", 9, "\0\0\0\0\1\0\0\0\0\0\0\0\2",
         13, "do not make a vocabulary"}};
    size_t size, made_size;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *made;
    char path[512], *at;
    attn_model *model;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    for (size_t i = 0; whole && i < sizeof cases / sizeof cases[0]; i++) {
        const size_t n = strlen(cases[i].without);
        if (n) {
            at = find_bytes((char *)whole, size, cases[i].without);
            if (!CHECKF(at != NULL, "no %s", cases[i].without))
                continue;
            *at ^= 32; /* another key, for a moment */
        } else {
            at = NULL;
        }
        made_size = size;
        made =
            with_key(whole, &made_size, cases[i].key, cases[i].type, cases[i].value, cases[i].size);
        if (at)
            *at ^= 32;
        if (!made)
            break;
        test_write(path, made, made_size);
        free(made);
        if (cases[i].text[0]) {
            CHECKF(refused(path, "", cases[i].text), "%s of type %u", cases[i].key, cases[i].type);
        } else {
            model = converts_as("tiny.gguf", path);
            CHECKF(model && (attn_model_tokenizer(model) == NULL) ==
                                (strcmp(cases[i].without, "tokenizer.ggml.model") == 0),
                   "%s of type %u", cases[i].key, cases[i].type);
            attn_model_close(model);
        }
    }
    free(whole);
}

/* A part of a split model says which one it is, by the keys that llama-gguf-split writes. The other
 * keys stand in the first part alone. */
TEST(gguf_in_parts)
{
    size_t size;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *made;
    char path[512], part[2] = {0, 0}, expected[64], *at;
    snprintf(path, sizeof path, "%s", test_tmp("model-part.gguf"));
    unsigned char *counted = whole ? with_key(whole, &size, "split.count", 2, "\3\0", 2) : NULL;
    for (size_t number = 0; counted && number < 3; number++) {
        size_t made_size = size;
        part[0] = (char)number;
        made = with_key(counted, &made_size, "split.no", 2, part, 2);
        if (!made)
            break;
        at = find_bytes((char *)made, made_size, "general.architecture");
        if (number > 0 && CHECK(at != NULL))
            *at ^= 32;
        test_write(path, made, made_size);
        free(made);
        snprintf(expected, sizeof expected, "part.gguf is part %d of the 3 parts", (int)number + 1);
        refused(path, "", expected);
    }
    CHECK(strstr(err, "llama-gguf-split --merge"));
    free(counted);
    free(whole);
}

/* What a key says of the tokens around a text, or of conversations, is said; or refused. */
TEST(gguf_texts)
{
    static const struct {
        const char *key;
        unsigned type;
        const char *value, *options;
        size_t size;
        int code;
        const char *text; /* of a note or the refusal, or "" */
    } cases[] = {
        {"tokenizer.ggml.add_bos_token", 7, "\1", "", 1, 0,
         "note: texts shall begin with \"<|endoftext|>\" (id 299): give --bos"},
        {"tokenizer.ggml.add_bos_token", 7, "\0", "", 1, 0, ""},
        {"tokenizer.ggml.add_bos_token", 7, "\1", "--no-tokenizer", 1, 0, ""},
        {"tokenizer.ggml.add_eos_token", 7, "\1", "", 1, 1,
         "add_eos_token is true, so the end-of-text token is put behind texts"},
        {"tokenizer.ggml.add_eos_token", 7, "\1", "--tokenizer " FIXTURES "strings", 1, 0, ""},
        {"tokenizer.chat_template", 8, "\2\0\0\0\0\0\0\0{}", "", 10, 0,
         "note: variant.gguf has a chat template, which attn.h does not apply"}};
    size_t size, made_size, turn;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size), *made;
    const char *const path = test_text("%s", test_tmp("variant.gguf"));
    for (size_t i = 0; whole && i < 2 * sizeof cases / sizeof cases[0]; i++) {
        const char *bos = find_bytes((char *)whole, size, "bos_token_id");
        turn = i % 2; /* 1: the model has no bos id */
        if (turn && CHECK(bos))
            whole[bos - (char *)whole] ^= 32;
        made_size = size;
        made = with_key(whole, &made_size, cases[i / 2].key, cases[i / 2].type, cases[i / 2].value,
                        cases[i / 2].size);
        if (turn && bos)
            whole[bos - (char *)whole] ^= 32;
        if (!made)
            break;
        test_write(path, made, made_size);
        free(made);
        CHECKF(run("%s", test_text(TEST_BUILD "/attn-convert %s %s -q %s", path, test_tmp("x.attn"),
                                   cases[i / 2].options)) == cases[i / 2].code &&
                   strstr(err, cases[i / 2].text) && (err_size == 0) == !cases[i / 2].text[0],
               "%s: %s", cases[i / 2].key, err);
    }
    free(whole);
}

/* Types of tokens, and spellings that are not UTF-8, which JSON could not hold. */
TEST(gguf_tokens)
{
    size_t size;
    unsigned char *whole = test_read(FIXTURES "tiny.gguf", &size);
    char path[512], *tokens, *types, *last;
    attn_ctx ctx = ATTN_ZERO;
    attn_model *model;
    snprintf(path, sizeof path, "%s", test_tmp("variant.gguf"));
    if (!CHECK(whole && (tokens = find_bytes((char *)whole, size, "tokenizer.ggml.tokens")) &&
               (types = find_bytes((char *)whole, size, "tokenizer.ggml.token_type"))))
        return;
    for (size_t i = 1; i <= 6; i++) { /* "<|endoftext|>", id 299, as each type */
        int32_t ids[32];
        size_t n = 0;
        types[25 + 4 + 4 + 8 + 4 * 299] = (char)i;
        test_write(path, whole, size);
        model = converted(path, "");
        n = 32;
        if (CHECK(model && attn_model_tokenizer(model))) {
            OK(&ctx, attn_encode_special(&ctx, ids, &n, attn_model_tokenizer(model),
                                         "<|endoftext|>", 13));
            CHECKF((n == 1 && ids[0] == 299) == (i != 5), "type %d", (int)i); /* 5: unused */
        }
        attn_model_close(model);
        attn_ctx_free(&ctx);
    }
    types[25 + 4 + 4 + 8 + 4 * 299] = 3;
    tokens[21 + 4 + 4 + 8 + 8] = (char)0xc3; /* "!", id 0 */
    test_write(path, whole, size);
    refused(path, "", "(\"\xc3\") has a character that is none of GPT-2's stand-ins");
    tokens[21 + 4 + 4 + 8 + 8] = '!';
    char *zero =
        tokens + 21 + 4 + 4 + 8; /* U+0100 stands for the byte 0 and comes behind 188 others */
    for (size_t i = 0; i < 188; i++)
        zero += 8 + get_u64((unsigned char *)zero);
    if (CHECK(memcmp(zero + 8, "\xc4\x80", 2) == 0)) {
        zero[9] = 'A';
        test_write(path, whole, size);
        refused(path, "", "has a character that is none of GPT-2's stand-ins");
        zero[9] = (char)0x80;
    }
    char *next = (char *)whole;
    do { /* the last entry of the list of tensors is whole, and nothing follows */
        last = next;
        next = find_bytes(last + 1, size - (size_t)(last + 1 - (char *)whole), "output.weight");
    } while (next);
    test_write(path, whole, (size_t)(last - (char *)whole) + 13 + 4 + 16 + 4 + 8);
    refused(path, "", "does not fit in the 0 bytes there; was the file cut short?");
    free(whole);
    attn_model_close(converted(FIXTURES "tiny.gguf", "--tokenizer " FIXTURES "strings"));
}

TEST(llmc_that_is_none)
{
    static const struct {
        size_t word;
        uint32_t value;
        const char *text;
    } cases[] = {{0, 20240327, "is neither a GGUF file, nor a checkpoint of PyTorch"},
                 {1, 1, "of version 1; versions 3 (f32) and 5 (bf16)"},
                 {1, 5, "but its header asks for"},
                 {2, 9, "but its header asks for"},
                 {3, 385, "385 tokens is padded to only 384"},
                 {4, 0, "number 4 of its header is 0"},
                 {4, 65537, "number 4 of its header is 65537, which cannot be"},
                 {4, 65536, "but its header asks for"},
                 {4, 3, "but its header asks for"},
                 {5, 3, "3 heads share a width of 16"},
                 {6, 0x7fffffff, "which cannot be"},
                 {6, 0x1000000, "more weights than any file can hold"},
                 {7, 0, "comes from an early llm.c"}};
    size_t size;
    unsigned char *whole = test_read(FIXTURES "v3.bin", &size), *bytes;
    const char *const path = test_text("%s", test_tmp("variant.bin"));
    if (!CHECK(whole && (bytes = (unsigned char *)malloc(size)) != NULL))
        return;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        memcpy(bytes, whole, size);
        put_u32(bytes + 4 * cases[i].word, cases[i].value);
        if (cases[i].value == 0x1000000)
            put_u32(bytes + 16, 65536);
        test_write(path, bytes, size);
        refused(path, "", cases[i].text);
    }
    for (size_t i = 0; i < size; i += i < 8 ? 1 : 1 + size / 12) {
        test_write(path, whole, i);
        refused(path, "",
                i == 0     ? "is empty"
                : i < 4    ? "is neither"
                : i < 1024 ? "cut short"
                           : "header asks for");
    }
    free(whole);
    free(bytes);
}

/* GPT-2's vocabulary, which is all that llm.c knows, and one that was not padded. */
TEST(llmc_vocabularies)
{
    static const uint32_t header[8] = {20240326, 3, 8, 50257, 1, 2, 16, 50304};
    unsigned char bytes[1024] = {0}, *whole;
    size_t size;
    for (size_t i = 0; i < 8; i++)
        put_u32(bytes + 4 * i, header[i]);
    const char *const path = test_text("%s", test_tmp("variant.bin"));
    test_write(path, bytes, sizeof bytes);
    CHECK(truncate(path, 1024 + 4 * (12 * 16 * 16 + 13 * 16 + (50304 + 8 + 2) * 16)) == 0);
    attn_model *model = converted(path, "");
    CHECK(model && attn_model_config(model)->bos == 50256 &&
          attn_model_config(model)->eos == 50256);
    attn_model_close(model);
    if (CHECK((whole = test_read(FIXTURES "v3.bin", &size)) != NULL)) {
        put_u32(whole + 12, 384);
        test_write(path, whole, size);
        model = converted(path, "");
        CHECK(model && attn_model_config(model)->n_vocab == 384);
        attn_model_close(model);
        model = converted(path, "--tokenizer " FIXTURES "strings"); /* which has 300 */
        CHECK(model && attn_tokenizer_n_tokens(attn_model_tokenizer(model)) == 384);
        attn_model_close(model);
    }
    free(whole);
}
