/* Receipts, the contract and what stands on equal bits: another person's implementation, and zip. */
#include "tests/support/test.h"
#include "tools/receipt/verify.h"
#include "tools/write/writer.h"
#include "tests/support/fixture.h"
#include "tests/support/command.h"
#include "tests/support/contract_vectors.h"

SUITE_WITH(NULL, forget);

#define GPT2   TEST_BUILD "/gpt2 "
#define VERIFY TEST_BUILD "/attn-verify "
#define ZIP    TEST_BUILD "/zip "
#define MODEL  TEST_BUILD "/tiny-stories.attn "

/* >> SHA-256 =================================================================================== */

static void hash(char *hex, const void *bytes, size_t size, int fast, size_t piece)
{
    unsigned char digest[SHA256_SIZE];
    sha256 h;
    size_t n;
    sha256_begin(&h);
    h.fast = h.fast && fast;
    for (size_t i = 0; i < size; i += n) {
        n = size - i < piece ? size - i : piece;
        sha256_add(&h, (const char *)bytes + i, n);
    }
    sha256_end(&h, digest);
    sha256_hex(hex, digest, SHA256_SIZE);
}

/* The examples of FIPS 180-4 and of NIST's SHAVS byte-oriented tests, by the processor's instructions
 * and by plain C. */
TEST(sha256_vectors)
{
    static const struct {
        const char *message, *digest;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrl"
         "mno"
         "pqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
        {"\xd3", "28969cdfa74a12c82f3bad960b0b000aca2ac329deea5c2328ebc6f2ba9802c1"},
        {"\x11\xaf", "5ca7133fa735326081558ac312c620eeca9970d1e70a4b95533d956f072d1f98"},
    };
    char hex[SHA256_HEX], *million = (char *)malloc(1000000);
    for (int fast = 0; fast < 2; fast++) {
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
            hash(hex, vectors[i].message, strlen(vectors[i].message), fast, SIZE_MAX);
            CHECKF(strcmp(hex, vectors[i].digest) == 0, "\"%s\": %s", vectors[i].message, hex);
        }
        memset(million, 'a', 1000000);
        for (size_t i = 1; i < 200; i += 31) { /* in pieces of any size */
            hash(hex, million, 1000000, fast, i == 1 ? SIZE_MAX : i);
            CHECKF(strcmp(hex,
                          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0") == 0,
                   "a million a, %d: %s", (int)i, hex);
        }
    }
    free(million);
}

/* Two texts at once have the digests that plain C gives to each. */
TEST(sha256_of_two_texts)
{
    static const size_t sizes[] = {0, 1, 55, 56, 64, 119, 128, 5000};
    unsigned char text[5064], digests[2 * SHA256_SIZE];
    char plain[SHA256_HEX], hex[SHA256_HEX];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(i * 40503 >> 8 & 255);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        sha256_of_two(digests, text, text + 64, sizes[i]);
        for (size_t j = 0; j < 2; j++) {
            hash(plain, (const char *)text + 64 * j, sizes[i], 0, SIZE_MAX);
            sha256_hex(hex, digests + j * SHA256_SIZE, SHA256_SIZE);
            CHECKF(strcmp(hex, plain) == 0, "text %d of %d bytes: %s", (int)j, (int)sizes[i], hex);
        }
    }
}

/* >> Receipts of texts ========================================================================= */

static const char *const ways[] = {
    "Once -n 12",
    "'Once upon' -n 30 --temperature 0.8 --top-k 40 --seed 7",
    "Once -n 9 --temperature 1.2 --seed 18446744073709551615",
    "'The cat' -n 12 --temperature 1 --top-p 0.9 --min-p 0.02 --repeat-penalty 1.3 --repeat-last 8",
    "'Once upon a time' -n 90 --temperature 0.7 --stop . --stop '\" she'",
    "--bos -n 250 --seed 3 --temperature 0.6",
    "--ids \"$(yes 11 | head -n 250)\" -n 20 --ignore-eos",
    "'One day' -n 11 --f16-cache",
    "Once -n 0",
};
enum { N_WAYS = sizeof ways / sizeof ways[0], FULL_CONTEXT = 6 };

static int make(const char *way, const char *more)
{
    return CHECKF(run(GPT2 MODEL "%s %s -q --receipt %s", way, more, test_tmp("made")) == 0,
                  "%s: %s", way, err);
}

TEST(texts_hold)
{
    for (size_t i = 0; i < N_WAYS; i++)
        if (make(ways[i], "")) {
            CHECKF(run(VERIFY MODEL "%s", test_tmp("made")) == 0 && strstr(out, ": holds: "),
                   "%s: %s%s", ways[i], out, err);
        }
}

/* Any kernels and any number of threads make the same receipt, byte for byte. Plain C is slow: it makes
 * those of short texts. */
TEST(same_receipts)
{
    static const char *const more[] = {"-t 1", "-t 3", "--isa base", "--isa portable"};
    char first[512];
    for (size_t i = 0; i < N_WAYS; i += 3) {
        const size_t n_more = sizeof more / sizeof more[0] - (i == FULL_CONTEXT);
        if (!make(ways[i], "-t 2"))
            continue;
        snprintf(first, sizeof first, "%s", test_tmp("first"));
        if (!CHECK(rename(test_tmp("made"), first) == 0))
            return;
        for (size_t j = 0; j < n_more; j++) {
            if (run(GPT2 MODEL "%s %s -q --receipt %s", ways[i], more[j], test_tmp("made")) == 2 &&
                strstr(err, "does not compute a receipt's bits"))
                continue; /* kernels without a fused multiply-add */
            CHECKF(test_same_file(first, test_tmp("made")), "%s %s: another receipt", ways[i],
                   more[j]);
        }
        CHECKF(run(VERIFY MODEL "%s %s -t 1", first, n_more > 3 ? more[3] : "") == 0, "%s%s", out,
               err);
    }
}

/* A copy of the receipt in which `from` became `to`. */
static int change(const char *from, const char *to)
{
    size_t size;
    char *text = (char *)test_read(test_tmp("made"), &size);
    char *at = text ? strstr(text, from) : NULL;
    if (!CHECKF(at != NULL, "no %s in %s", from, text)) {
        free(text);
        return 0;
    }
    char *changed = (char *)malloc(size + strlen(to) + 1);
    memcpy(changed, text, (size_t)(at - text));
    strcpy(changed + (at - text), to);
    strcat(changed, at + strlen(from));
    test_write(test_tmp("changed"), changed, strlen(changed));
    free(changed);
    free(text);
    return 1;
}

/* Puts the SHA-256 of the changed receipt into it. */
static void seal(void)
{
    static const char before[] = ", \"sha256\": \"";
    char hex[2 * SHA256_SIZE + 1];
    unsigned char digest[SHA256_SIZE];
    size_t size;
    SCOPED_TEXT const text = (char *)test_read(test_tmp("changed"), &size);
    char *const end = text ? strstr(text, before) : NULL;
    if (CHECK(end != NULL)) {
        sha256_of(digest, text, (size_t)(end - text));
        sha256_hex(hex, digest, SHA256_SIZE);
        memcpy(end + strlen(before), hex, strlen(hex));
        test_write(test_tmp("changed"), text, size);
    }
}

static void notices(int code, const char *from, const char *to, const char *text)
{
    if (!change(from, to))
        return;
    int got = run(VERIFY MODEL "%s", test_tmp("changed"));
    CHECKF(got == code && strstr(code == 1 ? out : err, text), "%s to %s: code %d, %s%s", from, to,
           got, out, err);
}

/* The same, for the hexadecimal digit after `before`. */
static void flips(const char *before, const char *text)
{
    size_t size;
    SCOPED_TEXT whole = (char *)test_read(test_tmp("made"), &size);
    const char *at = whole ? strstr(whole, before) : NULL;
    if (CHECKF(at != NULL, "no %s", before)) {
        const char digit = at[strlen(before)];
        notices(1, test_text("%s%c", before, digit),
                test_text("%s%c", before, digit == '0' ? '1' : '0'), text);
    }
}

TEST(every_field)
{
    if (!make("'Once upon' -n 12 --temperature 0.8 --top-k 40 --top-p 0.95 --min-p 0.01 --seed 7 "
              "--repeat-penalty 1.1 --repeat-last 30 --stop zebra",
              ""))
        return;
    notices(2, "\"receipt\": 3", "\"receipt\": 5", "is a receipt of version 5");
    notices(2, "\"receipt\": 3", "\"receipt\": 2", "\"kind\""); /* which has no name */
    notices(1, "\"name\": \"tiny", "\"name\": \"Tiny", "except its own digest");
    notices(1, "\"name\": \"tiny-stories\"", "\"name\": null", "except its own digest");
    notices(2, "\"name\": \"tiny-stories\"", "\"name\": 7", "\"name\"");
    notices(2, "\"name\": \"tiny-stories\"", "\"name\": \"\"", "\"name\"");
    notices(2, "\"name\": \"tiny", "\"name\": \"\\u001btiny", "\"name\"");
    notices(2, "\"checkpoint\": \"", "\"checkpoint\": \"\\u0000", "\"checkpoint\"");
    flips("\"checkpoint\": \"", "except its own digest");
    notices(2, "\"contract\": 1", "\"contract\": 2", "\"contract\"");
    notices(2, "\"kind\": \"text\"", "\"kind\": \"score\"", "\"losses\"");
    notices(2, "\"kind\": \"text\"", "\"sort\": \"text\"", "\"kind\"");
    flips("\"model\": \"", "another model");
    flips("\"links\": [\"", "position ");
    flips("\"chain\": \"", "the end of the chain");
    flips("\"sha256\": \"", "except its own digest");
    notices(1, "\"dtype\": \"f16\"", "\"dtype\": \"q8\"", "the model's type is q8 in the receipt");
    notices(1, "\"cache\": \"f32\"", "\"cache\": \"f16\"", "position ");
    notices(1, "\"temperature\": 0.8", "\"temperature\": 0.9", "differs: ");
    notices(1, "\"top_k\": 40", "\"top_k\": 41", "differs: ");
    notices(1, "\"top_p\": 0.9", "\"top_p\": 0.8", "differs: ");
    notices(1, "\"min_p\": 0.0", "\"min_p\": 0.2", "differs: ");
    notices(1, "\"repeat_penalty\": 1.1", "\"repeat_penalty\": 1.2", "differs: ");
    notices(1, "\"repeat_last\": 30", "\"repeat_last\": 31", "differs: ");
    notices(1, "\"seed\": \"7\"", "\"seed\": \"8\"", "position ");
    notices(1, "\"max_tokens\": 12", "\"max_tokens\": 13",
            "12 tokens were generated, not max_tokens = 13");
    notices(1, "\"ignore_eos\": false", "\"ignore_eos\": true", "differs: ");
    notices(1, "\"eos\": ", "\"eos\": 1", "the end-of-text token is 1");
    notices(1, "[\"zebra\"]", "[]", "differs: ");
    notices(1, "\"prompt\": [", "\"prompt\": [5, ", "position ");
    notices(1, "\"ended\": \"token count\"", "\"ended\": \"stop string\"",
            "does not end with a stop string");
    notices(1, "\"ended\": \"token count\"", "\"ended\": \"context full\"",
            "max_tokens = 12 is reached there");
    notices(1, "\"ended\": \"token count\"", "\"ended\": \"end of text\"",
            "there are 12 links for 13 draws");
    notices(1, "\"ids\": [", "\"ids\": [5, ", "there are 12 links for 13 draws");
    notices(1, "\"links\": [\"", "\"links\": [\"0000000000000000\", \"",
            "there are 13 links for 12 draws");
    notices(1, "\"], \"chain\": \"", "\", \"0000000000000000\"], \"chain\": \"", "13 links");
    notices(2, "\"chain\": \"", "\"chain\": \"0", "\"chain\"");
    notices(2, "\"sha256\": \"", "\"sha256\": \"0", "\"sha256\"");
    notices(2, "\"sha256\"", "\"sha257\"", "\"sha256\"");
}

/* >> In memory ================================================================================= */

/* The text of the last receipt that was made, for free(). */
static char *made_text(size_t *size)
{
    return (char *)test_read(test_tmp("made"), size);
}

static receipt_verdict judge(attn_model *model, const receipt *r, receipt_findings *found)
{
    static receipt_identity identity;
    attn_ctx ctx = {.n_threads = 1};
    if (!identity.digest[0][0])
        OK(&ctx, receipt_model_digest(&ctx, &identity, model, TEST_BUILD "/tiny-stories.attn"));
    return receipt_verify(&ctx, found, model, r, &identity);
}

/* A token, a link and the end of the chain that somebody changed, with a digest that fits again. */
TEST(forged)
{
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    arena memory = {NULL};
    receipt r;
    receipt_findings found;
    receipt_text text;
    int is_whole = 0;
    if (!make("'Once upon' -n 12 --temperature 0.8 --seed 7", "") ||
        !OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    text.bytes = made_text(&text.size);
    OK(&ctx, receipt_parse(&ctx, &r, &is_whole, &memory, "made", text));
    CHECK(is_whole && judge(model, &r, &found) == RECEIPT_HOLDS);
    r.text.ids[5] ^= 1;
    CHECKF(judge(model, &r, &found) == RECEIPT_DIFFERS &&
               strstr(found.text, "(generated token 6): the receipt has token "),
           "%s", found.text);
    r.text.ids[5] ^= 1;
    r.links[7 * RECEIPT_LINK + 2] ^= 1;
    CHECKF(
        judge(model, &r, &found) == RECEIPT_DIFFERS &&
            strstr(found.text, "(generated token 8): the same token, but the bits of its logits"),
        "%s", found.text);
    r.links[7 * RECEIPT_LINK + 2] ^= 1;
    r.chain[31] ^= 1;
    CHECKF(judge(model, &r, &found) == RECEIPT_DIFFERS &&
               strstr(found.text, "the end of the chain"),
           "%s", found.text);
    r.chain[31] ^= 1;
    r.text.prompt[0] = INT32_MAX;
    CHECKF(judge(model, &r, &found) == RECEIPT_DIFFERS &&
               strstr(found.text, "position 0: there is no"),
           "%s", found.text);
    free(text.bytes);
    arena_free(&memory);
}

/* Does a receipt of a text with these settings have them, or is it refused? */
static int keeps_settings(const attn_sampler_desc *settings)
{
    static char model[] = "0000000000000000000000000000000000000000000000000000000000000000";
    attn_token prompt = 1;
    attn_ctx ctx = {0};
    arena memory = {NULL};
    json_out o = {NULL, 0, 0, 0, 0};
    char seal[SHA256_HEX];
    receipt_text text;
    int is_whole;
    receipt r = {.version = 2};
    memcpy(r.model, model, sizeof r.model);
    r.text.sampling = *settings;
    r.text.prompt = &prompt;
    r.text.n_prompt = 1;
    r.text.ended = ATTN_STOP_COUNT;
    receipt_out(&o, seal, &r);
    out_bytes(&o, "", 1);
    text.bytes = o.text;
    text.size = o.size - 1;
    int kept = receipt_parse(&ctx, &r, &is_whole, &memory, "settings", text) != ATTN_OK ||
               memcmp(&r.text.sampling, settings, sizeof *settings) == 0;
    out_free(&o);
    arena_free(&memory);
    return kept;
}

/* Of each setting that attn.h declares, or the receipt would say that other settings made the text. */
TEST(every_setting)
{
    static const struct {
        const char *name;
        size_t size;
    } types[] = {{"float", sizeof(float)},
                 {"int", sizeof(int)},
                 {"uint32_t", sizeof(uint32_t)},
                 {"size_t", sizeof(size_t)},
                 {"uint64_t", sizeof(uint64_t)}};
    enum { N_TYPES = sizeof types / sizeof types[0] };
    const float half = 0.5f;
    size_t size, at = 0, n = 0, i;
    char *const header = (char *)test_read("attn.h", &size), *line, type[32], name[32], end[2];
    for (line = header ? strstr(header, "typedef struct attn_sampler_desc {") : NULL;
         line && *line != '}'; line = strchr(line, '\n') + 1) {
        attn_sampler_desc desc = {0};
        if (sscanf(line, " %31[a-z0-9_] %31[a-z0-9_]%1[;]", type, name, end) != 3)
            continue;
        for (i = 0; i < N_TYPES && strcmp(types[i].name, type) != 0; i++)
            ;
        if (!CHECKF(i < N_TYPES, "%s: teach this case the type %s", name, type))
            break;
        at = (at + types[i].size - 1) / types[i].size * types[i].size;
        if (i == 0)
            memcpy((char *)&desc + at, &half, sizeof half);
        else /* 1, or a very large number if the highest byte is the first */
            ((char *)&desc)[at] = 1;
        at += types[i].size;
        n++;
        CHECKF(strcmp(name, "unused") == 0 || keeps_settings(&desc),
               "a receipt forgets the setting %s", name);
    }
    CHECKF(n >= 7 && (at + 7) / 8 * 8 == offsetof(attn_sampler_desc, reserved),
           "%d settings were found, up to byte %d", (int)n, (int)at);
    free(header);
}

/* Judges the receipt of `way` after its ending was changed. max_tokens 0: as many as it has. */
static void judge_ending(const char *way, size_t max_tokens, attn_stop_reason ended,
                         receipt_verdict expected, const char *text)
{
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    arena memory = {NULL};
    receipt_findings found = {{0}};
    receipt_text made;
    receipt r;
    int is_whole = 0;
    if (!make(way, "") ||
        !OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    made.bytes = made_text(&made.size);
    OK(&ctx, receipt_parse(&ctx, &r, &is_whole, &memory, "made", made));
    r.text.max_tokens = max_tokens ? max_tokens : r.text.n_ids;
    r.text.ended = ended;
    CHECKF(judge(model, &r, &found) == expected && strstr(found.text, text), "%s, %s: %s", way,
           attn_stop_reason_name(ended), found.text);
    free(made.bytes);
    arena_free(&memory);
}

/* Tokens and links are right, but no run with these settings ends so. */
TEST(untrue_endings)
{
    static const char ends[] = "'Once upon a time' -n 250 --temperature 0.3 --seed 3";
    static const char stops[] = "Once -n 30 --stop .";
    judge_ending(ends, 250, ATTN_STOP_EOS, RECEIPT_HOLDS, "");
    judge_ending(ends, 0, ATTN_STOP_EOS, RECEIPT_DIFFERS,
                 " is reached there, so the text ends by \"token count\", not by \"end of text\"");
    judge_ending(ways[FULL_CONTEXT], 20, ATTN_STOP_CONTEXT, RECEIPT_HOLDS, "");
    judge_ending(ways[FULL_CONTEXT], 0, ATTN_STOP_COUNT, RECEIPT_HOLDS, "");
    judge_ending(ways[FULL_CONTEXT], 0, ATTN_STOP_CONTEXT, RECEIPT_DIFFERS,
                 "max_tokens = 7 is reached there");
    judge_ending("Once -n 2", 3, ATTN_STOP_CONTEXT, RECEIPT_DIFFERS, "is not full there");
    judge_ending(stops, 30, ATTN_STOP_STRING, RECEIPT_HOLDS, "");
    judge_ending(stops, 0, ATTN_STOP_STRING, RECEIPT_HOLDS, "");
    judge_ending(stops, 0, ATTN_STOP_COUNT, RECEIPT_DIFFERS, "a stop string is complete there");
}

/* A prompt that does not fit, and settings that no sampler takes, of texts without a token. */
TEST(untrue_without_tokens)
{
    int32_t prompt[257] = {0};
    receipt_findings found = {{0}};
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    receipt_identity identity;
    receipt r = ATTN_ZERO;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    OK(&ctx, receipt_model_digest(&ctx, &identity, model, TEST_BUILD "/tiny-stories.attn"));
    receipt_of_model(&r, &identity);
    r.eos = attn_model_config(model)->eos;
    r.text.prompt = prompt;
    r.text.n_prompt = 256;
    r.text.ended = ATTN_STOP_COUNT;
    CHECKF(judge(model, &r, &found) == RECEIPT_HOLDS, "%s", found.text);
    r.text.n_prompt = 257;
    CHECKF(judge(model, &r, &found) == RECEIPT_DIFFERS && strstr(found.text, "longer than"), "%s",
           found.text);
    r.text.n_prompt = 256;
    r.text.sampling.temperature = -1;
    CHECK(judge(model, &r, &found) == RECEIPT_FAILED);
}

static uint32_t noise(uint32_t most)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % most;
}

/* Damages a text in one of several ways; its new size. There is room for 64 bytes more. */
static size_t damage(char *text, size_t size)
{
    static const char inserts[] = "0123456789-[]{}\",:.eE truefalsn\\u\x80\xff";
    const size_t at = noise((uint32_t)size), n = 1 + noise(20);
    size_t run_size = size - at < n ? size - at : n;
    switch (noise(5)) {
    case 0:
        text[at] = (char)(text[at] ^ 1 << noise(8));
        return size;
    case 1:
        text[at] = inserts[noise(sizeof inserts - 1)];
        return size;
    case 2: /* cut off */
        return at;
    case 3: /* a piece is missing */
        memmove(text + at, text + at + run_size, size - at - run_size);
        return size - run_size;
    default: /* a piece is too many */
        memmove(text + at + n, text + at, size - at);
        for (size_t i = 0; i < n; i++)
            text[at + i] = inserts[noise(sizeof inserts - 1)];
        return size + n;
    }
}

/* Receipts of kinds that the first releases wrote. */
static const char old_score[] =
    "{\"receipt\": 3, \"contract\": 1, \"kind\": \"score\", \"model\": "
    "\"08231060826dc9aafa93657f67b9ba1409ebd53253b5ca0841f8c52e7e8eceb2\", "
    "\"name\": \"tiny-stories\", \"checkpoint\": "
    "\"02db24c47c5f728254c911c0592ecd508ec1074fa4dc8361fc0f2fb417a8c36d\", "
    "\"dtype\": \"f16\", \"cache\": \"f32\", \"ids\": [506, 511, 258, 433], \"losses\": "
    "[0.741870522, 0.00861617643, 0.0376196988], \"links\": "
    "[\"64d64e282c5a20d5\", \"86ba489b8646263a\", \"6f767dd53b7d4890\"], \"chain\": "
    "\"6f767dd53b7d48900e4098cd5a6da9ba0cd305f0fda53da01fc198e0b7c389a0\", "
    "\"sha256\": "
    "\"aaaa30554cf43b56c8e6baff6a2ea88a40cf1200cc73b9db237881fed165fe25\"}";
static const char old_activations[] =
    "{\"receipt\": 3, \"contract\": 1, \"kind\": \"activations\", \"model\": "
    "\"08231060826dc9aafa93657f67b9ba1409ebd53253b5ca0841f8c52e7e8eceb2\", "
    "\"name\": \"tiny-stories\", \"checkpoint\": "
    "\"02db24c47c5f728254c911c0592ecd508ec1074fa4dc8361fc0f2fb417a8c36d\", "
    "\"dtype\": \"f16\", \"cache\": \"f32\", \"ids\": [506, 511], \"activations\": "
    "[{\"name\": \"hook_embed\", \"shape\": [2, 192], \"sha256\": "
    "\"2b882bfa5899da0f34ffe0e08719b4d1d5463ed49011f216f57f26814f1a8e9d\"}], "
    "\"sha256\": "
    "\"103d001500f6120113494bb9ae4974d48c79d0fcec9fa064a60eb8a9e0158ac2\"}";

/* None is taken for whole unless it says the same, and none takes long. */
TEST(damaged)
{
    static const char *const old[] = {old_score, old_activations};
    const int most = TEST_SANITIZED ? 300 : 3400;
    attn_ctx ctx = {0};
    SCOPED_MODEL model = NULL;
    receipt_findings found;
    receipt r;
    int is_whole, n_read = 0;
    if (!OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)))
        return;
    for (int kind = 0; kind < 4; kind++) {
        size_t size;
        char seal[SHA256_HEX];
        if (kind > 1)
            test_write(test_tmp("made"), old[kind - 2], strlen(old[kind - 2]));
        else if (kind == 1 ? run(TEST_BUILD "/lens " MODEL "loss Once --bos --receipt %s",
                                 test_tmp("made")) != 0
                           : !make("Once -n 6 --temperature 0.9 --stop zebra", ""))
            return;
        SCOPED_TEXT whole = made_text(&size);
        SCOPED_TEXT copy = (char *)malloc(size + 65);
        for (int i = 0; i < most; i++) {
            arena memory = {NULL};
            receipt_text text = {copy, 0};
            json_out again = {NULL, 0, 0, 0, 0};
            memcpy(copy, whole, size);
            text.size = damage(copy, size);
            copy[text.size] = 0;
            if (receipt_parse(&ctx, &r, &is_whole, &memory, "damaged", text) == ATTN_OK) {
                n_read++;
                receipt_out(&again, seal, &r);
                CHECKF(!is_whole || (again.size <= size && !memcmp(again.text, whole, again.size)),
                       "taken for whole: %.*s", (int)again.size, again.text);
                if (!is_whole && n_read % 16 == 0)
                    judge(model, &r, &found);
            } else {
                CHECK(ctx.message[0]);
            }
            out_free(&again);
            arena_free(&memory);
        }
    }
    CHECKF(n_read > most / 20, "%d of %d could be read", n_read, 4 * most);
}

/* >> Scores, activations, models =============================================================== */

TEST(scores_and_activations)
{
    test_write(test_tmp("made"), old_score, sizeof old_score - 1);
    CHECKF(run(VERIFY MODEL "%s --isa portable", test_tmp("made")) == 0 &&
               strstr(out, "holds: the losses of 3 tokens"),
           "%s%s", out, err);
    notices(1, "\"losses\": [", "\"losses\": [1", "position 1: the loss of token ");
    test_write(test_tmp("made"), old_activations, sizeof old_activations - 1);
    CHECKF(run(VERIFY MODEL "%s -t 1 --isa portable", test_tmp("made")) == 0 &&
               strstr(out, "1 activations of 2 tokens"),
           "%s%s", out, err);
    notices(1, "\"name\": \"hook_embed\"", "\"name\": \"hook_embeds\"", "hook_embeds");
    notices(1, "\"shape\": [2", "\"shape\": [4", "another shape");
    notices(1, "\"ids\": [", "\"ids\": [1", "");
}

/* The digest of a model is that of its numbers, not of its file. */
TEST(models)
{
    receipt_identity first, second;
    const char *const checkpoint = test_tmp("checkpoint");
    attn_ctx ctx = {0};
    attn_model *model = NULL, *back = NULL;
    const char *const path = test_text("%s", test_tmp("back.attn"));
    if (!RUNS(TEST_BUILD "/attn-convert " MODEL "%s.gguf && " TEST_BUILD "/attn-convert %s.gguf %s",
              checkpoint, checkpoint, path) ||
        !OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL)) ||
        !OK(&ctx, attn_model_open(&ctx, &back, path, NULL)))
        return;
    OK(&ctx, receipt_model_digest(&ctx, &first, model, TEST_BUILD "/tiny-stories.attn"));
    CHECK(first.dtype == ATTN_F16);
    OK(&ctx, receipt_model_digest(&ctx, &second, back, path));
    CHECKF(strcmp(first.digest[0], second.digest[0]) == 0 &&
               strcmp(first.digest[1], second.digest[1]) == 0 &&
               strcmp(first.digest[0], first.digest[1]) != 0,
           "%s, %s; %s, %s", first.digest[0], second.digest[0], first.digest[1], second.digest[1]);
    attn_model_close(model);
    attn_model_close(back);
}

/* A model that differs in its texts only. `change` is a command in the checkpoint's directory. */
static void other_texts(const char *change, const char *options)
{
    const char *const directory = test_text("%s", test_tmp("other"));
    const char *const path = test_text("%s", test_tmp("other.attn"));
    CHECKF(
        run("mkdir -p %s && cp examples/tiny-stories/*.json examples/tiny-stories/merges.txt "
            "examples/tiny-stories/*.safetensors %s && chmod -R u+w %s && (cd %s && %s) && " TEST_BUILD
            "/attn-convert -q %s %s --dtype f16 %s",
            directory, directory, directory, directory, change, directory, path, options) == 0,
        "%s: %s", change, err);
    CHECKF(run(VERIFY "%s %s", path, test_tmp("made")) == 1 &&
               strstr(out, "another model, or another tokenizer"),
           "%s %s: %s%s", change, options, out, err);
}

TEST(tokenizers_and_end_tokens)
{
    if (!make("Once -n 5", ""))
        return;
    other_texts(":", "--no-tokenizer");
    other_texts("sed -i.old 's/\"x\":/\"?\":/; s/\"q\":/\"x\":/; s/\"?\":/\"q\":/' vocab.json", "");
    other_texts("sed -i.old 's/\"eos_token_id\": 2047/\"eos_token_id\": [2047, 77]/' config.json",
                "");
}

/* A receipt that the first release of receipts wrote. */
TEST(version_1)
{
    static const char old[] =
        "{\"receipt\": 1, \"contract\": 1, \"kind\": \"text\", \"model\": "
        "\"daa1181311c9e0e282de0e072029df9f7ca27b85776e4494b9973de9c30dbda7\", \"dtype\": \"f16\", "
        "\"cache\": \"f32\", \"sampling\": {\"temperature\": 0, \"top_k\": 0, \"top_p\": 0, "
        "\"min_p\": 0, \"repeat_penalty\": 0, \"repeat_last\": 0, \"seed\": \"0\"}, "
        "\"max_tokens\": 2, \"ignore_eos\": false, \"eos\": 2047, \"stop\": [], \"prompt\": [506], "
        "\"ended\": \"token count\", \"ids\": [511, 258], \"links\": [\"24ee001dcbe23fed\", "
        "\"0f61e33b13582c22\"], \"chain\": "
        "\"0f61e33b13582c22905c89a733850d92145225a75a8b0fef31a7bea702575254\", \"sha256\": "
        "\"0a2f8ec9ca63cbd18b76b45dda761c2d83a5946619dcf10072baad6d1455da28\"}\n";
    test_write(test_tmp("made"), old, sizeof old - 1);
    CHECKF(run(VERIFY MODEL "%s", test_tmp("made")) == 0 && strstr(out, ": holds: 2 tokens") &&
               strstr(out, "version 1 does not cover the tokenizer"),
           "%s%s", out, err);
    CHECKF(run(VERIFY MODEL "%s -q", test_tmp("made")) == 3 && !out[0], "%s%s", out, err);
    notices(1, "\"ended\": \"token count\"", "\"ended\": \"context full\"", "is reached there");
}

/* A receipt of version 2, before files had a name, and receipts quoted it. */
TEST(version_2)
{
    static const char old[] =
        "{\"receipt\": 2, \"contract\": 1, \"kind\": \"text\", \"model\": "
        "\"08231060826dc9aafa93657f67b9ba1409ebd53253b5ca0841f8c52e7e8eceb2\", \"dtype\": \"f16\", "
        "\"cache\": \"f32\", \"sampling\": {\"temperature\": 0, \"top_k\": 0, \"top_p\": 0, "
        "\"min_p\": 0, \"repeat_penalty\": 0, \"repeat_last\": 0, \"seed\": \"0\"}, "
        "\"max_tokens\": 2, \"ignore_eos\": false, \"eos\": 2047, \"stop\": [], \"prompt\": "
        "[506, 511], \"ended\": \"token count\", \"ids\": [258, 433], \"links\": "
        "[\"fdce684796fbd929\", \"e990b4635b897aec\"], \"chain\": "
        "\"e990b4635b897aec8cfff16f39dd4753478a05ec17f610ca4afc398799850aa0\", \"sha256\": "
        "\"3c5e894c06851bc4256588ddfb193036b5367221277bfa7358e5c4357d8381c0\"}\n";
    test_write(test_tmp("made"), old, sizeof old - 1);
    CHECKF(run(VERIFY MODEL "%s", test_tmp("made")) == 0 && strstr(out, ": holds: 2 tokens") &&
               !strstr(out, "of the model"),
           "%s%s", out, err);
    if (make("'Once upon' -n 2 --temperature 0", ""))
        CHECKF(run(VERIFY MODEL "%s", test_tmp("made")) == 0 &&
                   strstr(out, ": after \"Once upon\": \" a time\"\n") &&
                   strstr(out, ": of the model tiny-stories, checkpoint 02db24c4"),
               "%s%s", out, err);
    /* a name is quoted, and nothing proves it */
    if (change("\"name\": \"tiny", "\"name\": \"huge")) {
        seal();
        CHECKF(run(VERIFY MODEL "%s", test_tmp("changed")) == 0 &&
                   strstr(out, "of the model tiny-stories") &&
                   strstr(out, "but the receipt says huge-stories, checkpoint 02db24c4"),
               "%s%s", out, err);
    }
}

TEST(mistakes)
{
    refuses(2, "no model given", VERIFY);
    refuses(2, "no receipt given", VERIFY MODEL);
    refuses(2, "is the path right?", VERIFY "missing.attn x");
    refuses(2, "cannot open missing", VERIFY MODEL "missing");
    refuses(2, "malformed JSON", VERIFY MODEL "README.md");
    refuses(2, "is not a share", VERIFY MODEL "x --sample 2");
    refuses(2, "--receipt and --count contradict each other",
            GPT2 MODEL "Once --count 2 --temperature 1 --receipt x");
    refuses(2, "would overwrite ", GPT2 MODEL "Once --receipt " TEST_BUILD "/tiny-stories.attn");
    refuses(2, "--logits " TEST_BUILD "/x would overwrite " TEST_BUILD "/x",
            GPT2 MODEL "Once --logits " TEST_BUILD "/x --receipt " TEST_BUILD "/x");
    refuses(2, "is not UTF-8", GPT2 MODEL "Once --receipt x --stop \"$(printf '\\377')\"");
}

/* >> The contract ============================================================================== */

static attn_tensor tensor(vector_file *v, const char *name, size_t width)
{
    size_t n = 0;
    const float *x = vectors_floats(v, json_get(v->entry, name), &n);
    return width ? attn_borrow(x, ATTN_F32, attn_shape2(n / width, width))
                 : attn_borrow(x, ATTN_F32, attn_shape1(n));
}

/* Columns one after the other -> the matrix [n_in, n_out]. */
static attn_tensor matrix(vector_file *v, const char *name, size_t n_in)
{
    return attn_transpose(tensor(v, name, n_in), 0, 1);
}

static void halve(attn_ctx *ctx, attn_tensor *x)
{
    attn_tensor halves = ATTN_ZERO;
    OK(ctx, attn_zeros(ctx, &halves, ATTN_F16, attn_shape2(x->shape[0], x->shape[1])));
    OK(ctx, attn_copy(ctx, &halves, *x));
    *x = halves;
}

/* tests/suites/kernels has those of q8 and q4, which need panels. */
static void multiply(attn_ctx *ctx, attn_tensor *got, vector_file *v)
{
    const json_value *column = json_get(v->entry, "columns");
    const size_t n_out = column->size;
    attn_tensor x = tensor(v, "x", 0), rows = ATTN_ZERO;
    const size_t n_in = x.shape[0];
    size_t i, n;
    OK(ctx, attn_zeros(ctx, &rows, ATTN_F32, attn_shape2(n_out, n_in)));
    for (i = 0, column++; i < n_out; i++, column += column->span)
        memcpy((float *)rows.data + n_in * i, vectors_floats(v, column, &n), n_in * sizeof(float));
    if (vectors_is(v->entry, "type", "f16"))
        halve(ctx, &rows);
    OK(ctx, attn_linear(ctx, got, tensor(v, "x", n_in), attn_transpose(rows, 0, 1),
                        tensor(v, "bias", 0)));
}

/* The last positions, as many as `out` has. */
static void attend(attn_ctx *ctx, attn_tensor *got, vector_file *v)
{
    const size_t d = (size_t)vectors_number(v->entry, "d");
    const size_t asked = json_get(v->entry, "out")->size / d;
    attn_tensor q = tensor(v, "q", d), k = tensor(v, "k", d), w = tensor(v, "v", d);
    attn_attention_desc causal = {.mask_kind = ATTN_MASK_CAUSAL};
    if (vectors_is(v->entry, "cache", "f16")) {
        halve(ctx, &k);
        halve(ctx, &w);
    }
    OK(ctx, attn_attention(ctx, got, attn_slice(q, 0, q.shape[0] - asked, asked), k, w, &causal));
}

static void block(attn_ctx *ctx, attn_tensor *got, vector_file *v)
{
    const size_t width = (size_t)vectors_number(v->entry, "d_model");
    const attn_tensor qkv = matrix(v, "W_QKV", width), b = tensor(v, "b_QKV", 0);
    attn_block_weights w = {.n_head = (size_t)vectors_number(v->entry, "n_head"),
                            .ln1_w = tensor(v, "ln1_w", 0),
                            .ln1_b = tensor(v, "ln1_b", 0),
                            .w_q = attn_slice(qkv, 1, 0, width),
                            .w_k = attn_slice(qkv, 1, width, width),
                            .w_v = attn_slice(qkv, 1, 2 * width, width),
                            .b_q = attn_slice(b, 0, 0, width),
                            .b_k = attn_slice(b, 0, width, width),
                            .b_v = attn_slice(b, 0, 2 * width, width),
                            .w_o = matrix(v, "W_O", width),
                            .b_o = tensor(v, "b_O", 0),
                            .ln2_w = tensor(v, "ln2_w", 0),
                            .ln2_b = tensor(v, "ln2_b", 0),
                            .w_in = matrix(v, "W_in", width),
                            .b_in = tensor(v, "b_in", 0)};
    w.w_out = matrix(v, "W_out", w.b_in.shape[0]);
    w.b_out = tensor(v, "b_out", 0);
    OK(ctx, attn_block(ctx, got, tensor(v, "x", width), &w, attn_get1(tensor(v, "eps", 0), 0),
                       ATTN_ACT_GELU_TANH));
}

static void draw(attn_ctx *ctx, vector_file *v, const char *isa)
{
    const json_value *e = v->entry;
    SCOPED_SAMPLER sampler = NULL;
    int32_t seen[32], token;
    size_t n_vocab, n_seen, n_drawn;
    const float *logits = vectors_floats(v, json_get(e, "x"), &n_vocab);
    const int32_t *before = vectors_ids(v, json_get(e, "seen"), &n_seen);
    int32_t *drawn = vectors_ids(v, json_get(e, "drawn"), &n_drawn);
    if (!CHECK(n_seen + n_drawn <= sizeof seen / sizeof *seen))
        return;
    memcpy(seen, before, n_seen * sizeof *seen);
    attn_sampler_desc how = {.temperature = (float)vectors_number(e, "temperature"),
                             .top_k = (size_t)vectors_number(e, "top_k"),
                             .top_p = (float)vectors_number(e, "top_p"),
                             .min_p = (float)vectors_number(e, "min_p"),
                             .repeat_penalty = (float)vectors_number(e, "repeat_penalty"),
                             .repeat_last = (size_t)vectors_number(e, "repeat_last"),
                             .seed = strtoull(json_get(e, "seed")->text, NULL, 10)};
    OK(ctx, attn_sampler_new(ctx, &sampler, n_vocab, &how));
    for (size_t i = 0; i < n_drawn; i++) {
        OK(ctx, attn_sample(ctx, &token, sampler, logits, seen, n_seen));
        CHECKF(token == drawn[i], "%s, entry %d, sampler, draw %d: %d, expected %d", isa,
               (int)v->index, (int)i, (int)token, (int)drawn[i]);
        seen[n_seen++] = drawn[i];
    }
}

/* Computes an entry's function into *got. Returns 0 for entries that have no tensor as their result. */
static int compute(attn_ctx *ctx, attn_tensor *got, vector_file *v)
{
    const json_value *e = v->entry;
    if (vectors_is(e, "function", "exp"))
        OK(ctx, attn_exp(ctx, got, tensor(v, "x", 0)));
    else if (vectors_is(e, "function", "gelu"))
        OK(ctx, attn_apply_mlp_act(ctx, got, tensor(v, "x", 0), ATTN_ACT_GELU_TANH));
    else if (vectors_is(e, "function", "softmax"))
        OK(ctx, attn_softmax(ctx, got, tensor(v, "x", 0)));
    else if (vectors_is(e, "function", "layernorm"))
        OK(ctx, attn_layernorm(ctx, got, tensor(v, "x", 0), tensor(v, "w", 0), tensor(v, "b", 0),
                               attn_get1(tensor(v, "eps", 0), 0)));
    else if (vectors_is(e, "function", "matmul") && json_get(e, "type")->text[0] == 'f')
        multiply(ctx, got, v);
    else if (vectors_is(e, "function", "attention"))
        attend(ctx, got, v);
    else if (vectors_is(e, "function", "block"))
        block(ctx, got, v);
    else if (vectors_is(e, "function", "loss")) {
        const int32_t id = (int32_t)vectors_number(e, "id");
        attn_token_stats stats;
        size_t n;
        float *x = vectors_floats(v, json_get(e, "x"), &n);
        OK(ctx,
           attn_logit_stats(ctx, &stats, NULL, attn_borrow(x, ATTN_F32, attn_shape2(1, n)), &id));
        OK(ctx, attn_zeros(ctx, got, ATTN_F32, attn_shape1(1)));
        *(float *)got->data = stats.nll;
    } else
        return 0;
    return 1;
}

/* The results that contract.py worked out with whole numbers, on every instruction set that has a
 * fused multiply-add. tests/suites/kernels has the functions that are not public. */
TEST(contract_vectors)
{
    for (int kind = ATTN_ISA_PORTABLE; kind <= (int)ATTN_ISA_NEON_I8MM; kind++) {
        SCOPED_CTX ctx = {0};
        vector_file v;
        ctx.isa = (attn_isa_kind)kind;
        const char *isa = attn_isa(&ctx);
        if (!isa || strchr(isa, '('))
            continue;
        for (vectors_open(&v); v.index < v.n; vectors_next(&v)) {
            attn_tensor got = ATTN_ZERO;
            if (compute(&ctx, &got, &v))
                vectors_compare(&v, (const float *)got.data, attn_count(got), isa);
            else if (vectors_is(v.entry, "function", "sampler"))
                draw(&ctx, &v, isa);
        }
        vectors_close(&v);
    }
}

static int has_python(void)
{
    if (run("python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'") == 0)
        return 1;
    test_skip("no python3 here");
    return 0;
}

TEST(contract_vectors_are_current)
{
    if (!has_python())
        return;
    CHECKF(run("python3 tests/contract/contract.py check " VECTORS) == 0, "%s%s", out, err);
    CHECKF(run("python3 tests/contract/selftest.py 1 others_are_told") == 0, "%s%s", out, err);
    if (test_full())
        CHECKF(run("python3 tests/makers/make_contract_vectors.py %s", test_tmp("vectors.json")) ==
                       0 &&
                   test_same_file(VECTORS, test_tmp("vectors.json")),
               "another file than %s: %s", VECTORS, err);
}

/* contract.py's operations, each beside Python's own. */
TEST_IF(test_full(), contract_by_itself)
{
    if (has_python())
        CHECKF(run("python3 tests/contract/selftest.py") == 0, "%s%s", out, err);
}

/* Another implementation, written from the page, has the bits of every logit. */
TEST(another_implementation)
{
    static const char *const dtypes[][2] = {
        {"f32", ""}, {"q4", ""}, {"q8", "--f16-cache"}, {"q8", ""}, {"f16", ""}};
    const char *const ids = test_full() ? "5 96 0 5" : "5 7";
    const size_t n_dtypes = test_full() ? 5 : 3;
    unsigned char *array;
    char model[256], *at;
    size_t j, size, n = 0;
    if (!has_python())
        return;
    for (size_t i = 0; i < n_dtypes; i++) {
        snprintf(model, sizeof model, "%s", test_tmp("plain.attn"));
        if (!CHECKF(run(TEST_BUILD "/attn-convert -q tests/golden/plain %s --dtype %s && " GPT2
                                   "%s --ids '%s' -q %s --logits %s && "
                                   "python3 tests/contract/contract.py logits %s %s %s",
                        model, dtypes[i][0], model, ids, dtypes[i][1], test_tmp("logits.npy"),
                        dtypes[i][1], model, ids) == 0,
                    "%s%s", err, out))
            return;
        array = test_read(test_tmp("logits.npy"), &size);
        for (j = 128, at = out; array && j + 4 <= size; j += 4, n++)
            if (!CHECKF(strtoul(at, &at, 16) == get_u32(array + j), "%s: number %d differs",
                        dtypes[i][0], (int)(j / 4 - 32)))
                break;
        free(array);
    }
    CHECKF(n == n_dtypes * 97 * (test_full() ? 4u : 2u), "%d numbers", (int)n);
}

/* >> zip ======================================================================================= */

static size_t round_trip(const char *make_text, const char *dtype)
{
    size_t size = 0;
    if (!CHECKF(run("{ %s\n} >%s", make_text, test_tmp("text")) == 0, "%s: %s", make_text, err) ||
        !CHECKF(run(ZIP "%s %s %s && " ZIP "-d %s %s %s && cmp %s %s", dtype, test_tmp("text"),
                    test_tmp("zipped"), dtype, test_tmp("zipped"), test_tmp("back"),
                    test_tmp("text"), test_tmp("back")) == 0,
                "%s: %s%s", make_text, out, err))
        return 0;
    unsigned char *zipped = test_read(test_tmp("zipped"), &size);
    free(zipped);
    return size;
}

#define STORY GPT2 MODEL "'Once upon a time' -n 200 --temperature 0.8 --seed 5 -q"

TEST(zip_any_bytes)
{
    round_trip(":", MODEL);
    round_trip("printf a", MODEL);
    round_trip(STORY "; cat LICENSE", MODEL); /* beyond the context */
    round_trip("printf 'caf\\303\\251 \\377\\376\\000\\001 \\360\\237\\220'", MODEL);
    round_trip("head -c 700 " TEST_BUILD "/zip", MODEL);
}

/* Within 1 % of the model's cross-entropy. */
TEST(zip_near_entropy)
{
    size_t size = round_trip(STORY, MODEL);
    if (size == 0 ||
        !RUNS(TEST_BUILD "/perplexity " MODEL "%s --exact --bos --json", test_tmp("text")))
        return;
    const char *at = strstr(out, "\"nll\": ");
    double nats = at ? atof(at + 7) : 0;
    at = strstr(out, "\"tokens\": ");
    double tokens = at ? atof(at + 10) : 0;
    CHECKF((double)(size - 40) * 8 < 1.01 * nats * tokens / 0.69314718 + 16,
           "%d bytes for %.1f bits", (int)size - 40, nats * tokens / 0.69314718);
}

TEST(zip_damaged)
{
    size_t size = round_trip(STORY " -n 20", MODEL);
    SCOPED_BYTES whole = test_read(test_tmp("zipped"), &size);
    for (size_t i = 0; whole && i < size; i += 13) {
        whole[i] ^= 1;
        test_write(test_tmp("broken"), whole, size);
        whole[i] ^= 1;
        CHECKF(run(ZIP "-d " MODEL "%s %s", test_tmp("broken"), test_tmp("back")) == 1 &&
                   strstr(err, "zip: the input "),
               "byte %d: %s", (int)i, err);
    }
    test_write(test_tmp("broken"), whole, size - 1);
    CHECK(run(ZIP "-d " MODEL "%s %s", test_tmp("broken"), test_tmp("back")) == 1 &&
          strstr(err, "damaged or cut off"));
    CHECK(run(ZIP "-d " MODEL "README.md %s", test_tmp("back")) == 1 &&
          strstr(err, "not a file that this program made"));
}

/* Writes a model of zeros with one layer of width 1, whose tokens are the n_bytes bytes from `first`. It
 * never expects the first one. */
static void write_zeros(const char *path, size_t n_vocab, unsigned first, size_t n_bytes)
{
    static const struct {
        const char *name;
        size_t rows, columns; /* columns 0: a vector */
    } parts[] = {
        {"pos_embed.W_pos", 1024, 1},  {"blocks.0.ln1.w", 1, 0},      {"blocks.0.ln1.b", 1, 0},
        {"blocks.0.attn.W_QKV", 1, 3}, {"blocks.0.attn.b_QKV", 3, 0}, {"blocks.0.attn.W_O", 1, 1},
        {"blocks.0.attn.b_O", 1, 0},   {"blocks.0.ln2.w", 1, 0},      {"blocks.0.ln2.b", 1, 0},
        {"blocks.0.mlp.W_in", 1, 1},   {"blocks.0.mlp.b_in", 1, 0},   {"blocks.0.mlp.W_out", 1, 1},
        {"blocks.0.mlp.b_out", 1, 0},  {"ln_final.w", 1, 0},          {"ln_final.b", 1, 0}};
    unsigned char section[16 + 256 * 5] = {0}, *at = section + 16;
    float *zeros = (float *)calloc(n_vocab + 1024, sizeof *zeros);
    attn_ctx ctx = {0};
    lens_writer *writer = NULL;
    attn_config c = {.n_ctx = 1024};
    c.d_model = c.n_head = c.n_layer = c.d_mlp = 1;
    c.ln_eps = 1e-5f;
    c.tied = 1;
    c.bos = c.eos = -1;
    c.n_vocab = (uint32_t)n_vocab;
    c.has_b_U = 1;
    put_u32(section, (uint32_t)n_bytes);
    section[10] = n_bytes < 256;
    put_u32(section + 12, (uint32_t)n_bytes);
    for (size_t i = 1; i <= n_bytes; i++, at += 4)
        put_u32(at, (uint32_t)i);
    for (size_t i = 0; i < n_bytes; i++)
        *at++ = (unsigned char)(first + i);
    OK(&ctx, lens_writer_new(&ctx, &writer, path, &c, section, (size_t)(at - section)));
    OK(&ctx, lens_writer_add(&ctx, writer, "embed.W_E", ATTN_F32,
                             attn_borrow(zeros, ATTN_F32, attn_shape2(n_vocab, 1))));
    zeros[0] = -1000; /* of logits */
    OK(&ctx, lens_writer_add(&ctx, writer, "unembed.b_U", ATTN_F32,
                             attn_borrow(zeros, ATTN_F32, attn_shape1(n_vocab))));
    zeros[0] = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        OK(&ctx, lens_writer_add(&ctx, writer, parts[i].name, ATTN_F32,
                                 attn_borrow(zeros, ATTN_F32,
                                             parts[i].columns
                                                 ? attn_shape2(parts[i].rows, parts[i].columns)
                                                 : attn_shape1(parts[i].rows))));
    OK(&ctx, lens_writer_end(&ctx, writer));
    lens_writer_free(writer);
    free(zeros);
}

/* A byte without a token would be left out of the text. */
TEST(zip_bytes_without_token)
{
    const char *const model = test_text("%s", test_tmp("letters.attn"));
    write_zeros(model, 26, 'a', 26);
    round_trip("printf abcxyz", model);
    CHECKF(run("printf 'abc!' >%s; rm -f %s; " ZIP "%s %s %s", test_tmp("text"), test_tmp("zipped"),
               model, test_tmp("text"), test_tmp("zipped")) == 1 &&
               strstr(err, "cannot spell the whole text"),
           "%s", err);
    CHECK(run("test -e %s", test_tmp("zipped")) == 1);
}

/* A token takes more than six bytes. */
TEST_IF(test_full(), zip_large_vocabulary)
{
    const char *const model = test_text("%s", test_tmp("large.attn"));
    write_zeros(model, (size_t)1 << 22, 0, 256);
    size_t size = round_trip("head -c 300 /dev/zero", model);
    CHECKF(size > 40 + 6 * 300, "%d bytes", (int)size);
    remove(model);
}

/* An output that cannot be written whole leaves the older one; the model and the input stay. */
TEST(zip_outputs)
{
    const char *const out_path = test_text("%s", test_tmp("zipped"));
    const char *const old = test_text("%s", test_tmp("old"));
    CHECK(run("printf old >%s && cp %s %s && head -c 44000 " TEST_BUILD "/zip | tail -c 4000 >%s",
              old, old, out_path, test_tmp("text")) == 0);
    /* clang's OpenMP needs room for 1 KiB */
    CHECKF(run("trap '' XFSZ; ulimit -f 2; " ZIP MODEL "%s %s", test_tmp("text"), out_path) == 1,
           "%s%s", out, err);
    CHECK(test_same_file(old, out_path));
    refuses(1, "/dev/full", ZIP MODEL "LICENSE /dev/full");
    refuses(1, "would overwrite the model or the input", ZIP MODEL "LICENSE LICENSE");
    refuses(1, "would overwrite the model or the input", ZIP MODEL "LICENSE " MODEL);
}

/* >> reproduce ================================================================================= */

#define REPRODUCE TEST_BUILD "/reproduce "

/* tests/compare/truth/compare_reproduce.py compares the figures of reproduce. This test gives it a model that
 * has none of them: reproduce must name each figure it did not compute. */
TEST(reproduce_with_another_vocabulary)
{
    CHECKF(run(REPRODUCE MODEL "--json %s", test_tmp("figures.json")) == 1 &&
               strstr(err, "reproduce: this model gives none of the figures"),
           "%s", err);
    CHECKF(occurrences(out, "\n         ") == occurrences(out, " not computed: ") &&
               occurrences(out, "it needs GPT-2's vocabulary") > 3 &&
               occurrences(out, "it needs a model of 12 layers with 12 heads") > 40 &&
               strstr(out, "\n0 figures could be wrong, 0 agree; 0 of 0 blocks are ok, "),
           "%s", out);
}

/* A loss of known tokens, beside perplexity's. */
TEST(reproduce_a_loss)
{
    double nll = 0;
    const char *const figures = test_text("%s", test_tmp("figures.txt"));
    if (!RUNS("printf 'Once upon a time' | " TEST_BUILD "/perplexity " MODEL "--json"))
        return;
    const char *at = strstr(out, "\"nll\": ");
    nll = at ? atof(at + 7) : 0;
    const char *const line = test_text("%.0f", nll * 1e7);
    CHECKF(run("{ echo '#'; printf 'block\\ta\\t1\\tb\\tloss\\t1e-5\\t1e-7\\t1\\t%%s\\n' "
               "\"$(printf 'Once upon a time' | " TEST_BUILD "/attn-tokenize " MODEL
               "| tr '\\n' ' ')\"; echo %s; } >%s; " REPRODUCE MODEL "--figures %s",
               line, figures, figures) == 0 &&
               strstr(out, "ok           1 of     1 within 1e-05"),
           "%s%s", out, err);
    CHECK(run("sed -i.old 's/^%s$/99000000/' %s; " REPRODUCE MODEL "--figures %s", line, figures,
              figures) == 1);
    CHECKF(strstr(out, "differs      0 of     1 within 1e-05"), "%s%s", out, err);
    CHECK(run("sed -i.old 's/^99000000$/1/' %s; " REPRODUCE MODEL "--figures %s", figures,
              figures) == 1); /* is zero within the tolerance, and should be */
    CHECKF(strstr(out, "differs      0 of     0 within 1e-05") &&
               strstr(out, "; zeros: 1, of which 1 differ") &&
               strstr(out, "\n0 figures could be wrong, 0 agree; 0 of 0 blocks are ok, "),
           "%s%s", out, err);
    CHECK(run("sed -i.old 's/^1$/x/' %s; " REPRODUCE MODEL "--figures %s", figures, figures) == 1);
    CHECKF(strstr(err, "block 1 is damaged"), "%s%s", out, err);
}

/* A model of GPT-2 small's layers, heads and vocabulary, with random weights. */
static void write_random(const char *path, size_t n_ctx, unsigned seed)
{
    enum { WIDTH = 24, N_VOCAB = 50257, N_LAYER = 12 };
    static const struct {
        const char *name;
        size_t n_in, n_out; /* n_in 0: a vector */
    } tensors[] = {{"ln1.w", 0, WIDTH},
                   {"ln1.b", 0, WIDTH},
                   {"attn.W_QKV", WIDTH, 3 * WIDTH},
                   {"attn.b_QKV", 0, 3 * WIDTH},
                   {"attn.W_O", WIDTH, WIDTH},
                   {"attn.b_O", 0, WIDTH},
                   {"ln2.w", 0, WIDTH},
                   {"ln2.b", 0, WIDTH},
                   {"mlp.W_in", WIDTH, 4 * WIDTH},
                   {"mlp.b_in", 0, 4 * WIDTH},
                   {"mlp.W_out", 4 * WIDTH, WIDTH},
                   {"mlp.b_out", 0, WIDTH}};
    float *random = (float *)pool_new((size_t)N_VOCAB * WIDTH * sizeof *random);
    attn_ctx ctx = alone();
    lens_writer *w = NULL;
    random_state = seed;
    for (size_t i = 0; i < (size_t)N_VOCAB * WIDTH; i++)
        random[i] = random_float() * 0.3f;
    attn_config c = {.n_vocab = N_VOCAB, .n_ctx = n_ctx, .d_model = WIDTH};
    c.n_head = c.n_layer = N_LAYER;
    c.d_mlp = 4 * WIDTH;
    c.ln_eps = 1e-5f;
    c.tied = 1;
    c.bos = c.eos = -1;
    OK(&ctx, lens_writer_new(&ctx, &w, path, &c, NULL, 0));
    OK(&ctx, lens_writer_add(&ctx, w, "embed.W_E", ATTN_F32,
                             attn_borrow(random, ATTN_F32, attn_shape2(N_VOCAB, WIDTH))));
    OK(&ctx, lens_writer_add(&ctx, w, "pos_embed.W_pos", ATTN_F32,
                             attn_borrow(random, ATTN_F32, attn_shape2(n_ctx, WIDTH))));
    for (size_t i = 0; i < N_LAYER; i++)
        for (size_t j = 0; j < sizeof tensors / sizeof tensors[0]; j++) {
            attn_shape shape = attn_shape1(tensors[j].n_out);
            if (tensors[j].n_in > 0)
                shape = attn_shape2(tensors[j].n_in, tensors[j].n_out);
            OK(&ctx, lens_writer_add(
                         &ctx, w, test_text("blocks.%u.%s", (unsigned)i, tensors[j].name), ATTN_F32,
                         attn_borrow(random + 9973 * (i + 1) + 101 * j, ATTN_F32, shape)));
        }
    OK(&ctx, lens_writer_add(&ctx, w, "ln_final.w", ATTN_F32,
                             attn_borrow(random + 7, ATTN_F32, attn_shape1(WIDTH))));
    OK(&ctx, lens_writer_add(&ctx, w, "ln_final.b", ATTN_F32,
                             attn_borrow(random + 77, ATTN_F32, attn_shape1(WIDTH))));
    OK(&ctx, lens_writer_end(&ctx, w));
    lens_writer_free(w);
}

/* A random model has next to nothing in common with GPT-2, and the counts show it. Texts that are longer
 * than its context are named, and the other blocks are computed. */
TEST(reproduce_a_random_model)
{
    unsigned long figures = 0, agree = 0, ok = 0, blocks = 0;
    write_random(test_tmp("random.attn"), 64, 1);
    if (!CHECKF(run(REPRODUCE "%s --quick", test_tmp("random.attn")) == 1, "%s", err))
        return;
    const char *last = strstr(out, " figures could be wrong");
    while (last && last[-1] != '\n')
        last--;
    CHECKF(last &&
               sscanf(last, "%lu figures could be wrong, %lu agree; %lu of %lu blocks are ok",
                      &figures, &agree, &ok, &blocks) == 4 &&
               figures > 30000 && agree < figures / 50 && ok == 0 && blocks > 80,
           "%s", last);
    CHECKF(occurrences(out, "not computed: its text has 200 tokens, the model's context 64: ") ==
                   4 &&
               occurrences(out, "the model's context 64: ") == 8 && strstr(out, "; zeros: "),
           "%s", out);
}

/* The eight prompts about an indirect object, in GPT-2's tokens, as pairs of texts for lens. */
static void write_ioi_pairs(const char *path)
{
    static const int words[4][6] = {{2215, 1757, 5335, 12437, 262, 6131},
                                    {2215, 4186, 3700, 3952, 262, 2613},
                                    {2215, 6035, 15686, 12437, 281, 17180},
                                    {3260, 5780, 14235, 3952, 257, 4144}};
    char lines[4096] = "", text[2][128];
    size_t n = 0;
    for (size_t i = 0; i < 8; i++) {
        const int *const w = words[i / 2], *const names = w + 1, subject = (int)(i % 2);
        for (size_t k = 0; k < 2; k++)
            snprintf(text[k], sizeof text[k],
                     "[50256, %d, %d, 290, %d, 1816, 284, 262, %d, 11, %d, 2921, %d, %d, 284]",
                     w[0], names[0], names[1], w[3], names[k ? 1 - subject : subject], w[4], w[5]);
        n +=
            (size_t)snprintf(lines + n, sizeof lines - n,
                             "{\"clean\": %s, \"corrupted\": %s, \"token\": %d, \"against\": %d}\n",
                             text[0], text[1], names[1 - subject], names[subject]);
    }
    test_write(path, lines, n);
}

/* The two figures that reproduce prints of a file of scores; *code: its exit code. */
static void compare_scores(double both[2], int *code, const char *model, const char *scores)
{
    const char *at;
    int i;
    *code =
        run("{ for i in 0 1; do printf 'block\\ta\\t0\\tb\\tioi-edges\\t%%s\\t1e-7\\t1\\t%%s\\n"
            "10000000\\n' $(test $i = 0 && echo 0.8 || echo 0.2) $i; done; } >%s.txt; echo >%s; "
            "cat %s.txt >>%s; " REPRODUCE "%s --figures %s --ioi-edges %s",
            test_tmp("figures"), test_tmp("figures"), test_tmp("figures"), test_tmp("figures"),
            model, test_tmp("figures"), scores);
    for (i = 0, at = out; i < 2; i++) {
        at = strstr(at, " here, standard error ");
        both[i] = 99;
        if (!CHECKF(at, "%s%s", out, err))
            return;
        while (at[-1] != ' ')
            at--;
        both[i] = atof(at);
        at = strchr(at, '\n');
    }
}

/* The scores that lens writes of a model agree with those of reproduce, and with their negatives nothing does;
 * another random model's do not. */
TEST(reproduce_scores_of_edges)
{
    static const char negate[] = "sed 's/\"score\": \\([0-9]\\)/\"score\": N\\1/; s/\"score\": -/"
                                 "\"score\": /; s/\"score\": N/\"score\": -/'";
    double both[3][2];
    int code[3], i;
    write_ioi_pairs(test_tmp("pairs.jsonl"));
    for (i = 1; i <= 2; i++) {
        write_random(test_tmp("random.attn"), 64, (unsigned)i);
        RUNS(TEST_BUILD "/lens %s edges --pairs %s --steps 5 -q -o %s%d.json",
             test_tmp("random.attn"), test_tmp("pairs.jsonl"), test_tmp("scores"), i);
    }
    CHECK(run("%s %s2.json >%s3.json", negate, test_tmp("scores"), test_tmp("scores")) == 0);
    for (i = 0; i < 3; i++) {
        compare_scores(both[i], &code[i], test_tmp("random.attn"),
                       test_text("%s%d.json", test_tmp("scores"), i + 1));
    }
    CHECKF(code[0] == 1 && fabs(both[0][0]) < 0.1 && fabs(both[0][1] - 0.5) < 0.2, "%g %g",
           both[0][0], both[0][1]);
    i = both[1][0] > 0 ? 1 : 2; /* the file's sign depends on which text lens calls helped */
    CHECKF(code[i] == 0 && both[i][0] > 0.99999 && both[i][1] > 0.99, "%g %g", both[i][0],
           both[i][1]);
    CHECKF(code[3 - i] == 1 && both[3 - i][0] < -0.99999 && both[3 - i][1] < 0.01, "%g %g",
           both[3 - i][0], both[3 - i][1]);
    CHECK(run("sed 's/input->m0/input->m12/' %s1.json >%s3.json", test_tmp("scores"),
              test_tmp("scores")) == 0);
    CHECKF(run(REPRODUCE "%s --figures %s --ioi-edges %s3.json", test_tmp("random.attn"),
               test_tmp("figures"), test_tmp("scores")) == 1 &&
               strstr(err, "the model has no edge input->m12"),
           "%s", err);
}

#define SMALL "tests/fixtures/reproduce/"

/* Losses, log-probabilities, greedy text, hidden states and small data sets, as PyTorch has them. */
TEST(reproduce_as_pytorch)
{
    CHECKF(run(REPRODUCE MODEL "--figures " SMALL "figures.txt --lambada " SMALL "lambada.jsonl "
                               "--hellaswag " SMALL "hellaswag.jsonl --wikitext-2 " SMALL
                               "wiki.txt --greater-than " SMALL "greater_than.csv") == 0 &&
               strstr(out, "; 19 of 19 blocks are ok, 0 were not computed; "),
           "%s%s", out, err);
    CHECKF(occurrences(out, ", standard error ") == 16, "%s", out);
    CHECKF(run(REPRODUCE MODEL "--figures " SMALL "figures.txt --json %s", test_tmp("json")) == 0 &&
               strstr(out, "not computed: give --hellaswag FILE: hellaswag"),
           "%s%s", out, err);
    refuses(1, "a line has no text \"text\"",
            REPRODUCE MODEL "--figures " SMALL "figures.txt --lambada " SMALL
                            "hellaswag.jsonl >/dev/null");
    refuses(1, "without four \"endings\"",
            REPRODUCE MODEL "--figures " SMALL "figures.txt --hellaswag " SMALL
                            "lambada.jsonl >/dev/null");
}

/* Pairs that are none. */
TEST(reproduce_bad_pairs)
{
    static const char *const lines[][2] = {
        {"clean,corrupted\\n", "the first line is not clean,corrupted,label"},
        {"clean,corrupted,label\\n\\n", "has no pairs"},
        {"clean,corrupted,label\\na,b,100\\n", "pairs.csv, line 2: expected clean,corrupted,label"},
        {"clean,corrupted,label\\na,b\\n", "line 2: expected clean,corrupted,label"},
        {"clean,corrupted,label\\na,b,1\\na,b,x\\n", "line 3: expected clean,corrupted,label"},
        {"clean,corrupted,label\\na,The dog ran,1\\n", "line 2: the clean text has 2 tokens"}};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        CHECK(run("printf '%s' >%s", lines[i][0], test_tmp("pairs.csv")) == 0);
        CHECKF(run(REPRODUCE MODEL "--figures " SMALL "figures.txt --greater-than %s",
                   test_tmp("pairs.csv")) == 1 &&
                   strstr(err, lines[i][1]),
               "%s: %s", lines[i][1], err);
    }
}

/* Files that are not GPT-2 small's are seen; git's names are those that git hash-object prints. */
TEST(reproduce_wrong_files)
{
    CHECK(run("mkdir -p %s && printf 'hello\\n' >%s/config.json && : >%s/vocab.json && cp "
              "%s/config.json %s/merges.txt && cp %s/config.json %s/model.safetensors",
              test_tmp("files"), test_tmp("files"), test_tmp("files"), test_tmp("files"),
              test_tmp("files"), test_tmp("files"), test_tmp("files")) == 0);
    CHECK(run(REPRODUCE MODEL "--figures " SMALL "figures.txt --files %s", test_tmp("files")) == 1);
    CHECKF(
        strstr(out, "differs  model.safetensors: SHA-256 5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163"
                    "af34d08286a2e846f6be03 of 6 bytes; expected 248dfc39") &&
            strstr(out, "config.json: git ce013625030ba8dba906f756967f9e9ca394464a of 6 bytes") &&
            strstr(out, "vocab.json: git e69de29bb2d1d6434b8b29ae775ad8c2e48c5391 of 0 bytes") &&
            occurrences(out, "differs ") == 4,
        "%s", out);
}
