/* Files that the library writes: arrays and models, under names that are in use, on full disks,
 * into pipes and devices. A file takes its name when it is whole. */
#define _XOPEN_SOURCE 700        /* for SIGXFSZ under -std=c99 */
#include "tools/common/system.h" /* first: it asks for 64-bit file offsets */
#include "tools/lens/save.h"
#include "tools/write/writer.h"
#include "tests/support/refused.h"
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include "tests/support/shared_models.h"

SUITE_WITH_MODELS("plain");

/* Files of arrays: every type, any layout, names that zip and JSON can hold, a full disk. */
TEST(saved_tensors)
{
    SCOPED_CTX ctx = {0};
    static const char *const names[] = {"halves", "whole", "turned", "empty", "columns"};
    const char *name = "x";
    const size_t dims[2] = {3, 4};
    attn_tensor values[5], bad = no_tensor;
    char script[1024], longest[103];
    values[0] = new_tensor(ATTN_F16, 2, dims, LAYOUT_DENSE);
    values[4] = new_tensor(ATTN_F16, 2, dims, LAYOUT_COLUMNS);
    for (size_t i = 0; i < 12; i++) {
        set_value(values[0], i, (float)i / 4);
        set_value(values[4], i, (float)i / 8);
    }
    values[1] = some_ids(6, -3);
    values[2] = attn_transpose(some(2, 2, 5, 1), 0, 1);
    values[3] = no_tensor;
    OK(&ctx, attn_zeros(&ctx, &values[3], ATTN_F32, attn_shape2(2, 0)));
    const char *const path = test_text("%s", test_tmp("arrays.safetensors"));
    OK(&ctx, lens_save(&ctx, path, names, values, 5));
    OK(&ctx, lens_save(&ctx, test_tmp("arrays.npz"), names, values, 5));
    /* numpy reads them back, if there is one */
    snprintf(
        script, sizeof script,
        "for p in python3 /usr/bin/python3; do $p -c 'import numpy' 2>/dev/null && { $p -c '\n"
        "import numpy, sys\n"
        "z = numpy.load(\"%s\")\n"
        "a = numpy.arange(12).reshape(3, 4)\n"
        "assert z[\"halves\"].dtype == \"<f2\" and (z[\"halves\"] == a / 4).all()\n"
        "assert z[\"columns\"].dtype == \"<f2\" and (z[\"columns\"] == a / 8).all()\n"
        "assert z[\"whole\"].dtype == \"<i4\" and (z[\"whole\"] == numpy.arange(-3, 3)).all()\n"
        "assert z[\"turned\"].shape == (5, 2) and z[\"empty\"].shape == (2, 0)\n"
        "'; exit; }; done; exit 0",
        test_tmp("arrays.npz"));
    CHECK(system(script) == 0);
    REFUSED(ARGUMENT, "no names", lens_save(&ctx, TEST_BUILD "/x.npz", NULL, values, 1));
    REFUSED(ARGUMENT, "no tensors", lens_save(&ctx, TEST_BUILD "/x.npz", names, NULL, 1));
    REFUSED(ARGUMENT, "no names", lens_save(&ctx, path, NULL, values, 1));
    REFUSED(ARGUMENT, "no tensors", lens_save(&ctx, path, names, NULL, 1));
    memset(longest, 'a', sizeof longest);
    longest[101] = 0;
    name = longest;
    CHECK(lens_save(&ctx, path, &name, values, 1) != ATTN_OK);
    longest[100] = 0;
    ctx.status = ATTN_OK;
    OK(&ctx, lens_save(&ctx, path, &name, values, 1));
    for (size_t i = 0; i < 6; i++) {
        static const char *const wrong[] = {"", "a b", "a\x7f", "a\"", "a/b", NULL};
        name = wrong[i];
        CHECKF(lens_save(&ctx, path, &name, values, 1) != ATTN_OK, "a tensor called %s",
               name ? name : "NULL");
        CHECK(lens_save(&ctx, TEST_BUILD "/x.npz", &name, values, 1) != ATTN_OK);
        ctx.status = ATTN_OK;
    }
    name = "x";
    REFUSED(ARGUMENT, "x is no tensor", lens_save(&ctx, TEST_BUILD "/x.npz", &name, &bad, 1));
    REFUSED(ARGUMENT, "x is no tensor", lens_save(&ctx, path, &name, &bad, 1));
    bad.error = "a reason";
    REFUSED(ARGUMENT, "x is no tensor: a reason", lens_save(&ctx, path, &name, &bad, 1));
    attn_tensor huge = attn_borrow(longest, ATTN_F32, attn_shape1(1));
    huge.ndim = 7;
    REFUSED(ARGUMENT, "x has 7 dimensions", lens_save(&ctx, path, &name, &huge, 1));
    huge.ndim = 1;
    huge.dtype = ATTN_Q4;
    REFUSED(ARGUMENT, "data type", lens_save(&ctx, path, &name, &huge, 1));
    huge = attn_borrow(longest, ATTN_F32, attn_shape1(1));
    huge.shape[0] = (size_t)(((uint64_t)1 << 40) + 1);
    huge.stride[0] = 0;
    if (sizeof(size_t) > 4) {
        REFUSED(SHAPE, "x is too large", lens_save(&ctx, path, &name, &huge, 1));
        huge.shape[0] = (size_t)((uint64_t)1 << 40);
        REFUSED(SPACE, "a .npz of 4 GiB", lens_save(&ctx, TEST_BUILD "/x.npz", &name, &huge, 1));
        huge.shape[1] = (size_t)((uint64_t)1 << 40);
        huge.ndim = 2;
        REFUSED(SPACE, "any file",
                lens_save(&ctx, test_tmp("arrays.safetensors"), &name, &huge, 1));
    }
    ctx.status = ATTN_OK;
}

/* An archive counts its entries with 16 bits, and 65535 says that another number counts. */
TEST(more_tensors_than_an_archive_holds)
{
    enum { MOST = 65534 };
    static char texts[MOST + 1][6];
    static const char *names[MOST + 1];
    static attn_tensor values[MOST + 1];
    static float one = 1;
    SCOPED_CTX ctx = {0};
    for (size_t i = 0; i <= MOST; i++) {
        snprintf(texts[i], sizeof texts[i], "%05u", (unsigned)i);
        names[i] = texts[i];
        values[i] = attn_borrow(&one, ATTN_F32, attn_shape1(1));
    }
    FAILS(SPACE, "65535 tensors are more than the 65534",
          lens_save(&ctx, test_tmp("x.npz"), names, values, MOST + 1));
    OK(&ctx, lens_save(&ctx, test_tmp("x.npz"), names, values, MOST));
}

#define DRAFTS TEST_TMP "drafts/"

static int in_drafts(const char *command)
{
    const char *const text = test_text("cd " DRAFTS " && %s", command);
    return system(text) == 0;
}

static attn_status save_one(attn_ctx *ctx, const char *path)
{
    static float numbers[4] = {1, 2, 3, 4};
    const char *const name = "x";
    const attn_tensor x = attn_borrow(numbers, ATTN_F32, attn_shape1(4));
    return lens_save(ctx, path, &name, &x, 1);
}

/* Files here grow no further than 20 bytes: what was there stays, and no draft does. */
TEST(drafts_that_fail)
{
    attn_ctx ctx = {0};
    struct rlimit before;
    CHECK(system("rm -rf " DRAFTS " && mkdir -p " DRAFTS) == 0);
    CHECK(in_drafts("echo old >kept.safetensors"));
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit little = before;
    little.rlim_cur = 20;
    CHECK(setrlimit(RLIMIT_FSIZE, &little) == 0);
    FAILS(IO, "writing failed: File too large", save_one(&ctx, DRAFTS "kept.safetensors"));
    FAILS(IO, "writing failed: File too large", save_one(&ctx, DRAFTS "new.safetensors"));
    FAILS(IO, "writing failed: File too large", lens_model_save(&ctx, DRAFTS "new.attn", plain));
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    signal(SIGXFSZ, SIG_DFL);
    CHECK(in_drafts("echo old | cmp - kept.safetensors && test \"$(ls)\" = kept.safetensors"));
}

/* Somebody else's draft, and a link that lies in its way, are let alone; permissions stay, and so does a link as the
 * output. */
TEST(drafts_of_others)
{
    attn_ctx ctx = {0};
    CHECK(in_drafts("echo old | tee kept.safetensors >pointed; chmod 462 kept.safetensors; ln -s "
                    "pointed link.safetensors; "
                    "echo hers >kept.safetensors.00.part; ln -s pointed kept.safetensors.01.part"));
    OK(&ctx, save_one(&ctx, DRAFTS "kept.safetensors"));
    OK(&ctx, save_one(&ctx, DRAFTS "link.safetensors"));
    CHECK(in_drafts(
        "cmp kept.safetensors pointed && test -L link.safetensors && "
        "test -n \"$(find kept.safetensors -perm 462)\" && test -L kept.safetensors.01.part && "
        "echo hers | cmp - kept.safetensors.00.part && test ! -e kept.safetensors.02.part"));
    CHECK(in_drafts("for i in 0 1 2 3 4 5 6 7 8 9; do for j in 0 1 2 3 4 5 6 7 8 9; do "
                    "touch kept.safetensors.$i$j.part; done; done"));
    FAILS(IO, "100 unfinished ones exist", save_one(&ctx, DRAFTS "kept.safetensors"));
    CHECK(in_drafts("cmp kept.safetensors link.safetensors"));
}

/* A name of 255 bytes, to which nothing can be added. A model is saved over the file that it is
 * mapped from: what is mapped stays as it was. */
TEST(the_longest_name)
{
    const int32_t tokens[] = {1, 2, 3};
    attn_ctx ctx = {0};
    char longest[300] = DRAFTS;
    const size_t at = strlen(longest);
    attn_model *own = NULL;
    attn_session *session = NULL;
    memset(longest + at, 'n', 243);
    memcpy(longest + at + 243, ".safetensors", 13);
    OK(&ctx, save_one(&ctx, longest));
    CHECK(in_drafts("cmp nnn*.safetensors kept.safetensors"));
    OK(&ctx, lens_model_save(&ctx, longest, plain));
    if (OK(&ctx, attn_model_open(&ctx, &own, longest, NULL)) &&
        OK(&ctx, lens_model_save(&ctx, longest, own)) &&
        OK(&ctx, attn_session_new(&ctx, &session, own, NULL)))
        OK(&ctx, attn_feed(&ctx, session, tokens, 3));
    attn_session_free(session);
    attn_model_close(own);
    if (OK(&ctx, attn_model_open(&ctx, &own, longest, NULL)))
        attn_model_close(own);
    CHECK(in_drafts("rm nnn*.safetensors && test ! -e attn.00.part"));
}

/* The system's name for a file that is open leads to that file, not to one of the name it has. `stream`: the
 * stream that is that file meanwhile. */
static void written_where_it_is_open(const char *name, int stream)
{
    attn_ctx ctx = {0};
    attn_model *own = NULL;
    lens_new_file *begun = NULL;
    FILE *file = fopen(DRAFTS "opened", "wb+");
    const int usual = dup(stream);
    if (!CHECK(file != NULL && usual >= 0))
        return;
    const char *const path = test_text(name, fileno(file));
    const char *const part = test_text("%s.00.part", path);
    if (access(path, F_OK) == 0) {
        fflush(NULL);
        dup2(fileno(file), stream);
        OK(&ctx, lens_new_file_begin(&ctx, &begun, path));
        if (CHECKF(begun && access(part, F_OK) != 0, "%s would be replaced", path))
            OK(&ctx, lens_model_save(&ctx, path, plain));
        lens_new_file_end(&ctx, begun, ATTN_STOPPED);
        dup2(usual, stream);
        if (OK(&ctx, attn_model_open(&ctx, &own, DRAFTS "opened", NULL)))
            attn_model_close(own);
    }
    close(usual);
    fclose(file);
}

/* A device, a pipe, and an open file. */
TEST(written_in_place)
{
    attn_ctx ctx = {0};
    written_where_it_is_open("/dev/fd/%d", 1);
    written_where_it_is_open("/proc/self/fd/%d", 1);
    written_where_it_is_open("/dev/stdin", 0);
    written_where_it_is_open("/dev/stdout", 1);
    written_where_it_is_open("/dev/stderr", 2);
    if (access("/dev/shm", W_OK) == 0) { /* a directory for files of every kind */
        lens_new_file *file = NULL;
        OK(&ctx, lens_new_file_begin(&ctx, &file, "/dev/shm/attn-test"));
        CHECK(access("/dev/shm/attn-test.00.part", F_OK) == 0);
        CHECK(lens_new_file_end(&ctx, file, ATTN_STOPPED) == ATTN_STOPPED);
        ctx.status = ATTN_OK;
    }
    CHECK(in_drafts(
        "mkfifo pipe.safetensors && { cat pipe.safetensors >piped & } && mkdir dir.safetensors && "
        "ln -s /dev/null null.safetensors && ln -s /dev/full full.safetensors"));
    OK(&ctx, save_one(&ctx, DRAFTS "pipe.safetensors"));
    OK(&ctx, save_one(&ctx, DRAFTS "null.safetensors"));
    FAILS(IO, "cannot be written: Is a directory", save_one(&ctx, DRAFTS "dir.safetensors"));
    FAILS(IO, "cannot be written: No such file",
          save_one(&ctx, DRAFTS "dir.safetensors/no/x.safetensors"));
    if (system("test -c /dev/full") == 0)
        FAILS(IO, "No space left on device", save_one(&ctx, DRAFTS "full.safetensors"));
    CHECK(in_drafts("test -p pipe.safetensors && test -L null.safetensors && test -c /dev/null && "
                    "while ! cmp -s piped kept.safetensors; do sleep 0.01; done"));
    CHECK(system("rm -r " DRAFTS) == 0);
}

/* Where a file cannot take its name, none is left under another. */
TEST(models_that_cannot_be_saved)
{
    attn_ctx ctx = {0};
    const char *const path = TEST_TMP "a-directory";
    CHECK(system("mkdir -p " TEST_TMP "a-directory/full") == 0);
    FAILS(IO, "a-directory", lens_model_save(&ctx, path, plain));
    CHECK(system("test ! -e " TEST_TMP "a-directory.00.part") == 0);
    FAILS(ARGUMENT, "no path", lens_model_save(&ctx, NULL, plain));
    FAILS(ARGUMENT, "no path", lens_model_save(&ctx, "", plain));
    FAILS(IO, "", lens_model_save(&ctx, TEST_BUILD "/no/such/x.attn", plain));
}
