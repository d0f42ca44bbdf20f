/* Records of activations, the files that they are saved to, and edits. A record is compared with what a
 * hook shows, an edit with a callback that does the same. */
#include "tools/common/files.h"
#include "tests/support/hooks.h"
#include "tests/support/refused.h"
#include "tools/lens/save.h"
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain odd narrow longer tiny bytes8");

/* ---- records ---- */

static attn_tensor view(const attn_record *record, const char *name)
{
    attn_tensor value;
    attn_ctx ctx = alone();
    memset(&value, 0, sizeof value);
    OK(&ctx, attn_record_get(&ctx, &value, record, name));
    return value;
}

static const char *const all_names[] = {"*", "*.hook_result", "*.hook_mlp_in"};

TEST(recorded_golden)
{
    static const char *const paths[] = {"tests/golden/plain/reference.safetensors",
                                        "tests/golden/odd/reference.safetensors",
                                        "tests/golden/narrow/reference.safetensors"};
    const attn_model *const models[] = {plain, odd, narrow};
    attn_ctx ctx = alone();
    size_t i, n, size, n_compared;
    for (size_t m = 0; m < 3; m++) {
        SCOPED_BYTES const file = test_read(paths[m], &size);
        SCOPED_SESSION session = session_on(&ctx, models[m], 0, 9);
        if (!CHECK(file))
            return;
        const int32_t *tokens = stored_tokens(file, &n);
        SCOPED_RECORD record = record_on(&ctx, session, all_names, 2, 0, n);
        if (!record)
            return;
        OK(&ctx, attn_feed(&ctx, session, tokens, n));
        for (n_compared = i = 0; i < attn_record_n_activations(record); i++) {
            const char *name = attn_record_name(record, i);
            const attn_tensor got = view(record, name), want = stored_tensor(file, name);
            n_compared += (size_t)CHECKF(want.ndim > 0, "%s is not in the reference", name);
            close_to(got, want, 2e-5, name);
            if (strstr(name, "hook_pattern"))
                for (size_t j = 0; j < got.shape[0] * got.shape[1]; j++) {
                    double sum = 0;
                    for (size_t k = 0; k < got.shape[2]; k++)
                        sum += value_of(got, j * got.shape[2] + k);
                    CHECKF(fabs(sum - 1) < 1e-6, "%s, row %llu sums to %.9g", name, LLU(j), sum);
                }
        }
        CHECK(n_compared == 5 + 20 * attn_model_config(models[m])->n_layer);
        CHECK(attn_record_name(record, i) == NULL);
        pool_clear();
    }
}

/* Token by token, in pieces, in one call, from some position on, in a batch: always the rows of one
 * full forward over the final text, and always the same logits. */
static void check_growth(const attn_model *model, size_t length, size_t step, size_t first,
                         int n_threads)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, length, step);
    SCOPED_SESSION whole = session_on(&ctx, model, 0, 0);
    SCOPED_RECORD want = record_on(&ctx, whole, all_names, 3, 0, length);
    const float *const logits = feed_all(&ctx, whole, tokens, length, length);
    ctx.n_threads = n_threads;
    attn_session *session = session_on(&ctx, model, 0, 8);
    SCOPED_RECORD got = record_on(&ctx, session, all_names, 3, first, length + 3 - first);
    same_logits(feed_all(&ctx, session, tokens, length, step), logits, length, model, "recorded");
    CHECK(attn_record_n_activations(want) == attn_record_n_activations(got));
    for (size_t i = 0; i < attn_record_n_activations(want); i++) {
        const char *name = attn_record_name(want, i);
        attn_tensor rows = view(want, name);
        const int dim = strstr(name, "scores") || strstr(name, "pattern") ? 1 : 0;
        rows = attn_slice(rows, dim, first, length - first);
        same_bits(view(got, name), rows, name);
    }
    attn_session_free(session);
    same_bits(view(got, "ln_final.hook_scale"),
              attn_slice(view(want, "ln_final.hook_scale"), 0, first, length - first),
              "after the session");
    pool_clear();
}

TEST(growing_records)
{
    check_growth(plain, 24, 1, 0, 1);
    check_growth(odd, 37, 5, 0, 2);
    check_growth(odd, 37, 37, 7, 1);
    check_growth(narrow, 20, 1, 11, 2);
    check_growth(tiny, 40, 40, 0, 1);
    check_growth(tiny, 70, 9, 33, 3);
}

/* Each activation by itself: nothing else is recorded then, and nobody wants logits, so nothing
 * else keeps the rows that it is made of. */
static void one_at_a_time(const attn_model *model, size_t length)
{
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(model, length, 7);
    SCOPED_SESSION whole = session_on(&ctx, model, 0, 0);
    attn_record *all = record_on(&ctx, whole, all_names, 3, 0, length), *one;
    OK(&ctx, attn_feed(&ctx, whole, tokens, length));
    for (size_t i = 0; i < attn_record_n_activations(all); i++) {
        const char *const name = attn_record_name(all, i);
        SCOPED_SESSION session = session_on(&ctx, model, 0, 0);
        one = record_on(&ctx, session, &name, 1, 0, length);
        OK(&ctx, attn_feed(&ctx, session, tokens, length));
        same_bits(view(one, name), view(all, name), name);
        attn_record_free(one);
    }
    attn_record_free(all);
    pool_clear();
}

TEST(lone_records)
{
    one_at_a_time(plain, 9);
    one_at_a_time(odd, 6);
}

TEST(recording_while_generating)
{
    enum { PROMPT = 7, MADE = 25 };
    static const char *const wanted[] = {"*"};
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, tiny, 0, 0), *whole = session_on(&ctx, tiny, 0, 0);
    const int32_t *const prompt = random_tokens(tiny, PROMPT, 21);
    attn_record *got = record_on(&ctx, session, wanted, 1, 0, PROMPT + MADE);
    attn_record *want = record_on(&ctx, whole, wanted, 1, 0, PROMPT + MADE);
    attn_generate_desc d = {.max_tokens = MADE,
                            .ignore_eos = 1,
                            .sampling.temperature = 0.8f,
                            .prompt_tokens = prompt,
                            .n_prompt_tokens = PROMPT};
    OK(&ctx, attn_generate(&ctx, NULL, session, NULL, &d));
    CHECK(attn_session_length(session) == PROMPT + MADE);
    OK(&ctx, attn_feed(&ctx, whole, attn_session_tokens(session), PROMPT + MADE));
    for (size_t i = 0; i < attn_record_n_activations(want); i++)
        same_bits(view(got, attn_record_name(want, i)), view(want, attn_record_name(want, i)),
                  attn_record_name(want, i));
    attn_record_free(got);
    attn_record_free(want);
    attn_session_free(session);
    attn_session_free(whole);
}

/* Several sequences of a batch, recorded by some: each as it is alone. And a record among hooks
 * shows what those before it wrote. */
TEST(records_in_a_batch)
{
    enum { ITEMS = 3 };
    static const size_t past[ITEMS] = {0, 6, 3}, fed[ITEMS] = {9, 1, 12};
    attn_ctx ctx = alone();
    attn_session *sessions[ITEMS];
    attn_feed_item items[ITEMS];
    attn_record *one[ITEMS], *together[ITEMS];
    spot s = {4, 1, NULL};
    ctx.n_threads = 2;
    for (size_t i = 0; i < ITEMS; i++) {
        const int32_t *const tokens = random_tokens(odd, past[i] + fed[i], i);
        sessions[i] = session_on(&ctx, odd, 0, 0);
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s));
        one[i] = record_on(&ctx, sessions[i], all_names, 3, 0, 15);
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        OK(&ctx, attn_feed(&ctx, sessions[i], tokens + past[i], fed[i]));
        OK(&ctx, attn_session_truncate(&ctx, sessions[i], 0));
        attn_unhook_all(sessions[i]);
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s));
        together[i] = record_on(&ctx, sessions[i], all_names, 3, 0, 15);
        if (i == 0)
            OK(&ctx,
               attn_hook(&ctx, NULL, sessions[i], "*.hook_z", put_spot, &s)); /* comes after it */
        if (past[i] > 0)
            OK(&ctx, attn_feed(&ctx, sessions[i], tokens, past[i]));
        items[i] = item_of(sessions[i], tokens + past[i], fed[i], NULL);
    }
    share_workspace(&ctx, sessions, ITEMS, 0);
    OK(&ctx, attn_feed_batch(&ctx, items, ITEMS));
    CHECK(*entry(view(together[2], "blocks.1.attn.hook_z"), 4, 1, 3) == 0);
    CHECK(*entry(view(together[0], "blocks.0.attn.hook_z"), 4, 1, 3) != 0);
    for (size_t i = 0; i < ITEMS; i++) { /* the same alone, in one call */
        attn_session *again = session_on(&ctx, odd, 0, 0);
        if (i == 2)
            OK(&ctx, attn_hook(&ctx, NULL, again, "*.hook_z", put_spot, &s));
        attn_record *r = record_on(&ctx, again, all_names, 3, 0, 15);
        if (i == 0)
            OK(&ctx, attn_hook(&ctx, NULL, again, "*.hook_z", put_spot, &s));
        OK(&ctx, attn_feed(&ctx, again, attn_session_tokens(sessions[i]), past[i] + fed[i]));
        for (size_t j = 0; j < attn_record_n_activations(r); j++)
            same_bits(view(together[i], attn_record_name(r, j)), view(r, attn_record_name(r, j)),
                      attn_record_name(r, j));
        CHECK(view(one[i], "hook_embed").shape[0] == 0);
        attn_record_free(one[i]);
        attn_record_free(together[i]);
        attn_record_free(r);
        attn_session_free(again);
        attn_session_free(sessions[i]);
    }
}

/* Memory of the context holds the same numbers as the caller's, and goes with the record. */
TEST(a_record_in_memory_of_the_context)
{
    static const char *const names[] = {"*.hook_resid_post", "blocks.1.attn.hook_pattern"};
    SCOPED_CTX ctx = alone();
    attn_session *session = session_on(&ctx, odd, 0, 0);
    const int32_t *tokens = random_tokens(odd, 9, 5);
    attn_record *records[2] = {NULL, NULL};
    attn_record_desc desc;
    attn_tensor values[2];
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    memset(values, 0, sizeof values);
    desc.names = names;
    desc.n_names = 2;
    desc.n_positions = 9;
    OK(&ctx, attn_record_size(&ctx, &bytes, odd, &desc));
    OK(&ctx, attn_record_new(&ctx, &records[1], session, &desc));
    desc.memory = pool_new(bytes);
    desc.memory_size = bytes;
    OK(&ctx, attn_record_new(&ctx, &records[0], session, &desc));
    OK(&ctx, attn_feed(&ctx, session, tokens, 9));
    attn_session_free(session);
    CHECK(attn_record_n_activations(records[1]) > 2);
    for (size_t i = 0; i < attn_record_n_activations(records[1]); i++) {
        const char *name = attn_record_name(records[1], i);
        for (size_t j = 0; j < 2; j++)
            OK(&ctx, attn_record_get(&ctx, &values[j], records[j], name));
        CHECKF(count_of(values[0]) == count_of(values[1]) &&
                   memcmp(values[0].data, values[1].data, count_of(values[0]) * sizeof(float)) == 0,
               "%s", name);
    }
    attn_record_free(records[0]);
    attn_record_free(records[1]);
}

/* A record in memory of the caller; desc may be NULL. */
static attn_status record_in(attn_ctx *ctx, attn_record **record, attn_session *session,
                             const attn_record_desc *desc, void *memory, size_t size)
{
    attn_record_desc with_memory = {0};
    if (desc)
        with_memory = *desc;
    with_memory.memory = memory;
    with_memory.memory_size = size;
    return attn_record_new(ctx, record, session, &with_memory);
}

/* Too little memory, too many positions, stops and truncations: a status, and all can go on. */
TEST(record_rules)
{
    enum { LENGTH = 20, ROOM = 12 };
    static const char *const two[] = {"blocks.0.hook_resid_pre", "*.hook_pattern"};
    static const char *const wrong[] = {"hook_embed", "blocks.0.hook_resid_pree"};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 30);
    float *const want = hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
    const attn_config *const c = attn_model_config(odd);
    attn_session *session = session_on(&ctx, odd, 0, 5), *other = session_on(&ctx, odd, 0, 5);
    attn_record *record = NULL;
    attn_tensor value = {0};
    size_t bytes = 0;
    int stop = 0;
    attn_record_desc desc = {.names = two, .n_names = 2, .n_positions = ROOM};
    OK(&ctx, attn_record_size(&ctx, &bytes, odd, &desc));
    CHECK(bytes == 4 * (ROOM * c->d_model + c->n_layer * c->n_head * ROOM * ROOM));
    unsigned char *memory_of = (unsigned char *)pool_new(bytes + 8);
    memset(memory_of, 0x5A, bytes + 8);
    FAILS(SPACE, "need 7488 bytes", record_in(&ctx, &record, session, &desc, memory_of, 9));
    CHECK(record == NULL);
    FAILS(SPACE, "need", record_in(&ctx, &record, session, &desc, memory_of, bytes - 1));
    FAILS(ARGUMENT, "aligned", record_in(&ctx, &record, session, &desc, memory_of + 1, bytes));
    FAILS(ARGUMENT, "without memory", record_in(&ctx, &record, session, &desc, NULL, bytes));
    desc.names = wrong;
    FAILS(NAME, "did you mean blocks.0.hook_resid_pre?",
          attn_record_size(&ctx, &bytes, odd, &desc));
    FAILS(NAME, "did you mean blocks.0.hook_resid_pre?",
          record_in(&ctx, &record, session, &desc, memory_of, bytes));
    desc.names = two;
    desc.n_positions = 41;
    FAILS(ARGUMENT, "n_ctx is 40", attn_record_size(&ctx, &bytes, odd, &desc));
    desc.n_positions = SIZE_MAX;
    desc.first = 3;
    FAILS(ARGUMENT, "n_ctx is 40", attn_record_size(&ctx, &bytes, odd, &desc));
    desc.n_positions = ROOM;
    desc.first = 0;
    OK(&ctx, attn_feed(&ctx, session, tokens, 2));
    FAILS(ARGUMENT, "attn_session_truncate it",
          record_in(&ctx, &record, session, &desc, memory_of, bytes));
    OK(&ctx, attn_session_truncate(&ctx, session, 0));

    OK(&ctx, record_in(&ctx, &record, session, &desc, memory_of, bytes));
    OK(&ctx, attn_record_get(&ctx, &value, record, two[0]));
    CHECK(value.shape[0] == 0 && value.shape[1] == c->d_model);
    OK(&ctx, attn_feed(&ctx, session, tokens, 8));
    FAILS(SPACE, "room for 12 positions", attn_feed(&ctx, session, tokens, 5));
    EQUAL(attn_session_length(session), 8);
    FAILS(NAME, "not among", attn_record_get(&ctx, &value, record, "hook_embed"));
    FAILS(NAME, "did you mean hook_embed", attn_record_get(&ctx, &value, record, "hook_embe"));
    FAILS(ARGUMENT, "a record watches", attn_session_copy(&ctx, session, other));
    OK(&ctx, attn_feed(&ctx, session, tokens + 8, 4));
    same_logits(attn_session_logits(session), want + 11 * vocab_of(odd), 1, odd, "a full record");
    FAILS(SPACE, "bytes", attn_feed(&ctx, session, tokens, 1));
    EQUAL(view(record, two[0]).shape[0], ROOM);

    /* A stop leaves the record as it was; truncating takes rows away. */
    OK(&ctx, attn_session_truncate(&ctx, session, 7));
    EQUAL(view(record, two[0]).shape[0], 7);
    OK(&ctx, attn_hook(&ctx, NULL, session, "*.hook_z", stop_late, &stop));
    stop = 1;
    STOPS(&ctx, attn_feed(&ctx, session, tokens + 7, 3));
    CHECK(view(record, two[0]).shape[0] == 7 &&
          view(record, "blocks.2.attn.hook_pattern").shape[1] == 7);
    stop = 0;
    OK(&ctx, attn_feed(&ctx, session, tokens + 7, 3));
    CHECK(view(record, "blocks.2.attn.hook_pattern").shape[2] == 10);
    {
        attn_token_stats stats[LENGTH]; /* a score needs the room, too */
        FAILS(SPACE, "room", attn_score(&ctx, stats, NULL, session, tokens, 18));
        CHECK(view(record, two[0]).shape[0] == 10 && attn_session_length(session) == 10);
    }
    same_logits(attn_session_logits(session), want + 9 * vocab_of(odd), 1, odd, "after a stop");
    attn_record_free(record);
    OK(&ctx, attn_feed(&ctx, session, tokens + 10, 10));
    same_logits(attn_session_logits(session), want + 19 * vocab_of(odd), 1, odd,
                "after the record");
    CHECK(memory_of[bytes] == 0x5A && memory_of[bytes + 7] == 0x5A);
    attn_record_free(NULL);
    attn_session_free(session);
    attn_session_free(other);
}

/* Nothing is allocated while a record grows, and nothing is left when it could not be made. */
TEST(record_memory)
{
    meter m;
    attn_ctx ctx = metered(&m);
    attn_session *session;
    attn_record *record = NULL;
    attn_record_desc desc;
    const int32_t *const tokens = random_tokens(odd, 20, 4);
    attn_status status = ATTN_E_MEMORY;
    size_t bytes = 0;
    long n;
    ctx.n_threads = 1;
    memset(&desc, 0, sizeof desc);
    if ((session = session_on(&ctx, odd, 0, 0)) == NULL)
        return;
    OK(&ctx, attn_record_size(&ctx, &bytes, odd, NULL));
    void *memory_of = pool_new(bytes);
    long live = m.live;
    for (n = 0; n < 20 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = record_in(&ctx, &record, session, NULL, memory_of, bytes);
        m.fail_at = -1;
        CHECK(status == ATTN_OK || (status == ATTN_E_MEMORY && m.live == live && !record));
    }
    CHECK(status == ATTN_OK && n > 3);
    n = m.asked;
    OK(&ctx, attn_feed(&ctx, session, tokens, 19));
    OK(&ctx, attn_feed(&ctx, session, tokens + 19, 1));
    EQUAL(m.asked, n);
    for (n = 0, status = ATTN_E_MEMORY; n < 20 && status != ATTN_OK; n++) {
        m.fail_at = m.asked + n;
        status = lens_save_record(&ctx, test_tmp("record.safetensors"), record);
        m.fail_at = -1;
    }
    CHECK(status == ATTN_OK && n == 5);
    attn_record_free(record);
    EQUAL(m.live, live);
    attn_session_free(session);
    CHECK(m.live == 0 && m.wrong == 0);
}

/* ---- files ---- */

/* CRC-32 by its definition, bit by bit. */
static uint32_t crc_of(const unsigned char *p, size_t n)
{
    uint32_t crc = 0xFFFFFFFFu;
    int bit;
    for (; n > 0; n--, p++)
        for (crc ^= *p, bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
    return ~crc;
}

static void check_npz(const unsigned char *file, size_t size, const attn_record *record)
{
    size_t at = 0, i;
    for (i = 0; i < attn_record_n_activations(record); i++) {
        const char *name = attn_record_name(record, i);
        const attn_tensor want = view(record, name);
        const unsigned char *p = file + at;
        char shape[100] = "(";
        if (!CHECKF(at + 100 < size && get_u32(p) == 0x04034b50, "%s has no entry", name))
            return;
        size_t n = get_u32(p + 18);
        size_t n_name = p[26] | (size_t)p[27] << 8;
        CHECK(n_name == strlen(name) + 4 && memcmp(p + 30, name, strlen(name)) == 0);
        const unsigned char *npy = p + 30 + n_name;
        CHECK(get_u32(p + 22) == n && crc_of(npy, n) == get_u32(p + 14));
        size_t header = 10 + (npy[8] | (size_t)npy[9] << 8);
        CHECK(memcmp(npy, "\x93NUMPY\x01\0", 8) == 0 && header % 64 == 0);
        CHECK(npy[header - 1] == '\n' && n == header + 4 * count_of(want));
        for (int dim = 0; dim < want.ndim; dim++)
            snprintf(shape + strlen(shape), 30, "%s%llu", dim ? ", " : "", LLU(want.shape[dim]));
        CHECKF(strstr((const char *)npy + 10, shape), "%s: the shape is not %s", name, shape);
        for (size_t j = 0; j < count_of(want) && n == header + 4 * count_of(want); j++)
            if (!CHECK(memcmp(npy + header + 4 * j, element(want, j), 4) == 0))
                break;
        at += 30 + n_name + n;
    }
    CHECK(size > 22 && get_u32(file + size - 22) == 0x06054b50 && get_u32(file + size - 6) == at);
    CHECK(size > 22 && (file[size - 12] | (size_t)file[size - 11] << 8) == i);
}

TEST(saved_records)
{
    enum { LENGTH = 11 };
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, narrow, 0, 0);
    SCOPED_RECORD record = record_on(&ctx, session, all_names, 3, 2, 15);
    char path[2][512];
    const char *named[200];
    attn_tensor values[200];
    unsigned char *file;
    size_t size;
    FILE *list;
    OK(&ctx, attn_feed(&ctx, session, random_tokens(narrow, LENGTH, 4), LENGTH));
    snprintf(path[0], sizeof path[0], "%s", test_tmp("record.safetensors"));
    snprintf(path[1], sizeof path[1], "%s", test_tmp("record.npz"));
    OK(&ctx, lens_save_record(&ctx, path[0], record));
    for (size_t i = 0; i < attn_record_n_activations(record); i++) {
        named[i] = attn_record_name(record, i);
        values[i] = view(record, named[i]);
    }
    OK(&ctx, lens_save(&ctx, path[1], named, values, attn_record_n_activations(record)));
    if (CHECK((file = test_read(path[0], &size)) != NULL)) {
        size_t total = 8 + get_u32(file);
        EQUAL(total % 8, 0);
        for (size_t i = 0; i < attn_record_n_activations(record); i++) {
            const char *name = attn_record_name(record, i);
            const attn_tensor want = view(record, name);
            same_bits(stored_tensor(file, name), want, name);
            total += 4 * count_of(want);
        }
        CHECKF(size == total, "%llu bytes, expected %llu", LLU(size), LLU(total));
        free(file);
    }
    if (CHECK((file = test_read(path[1], &size)) != NULL)) {
        check_npz(file, size, record);
        free(file);
    }

    /* Python reads both, if it is here: a sum of bits of every tensor must be ours. */
    list = fopen(test_tmp("record.list"), "w");
    for (size_t i = 0; list && i < attn_record_n_activations(record); i++) {
        const attn_tensor x = view(record, attn_record_name(record, i));
        uint64_t sum = 0;
        for (size_t j = 0; j < count_of(x); j++)
            sum += (j + 1) * (uint64_t)get_u32((const unsigned char *)element(x, j));
        fprintf(list, "%s %s %llu\n", attn_record_name(record, i), shape_text(x), LLU(sum));
    }
    if (list)
        fclose(list);
}

static const char *python_with(const char *module)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < 2; i++) {
        if (system(test_text("%s -c 'import %s' 2>/dev/null", pythons[i], module)) == 0)
            return pythons[i];
    }
    return NULL;
}

static void python_reads(const char *module, const char *format)
{
    const char *const python = python_with(module);
    char command[700];
    if (!python) {
        snprintf(command, sizeof command, "no python3 with %s here", module);
        test_skip(command);
        return;
    }
    snprintf(command, sizeof command,
             "%s tests/compare/truth/check_saved.py %s " TEST_TMP "record.%s %s", python, module,
             format, TEST_TMP "record.list");
    CHECKF(system(command) == 0, "%s failed", command);
}

TEST(numpy_reads_npz)
{
    python_reads("numpy", "npz");
}

TEST(numpy_reads_safetensors)
{
    python_reads("numpy", "safetensors");
}

TEST(torch_reads_npz)
{
    python_reads("torch", "npz");
}

TEST(torch_reads_safetensors)
{
    python_reads("torch", "safetensors");
}

TEST(saving)
{
    attn_ctx ctx = alone();
    uint16_t halfs[6] = {0x3C00, 0xC000, 0x7BFF, 1, 0, 0x8000};
    int32_t ids[3] = {1, -1, INT32_MAX};
    attn_tensor values[3];
    const char *tensor_names[] = {"a", "b.half", "ids"};
    const char *const bad[] = {"", "two words", "a\"b", "../up", "C:x", NULL};
    unsigned char *file;
    size_t size;
    values[0] = attn_transpose(random_tensor(3, 2, 3, 5), 0, 2);
    values[1] = attn_borrow(halfs, ATTN_F16, attn_shape2(2, 3));
    values[2] = attn_borrow(ids, ATTN_I32, attn_shape1(3));
    OK(&ctx, lens_save(&ctx, test_tmp("saved.safetensors"), tensor_names, values, 3));
    if (CHECK((file = test_read(test_tmp("saved.safetensors"), &size)) != NULL)) {
        const size_t data = 8 + get_u32(file);
        same_bits(stored_tensor(file, "a"), laid_out(values[0], ATTN_F32, LAYOUT_DENSE), "turned");
        CHECK(size == data + 120 + 12 + 12);
        CHECK(strstr((char *)file + 8, "\"b.half\":{\"dtype\":\"F16\",\"shape\":[2, 3],"
                                       "\"data_offsets\":[120,132]}"));
        CHECK(memcmp(file + data + 120, "\x00\x3C\x00\xC0\xFF\x7B\x01\x00\x00\x00\x00\x80", 12) ==
              0);
        CHECK(memcmp(file + data + 132, "\1\0\0\0\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x7F", 12) == 0);
        free(file);
    }
    OK(&ctx, lens_save(&ctx, test_tmp("none.npz"), NULL, NULL, 0));
    CHECK((file = test_read(test_tmp("none.npz"), &size)) != NULL && size == 22);
    free(file);
    FAILS(ARGUMENT, ".safetensors", lens_save(&ctx, TEST_BUILD "/x.pt", tensor_names, values, 3));
    FAILS(ARGUMENT, ".safetensors", lens_save(&ctx, NULL, tensor_names, values, 3));
    FAILS(IO, "directory",
          lens_save(&ctx, TEST_BUILD "/no-such-place/x.safetensors", tensor_names, values, 3));
    for (size_t i = 0; i < 6; i++) {
        tensor_names[1] = bad[i];
        FAILS(NAME, "name 1", lens_save(&ctx, TEST_BUILD "/x.npz", tensor_names, values, 3));
        FAILS(NAME, "name 1",
              lens_save(&ctx, TEST_BUILD "/x.safetensors", tensor_names, values, 3));
    }
    tensor_names[1] = "a";
    FAILS(NAME, "two tensors", lens_save(&ctx, TEST_BUILD "/x.npz", tensor_names, values, 3));
    FAILS(NAME, "two tensors",
          lens_save(&ctx, TEST_BUILD "/x.safetensors", tensor_names, values, 3));
    tensor_names[1] = "b";
    values[1] = attn_reshape(values[0], attn_shape1(7));
    FAILS(ARGUMENT, "b is no tensor",
          lens_save(&ctx, TEST_BUILD "/x.npz", tensor_names, values, 3));
    values[1] = attn_borrow(ids, ATTN_I32, attn_shape2((size_t)1 << 15, (size_t)1 << 15));
    values[1].stride[0] = values[1].stride[1] = 0;
    if (sizeof(size_t) > 4)
        FAILS(SPACE, "4 GiB", lens_save(&ctx, TEST_BUILD "/x.npz", tensor_names, values, 3));
    else
        FAILS(ARGUMENT, "b is no tensor",
              lens_save(&ctx, TEST_BUILD "/x.npz", tensor_names, values, 3));
}

/* ---- parts of a pass ---- */

/* A record of a pass in parts shows what was run, and no row that was not. */
TEST(recorded_parts)
{
    enum { LENGTH = 12 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 5);
    attn_session *session = session_on(&ctx, odd, 0, 5), *whole = session_on(&ctx, odd, 0, 0);
    attn_record *record = record_on(&ctx, session, NULL, 0, 0, LENGTH);
    attn_record *want = record_on(&ctx, whole, NULL, 0, 0, LENGTH);
    float *const stream = (float *)pool_new(LENGTH * 64 * sizeof(float));
    attn_feed_item item = part_of(session, tokens, LENGTH, 0, 2, NULL, stream);
    OK(&ctx, attn_feed(&ctx, whole, tokens, LENGTH));
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(view(record, "blocks.1.hook_resid_post").shape[0] == LENGTH);
    CHECK(view(record, "blocks.2.hook_resid_pre").shape[0] == 0);
    CHECK(view(record, "ln_final.hook_scale").shape[0] == 0);
    item = part_of(session, tokens, LENGTH, 2, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    for (size_t i = 0; i < attn_record_n_activations(want); i++)
        same_bits(view(record, attn_record_name(want, i)), view(want, attn_record_name(want, i)),
                  attn_record_name(want, i));
    OK(&ctx, attn_session_truncate(&ctx, session, 5));
    CHECK(view(record, "blocks.0.hook_resid_pre").shape[0] == 5);
    item = part_of(session, tokens + 5, 4, 2, 0, stream + 5 * 48, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    for (size_t i = 0; i < attn_record_n_activations(want); i++) {
        const char *name = attn_record_name(want, i);
        attn_tensor rows = view(want, name);
        if (strstr(name, "scores") || strstr(name, "pattern"))
            rows = attn_slice(attn_slice(rows, 1, 0, 9), 2, 0, 9);
        else
            rows = attn_slice(rows, 0, 0, 9);
        same_bits(view(record, name), rows, name);
    }

    /* An embedding of the caller's leaves hook_embed without rows, and that cannot be filled. */
    OK(&ctx, attn_session_truncate(&ctx, session, 0));
    item = part_of(session, tokens, LENGTH - 2, 0, 0, stream, NULL);
    OK(&ctx, attn_feed_batch(&ctx, &item, 1));
    CHECK(view(record, "hook_embed").shape[0] == 0);
    FAILS(ARGUMENT, "gap", attn_feed(&ctx, session, tokens, 2));
    attn_record_free(record);
    OK(&ctx, attn_feed(&ctx, session, tokens, 2));
    attn_record_free(want);
    attn_session_free(session);
    attn_session_free(whole);
}

/* ---- edits ---- */

static float *edited(const attn_model *model, const int32_t *tokens, size_t n, size_t step,
                     const attn_edit *edit, const char *sees, sight *s)
{
    attn_ctx ctx = alone();
    ctx.n_threads = 1 + (int)(step % 2);
    attn_session *session = session_on(&ctx, model, 0, 0);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, edit));
    if (sees)
        OK(&ctx, attn_hook(&ctx, NULL, session, sees, note, s));
    float *logits = feed_all(&ctx, session, tokens, n, step);
    attn_session_free(session);
    return logits;
}

/* Every activation set to its own values, of the same run, changes no bit. */
TEST(patched_with_itself)
{
    enum { LENGTH = 18 };
    const attn_model *const models[] = {plain, odd, narrow, bytes8};
    attn_ctx ctx = alone();
    for (size_t m = 0; m < 4; m++) {
        const int32_t *const tokens = random_tokens(models[m], LENGTH, 9);
        SCOPED_SESSION session = session_on(&ctx, models[m], 0, 0);
        const char *const names_of[] = {"*", "*.hook_result", "*.hook_*_in", "*_input"};
        SCOPED_RECORD record = record_on(&ctx, session, names_of, 4, 0, LENGTH);
        const float *const want = feed_all(&ctx, session, tokens, LENGTH, LENGTH);
        CHECK(attn_record_n_activations(record) == 5 + 25 * attn_model_config(models[m])->n_layer);
        for (size_t i = 0; i < attn_record_n_activations(record); i++) {
            attn_edit e = edit_of(attn_record_name(record, i), ATTN_EDIT_SET);
            e.value = view(record, e.name);
            for (size_t step = 5; step <= LENGTH; step += 13)
                same_logits(edited(models[m], tokens, LENGTH, step, &e, NULL, NULL), want, LENGTH,
                            models[m], e.name);
        }
        pool_clear();
    }
}

/* Adds by hand what an edit adds, and scales, sets, zeroes and averages likewise. */
typedef struct by_hand {
    attn_edit_kind kind;
    size_t position, n, head, n_heads;
    attn_tensor value; /* dense [n or 1, n_heads, width] */
} by_hand;
static int edit_by_hand(const attn_activation *a, void *user)
{
    const by_hand *b = (const by_hand *)user;
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t h = 0; h < b->n_heads; h++)
            for (size_t k = 0; k < a->value.shape[a->value.ndim - 1]; k++) {
                const size_t at = a->first + i - b->position;
                if (a->first + i < b->position || at >= b->n)
                    continue;
                float *x = a->value.ndim == 3 ? entry(a->value, i, b->head + h, k)
                                              : entry(a->value, i, k, 0);
                float v = b->kind == ATTN_EDIT_ZERO
                              ? 0
                              : *entry(b->value, b->value.shape[0] > 1 ? at : 0, h, k);
                *x = b->kind == ATTN_EDIT_ADD ? *x + v : b->kind == ATTN_EDIT_SCALE ? *x * v : v;
            }
    return 0;
}

TEST(edits)
{
    enum { LENGTH = 20 };
    static const struct {
        const char *name;
        attn_edit_kind kind;
        size_t position, n, head, n_heads, rows;
    } cases[] = {{"blocks.1.hook_resid_pre", ATTN_EDIT_ADD, 0, 0, 0, 0, 1},
                 {"blocks.*.hook_resid_post", ATTN_EDIT_ADD, 3, 5, 0, 0, 5},
                 {"blocks.0.attn.hook_z", ATTN_EDIT_ZERO, 0, 0, 1, 1, 1},
                 {"blocks.1.attn.hook_z", ATTN_EDIT_SET, 4, 7, 0, 2, 7},
                 {"blocks.1.attn.hook_k", ATTN_EDIT_SET, 6, 1, 1, 0, 1},
                 {"*.attn.hook_result", ATTN_EDIT_ZERO, 2, 9, 2, 1, 1},
                 {"blocks.1.hook_q_input", ATTN_EDIT_ADD, 0, 0, 1, 1, 20},
                 {"blocks.0.hook_mlp_out", ATTN_EDIT_SET, 19, 1, 0, 0, 1},
                 {"ln_final.hook_scale", ATTN_EDIT_SET, 0, 0, 0, 0, 20},
                 {"blocks.0.mlp.hook_post", ATTN_EDIT_MEAN, 1, 0, 0, 0, 6},
                 {"blocks.0.attn.hook_z", ATTN_EDIT_MEAN, 0, 4, 0, 3, 20},
                 {"blocks.1.attn.hook_z", ATTN_EDIT_SCALE, 2, 6, 1, 2, 6},
                 {"blocks.*.hook_mlp_out", ATTN_EDIT_SCALE, 0, 0, 0, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int32_t *const tokens = random_tokens(odd, LENGTH, i);
        const float *const usual =
            hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL);
        sight *const s = new_sight();
        attn_edit e = edit_of(cases[i].name, cases[i].kind);
        by_hand b;
        hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, cases[i].name, s);
        attn_tensor like = s->all[0].value;
        size_t heads = like.ndim < 3      ? 1
                       : cases[i].n_heads ? cases[i].n_heads
                                          : like.shape[1] - cases[i].head;
        size_t width = like.shape[like.ndim - 1];
        b.kind = e.kind;
        b.position = e.first = cases[i].position;
        e.count = cases[i].n;
        b.head = e.first_head = cases[i].head;
        e.n_heads = cases[i].n_heads;
        b.n_heads = heads;
        b.n = cases[i].n ? cases[i].n : LENGTH;
        b.value = random_tensor(3, (int)cases[i].rows, (int)heads, (int)width);
        if (like.ndim == 3)
            e.value = laid_out(b.value, ATTN_F32, LAYOUT_COLUMNS);
        else
            e.value = attn_reshape(b.value, attn_shape2(cases[i].rows, width));
        if (like.ndim == 2 && cases[i].rows == 1)
            e.value = attn_reshape(e.value, attn_shape1(width));
        if (e.kind == ATTN_EDIT_MEAN) {
            attn_tensor mean = random_tensor(3, 1, (int)heads, (int)width);
            for (size_t j = 0; j < heads; j++)
                for (size_t k = 0; k < width; k++) {
                    double sum = 0;
                    for (size_t t = 0; t < cases[i].rows; t++)
                        sum += (double)*entry(b.value, t, j, k);
                    *entry(mean, 0, j, k) = (float)(sum / (double)cases[i].rows);
                }
            b.value = mean;
            b.kind = ATTN_EDIT_SET;
        }
        for (size_t j = 1; j <= LENGTH; j += 19) {
            const float *const got = edited(odd, tokens, LENGTH, j, &e, NULL, NULL);
            CHECKF(differ(got, usual, LENGTH * vocab_of(odd)), "%s changed nothing", e.name);
            same_logits(got,
                        hooked(odd, tokens, LENGTH, LENGTH, e.name, edit_by_hand, &b, NULL, NULL),
                        LENGTH, odd, e.name);
        }
        pool_clear();
    }
}

/* Steering by hand: x + v at every position is what a model does whose own addition it is. */
static int add_vector(const attn_activation *a, void *user)
{
    for (size_t i = 0; i < a->value.shape[0]; i++)
        for (size_t k = 0; k < a->value.shape[1]; k++)
            *entry(a->value, i, k, 0) += ((const float *)user)[k];
    return 0;
}

TEST(steering)
{
    enum { LENGTH = 16 };
    SCOPED_CTX ctx = alone();
    const int32_t *const tokens = random_tokens(tiny, LENGTH, 3);
    attn_tensor v = random_tensor(1, 192), nothing = {0};
    attn_edit e = edit_of("blocks.2.hook_resid_pre", ATTN_EDIT_ADD);
    e.value = v;
    const float *want =
        hooked(tiny, tokens, LENGTH, LENGTH, e.name, add_vector, v.data, NULL, NULL);
    same_logits(edited(tiny, tokens, LENGTH, 1, &e, NULL, NULL), want, LENGTH, tiny, "steering");
    e.name = "blocks.1.hook_resid_post";
    same_logits(edited(tiny, tokens, LENGTH, 6, &e, NULL, NULL), want, LENGTH, tiny, "steering");
    OK(&ctx, attn_scale(&ctx, &nothing, v, 0)); /* as in the middle of a sweep from -2 to 2 */
    e.value = nothing;
    same_logits(edited(tiny, tokens, LENGTH, 16, &e, NULL, NULL),
                hooked(tiny, tokens, LENGTH, LENGTH, NULL, NULL, NULL, NULL, NULL), LENGTH, tiny,
                "steering by nothing");
}

/* Patterns: one head's rows from another text; and the zeros of a head are its z without. */
TEST(edited_patterns)
{
    enum { LENGTH = 15, FROM = 4, COUNT = 6 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 1), *const others =
                                                                     random_tokens(odd, LENGTH, 2);
    sight *const clean = new_sight(), *const got = new_sight(), *const usual = new_sight();
    attn_edit e = edit_of("blocks.1.attn.hook_pattern", ATTN_EDIT_SET);
    attn_tensor now;
    hooked(odd, others, LENGTH, LENGTH, NULL, NULL, NULL, e.name, clean);
    hooked(odd, tokens, LENGTH, LENGTH, NULL, NULL, NULL, e.name, usual);
    attn_tensor pattern = latest(clean, e.name);
    attn_tensor was = latest(usual, e.name);
    e.first = FROM;
    e.first_head = 1;
    e.n_heads = 1;
    e.count = COUNT;
    e.value = attn_slice(attn_slice(pattern, 0, 1, 1), 1, FROM, COUNT);
    for (size_t step = 3; step <= LENGTH; step += 12) {
        got->n = 0;
        edited(odd, tokens, LENGTH, step, &e, e.name, got);
        for (size_t i = 0; i < got->n; i++) {
            now = got->all[i].value;
            for (size_t h = 0; h < 3; h++)
                for (size_t t = 0; t < now.shape[1]; t++)
                    for (size_t k = 0; k < now.shape[2]; k++) {
                        const size_t at = got->all[i].first + t;
                        const int is_edited = h == 1 && at >= FROM && at < FROM + COUNT;
                        CHECK(*entry(now, h, t, k) == *entry(is_edited ? pattern : was, h, at, k));
                    }
        }
    }

    /* Too few keys for what is fed: known before anything runs. */
    {
        SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
        e.count = 0;
        e.value = attn_slice(e.value, 2, 0, 9);
        OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
        OK(&ctx, attn_feed(&ctx, session, tokens, 9));
        FAILS(SHAPE, "9 keys", attn_feed(&ctx, session, tokens + 9, 1));
        EQUAL(attn_session_length(session), 9);
        attn_unhook_all(session);
        OK(&ctx, attn_feed(&ctx, session, tokens + 9, 1));
    }
}

TEST(wrong_edits)
{
    attn_ctx ctx = alone();
    attn_session *session = session_on(&ctx, odd, 0, 0); /* 40 positions, 3 heads of 16 */
    attn_tensor vector = random_tensor(1, 48), rows = random_tensor(2, 5, 48),
                z = random_tensor(3, 5, 3, 16);
    attn_edit e = edit_of("blocks.1.hook_resid_pre", ATTN_EDIT_SET);
    const int32_t tokens[] = {1, 2, 3};
    e.value = vector;
    attn_edit wrong = e;
    wrong.name = "blocks.1.hook_resid_pree";
    FAILS(NAME, "did you mean", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.first = 40;
    FAILS(ARGUMENT, "room for 40", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.first = 30;
    wrong.count = 11;
    FAILS(ARGUMENT, "room for 40", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.n_heads = 1;
    FAILS(ARGUMENT, "heads", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.name = "*.hook_z";
    FAILS(SHAPE, "[48]", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = z;
    wrong.first_head = 3;
    FAILS(ARGUMENT, "has 3", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.first_head = 1;
    FAILS(SHAPE, "2 heads", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.first_head = 0;
    wrong.count = 4;
    FAILS(SHAPE, "4 positions", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.name = "*.hook_pattern";
    wrong.kind = ATTN_EDIT_MEAN;
    FAILS(ARGUMENT, "no mean", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.value = rows;
    wrong.count = 3;
    FAILS(SHAPE, "3 positions", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.name = "*.hook_resid_mid";
    wrong.value = attn_transpose(rows, 0, 1);
    FAILS(SHAPE, "shape [48, 5]; expected up to 40 positions",
          attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.count = 5;
    FAILS(SHAPE, "[48, 5]", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = attn_reshape(rows, attn_shape1(7));
    FAILS(ARGUMENT, "number of elements", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = vector;
    wrong.value.dtype = ATTN_F16; /* it would be read beyond its end */
    FAILS(ARGUMENT, "expected ATTN_F32", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = e;
    wrong.kind = (attn_edit_kind)9;
    FAILS(ARGUMENT, "number 9", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong = edit_of("blocks.1.attn.hook_*", ATTN_EDIT_SET); /* one position, or three? */
    wrong.value = random_tensor(3, 3, 3, 16);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &wrong));
    attn_unhook_all(session);
    wrong.value = random_tensor(3, 2, 3, 16);
    FAILS(SHAPE, "hook_attn_scores", attn_hook_edit(&ctx, NULL, session, &wrong));
    wrong.value = random_tensor(3, 3, 2, 16);
    FAILS(SHAPE, "hook_q", attn_hook_edit(&ctx, NULL, session, &wrong));
    FAILS(ARGUMENT, "no session", attn_hook_edit(&ctx, NULL, NULL, &e));
    FAILS(ARGUMENT, "no edit", attn_hook_edit(&ctx, NULL, session, NULL));
    e.name = NULL;
    FAILS(ARGUMENT, "no name", attn_hook_edit(&ctx, NULL, session, &e));
    OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    same_logits(attn_session_logits(session),
                hooked(odd, tokens, 3, 3, NULL, NULL, NULL, NULL, NULL) + 2 * vocab_of(odd), 1, odd,
                "no edit was left behind");
    attn_session_free(session);
}

/* Hooks an edit to every activation that `names` saw, by its own name. */
static attn_status edit_each(attn_ctx *ctx, attn_session *session, attn_edit e, const sight *names)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < names->n && status == ATTN_OK; i++) {
        e.name = names->all[i].name;
        status = attn_hook_edit(ctx, NULL, session, &e);
    }
    return status;
}

/* One pattern may match activations of different shapes: positions are the first dimension of one
 * and the second of another, and the widths differ. Each takes the value as if it was named alone;
 * if one cannot, the edit is refused. */
TEST(a_pattern_of_several_shapes)
{
    enum { LENGTH = 12 };
    static const char *const patterns[] = {
        "*a*.hook_*z*",      /* [T, C] and [T, H, d] */
        "*attn.hook_*",      /* [T, H, d] and [H, T, Tk] */
        "*.hook_*p*",        /* [T, C], [T, F] and [H, T, Tk] */
        "*.hook_*e*su*t",    /* [T, H, C] */
        "blocks.2.*_*n*d*e*" /* ln1's, ln2's and scores' */
    };
    static const size_t shapes[][4] = {{1, 1},       {1, 16},   {1, 48},       {2, 1, 1},
                                       {2, 3, 1},    {2, 5, 1}, {2, 1, 16},    {2, 3, 48},
                                       {3, 3, 3, 1}, {2, 2, 1}, {3, 1, 1, 12}, {3, 2, 3, 1}};
    attn_ctx ctx = alone();
    const size_t size = vocab_of(odd) * sizeof(float);
    size_t p, i, n, kind, n_fit = 0, n_refused = 0;
    for (p = 0; p < sizeof patterns / sizeof patterns[0]; p++) {
        const int32_t *const tokens = random_tokens(odd, LENGTH, 5);
        sight *const names = new_sight();
        hooked(odd, tokens, 1, 1, NULL, NULL, NULL, patterns[p], names);
        for (i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            for (kind = 0; kind < 10; kind++) {
                SCOPED_SESSION const one = session_on(&ctx, odd, 0, 0);
                SCOPED_SESSION const each = session_on(&ctx, odd, 0, 0);
                attn_edit e = edit_of(patterns[p], (attn_edit_kind)(kind % 5));
                const size_t *shape = shapes[i];
                e.value = random_tensor((int)shape[0], (int)shape[1], (int)shape[2], (int)shape[3]);
                e.count = kind < 5 ? 0 : 3;
                attn_status status = edit_each(&ctx, each, e, names);
                CHECKF(!attn_hook_edit(&ctx, NULL, one, &e) == !status, "%s by shape %d: %s",
                       patterns[p], (int)i, ctx.message);
                n_fit += status == ATTN_OK;
                n_refused += status != ATTN_OK;
                for (n = 2; status == ATTN_OK && n <= LENGTH - 2; n += LENGTH - 4) {
                    status = attn_feed(&ctx, each, tokens, n); /* the rest may be too much */
                    CHECKF(attn_feed(&ctx, one, tokens, n) == status, "%s", ctx.message);
                    CHECKF(status || memcmp(attn_session_logits(one), attn_session_logits(each),
                                            size) == 0,
                           "%s by shape %d, kind %d", patterns[p], (int)i, (int)kind);
                }
            }
        pool_clear();
    }
    CHECKF(n_fit > 100 && n_refused > 100, "%d fit, %d do not", (int)n_fit, (int)n_refused);
}

/* A value of more positions than the session has room for is refused, said or not. */
TEST(a_value_that_reaches_further)
{
    attn_ctx ctx = alone();
    SCOPED_SESSION session = session_on(&ctx, odd, 0, 0); /* 40 positions */
    attn_edit e = edit_of("blocks.1.hook_resid_pre", ATTN_EDIT_SET);
    e.value = random_tensor(2, 70, 48);
    FAILS(SHAPE, "shape [70, 48]; expected up to 40 positions",
          attn_hook_edit(&ctx, NULL, session, &e));
    e.value = random_tensor(2, 8, 48);
    e.first = 33;
    FAILS(SHAPE, "expected up to 7 positions", attn_hook_edit(&ctx, NULL, session, &e));
    e.count = 7; /* the value is longer than that */
    FAILS(SHAPE, "expected 7 positions", attn_hook_edit(&ctx, NULL, session, &e));
    e.count = 0;
    e.first = 40; /* there is no such position, whatever the value */
    e.value = random_tensor(1, 48);
    FAILS(ARGUMENT, "all positions from 40 on; the session has room for 40",
          attn_hook_edit(&ctx, NULL, session, &e));
    e.value = random_tensor(2, 8, 48);
    e.first = 32;
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    e = edit_of("blocks.1.attn.hook_pattern", ATTN_EDIT_SET);
    e.value = random_tensor(3, 1, 1, 41); /* more keys than there can be */
    FAILS(SHAPE, "up to 40 numbers", attn_hook_edit(&ctx, NULL, session, &e));
    e.value = random_tensor(3, 1, 1, 40);
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
    e.name = "blocks.1.attn.hook_z";
    e.first_head = 3;
    FAILS(ARGUMENT, "all heads from 3 on; blocks.1.attn.hook_z has 3",
          attn_hook_edit(&ctx, NULL, session, &e));
}

/* With count 0 a value of several positions has a row for each position from the first on, in one feed
 * or several. A feed that goes beyond the last row is refused before anything runs, however it is
 * cut; with a count, later positions stay as they are. */
TEST(a_feed_beyond_the_rows_of_a_value)
{
    enum { LENGTH = 10, FROM = 2, ROWS = 5 };
    static const attn_edit_kind kinds[] = {ATTN_EDIT_SET, ATTN_EDIT_ADD, ATTN_EDIT_SCALE};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 6);
    const size_t size = vocab_of(odd) * sizeof(float);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        for (size_t n = 1; n <= LENGTH; n += 3) {
            SCOPED_SESSION const all = session_on(&ctx, odd, 0, 0);
            SCOPED_SESSION const counted = session_on(&ctx, odd, 0, 0);
            attn_edit e = edit_of("blocks.1.hook_resid_pre", kinds[i]);
            size_t fed = 0;
            e.first = FROM;
            e.value = random_tensor(2, ROWS, 48);
            OK(&ctx, attn_hook_edit(&ctx, NULL, all, &e));
            e.count = ROWS;
            OK(&ctx, attn_hook_edit(&ctx, NULL, counted, &e));
            OK(&ctx, attn_feed(&ctx, counted, tokens, FROM + ROWS));
            for (; fed + n <= FROM + ROWS; fed += n)
                OK(&ctx, attn_feed(&ctx, all, tokens + fed, n));
            FAILS(SHAPE, "ends at position 6; the feed comes to",
                  attn_feed(&ctx, all, tokens + fed, FROM + ROWS - fed + 1));
            EQUAL(attn_session_length(all), fed);
            if (fed < FROM + ROWS)
                OK(&ctx, attn_feed(&ctx, all, tokens + fed, FROM + ROWS - fed));
            CHECK(memcmp(attn_session_logits(all), attn_session_logits(counted), size) == 0);
            OK(&ctx, attn_feed(&ctx, counted, tokens + FROM + ROWS, LENGTH - FROM - ROWS));
        }
}

/* An edit of patterns needs numbers only for the keys of the positions that it edits, however the
 * text is cut. */
TEST(keys_of_the_edited_positions)
{
    enum { LENGTH = 9, COUNT = 4 };
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 7);
    attn_session *const whole = session_on(&ctx, odd, 0, 0), *const cut =
                                                                 session_on(&ctx, odd, 0, 0);
    attn_edit e = edit_of("blocks.1.attn.hook_pattern", ATTN_EDIT_SET);
    e.count = COUNT;
    e.value = random_tensor(3, 3, COUNT, COUNT);
    OK(&ctx, attn_hook_edit(&ctx, NULL, whole, &e));
    OK(&ctx, attn_hook_edit(&ctx, NULL, cut, &e));
    OK(&ctx, attn_feed(&ctx, whole, tokens, LENGTH));
    OK(&ctx, attn_feed(&ctx, cut, tokens, COUNT));
    OK(&ctx, attn_feed(&ctx, cut, tokens + COUNT, LENGTH - COUNT));
    same_logits(attn_session_logits(whole), attn_session_logits(cut), 1, odd, "a cut text");
    attn_session_free(whole);
    attn_session_free(cut);
}

/* Leading dimensions of a value may be missing: [H, d] for one position, [T, d] for one head,
 * [T, Tk] for the patterns of all heads. */
TEST(values_without_leading_dimensions)
{
    enum { LENGTH = 12 };
    static const struct {
        const char *name;
        size_t head, n_heads;
        int full[3], part[2];
    } ways[] = {{"blocks.1.attn.hook_z", 0, 0, {1, 3, 16}, {3, 16}},
                {"blocks.1.attn.hook_z", 2, 1, {LENGTH, 1, 16}, {LENGTH, 16}},
                {"blocks.1.attn.hook_z", 2, 0, {LENGTH, 1, 16}, {LENGTH, 16}}, /* the last head */
                {"blocks.1.attn.hook_pattern", 0, 0, {1, LENGTH, LENGTH}, {LENGTH, LENGTH}}};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 3);
    float *logits[2];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        const attn_tensor full =
            random_tensor(3, ways[i].full[0], ways[i].full[1], ways[i].full[2]);
        for (size_t way = 0; way < 2; way++) {
            SCOPED_SESSION session = session_on(&ctx, odd, 0, 0);
            attn_edit e = edit_of(ways[i].name, ATTN_EDIT_ADD);
            e.first_head = ways[i].head;
            e.n_heads = ways[i].n_heads;
            e.value = way ? attn_reshape(
                                full, attn_shape2((size_t)ways[i].part[0], (size_t)ways[i].part[1]))
                          : full;
            logits[way] = (float *)pool_new(vocab_of(odd) * sizeof(float));
            OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
            OK(&ctx, attn_feed(&ctx, session, tokens, LENGTH));
            memcpy(logits[way], attn_session_logits(session), vocab_of(odd) * sizeof(float));
        }
        same_logits(logits[1], logits[0], 1, odd, ways[i].name);
    }
}

/* Later keys stay hidden whatever is written to scores or patterns, so an edit gives the same bits
 * however a text is cut. */
TEST(edits_however_a_text_is_cut)
{
    enum { LENGTH = 24 };
    static const char *const names[] = {"blocks.1.attn.hook_attn_scores",
                                        "blocks.1.attn.hook_pattern"};
    static const size_t n_batch[] = {256, 4, 1};
    attn_ctx ctx = alone();
    const int32_t *const tokens = random_tokens(odd, LENGTH, 4);
    float *want;
    for (size_t i = 0; i < 2; i++) {
        attn_edit e = edit_of(names[i], i ? ATTN_EDIT_ADD : ATTN_EDIT_ZERO);
        e.value = random_tensor(3, 1, 1, LENGTH);
        want = NULL;
        for (size_t b = 0; b < 3; b++) {
            SCOPED_SESSION session = session_on(&ctx, odd, 0, n_batch[b]);
            OK(&ctx, attn_hook_edit(&ctx, NULL, session, &e));
            float *got = feed_all(&ctx, session, tokens, LENGTH, LENGTH);
            if (want)
                same_logits(got, want, LENGTH, odd, names[i]);
            want = got;
        }
    }
}

/* ---- keys and values kept as f16 ---- */

TEST(arguments_of_records)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    static const char *const names[] = {"*hook_resid_pre", NULL};
    attn_record_desc desc;
    SCOPED_RECORD record = NULL;
    size_t bytes = 0;
    memset(&desc, 0, sizeof desc);
    REFUSED(ARGUMENT, "no model or session", attn_record_size(&ctx, &bytes, NULL, NULL));
    REFUSED(ARGUMENT, "no model or session", record_in(&ctx, &record, NULL, NULL, &bytes, 8));
    desc.n_names = 2;
    REFUSED(ARGUMENT, "name 0 is missing", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.names = names;
    REFUSED(ARGUMENT, "name 1 is missing", attn_record_size(&ctx, &bytes, plain, &desc));
    REFUSED(ARGUMENT, "name 1 is missing", record_in(&ctx, &record, session, &desc, &bytes, 8));
    desc.n_names = 1;
    desc.first = attn_model_config(plain)->n_ctx;
    REFUSED(ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.first = 1;
    desc.n_positions = attn_model_config(plain)->n_ctx;
    REFUSED(ARGUMENT, "the model's n_ctx is", attn_record_size(&ctx, &bytes, plain, &desc));
    desc.first = desc.n_positions = 0;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_record_size(&ctx, &bytes, plain, &desc));
    float *memory = (float *)pool_new(bytes);
    OK(&ctx, record_in(&ctx, &record, session, &desc, memory, bytes));
    OK(&ctx, attn_feed(&ctx, session, ten, 4));
    REFUSED(ARGUMENT, "no record",
            attn_record_get(&ctx, &not_made, NULL, "blocks.0.hook_resid_pre"));
    REFUSED(ARGUMENT, "no name", attn_record_get(&ctx, &not_made, record, NULL));
    REFUSED(ARGUMENT, "place for the tensor",
            attn_record_get(&ctx, NULL, record, "blocks.0.hook_resid_pre"));
    REFUSED(ARGUMENT, "no record", lens_save_record(&ctx, test_tmp("x.safetensors"), NULL));
}

TEST(arguments_of_edits)
{
    SCOPED_CTX ctx = {0};
    SCOPED_SESSION session = session_on(&ctx, plain, 0, 0);
    const attn_config *c = attn_model_config(plain);
    attn_tensor mean = some(1, c->d_model, 1, 1), got = no_tensor;
    sight *s = new_sight();
    attn_edit edit = {.name = "blocks.0.hook_resid_mid"};
    for (int kind = ATTN_EDIT_SET; kind <= ATTN_EDIT_SCALE; kind++) {
        edit.kind = (attn_edit_kind)kind;
        REFUSED(ARGUMENT, "the value is no tensor", attn_hook_edit(&ctx, NULL, session, &edit));
    }
    edit.kind = ATTN_EDIT_SET;
    edit.value.error = "a reason";
    REFUSED(ARGUMENT, "the value is no tensor: a reason",
            attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some_ids(c->d_model, 0);
    REFUSED(ARGUMENT, "expected ATTN_F32", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value.ndim = 7;
    REFUSED(ARGUMENT, "the value has 7 dimensions", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = some(3, 1, 1, c->d_model); /* there are no heads here */
    REFUSED(SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.value = mean;
    edit.n_heads = 1;
    REFUSED(ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.name = "blocks.0.attn.hook_z";
    edit.value = some(1, c->d_head, 1, 1);
    edit.n_heads = c->n_head + 1;
    REFUSED(ARGUMENT, "heads from", attn_hook_edit(&ctx, NULL, session, &edit));
    edit.n_heads = 1;
    edit.value = some(3, 1, 2, c->d_head);
    REFUSED(SHAPE, "attn_hook_edit", attn_hook_edit(&ctx, NULL, session, &edit));

    /* the mean over one position is what stands there, at every position from 1 on */
    edit.name = "blocks.0.hook_resid_mid";
    edit.n_heads = 0;
    edit.kind = ATTN_EDIT_MEAN;
    edit.value = mean;
    edit.first = 1;
    ctx.status = ATTN_OK;
    OK(&ctx, attn_hook_edit(&ctx, NULL, session, &edit));
    OK(&ctx, attn_hook(&ctx, NULL, session, "blocks.0.hook_resid_mid", note, s));
    OK(&ctx, attn_feed(&ctx, session, ten, 3));
    got = latest(s, "blocks.0.hook_resid_mid");
    if (CHECK(got.ndim == 2)) {
        CHECK(differ((const float *)got.data, (const float *)mean.data, c->d_model));
        CHECK(
            !differ((const float *)got.data + got.stride[0], (const float *)mean.data, c->d_model));
        CHECK(!differ((const float *)got.data + 2 * got.stride[0], (const float *)mean.data,
                      c->d_model));
    }
}
