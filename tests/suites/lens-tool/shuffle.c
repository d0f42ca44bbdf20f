/* lens record --shuffle: every row of all texts once, in the order that the seed gives, in a file of Arrow.
 * tests/compare/truth/compare_cache.py has sae-lens read it. */
#include "tools/common/system.h"
#include "lens_tool.h"

SUITE_WITH(NULL, tear_down);

#define RECORD LENS MODEL "record -q --lines " TMP "mixed.jsonl "
#define RESID  "blocks.2.hook_resid_pre "

enum { WIDTH = 192, N_TEXTS = 40, BUCKETS = 1024 };

/* Texts of different lengths, and one that is refused. */
static void write_lines(void)
{
    FILE *file = fopen(TMP "mixed.jsonl", "w");
    int i, k;
    for (i = 0; file && i < N_TEXTS; i++) {
        fputs(i == 7 ? "{\"text\": 3}\n{\"text\": \"Once" : "{\"text\": \"Once", file);
        for (k = i * 5 % 23; k > 0; k--)
            fputs(k % 3 ? " was" : " a cat", file);
        fputs("\"}\n", file);
    }
    if (CHECK(file != NULL))
        fclose(file);
    CHECK(run("rm -rf " TMP "mixed " TMP "plain && mkdir " TMP "mixed " TMP "plain") == 0);
}

/* The data of a file with one batch and one activation: ids [rows] and x [rows, width], in place. */
typedef struct cache {
    unsigned char *bytes;
    size_t size, rows;
    const int32_t *ids;
    const float *x;
} cache;

static cache read_cache(size_t rows)
{
    cache c;
    size_t ids = (rows * 4 + 7) / 8 * 8, x = (rows * WIDTH * 4 + 7) / 8 * 8;
    memset(&c, 0, sizeof c);
    c.bytes = test_read(TMP "mixed/data-00000-of-00001.arrow", &c.size);
    c.rows = rows;
    if (!CHECK(c.bytes != NULL) || !CHECK(c.size > 8 + ids + x))
        return c;
    c.ids = (const int32_t *)(const void *)(c.bytes + c.size - 8 - ids);
    c.x = (const float *)(const void *)(c.bytes + c.size - 8 - ids - x);
    return c;
}

/* The order that a seed gives to n rows: each goes to one of the buckets; then each bucket is shuffled. */
static void expected_order(size_t *order, size_t n, uint64_t seed)
{
    attn_rng rng;
    size_t *bucket = (size_t *)pool_new(n * sizeof *bucket), b, i, j, first = 0, end = 0;
    attn_rng_seed(&rng, seed);
    for (i = 0; i < n; i++)
        bucket[i] = attn_rng_u32(&rng) % BUCKETS;
    for (b = 0; b < BUCKETS; b++, first = end) {
        for (i = 0; i < n; i++)
            if (bucket[i] == b)
                order[end++] = i;
        for (i = end - first; i > 1; i--) {
            const size_t with = (size_t)((uint64_t)attn_rng_u32(&rng) * i >> 32);
            const size_t other = order[first + with];
            order[first + with] = order[first + i - 1];
            order[first + i - 1] = other;
        }
    }
    for (i = j = 0; i < n; i++)
        j += order[i] == i;
    CHECK(end == n && j < n / 4);
}

/* Each row must be that of the shard without --shuffle. */
static void same_rows(const cache *c, const unsigned char *shard, size_t all, uint64_t seed)
{
    const attn_tensor x = safetensor(shard, "blocks.2.hook_resid_pre");
    const attn_tensor ids = safetensor(shard, "ids");
    size_t *order = (size_t *)pool_new(all * sizeof *order), i, same = 0;
    expected_order(order, all, seed);
    for (i = 0; c->ids && i < c->rows; i++)
        same += memcmp(c->x + i * WIDTH, (const float *)x.data + order[i] * WIDTH,
                       WIDTH * sizeof(float)) == 0 &&
                c->ids[i] == ((const int32_t *)ids.data)[order[i]];
    CHECKF(same == c->rows, "%zu of %zu rows", same, c->rows);
}

TEST(shuffled_rows)
{
    unsigned char *shard;
    size_t all, rows, size;
    cache first, second;
    write_lines();
    if (!works(RECORD RESID "-o " TMP "plain"))
        return;
    shard = test_read(TMP "plain/00001.safetensors", &size);
    all = safetensor(shard, "ids").shape[0];
    rows = all / 16 * 16;
    CHECK(all > 300 && rows < all);
    CHECK(run(LENS MODEL "record --lines " TMP "mixed.jsonl " RESID "-o " TMP
                         "mixed --shuffle 7 --rows 16") == 0 &&
          strstr(err, "1 of 41 texts were refused") && strstr(err, " rows in random order, ") &&
          strstr(err, "left out"));
    first = read_cache(rows);
    same_rows(&first, shard, all, 7);
    CHECK(run("cat " TMP "mixed/index.jsonl " TMP "mixed/state.json " TMP
              "mixed/dataset_info.json; "
              "ls " TMP "mixed") == 0);
    CHECKF(strstr(out, "\"shuffle\": 7") && strstr(out, "{\"line\": 8, \"error\": ") &&
               strstr(out, "\"_data_files\": [{\"filename\": \"data-00000-of-00001.arrow\"}]") &&
               strstr(out, "\"blocks.2.hook_resid_pre\": {\"shape\": [16, 192], \"dtype\": "
                           "\"float32\", \"_type\": \"Array2D\"}") &&
               !strstr(out, "rows.part"),
           "%s", out);
    /* other threads and, as they take long, sometimes other instructions: the same bytes; another seed: the
     * same rows in another order */
    CHECK(run("rm " TMP "mixed/*") == 0);
    CHECK(works(test_full() ? RECORD RESID "-o " TMP
                                           "mixed --shuffle 7 --rows 16 --threads 1 --isa portable"
                            : RECORD RESID "-o " TMP "mixed --shuffle 7 --rows 16 --threads 1"));
    second = read_cache(rows);
    CHECK(first.size == second.size && memcmp(first.bytes, second.bytes, first.size) == 0);
    free(second.bytes);
    CHECK(run("rm " TMP "mixed/*") == 0);
    CHECK(works(RECORD RESID "-o " TMP "mixed --shuffle 8 --rows 16"));
    second = read_cache(rows);
    same_rows(&second, shard, all, 8);
    CHECK(memcmp(first.bytes, second.bytes, first.size) != 0);
    free(first.bytes);
    free(second.bytes);
    free(shard);
}

/* Rows that are larger than a block: each goes to the disk by itself. */
TEST(shuffled_large_rows)
{
    size_t size;
    unsigned char *file;
    write_lines();
    CHECK(works(RECORD "'*.hook_result' '*.hook_attn_in' '*.hook_q_input' '*.hook_k_input' -o " TMP
                       "mixed --shuffle 1 --rows 8"));
    CHECK(run("ls " TMP "mixed") == 0);
    CHECKF(strcmp(out, "data-00000-of-00001.arrow\ndataset_info.json\nindex.jsonl\nstate.json\n") ==
               0,
           "%s", out);
    file = test_read(TMP "mixed/data-00000-of-00001.arrow", &size);
    CHECK(file && size > 25000000);
    free(file);
}

TEST(shuffle_refused)
{
    write_lines();
    refuses(2, "--shuffle needs all rows at once: leave out --resume",
            RECORD RESID "-o " TMP "mixed --shuffle 7 --resume");
    refuses(2, "--shuffle is for the texts of --lines",
            LENS MODEL "record Once hook_embed -o " TMP "a.npz --shuffle 7");
    refuses(1, "tokens, but an entry of the data set 100000 (--rows)",
            RECORD RESID "-o " TMP "mixed --shuffle 7 --rows 100000");
    CHECK(run("test ! -e " TMP "mixed/rows.part && rm -f " TMP "mixed/*") == 0);
    refuses(1, "an entry of the data set would be too large",
            RECORD RESID "-o " TMP "mixed --shuffle 7 --rows 1000000000");
    CHECK(run("test ! -e " TMP "mixed/rows.part && rm -f " TMP "mixed/*") == 0);
    CHECK(run("trap '' XFSZ; ulimit -f 200; " RECORD RESID "-o " TMP
              "mixed --shuffle 7 --rows 16") == 1);
    CHECK(run("test ! -e " TMP "mixed/rows.part && test ! -e " TMP
              "mixed/state.json && test ! -e " TMP "mixed/data-00000-of-00001.arrow") == 0);
    refuses(1, "index.jsonl is there already", RECORD RESID "-o " TMP "mixed --shuffle 7");
}
