/* lens record --shuffle: every row of all texts once, in the order that the seed gives, in files of NumPy.
 * tests/compare/truth/compare_cache.py has sae-lens read them. */
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
    for (int i = 0; file && i < N_TEXTS; i++) {
        fputs(i == 7 ? "{\"text\": 3}\n{\"text\": \"Once" : "{\"text\": \"Once", file);
        for (int k = i * 5 % 23; k > 0; k--)
            fputs(k % 3 ? " was" : " a cat", file);
        fputs("\"}\n", file);
    }
    if (CHECK(file != NULL))
        fclose(file);
    CHECK(run("rm -rf " TMP "mixed " TMP "plain && mkdir " TMP "mixed " TMP "plain") == 0);
}

/* The files of one activation: ids [rows] and x [rows, width], in place behind the headers. */
typedef struct cache {
    unsigned char *files[2];
    size_t sizes[2], rows;
    const int32_t *ids;
    const float *x;
} cache;

static cache read_cache(size_t rows)
{
    cache c = {0};
    c.files[0] = test_read(TMP "mixed/blocks.2.hook_resid_pre.npy", &c.sizes[0]);
    c.files[1] = test_read(TMP "mixed/token_ids.npy", &c.sizes[1]);
    c.rows = rows;
    if (!CHECK(c.files[0] && c.sizes[0] == 128 + 4 * WIDTH * rows &&
               strstr((char *)c.files[0] + 10, "'<f4'") && c.files[1] &&
               c.sizes[1] == 128 + 4 * rows && strstr((char *)c.files[1] + 10, "'<i4'")))
        return c;
    c.x = (const float *)(const void *)(c.files[0] + 128);
    c.ids = (const int32_t *)(const void *)(c.files[1] + 128);
    return c;
}

static int is_same(const cache *a, const cache *b)
{
    return a->x && b->x && memcmp(a->files[0], b->files[0], a->sizes[0]) == 0 &&
           memcmp(a->files[1], b->files[1], a->sizes[1]) == 0;
}

static void free_cache(const cache *c)
{
    free(c->files[0]);
    free(c->files[1]);
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
    size_t size;
    write_lines();
    if (!works(RECORD RESID "-o " TMP "plain"))
        return;
    SCOPED_BYTES shard = test_read(TMP "plain/00001.safetensors", &size);
    size_t all = safetensor(shard, "ids").shape[0];
    size_t rows = all / 16 * 16;
    CHECK(all > 300 && rows < all);
    CHECK(run(LENS MODEL "record --lines " TMP "mixed.jsonl " RESID "-o " TMP
                         "mixed --shuffle 7 --rows 16") == 0 &&
          strstr(err, "1 of 41 texts were refused") && strstr(err, " rows in random order, ") &&
          strstr(err, "left out"));
    cache first = read_cache(rows);
    same_rows(&first, shard, all, 7);
    CHECK(run("cat " TMP "mixed/index.jsonl; ls " TMP "mixed") == 0);
    CHECKF(strstr(out, "\"shuffle\": 7") && strstr(out, "{\"line\": 8, \"error\": ") &&
               strstr(out, "{\"file\": \"blocks.2.hook_resid_pre.npy\", \"rows\": ") &&
               strstr(out, "{\"file\": \"token_ids.npy\", \"rows\": ") &&
               strstr(out, "\"context\": 16, ") && !strstr(out, "rows.part"),
           "%s", out);
    CHECK(first.x && strstr((char *)first.files[0] + 10, ", 16, 192)"));
    /* other threads and, as they take long, sometimes other instructions: the same bytes; another seed: the
     * same rows in another order */
    CHECK(run("rm " TMP "mixed/*") == 0);
    CHECK(works(test_full() ? RECORD RESID "-o " TMP
                                           "mixed --shuffle 7 --rows 16 --threads 1 --isa portable"
                            : RECORD RESID "-o " TMP "mixed --shuffle 7 --rows 16 --threads 1"));
    cache second = read_cache(rows);
    CHECK(is_same(&first, &second));
    free_cache(&second);
    CHECK(run("rm " TMP "mixed/*") == 0);
    CHECK(works(RECORD RESID "-o " TMP "mixed --shuffle 8 --rows 16"));
    second = read_cache(rows);
    same_rows(&second, shard, all, 8);
    CHECK(!is_same(&first, &second));
    free_cache(&first);
    free_cache(&second);
}

/* Rows that are larger than a block: each goes to the disk by itself. */
TEST(shuffled_large_rows)
{
    size_t size;
    write_lines();
    CHECK(works(RECORD "'*.hook_result' '*.hook_attn_in' '*.hook_q_input' '*.hook_k_input' -o " TMP
                       "mixed --shuffle 1 --rows 8"));
    CHECK(run("ls " TMP "mixed") == 0);
    CHECKF(strstr(out, "blocks.0.attn.hook_result.npy\n") && strstr(out, "token_ids.npy\n") &&
               !strstr(out, "part"),
           "%s", out);
    SCOPED_BYTES file = test_read(TMP "mixed/blocks.0.attn.hook_result.npy", &size);
    CHECK(file && size > 1000000);
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
              "mixed/token_ids.npy && test ! -e " TMP "mixed/blocks.2.hook_resid_pre.npy") == 0);
    refuses(1, "index.jsonl is there already", RECORD RESID "-o " TMP "mixed --shuffle 7");
}
