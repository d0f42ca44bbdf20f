/* tools/lens/program/lens.c, tried as a person uses it: through a shell, by its tables, its JSON, its files
 * and its exit codes. Numbers are held against PyTorch's (golden/make_golden.py), numpy's and the
 * library's own functions'; pictures are opened in Chromium, where there is one. */
#define FIXTURE_FILE "tests/fixtures/lens.bin" /* numpy in float64: make_lens_fixtures.py */
#include "tools/bench/bench_model.h"
#include "tools/lens/circuits.h"
#include "tools/lens/edges.h"
#include "tools/lens/heads.h"
#include "tools/lens/process_weights.h"
#include "tools/lens/save.h"
#include "tests/support/patches.h"
#include "tests/support/stream_parts.h"
#include "tests/support/fixture.h"
#include "lens_tool.h"

static const attn_tensor no_scale; /* a lens takes the stream's own */

SUITE_WITH(NULL, tear_down);

/* ---- models ---- */

static const char *const golden_names[] = {"plain", "odd"};
enum { PLAIN_MODEL, ODD_MODEL };

typedef struct reference {
    unsigned char *file;
    char model[64], ids[512];
    int32_t tokens[64];
    size_t n;
} reference;

/* Converts a golden model and reads what PyTorch made of its text. */
static int open_reference(int which, reference *r)
{
    size_t size;
    memset(r, 0, sizeof *r);
    snprintf(r->model, sizeof r->model, TMP "lens-tool-%s.attn", golden_names[which]);
    const char *const command =
        test_text(TEST_BUILD "/attn-convert tests/golden/%s %s --dtype f32 2>/dev/null",
                  golden_names[which], r->model);
    const char *const path =
        test_text("tests/golden/%s/reference.safetensors", golden_names[which]);
    r->file = test_read(path, &size);
    if (!CHECK(run("%s", command) == 0) || !CHECKF(r->file != NULL, "%s cannot be read", path))
        return 0;
    attn_tensor tokens = safetensor(r->file, "tokens"); /* I64, little-endian */
    for (size_t i = 0; i < tokens.shape[0] && CHECK(i < 64); i++) {
        const unsigned char *p = (const unsigned char *)tokens.data + 8 * i;
        r->tokens[r->n++] = p[0] | p[1] << 8;
        sprintf(r->ids + strlen(r->ids), "%d ", (int)r->tokens[i]);
    }
    return 1;
}

static const char *command_of(const reference *r, const char *before, const char *after)
{
    static char command[2048];
    snprintf(command, sizeof command, LENS "%s %s --ids '%s' %s", r->model, before, r->ids, after);
    return command;
}

/* ---- cases ---- */

/* A random transcoder of the included model, for the examples of lens graph. */
static void write_transcoder(void)
{
    write_autoencoder(
        "my-transcoders/1",
        "{\"architecture\": \"transcoder\", \"d_in\": 192, \"d_out\": 192, \"d_sae\": 30, "
        "\"hook_name\": \"blocks.1.ln2.hook_normalized\", "
        "\"hook_name_out\": \"blocks.1.hook_mlp_out\"}");
}

/* `lens COMMAND --help` works for each command that `lens --help` lists, and its examples run. */
TEST(a_page_for_each_command)
{
    static const char call[] = "  lens model.attn";
    char *list = prints(LENS "--help"), *row = list ? strstr(list, "\nCommands") : NULL, *line;
    int n_commands = 0;
    write_transcoder();
    for (row = row ? strchr(row + 1, '\n') : NULL; row && row[1] == ' ';
         row = strchr(row + 1, '\n')) {
        char name[32];
        int n = 0, n_examples = 0;
        if (sscanf(row + 3, "%31[a-z-]", name) != 1)
            continue; /* more about the command before it */
        n_commands++;
        CHECK(run(LENS "--help %s", name) == 0 && strncmp(out, "Usage: lens MODEL", 17) == 0);
        SCOPED_TEXT page = (char *)malloc(out_size + 1);
        if (!page)
            return;
        memcpy(page, out, out_size + 1);
        for (line = page; *line; line++)
            n += *line == '\n';
        CHECKF(run(LENS "%s --help", name) == 0 && strcmp(out, page) == 0 &&
                   run(LENS "help %s", name) == 0 && strcmp(out, page) == 0,
               "%s", name);
        for (line = strtok(page, "\n"); line; line = strtok(NULL, "\n"))
            if (strncmp(line, call, sizeof call - 1) == 0) {
                char *file = strstr(line, " -o ");
                file = file ? file + 4 : strstr(line, "my-transcoders");
                n_examples++;
                CHECKF(run(LENS MODEL "%.*s%s%s", file ? (int)(file - line) - 17 : 99, line + 17,
                           file ? TMP : "", file ? file : "") == 0,
                       "%s: %s", line, err);
            }
        CHECKF(n <= 40 && n_examples > 0,
               "%s: %d lines, expected at most 40; %d examples, expected some", name, n,
               n_examples);
    }
    free(list);
    CHECKF(n_commands > 15, "--help lists %d commands", n_commands);
    CHECK(run(LENS "--help all") == 0 && strstr(out, "\nrecord:\nUsage: lens "));
    CHECK(run(LENS "--help nothing") == 0 && strstr(out, "Commands (COMMAND --help):"));
}

TEST(wrong_usage)
{
    refuses(2, "no model given", LENS);
    refuses(2, "no text given", LENS MODEL);
    refuses(2, "no text given", LENS MODEL "loss");
    refuses(2, "quote the text", LENS MODEL "Once upon a time");
    refuses(2, "there is no command pattern; do you mean patterns?",
            LENS MODEL "pattern 'Once upon'");
    refuses(2, "quote the text", LENS MODEL "loss Once upon");
    refuses(2, "give one text", LENS MODEL "--ids 1 --file x");
    refuses(2, "there is no option --wrong", LENS MODEL "Once --wrong");
    refuses(2, "--top: \"x\" is not a whole number", LENS MODEL "Once --top x");
    refuses(2, "from 0 to 1000000", LENS MODEL "Once --top 1000001");
    refuses(2, "--top needs a value: K", LENS MODEL "Once --top");
    refuses(2, "--json takes no value", LENS MODEL "Once --json=1");
    refuses(2, "--layer means nothing to loss", LENS MODEL "loss Once --layer 1");
    refuses(2, "--token means nothing to tokens", LENS MODEL "Once --token x");
    refuses(2, "patch needs two texts", LENS MODEL "patch Once");
    refuses(2, "path needs two texts", LENS MODEL "path Once");
    refuses(2, "--from: \"1\": expected a head such as 0.1", LENS MODEL "path Once Tom --from 1");
    refuses(2, "expected a head such as 0.1", LENS MODEL "path Once Tom --from 1.2,1.3");
    refuses(2, "--to: \"hook_q_input\": expected a receiver",
            LENS MODEL "path Once Tom --to hook_q_input");
    refuses(2, "expected a receiver", LENS MODEL "path Once Tom --to blocks.1.attn.hook_z");
    refuses(2, "expected a receiver", LENS MODEL "path Once Tom --to blocks.1.hook_q_input");
    refuses(2, "expected a receiver", LENS MODEL "path Once Tom --to blocks.1.hook_mlp_in.2");
    refuses(2, "--from means nothing to patch", LENS MODEL "patch Once Tom --from 0.0");
    refuses(2, "circuits reads no text: leave out \"Once\"", LENS MODEL "circuits Once");
    refuses(2, "circuits reads no text: leave out \"Once\"", LENS MODEL "Once circuits");
    refuses(2, "--ids means nothing to circuits", LENS MODEL "circuits --ids 11");
    refuses(2, "--against needs --token", LENS MODEL "attribute Once --against x");
    refuses(2, "give one of them", LENS MODEL "Once --json -o x.html");
    refuses(2, "record writes a file", LENS MODEL "record Once");
    refuses(2, "must end in .safetensors or .npz", LENS MODEL "record Once -o x.html");
    refuses(2, "must end in .html, .svg, .csv, .json or .npz", LENS MODEL "loss Once -o x.txt");
    refuses(2, "no token id at \"x\"", LENS MODEL "--ids 'x'");
    refuses(2, "there is no \"zx\"", LENS MODEL "Once --isa zx");
    CHECK(run(LENS "--version") == 0 && strncmp(out, "lens of attn.h ", 15) == 0);
}

TEST(runs_that_fail)
{
    refuses(1, "nowhere.attn", LENS "nowhere.attn Once");
    refuses(1, "nowhere.txt: No such file", LENS MODEL "--file nowhere.txt");
    refuses(1, "not in the vocabulary of 2048", LENS MODEL "--ids 2048");
    refuses(1, "the text is empty", LENS MODEL "''");
    refuses(1, "has 257 tokens, but the model's context holds 256",
            LENS MODEL "--ids \"$(yes 11 | head -n 257)\"");
    refuses(1, "there is no layer 4: the model has 4", LENS MODEL "patterns Once --layer 4");
    refuses(1, "there is no head 6: a layer has 6", LENS MODEL "patterns Once --head 6");
    refuses(1, "there is no position 1: the text has 1", LENS MODEL "attribute Once --at 1");
    refuses(1, "there is no position 1: the text has 1", LENS MODEL "ablate Once --at 1");
    refuses(1, "a text of one token has no loss", LENS MODEL "ablate Once");
    refuses(1, "tokens, where one is needed", LENS MODEL "ablate Once --token 'Once upon'");
    refuses(1, "needs as many in both", LENS MODEL "patch 'Once upon' Once");
    refuses(1, "the logits are the same after both texts", LENS MODEL "patch Once Once");
    refuses(1, "no path leads from head 0 of layer 1 to blocks.1.hook_k_input.2",
            LENS MODEL "path Once Tom --from 1.0 --to blocks.1.hook_k_input.2");
    refuses(1, "has layers 0 to 3 of heads 0 to 5", LENS MODEL "path Once Tom --from 0.6");
    refuses(2, "--from: \"4.mlp\": expected a head", LENS MODEL "path Once Tom --from 4.mlp");
    refuses(2, "such as 0.1", LENS MODEL "path Once Tom --from mlp");
    refuses(1, "no path leads", LENS MODEL "path Once Tom --to blocks.0.hook_resid_pre");
    refuses(1, "needs as many in both", LENS MODEL "path 'Once upon' Once");
    refuses(1, "hook_nothing", LENS MODEL "patch Once Tom --token ' a' hook_nothing");
    refuses(1, "tokens, where one is needed", LENS MODEL "attribute Once --token 'Once upon'");
    refuses(1, "is not one token id", LENS MODEL "attribute --ids 11 --token '11 12'");
    refuses(1, "lens: no activation is called", /* and not by which function */
            LENS MODEL "record Once -o " TMP "never.npz nonsense");
    refuses(1, "blocks.0.hook_resid_pre",
            LENS MODEL "record Once -o " TMP "never.npz blocks.0.hook_resid_pro");
    refuses(1, "nowhere/x.html: cannot be written: No such file",
            LENS MODEL "loss 'Once upon' -o nowhere/x.html");
    refuses(1, "nowhere/x.npz", LENS MODEL "record Once -o nowhere/x.npz");
    refuses(1, "cannot write the output: No space left on device", LENS MODEL "Once >/dev/full");
    CHECK(run("ls " TMP "never*") != 0);
    CHECK(run("cp /dev/null " TMP "full.svg; trap '' XFSZ; ulimit -f 4; " LENS MODEL
              "heads 'Once upon a time' -o " TMP "full.svg") == 1);
    CHECKF(strstr(err, "full.svg: writing failed: File too large") != NULL, "%s", err);
    CHECK(run("test ! -s " TMP "full.svg && ls " TMP "full.svg* | wc -l | grep -qx 1") == 0);
}

TEST(ways_to_give_a_text)
{
    const char *const whole = LENS MODEL "'Once upon a time'";
    test_write(TMP "lens.txt", "Once upon a time", 16);
    same(whole, LENS MODEL "tokens 'Once upon a time'");
    same(whole, LENS MODEL "'Once upon a time' tokens");
    same(whole, LENS MODEL "--ids '506 511 258 433'");
    same(whole, LENS MODEL "--ids '506,511, 258\n433' tokens");
    same(whole, LENS MODEL "--file " TMP "lens.txt");
    same(whole, LENS MODEL "- <" TMP "lens.txt");
    same(whole, LENS MODEL "<" TMP "lens.txt"); /* piped in: no - is needed */
    same(whole, LENS "-m " MODEL "-p 'Once upon a time' -t1");
    same(whole, LENS "-m " MODEL "tokens 'Once upon a time'");
    same(whole, LENS "--threads 1 --isa portable --top=5 " MODEL "-- 'Once upon a time'");
    same(LENS MODEL "loss 'Once upon'", LENS MODEL "'Once upon' loss");
    same(LENS MODEL "loss 'Once upon'", LENS "loss " MODEL "'Once upon'");
    same(LENS MODEL "patch Once Tom --token ' a'", LENS "patch " MODEL "Once Tom --token ' a'");
    same(LENS MODEL "-- tokens", LENS MODEL "tokens tokens");
    CHECK(run(LENS MODEL "circuit") == 0);
    CHECKF(strstr(err, "\"circuit\" is taken as a text; there is a command circuits"), "%s", err);
    same(LENS MODEL "--bos Once", LENS MODEL "--special '<|endoftext|>Once'");
    same(LENS MODEL "--bos", LENS MODEL "--ids 2047");
    same(LENS MODEL "patch Once Tom --token ' a'",
         LENS MODEL "patch --ids 506 --corrupted-ids \"$(" TEST_BUILD "/gpt2 " MODEL
                    "Tom -n 0 -q --print-ids)\" --token 258");
}

/* Every number of the library. */
TEST(losses)
{
    SCOPED_STORY s = {0};
    attn_token_stats stats[64];
    attn_prediction top[64 * 3];
    double mean = 0;
    if (!open_story(&s, TINY, TEXT))
        return;
    OK(&s.ctx, attn_score(&s.ctx, stats, &(attn_top){top, 3}, s.session, s.tokens, s.n));
    const json_value *all = parse(LENS MODEL "'" TEXT "' --json --top 3");
    const json_value *tokens = member(all, "tokens");
    for (size_t t = 0; tokens && t < s.n; t++) {
        const json_value *token = item(tokens, t);
        CHECK(number(member(token, "position")) == (double)t);
        for (size_t i = t * 3; i < t * 3 + 3; i++) {
            const json_value *const guess = table_row(all, "top", i);
            CHECK(number(member(guess, "position")) == (double)t &&
                  number(member(guess, "place")) == (double)(i % 3));
            CHECK(number(member(guess, "guess_id")) == top[i].token);
            is_float(member(guess, "logit"), top[i].logit, "a logit");
            is_float(member(guess, "probability"), top[i].probability, "of a guess");
        }
        if (t == 0) {
            CHECK(member(token, "loss")->kind == JSON_NULL);
            continue;
        }
        is_float(member(token, "loss"), stats[t - 1].nll, "a loss");
        is_float(member(token, "probability"), stats[t - 1].probability, "a probability");
        CHECK(number(member(token, "rank")) == (double)stats[t - 1].rank);
        mean += (double)stats[t - 1].nll / (double)(s.n - 1);
    }
    CHECK(number(fact(all, "n_tokens")) == (double)s.n);
    CHECK(fabs(number(fact(all, "mean_loss")) - mean) < 1e-6);
    CHECK(fabs(number(fact(all, "perplexity")) - exp(mean)) < 1e-4);
    CHECK(json_is(member(item(tokens, 1), "token"), " and"));
}

TEST(logit_lens)
{
    for (int saved = 0; saved < 2; saved++) {
        story s = {0};
        stream_parts parts = {0};
        attn_tensor logits = {0};
        attn_prediction top[64 * 2];
        attn_token_stats next[64];
        if (!open_story(&s, TINY, TEXT))
            return;
        OK(&s.ctx, take_apart(&s.ctx, &parts, s.model, LENS_PARTS_STREAMS, s.tokens, s.n, 0, 0));
        OK(&s.ctx, lens_logit_lens(&s.ctx, &logits, s.model, parts.stack,
                                   saved ? parts.scale : no_scale, no_scale));
        const json_value *all =
            parse(saved ? LENS MODEL "logit-lens '" TEXT "' --json --top 2 --saved-scale"
                        : LENS MODEL "logit-lens '" TEXT "' --json --top 2");
        if (!CHECK(member(all, "streams")->size == 5 * s.n &&
                   json_is(cell(all, "streams", 4 * s.n, "stream"), "final_post")))
            return;
        const json_value *guess = table_row(all, "top", 0);
        const json_value *stream = table_row(all, "streams", 0);
        for (size_t i = 0; i < 5; i++) {
            OK(&s.ctx,
               attn_logit_stats(&s.ctx, next, &(attn_top){top, 2},
                                attn_slice(attn_select(logits, 0, i), 0, 0, s.n), s.tokens + 1));
            for (size_t t = 0; t < s.n; t++, stream += stream->span) {
                CHECK(number(member(stream, "layer")) == (double)i &&
                      number(member(stream, "position")) == (double)t);
                if (t + 1 < s.n)
                    is_float(member(stream, "loss"), next[t].nll, "a loss in a stream");
                else
                    CHECK(member(stream, "rank")->kind == JSON_NULL);
                for (size_t j = 0; j < 2; j++, guess += guess->span) {
                    CHECK(number(member(guess, "guess_id")) == top[t * 2 + j].token);
                    is_float(member(guess, "logit"), top[t * 2 + j].logit, "a lens's logit");
                }
            }
        }
        close_story(&s);
    }
}

/* Every weight is PyTorch's; a key that comes later has none. */
TEST(patterns)
{
    size_t n_heads = 0;
    reference r;
    double worst = 0;
    if (!open_reference(ODD_MODEL, &r))
        return;
    const json_value *all = member(parse(command_of(&r, "patterns", "--json")), "patterns");
    const json_value *row = item(all, 0);
    for (size_t i = 0; all && i < all->size; i++, row += row->span) {
        const size_t key = i % r.n, query = i / r.n % r.n, head = i / (r.n * r.n);
        attn_tensor want = safetensor(
            r.file, test_text("blocks.%d.attn.hook_pattern", (int)number(member(row, "layer"))));
        n_heads = want.shape[0];
        CHECK(number(member(row, "layer")) == (double)(head / n_heads) &&
              number(member(row, "head")) == (double)(head % n_heads) &&
              number(member(row, "query")) == (double)query &&
              number(member(row, "key")) == (double)key);
        worst = fmax(
            worst,
            fabs(number(member(row, "weight")) -
                 (key > query ? 0 : value_of(want, (head % n_heads * r.n + query) * r.n + key))));
    }
    CHECKF(worst < 2e-5, "a weight is off by %g", worst);
    all = member(parse(command_of(&r, "patterns", "--json --layer 1")), "patterns");
    CHECK(all && all->size == n_heads * r.n * r.n && number(member(item(all, 0), "layer")) == 1);
    all = member(parse(command_of(&r, "patterns", "--json --layer 1 --head 2")), "patterns");
    CHECK(all && all->size == r.n * r.n && number(member(item(all, 0), "head")) == 2);
    free(r.file);
    /* A table of one head: the first query looks at itself, and shares are of 100. */
    if (works(LENS MODEL "patterns 'Once upon' --layer 0 --head 0 --top 1"))
        CHECKF(strstr(out, "    0 Once              0 Once 100%\n") == out, "%s", out);
}

/* Texts that differ in one token: putting the clean stream back there, before the first layer,
 * restores the clean run to the bit; before it, nothing changes. */
TEST(patching)
{
#define BOY  "Tom was a boy. Then"
#define GIRL "Tom was a girl. Then"
    SCOPED_STORY s = {0}, other = {0};
    const json_value *all;
    lens_pair desc = {0};
    attn_tensor positions = {0}, heads = {0};
    lens_baseline whole = {0, 0};
    size_t i, j, place = 0;
    if (!open_pair(&s, &other, &desc))
        return;
    while (place + 1 < s.n && s.tokens[place] == other.tokens[place])
        place++;
    desc.metric.kind = LENS_METRIC_LOGIT_DIFF;
    desc.metric.token = 286;   /* " was" */
    desc.metric.against = 258; /* " a" */
    OK(&s.ctx, patch_positions(&s.ctx, &positions, &whole, s.model, &desc, "hook_mlp_out"));
    OK(&s.ctx, patch_heads(&s.ctx, &heads, NULL, s.model, &desc, "attn.hook_z"));
    all =
        parse(LENS MODEL "patch '" CLEAN "' '" CORRUPTED "' --token ' was' --against ' a' --json");
    is_float(fact(all, "clean"), whole.clean, "the clean value");
    is_float(fact(all, "corrupted"), whole.corrupted, "the corrupted value");
    CHECK(whole.clean != whole.corrupted && json_is(fact(all, "against"), " a"));
    CHECK(json_is(cell(all, "positions", 2 * 4 * s.n, "activation"), "hook_mlp_out"));
    for (i = 0; i < 4; i++) {
        for (j = 0; j < s.n; j++)
            is_float(cell(all, "positions", (2 * 4 + i) * s.n + j, "answer"),
                     attn_get2(positions, i, j), "a position");
        for (j = 0; j < 6; j++)
            is_float(cell(all, "heads", i * 6 + j, "answer"), attn_get2(heads, i, j), "a head");
    }
    is_float(cell(all, "positions", place, "answer"), whole.clean,
             "resid_pre at the place that differs");
    is_float(cell(all, "positions", 0, "answer"), whole.corrupted, "resid_pre before it");
    all = parse(LENS MODEL "'" CLEAN "' patch '" CORRUPTED "' --token ' was' --json "
                           "attn.hook_pattern");
    CHECK(all && member(all, "heads")->size == 24 && !json_get(all, "positions") &&
          !json_get(table_row(all, "facts", 0), "against"));
    if (works(LENS MODEL "patch '" BOY "' '" GIRL "' hook_resid_pre"))
        CHECKF(strstr(out, "·boy/·girl") && strstr(out, "1.00 ") &&
                   strstr(out, "\nposition\\layer "),
               "%s", out);
}

TEST(path_patching)
{
#define ASKED "path '" CLEAN "' '" CORRUPTED "' --token ' was' --against ' a' --json "
    static const struct {
        const char *options;
        size_t n_rows;
        one_path path;
    } readers[] = {
        {"--to blocks.2.hook_resid_pre", 2, {{0}, 2, "hook_resid_pre", 0, LENS_MLPS_FROZEN}},
        {"--to blocks.2.hook_mlp_in", 3, {{0}, 2, "hook_mlp_in", 0, LENS_MLPS_FROZEN}},
        {"--to blocks.3.hook_q_input.4", 3, {{0}, 3, "hook_q_input", 4, LENS_MLPS_FROZEN}},
        {"--to blocks.3.hook_k_input.0", 3, {{0}, 3, "hook_k_input", 0, LENS_MLPS_FROZEN}},
        {"--to blocks.1.hook_v_input.5", 1, {{0}, 1, "hook_v_input", 5, LENS_MLPS_FROZEN}},
        {"", 4, {{0}, 4, "hook_resid_pre", 0, LENS_MLPS_FROZEN}}};
    SCOPED_STORY s = {0}, other = {0};
    lens_pair desc = {0};
    double clean, corrupted;
    if (!open_pair(&s, &other, &desc))
        return;
    desc.metric.kind = LENS_METRIC_LOGIT_DIFF;
    desc.metric.token = 286;   /* " was" */
    desc.metric.against = 258; /* " a" */
    const json_value *all = parse(LENS MODEL "patch '" CLEAN "' '" CORRUPTED
                                             "' --token ' was' --against ' a' --json hook_mlp_out");
    clean = number(fact(all, "clean"));
    corrupted = number(fact(all, "corrupted"));
    for (size_t r = 0; r < sizeof readers / sizeof readers[0]; r++) {
        one_path path = readers[r].path;
        all = parse(test_text(LENS MODEL ASKED "%s", readers[r].options));
        CHECK(number(fact(all, "clean")) == clean && number(fact(all, "corrupted")) == corrupted);
        CHECK(all && member(all, "paths")->size == 7 * readers[r].n_rows);
        for (size_t i = 0; i < readers[r].n_rows; i++)
            for (size_t j = 0; j < 7; j++) {
                float want = (float)corrupted;
                path.from.kind = j < 6 ? LENS_SENDER_HEAD : LENS_SENDER_MLP;
                path.from.layer = i;
                path.from.head = j < 6 ? j : 0;
                if (j < 6 || i < path.to_layer) /* or no path leads from this MLP */
                    OK(&s.ctx, patch_path(&s.ctx, &want, s.model, &desc, &path));
                is_float(cell(all, "paths", 7 * i + j, "answer"), want, "a path");
            }
    }
    CHECK(json_is(cell(all, "paths", 27, "sender"), "m3") &&
          cell(all, "paths", 27, "head")->kind == JSON_NULL);
    double gap = number(cell(all, "paths", 7 * 3 + 2, "answer"));
    all = parse(LENS MODEL ASKED "--from 3.2");
    CHECK(all && number(cell(all, "paths", 0, "answer")) == gap &&
          json_is(cell(all, "paths", 0, "sender"), "a3.h2") && member(all, "paths")->size == 1);
    if (works(LENS MODEL "path '" BOY "' '" GIRL "' --from L3H3"))
        CHECKF(
            strstr(
                out,
                "from head 3 of layer 3 to the final stream\nlayer\\head      3\n3            0."),
            "%s", out);
    if (works(LENS MODEL "path '" BOY "' '" GIRL "' --from 1.mlp"))
        CHECKF(strstr(out, "from MLP of layer 1 to the final stream\nlayer\\head    MLP\n1"), "%s",
               out);
    if (works(LENS MODEL "path '" BOY "' '" GIRL "' --from embed --to blocks.2.hook_k_input.1"))
        CHECKF(strstr(out, "from the embedding to blocks.2.hook_k_input.1"), "%s", out);
}

static size_t rank_of(const float *logits, size_t n, size_t token)
{
    size_t rank = 0;
    for (size_t i = 0; i < n; i++)
        rank += logits[i] > logits[token];
    return rank;
}

/* Where the likeliest token is the same after both texts, the question is about the likely tokens
 * whose logits change most. */
TEST(questions_found)
{
    static const char *const texts[] = {"Once upon a", "Once there a"};
    enum { N = 2048 };
    const float *logits[2];
    story s[2] = {{.n = 0}};
    size_t i, best[2] = {0, 0}, up = N, down = N;
    for (i = 0; i < 2; i++) {
        if (!open_story(&s[i], TINY, texts[i]))
            return;
        OK(&s[i].ctx, attn_feed(&s[i].ctx, s[i].session, s[i].tokens, s[i].n));
        logits[i] = attn_session_logits(s[i].session);
        while (rank_of(logits[i], N, best[i]))
            best[i]++;
    }
    CHECK(best[0] == best[1]);
    for (i = 0; i < N; i++)
        if (rank_of(logits[0], N, i) < 50 || rank_of(logits[1], N, i) < 50) {
            const float change = logits[0][i] - logits[1][i];
            up = up == N || change > logits[0][up] - logits[1][up] ? i : up;
            down = down == N || change < logits[0][down] - logits[1][down] ? i : down;
        }
    const json_value *all =
        parse(LENS MODEL "patch 'Once upon a' 'Once there a' hook_mlp_out --json");
    CHECK(number(fact(all, "target_id")) == (double)up);
    CHECK(number(fact(all, "against_id")) == (double)down);
    CHECK(fabs(number(fact(all, "clean")) - (double)(logits[0][up] - logits[0][down])) < 1e-5);
    CHECK(works(LENS MODEL "patch 'Once upon a' 'Once there a' hook_mlp_out") &&
          strstr(out, "\"·time\" is the likeliest token after both texts"));
    for (i = 0; i < 2; i++)
        close_story(&s[i]);
}

/* Over a small gap nothing is divided: cells show logits, and a warning says so and names a
 * question with a larger gap. */
TEST(small_gaps)
{
    char first[64], second[64];
    const json_value *all =
        parse(LENS MODEL "patch '" CLEAN "' '" CORRUPTED "' hook_mlp_out --json");
    double clean = number(fact(all, "clean"));
    double corrupted = number(fact(all, "corrupted"));
    CHECK(fabs(clean - corrupted) < 0.5 && fact(all, "gap_is_small")->kind == JSON_TRUE);
    CHECK(fabs(number(fact(all, "gap")) - (clean - corrupted)) < 1e-6);
    CHECK(fact(parse(LENS MODEL "patch '" BOY "' '" GIRL "' hook_mlp_out --json"), "gap_is_small")
              ->kind == JSON_FALSE);
    if (!works(LENS MODEL "patch '" CLEAN "' '" CORRUPTED "' hook_mlp_out"))
        return;
    CHECK(strstr(out, "\nwarning: the gap between the texts is only 0.150 logits"));
    char *page = strstr(out, "--token '");
    if (CHECKF(page && sscanf(page, "--token '%63[^']' --against '%63[^']'", first, second) == 2,
               "%s", out)) {
        CHECK(fabs(number(fact(
                  parse(test_text(LENS MODEL "patch '" CLEAN "' '" CORRUPTED
                                             "' hook_mlp_out --json --token '%s' --against '%s'",
                                  first, second)),
                  "gap"))) > 0.5);
    }
    CHECK(works(LENS MODEL "patch '" CLEAN "' '" CORRUPTED "' hook_mlp_out -o " TMP "gap.html"));
    CHECK(works(LENS MODEL "patch '" CLEAN "' '" CORRUPTED "' hook_mlp_out -o " TMP "gap.svg"));
    CHECK((page = read_text(TMP "gap.html")) &&
          strstr(page, "class=\"warning\" role=\"alert\">w") &&
          strstr(page, " logits\", \"high\": "));
    free(page);
    CHECK((page = read_text(TMP "gap.svg")) && strstr(page, "class=\"warning\">warning: the gap") &&
          !strstr(page, "beyond the scale"));
    free(page);
}

/* The terms are the library's, and sum to the model's own logit. */
TEST(attribution)
{
    SCOPED_STORY s = {0};
    stream_parts parts = {0};
    attn_tensor directions = {0}, values = {0};
    const int32_t token = 286, against = 258;
    double sum = 0;
    if (!open_story(&s, TINY, TEXT))
        return;
    OK(&s.ctx, attn_feed(&s.ctx, s.session, s.tokens, 5));
    double want = (double)attn_session_logits(s.session)[token] -
                  (double)attn_session_logits(s.session)[against];
    OK(&s.ctx, attn_logit_directions(&s.ctx, &directions, s.model, &token, &against, 1));
    OK(&s.ctx, take_apart(&s.ctx, &parts, s.model, LENS_PARTS_HEADS, s.tokens, s.n, 4, 1));
    OK(&s.ctx, lens_logit_attrs(&s.ctx, &values, s.model, parts.stack, parts.scale, directions));
    lens_parts_desc heads = final_parts(LENS_PARTS_HEADS, s.tokens, s.n, 4, 1);
    const json_value *all =
        parse(LENS MODEL "attribute '" TEXT "' --at 4 --token ' was' --against ' a' --json");
    CHECK(fabs(number(fact(all, "logit")) - want) < 1e-6);
    CHECK(fabs(number(fact(all, "sum")) - want) < 1e-4);
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 7; j++) {
            size_t part = 0;
            const char *const label = test_text(j < 6 ? "L%dH%d" : "%d_mlp_out", (int)i, (int)j);
            while (part + 1 < lens_parts_count(s.model, &heads) &&
                   strcmp(lens_parts_label(s.model, &heads, part).text, label) != 0)
                part++;
            is_float(cell(all, "terms", i * 7 + j, "contribution"), attn_get2(values, part, 0),
                     label);
        }
    CHECK(json_is(cell(all, "terms", 9, "part"), "a1.h2") &&
          json_is(cell(all, "terms", 13, "part"), "m1") && member(all, "terms")->size == 32);
    for (size_t i = 0; i < 32; i++)
        sum += number(cell(all, "terms", i, "contribution"));
    CHECKF(fabs(sum - want) < 1e-4, "the cells sum to %g, not %g", sum, want);
    /* Without --token it is the likeliest. */
    all = parse(LENS MODEL "attribute 'Once upon a' --json");
    CHECK(json_is(fact(all, "target"), " time"));
}

TEST(kinds_of_heads)
{
    SCOPED_STORY s = {0};
    attn_tensor entropy = {0}, scores = {0}, mean = {0};
    if (!open_story(&s, TINY, TEXT))
        return;
    OK(&s.ctx, lens_detect_heads(&s.ctx, &entropy, &scores, s.model, s.tokens, s.n));
    OK(&s.ctx, attn_mean(&s.ctx, &mean, entropy));
    const json_value *all = parse(LENS MODEL "heads '" TEXT "' --json");
    for (size_t i = 0; i < 4; i++)
        for (size_t j = 0; j < 6; j++) {
            for (size_t kind = 0; kind < LENS_N_HEAD_KINDS; kind++)
                is_float(cell(all, "heads", (kind * 4 + i) * 6 + j, "score"),
                         attn_get3(scores, kind, i, j), "a score");
            is_float(cell(all, "heads", (LENS_N_HEAD_KINDS * 4 + i) * 6 + j, "score"),
                     attn_get3(mean, i, j, 0), "an entropy");
        }
}

/* The 8 pairs of a kind are those of the largest scores in numpy's [L, H, L, H], largest first. */
static void check_pairs(const json_value *all, attn_tensor scores, size_t kind)
{
    static const char *const names[] = {"Q", "K", "V"};
    static const char *const members[] = {"from_layer", "from_head", "to_layer", "to_head"};
    double least = 2;
    size_t n_larger = 0;
    for (size_t i = 8 * kind; i < 8 * kind + 8; i++) {
        const double score = number(cell(all, "compositions", i, "score"));
        size_t at[4];
        for (int k = 0; k < 4; k++)
            at[k] = (size_t)number(cell(all, "compositions", i, members[k]));
        const double want = (double)attn_get4(scores, at[0], at[1], at[2], at[3]);
        CHECKF(json_is(cell(all, "compositions", i, "kind"), names[kind]) &&
                   fabs(score - want) < 1e-6 && score <= least,
               "composition %d: %g, not %g", (int)i, score, want);
        least = score;
    }
    for (size_t i = 0; i < attn_count(scores); i++)
        n_larger += value_of(scores, i) > least + 1e-6;
    CHECKF(n_larger < 8, "%d %s-compositions are larger than the last", (int)n_larger, names[kind]);
}

TEST(circuits_of_weights)
{
    static const char *const circuits[] = {"QK", "OV"}, *const columns[] = {"qk", "ov"};
    reference r;
    attn_tensor want;
    size_t row = 0;
    if (!open_reference(ODD_MODEL, &r))
        return;
    const json_value *all = parse(test_text(LENS "%s circuits --json --top 8", r.model));
    for (int kind = 0; kind < 2 && CHECK(fixture(&want, "odd.singular.%d", kind)); kind++)
        for (size_t head = 0; head < want.shape[0] * want.shape[1]; head++) {
            const size_t i = head / want.shape[1], j = head % want.shape[1];
            const double largest = (double)attn_get3(want, i, j, 0);
            CHECK(fabs(number(cell(all, "heads", head, columns[kind])) - largest) < 1e-6 * largest);
            for (size_t k = 0; k < 8; k++, row++)
                CHECK(json_is(cell(all, "singular_values", row, "circuit"), circuits[kind]) &&
                      fabs(number(cell(all, "singular_values", row, "value")) -
                           (double)attn_get3(want, i, j, k)) < 1e-6 * largest);
        }
    for (size_t kind = 0; kind < 3; kind++)
        if (CHECK(fixture(&want, "odd.composition.%d", (int)kind)))
            check_pairs(all, want, kind);
    free(r.file);
}

/* `process` writes what lens_process_weights makes, and each program opens it. */
TEST(processing)
{
    static const struct {
        const char *options;
        unsigned flags;
    } ways[] = {{"", 15},
                {"--no-fold-ln --no-center-unembed", 2 + 8},
                {"--no-fold-value-biases --no-center-writing-weights", 1 + 4}};
    static const char *const commands[] = {TEST_BUILD "/attn-info " TMP "process.attn",
                                           TEST_BUILD "/gpt2 " TMP "process.attn 'Once upon' -n 3",
                                           LENS TMP "process.attn loss 'Once upon a time'",
                                           LENS TMP "process.attn attribute 'Once upon a time'"};
    SCOPED_CTX ctx = {0};
    attn_model *model = NULL, *made = NULL;
    OK(&ctx, attn_model_open(&ctx, &model, TEST_BUILD "/tiny-stories.attn", NULL));
    for (size_t i = 0; i < 3; i++) {
        works(test_text(LENS MODEL "process -o " TMP "process.attn %s", ways[i].options));
        OK(&ctx, lens_process_weights(&ctx, &made, model, ways[i].flags));
        OK(&ctx, lens_model_save(&ctx, TMP "want.attn", made));
        CHECK(test_same_file(TMP "process.attn", TMP "want.attn"));
        attn_model_close(made);
    }
    works(LENS MODEL "process -o " TMP "process.attn --refactor");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        CHECKF(run("%s", commands[i]) == 0, "%s: %s", commands[i], err);
    CHECK(run(LENS MODEL "process") == 2 && strstr(err, "-o FILE.attn"));
    refuses(2, "would overwrite ",
            "cp " MODEL TMP "same.attn && " LENS TMP "same.attn process -o " TMP "same.attn");
    CHECK(run(LENS MODEL "process -o x.html") == 2 && strstr(err, "-o FILE.attn"));
    CHECK(run(LENS MODEL "process text -o x.attn") == 2 && strstr(err, "process reads no text"));
    CHECK(run(LENS MODEL "process -o x.attn --no-fold-ln --no-center-writing-weights "
                         "--no-center-unembed --no-fold-value-biases") == 2 &&
          strstr(err, "nothing is left to do"));
    CHECK(run(LENS MODEL "loss 'a b' --refactor") == 2 && strstr(err, "means nothing to loss"));
    attn_model_close(model);
}

/* A kind has --top rows below its heading. */
TEST(circuits_as_tables)
{
    const json_value *const all = parse(LENS MODEL "circuits --top 1 --json");
    const char *const line = test_text("score\n%.0f.%.0f to %.0f.%.0f ",
                                       number(cell(all, "compositions", 1, "from_layer")),
                                       number(cell(all, "compositions", 1, "from_head")),
                                       number(cell(all, "compositions", 1, "to_layer")),
                                       number(cell(all, "compositions", 1, "to_head")));
    if (works(LENS MODEL "circuits --top 3") && CHECK(strstr(out, "strongest K-compositions\n")))
        CHECKF(strncmp(strstr(strstr(out, "strongest K-"), "score\n"), line, strlen(line)) == 0 &&
                   occurrences(out, " to ") == 3 * (1 + 3),
               "%s, not %s", out, line);
    CHECK(works(LENS MODEL "circuits --top 0") && !strstr(out, "compositions"));
    CHECK(works(LENS MODEL "circuits -o " TMP "circuits.svg") && out_size == 0);
}

/* Every activation against PyTorch's, in shape and value; hook_result, which is made on request, in
 * its turn. */
TEST(recording)
{
    static const char *const names[] = {"blocks.0.attn.hook_result", "blocks.1.attn.hook_result",
                                        "blocks.1.attn.hook_pattern"};
    reference r;
    size_t size;
    if (!open_reference(ODD_MODEL, &r))
        return;
    const json_value *all = parse(command_of(&r, "record -o " TMP "record.safetensors", "--json"));
    const json_value *listed = member(all, "activations");
    unsigned char *file = test_read(TMP "record.safetensors", &size);
    if (CHECK(listed && file) && EQUAL(listed->size, 5 + 19 * 3))
        for (size_t i = 0; i < listed->size; i++) {
            const json_value *const v = cell(all, "activations", i, "name");
            const json_value *const shape = cell(all, "activations", i, "shape");
            const char *const name = test_text("%.*s", (int)v->size, v->text);
            attn_tensor want = safetensor(r.file, name);
            CHECKF(want.ndim > 0 && (int)shape->size == want.ndim, "%s: %d dimensions", name,
                   (int)shape->size);
            for (int d = 0; d < want.ndim; d++)
                EQUAL(number(item(shape, (size_t)d)), want.shape[d]);
            close_to(safetensor(file, name), want, 2e-5, name);
        }
    free(file);
    CHECK(works(command_of(&r, "record",
                           "-o " TMP "record.safetensors '*.hook_result' "
                           "blocks.1.attn.hook_pattern")) &&
          out_size == 0);
    file = test_read(TMP "record.safetensors", &size);
    for (size_t i = 0; i < 3 && CHECK(file); i++)
        close_to(safetensor(file, names[i]), safetensor(r.file, names[i]), 2e-5, names[i]);
    CHECK(file && safetensor(file, "blocks.0.attn.hook_pattern").ndim == 0);
    free(file);
    CHECK(works(command_of(&r, "record", "-o " TMP "record.npz hook_embed")));
    CHECK(run("head -c 4 " TMP "record.npz") == 0 && memcmp(out, "PK\3\4", 4) == 0);
    free(r.file);
    /* The text before the names, and after the command or before it. */
    CHECK(works(LENS MODEL "record 'Once upon' hook_embed -o " TMP "a.safetensors"));
    CHECK(works(LENS MODEL "'Once upon' record hook_embed -o " TMP "b.safetensors"));
    CHECK(works("cmp " TMP "a.safetensors " TMP "b.safetensors"));
}

/* ---- gradients, edges, autoencoders: the commands print and write what the headers make ---- */

TEST(gradients_in_files)
{
    static const char *const wanted[] = {"blocks.1.attn.hook_z", "blocks.0.hook_mlp_in"};
    const int32_t ids[] = {506, 511, 258, 433};
    lens_backward b = ATTN_ZERO;
    attn_record *made = NULL;
    attn_model *model = NULL;
    attn_ctx ctx = {0};
    size_t size;
    float value = NAN;
    lens_gradients_desc what = {.tokens = ids,
                                .n_tokens = 4,
                                .names = wanted,
                                .n_names = 2,
                                .metric.kind = LENS_METRIC_LOGIT_DIFF,
                                .metric.token = 265,
                                .metric.against = 338};
    CHECK(works(LENS MODEL "gradients --ids '506 511 258 433' --token 265 --against 338 -o " TMP
                           "g.safetensors blocks.1.attn.hook_z blocks.0.hook_mlp_in") &&
          strstr(out, "gradients of 2 activations"));
    unsigned char *file = test_read(TMP "g.safetensors", &size);
    OK(&ctx, attn_model_open(&ctx, &model, TINY, NULL));
    OK(&ctx, lens_backward_new(&ctx, &b, model));
    OK(&ctx, lens_gradients(&ctx, &made, &value, &b, &what));
    for (size_t i = 0; i < 2 && CHECK(file && made); i++) {
        attn_tensor want = {0};
        OK(&ctx, attn_record_get(&ctx, &want, made, wanted[i]));
        same_bits(safetensor(file, wanted[i]), want, wanted[i]);
    }
    CHECK(strncmp(out, "metric ", 7) == 0 && fabs(atof(out + 7) - (double)value) < 1e-5);
    free(file);
    attn_record_free(made);
    lens_backward_free(&ctx, &b);
    attn_model_close(model);
    attn_ctx_free(&ctx);
    CHECK(
        works(LENS MODEL "gradients 'Once upon' --metric loss hook_embed --json -o " TMP "g.npz") &&
        strstr(out, "{\"name\": \"hook_embed\", \"shape\": [2, 192]}"));
    refuses(2, "gradients writes a file", LENS MODEL "gradients Once");
    refuses(2, "must end in .safetensors", LENS MODEL "gradients Once -o x.html");
    refuses(2, "--against is for a logit",
            LENS MODEL "gradients Once --metric log-prob --token x --against y -o x.npz");
    refuses(2, "--metric loss is a mean",
            LENS MODEL "gradients Once --metric loss --at 0 -o x.npz");
    refuses(2, "--metric means nothing to record", LENS MODEL "record Once --metric loss -o x.npz");
    refuses(1, "no position 7", LENS MODEL "gradients Once --at 7 -o " TMP "g.npz");
    refuses(1, "hook_zz", LENS MODEL "gradients Once hook_zz -o " TMP "g.npz");
}

TEST(edges_and_estimates)
{
#define OF_BOTH " '" CLEAN "' '" CORRUPTED "' --token ' was' --against ' a' "
    double clean, circuit;
    const json_value *all = parse(LENS MODEL "edges" OF_BOTH "--edges 30 --json");
    /* 4 layers of 6 heads: 18 readers of 1 + 7i parts in layer i, its MLP of 7 + 7i, logits of 29 */
    CHECK(all && number(fact(all, "n_edges")) == 18 * (4 + 7 * 6) + 7 * (4 + 6) + 29);
    CHECK(all && member(all, "edges")->size == 30);
    all = parse(LENS MODEL "edges" OF_BOTH "--edges 100000 --steps 2 --json");
    clean = number(fact(all, "clean"));
    circuit = number(fact(all, "circuit"));
    CHECKF(fabs(circuit - clean) < 1e-3, "all edges: %g, not %g", circuit, clean);
    CHECK(works(LENS MODEL "edges" OF_BOTH "-o " TMP "edges.svg"));
    CHECK(run("cat " TMP "edges.svg") == 0 && occurrences(out, "<path class=\"edge ") == 20 &&
          strstr(out, ">logits</text>") && strstr(out, "</svg>"));
    CHECK(works(LENS MODEL "edges" OF_BOTH "-o " TMP "edges.html"));
    CHECK(run("cat " TMP "edges.html") == 0 && occurrences(out, "<path class=\"edge ") == 20 &&
          strstr(out, ">logits</text>") && strstr(out, "q, k, v: what a head"));
    CHECK(works(LENS MODEL "edges" OF_BOTH) && strstr(out, "the best 20 of ") && strstr(out, "->"));
    CHECK(works(LENS MODEL "patch" OF_BOTH "--estimate") &&
          strstr(out, "Each cell estimates, by the gradient"));
    refuses(2, "--steps means nothing to patch", LENS MODEL "patch Once Tom --steps 2");
    refuses(2, "edges needs two texts", LENS MODEL "edges Once");
}

#define OF_SHORT "edges Tom Lily --token ' was' --against ' a' "

/* Scores, gradients and estimates by GIM's rules: those of the last layer's queries are a quarter of the plain ones. */
TEST(methods)
{
    static const char *const titles[] = {"EAP", "EAP-IG", "GIM", "GIM's rule of softmax alone"};
    static const char *const names[] = {"eap", "eap-ig", "gim", "gim-softmax"};
    const json_value *all;
    unsigned char *file[2];
    double score[4], change[2];
    size_t size;
    for (size_t i = 0; i < 4; i++) {
        all = parse(test_text(LENS MODEL OF_SHORT "--json --method %s", names[i]));
        CHECKF(json_is(fact(all, "method"), titles[i]), "%s", names[i]);
        CHECK(number(fact(all, "steps")) == (i == 1 ? 5 : 1));
        score[i] = number(cell(all, "edges", 0, "score"));
    }
    CHECK(score[0] != score[2] && score[2] != score[3]);
    CHECK(works(LENS MODEL OF_SHORT "--method gim --steps 3") && strstr(out, "(GIM, 3 steps)"));
    CHECK(works(LENS MODEL OF_SHORT "--method gim -o " TMP "gim.json"));
    all = parse("cat " TMP "gim.json");
    CHECK(fabs(fabs(number(member(member(all, "edges") + 1, "score"))) - fabs(score[2])) < 1e-6);
    for (size_t i = 0; i < 2; i++) {
        CHECK(works(test_text(LENS MODEL
                              "gradients 'Once upon' blocks.3.attn.hook_q --method %s -o " TMP
                              "%d.safetensors",
                              i ? "gim-qkv" : "plain", (int)i)));
        file[i] = test_read(test_text(TMP "%d.safetensors", (int)i), &size);
    }
    attn_tensor plain = safetensor(file[0], "blocks.3.attn.hook_q");
    attn_tensor divided = safetensor(file[1], "blocks.3.attn.hook_q");
    for (size_t i = 0; i < count_of(plain); i++)
        CHECK(value_of(plain, i) == 4 * value_of(divided, i));
    free(file[0]);
    free(file[1]);
    for (size_t i = 0; i < 2; i++) {
        all = parse(test_text(LENS MODEL "patch" OF_BOTH "attn.hook_q --estimate --json%s",
                              i ? " --method gim-qkv" : ""));
        change[i] =
            number(cell(all, "heads", 3 * 6 + 2, "answer")) - number(fact(all, "corrupted"));
    }
    CHECKF(fabs(change[0]) > 1e-4 && fabs(change[0] - 4 * change[1]) < 1e-5, "%g and %g", change[0],
           change[1]);
    CHECK(works(LENS MODEL "patch" OF_BOTH "attn.hook_q --estimate --method gim") &&
          strstr(out, "by the gradient (GIM)"));
}

TEST(wrong_methods)
{
    refuses(2, "edges knows eap, eap-ig, gim and gim's rules, and no \"plain\"",
            LENS MODEL OF_SHORT "--method plain");
    refuses(2, "patch knows plain, gim and gim's rules, and no \"eap-ig\"",
            LENS MODEL "patch Once Tom --estimate --method eap-ig");
    refuses(2, "and no \"eap\"", LENS MODEL "gradients Once --method eap -o x.npz");
    refuses(2, "--method is for --estimate", LENS MODEL "patch Once Tom --method gim");
    refuses(2, "leave out --exact", LENS MODEL OF_SHORT "--exact --method gim");
    refuses(2, "leave out --curve", LENS MODEL OF_SHORT "--curve --method gim");
    refuses(2, "EAP has one step", LENS MODEL OF_SHORT "--method eap --steps 2");
    refuses(2, "there is no \"relp\"", LENS MODEL OF_SHORT "--method relp");
}

TEST(exact_edges)
{
    size_t n = 0;
    const json_value *all = parse(LENS MODEL "edges" OF_BOTH "--exact --edges 3 --json -q");
    const json_value *edges = member(all, "edges");
    CHECK(edges && edges->size == 18 * (4 + 7 * 6) + 7 * (4 + 6) + 29 && !strstr(out, "steps"));
    double clean = number(fact(all, "clean"));
    double corrupted = number(fact(all, "corrupted"));
    double largest = fabs(number(member(item(edges, 0), "score")));
    for (size_t i = 0; edges && i < edges->size; i++)
        n += fabs(number(member(item(edges, i), "score"))) > largest;
    CHECK(n == 0 && largest > 0.01);
    const json_value *nodes =
        member(parse(LENS MODEL "edges" OF_BOTH "--exact --of nodes --json -q"), "nodes");
    CHECK(nodes && nodes->size == 29);
    for (size_t i = 0; nodes && i < nodes->size; i++)
        if (json_is(member(item(nodes, i), "node"), "input"))
            CHECK(fabs(number(member(item(nodes, i), "score")) - (corrupted - clean)) < 1e-4);
    CHECK(works(LENS MODEL "edges" OF_BOTH "--exact -q") && strstr(out, "(exact)"));
    CHECK(works(LENS MODEL "edges" OF_BOTH "--exact --of nodes -q") &&
          strstr(out, "the effects of all 29 nodes"));
    CHECK(works(LENS MODEL "edges" OF_BOTH "--exact -q -o " TMP "exact.svg"));
    refuses(2, "--steps is for estimates", LENS MODEL "edges" OF_BOTH "--exact --steps 2");
    refuses(2, "--of nodes needs --exact", LENS MODEL "edges" OF_BOTH "--of nodes");
}

/* A run's file continues that run, and no other one. */
TEST(exact_states)
{
#define STATED                                                                                     \
    "edges Tom Lily --token ' was' --against ' a' --exact --json --state " TMP "tom.state "
    remove(TMP "tom.state");
    SCOPED_TEXT first = prints(LENS MODEL STATED);
    CHECK(first && strncmp(err, "927 edges, 1 pair of texts; about ", 34) == 0);
    refuses(1, "tom.state is there already: --resume", LENS MODEL STATED);
    CHECK(works(LENS MODEL STATED "--resume --quiet") && first && strcmp(out, first) == 0);
    refuses(1, "was made for another answer", LENS MODEL STATED "--resume --token ' is'");
    refuses(1, "was made for other texts",
            LENS MODEL "edges Tom Ben --token ' was' --against ' a' --exact --resume --state " TMP
                       "tom.state");
    refuses(1, "was made with other edits",
            LENS MODEL STATED "--resume --edit 'zero blocks.0.hook_mlp_out'");
    refuses(1, "was made for the other --of", LENS MODEL STATED "--resume --of nodes");
    CHECK(run("head -c 999 " TMP "tom.state > " TMP "cut.state") == 0);
    refuses(1, "cut.state is damaged",
            LENS MODEL "edges Tom Lily --token ' was' --against ' a' --exact --resume --state " TMP
                       "cut.state");
    refuses(1, "is not a file of --state",
            LENS MODEL "edges Tom Lily --exact --resume --state README.md");
    CHECK(run("rm " TMP "tom.state; " LENS MODEL STATED "& " INTERRUPT "wait $run") == 130 ||
          strstr(out, "edges"));
    CHECK(works(LENS MODEL STATED "--resume --quiet") && first && strcmp(out, first) == 0);
    refuses(2, "--state is for --exact", LENS MODEL "edges Tom Lily --state x");
    refuses(2, "--resume needs the file", LENS MODEL "edges Tom Lily --exact --resume");
}

/* What is left after pruning comes first in the list. */
TEST(pruned_edges)
{
    const json_value *all = parse(LENS MODEL OF_SHORT "--exact --prune 0.3 --json -q");
    size_t n = member(all, "edges") ? member(all, "edges")->size : 0;
    size_t kept = (size_t)number(fact(all, "n_kept"));
    CHECKF(n == 927 && kept > 0 && kept < 500, "%d of %d edges", (int)kept, (int)n);
    CHECK(fabs(number(fact(all, "circuit")) - number(fact(all, "clean"))) < 0.3 + 1e-5);
    CHECK(works(LENS MODEL OF_SHORT "--exact --prune 0.3 -q") &&
          strstr(out, "of 927 edges are left"));
    refuses(2, "--prune is for --exact", LENS MODEL OF_SHORT "--prune 0.3");
    refuses(2, "--prune is for --exact", LENS MODEL OF_SHORT "--exact --of nodes --prune 0.3");
}

/* Circuits of growing size, also by the scores of a file: those of the exact effects have their curves. */
TEST(curves)
{
    double found[5]; /* rank correlations of EAP, EAP-IG, GIM, exact effects, chance */
    CHECK(works(LENS MODEL OF_SHORT "--exact -q --edges 3 -o " TMP "circuit.json"));
    const json_value *all =
        parse(LENS MODEL OF_SHORT "--curve -q --steps 2 --json --circuit " TMP "circuit.json");
    CHECK(all && member(all, "curves")->size == 12 * 10 && member(all, "integrals")->size == 12);
    for (size_t i = 0; all && i < 12; i++) {
        CHECK(fabs(number(cell(all, "curves", i * 10 + 9, "faithfulness")) - 1) < 1e-3);
        for (size_t k = 0; i >= 10 && k < 10; k++)
            CHECK(number(cell(all, "curves", i * 10 + k, "faithfulness")) ==
                  number(cell(all, "curves", (i - 4) * 10 + k, "faithfulness")));
    }
    CHECK(json_is(cell(all, "curves", 2 * 10, "method"), "EAP-IG, 2 steps") &&
          json_is(cell(all, "integrals", 4, "method"), "GIM") &&
          json_is(cell(all, "integrals", 5, "order"), "largest") &&
          number(cell(all, "curves", 9, "n_edges")) == 927);
    for (size_t i = 0; i < 5; i++)
        found[i] = number(cell(all, "integrals", 2 * i, "rank_correlation"));
    /* the file has the true effects */
    CHECK(fabs(found[3] - 1) < 1e-9 && fabs(found[4]) < 0.2);
    CHECK(found[0] > 0.5 && found[0] < 1);
    CHECK(found[2] > 0.5 && found[2] < 1 && found[2] != found[0]);
    /* the largest effects find a circuit that chance does not find */
    CHECK(number(cell(all, "integrals", 7, "cmd")) < number(cell(all, "integrals", 9, "cmd")));
    refuses(2, "--circuit is for --curve", LENS MODEL OF_SHORT "--circuit x.json");
    refuses(2, "leave out --curve", LENS MODEL OF_SHORT "--curve -o x.json");
    refuses(2, "--curve compares", LENS MODEL OF_SHORT "--curve --exact");
}

TEST(circuit_files)
{
    const json_value *one;
    size_t i, n = 0;
    CHECK(works(LENS MODEL OF_SHORT "--edges 3 -o " TMP "circuit.json"));
    const json_value *all = parse("cat " TMP "circuit.json");
    CHECK(member(member(member(all, "nodes"), "input"), "in_graph")->kind == JSON_TRUE);
    CHECK(member(all, "nodes")->size == 30 && number(member(member(all, "cfg"), "n_heads")) == 6);
    const json_value *edges = member(all, "edges");
    for (i = 0, one = edges + 1; i < edges->size; i++, one += one->span)
        n += member(one, "in_graph")->kind == JSON_TRUE;
    CHECK(edges->size == 927 && n == 3);
    test_write(TMP "none.json", "{\"edges\": {\"input->m9\": {\"score\": 1}}}", 38);
    refuses(1, "the model's 927 edges, not 1",
            LENS MODEL OF_SHORT "--curve --circuit " TMP "none.json");
    CHECK(run("sed 's/input->m0/input->m9/' " TMP "circuit.json > " TMP "none.json") == 0);
    refuses(1, "no edge input->m9", LENS MODEL OF_SHORT "--curve --circuit " TMP "none.json");
    CHECK(run("sed '/input->m0/s/score/mark/' " TMP "circuit.json > " TMP "none.json") == 0);
    refuses(1, "input->m0 has no score", LENS MODEL OF_SHORT "--curve --circuit " TMP "none.json");
}

/* ---- pictures ---- */

#define ODD                                                                                        \
    "<b>\"Hi\" & 'bye'</b></script><script>alert(1)</script><!-- &amp; ]]>\n\ttab\n\n"             \
    "\xFF\x80\xC3\x00 \x1B[31m\x7F \xE2\x80\xAE \xC3\xA9\xE7\x8C\xAB "                             \
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

/* Whole UTF-8 without controls; every quote closed where a tag ends; no foreign tag; nothing that
 * is fetched. */
static void check_markup(const char *path, size_t n_scripts)
{
    size_t size = 0;
    SCOPED_TEXT page = (char *)test_read(path, &size);
    int in_tag = 0, in_quote = 0, bad = 0;
    if (!CHECKF(page != NULL, "%s cannot be read", path))
        return;
    json_parser j = {.end = page + size};
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)page[i];
        const size_t length = c < 0x80 ? 1 : json_utf8_length(&j, page + i);
        bad += length == 0 || (c < ' ' && c != '\n') || c == 0x7F;
        i += length > 1 ? length - 1 : 0;
    }
    CHECKF(bad == 0, "%s: %d bytes that do not belong there", path, bad);
    CHECKF(occurrences(page, "<script") == n_scripts && occurrences(page, "</script>") == n_scripts,
           "%s: %d scripts begin, %d end", path, (int)occurrences(page, "<script"),
           (int)occurrences(page, "</script>"));
    CHECKF(!strstr(page, "<b>") && !strstr(page, "<!--") && !strstr(page, "alert(1)<"), "%s", path);
    CHECKF(!strstr(page, "src=") && !strstr(page, "href=") && !strstr(page, "url(") &&
               !strstr(page, "@import"),
           "%s fetches something", path);
    CHECKF(strstr(page, "prefers-color-scheme: dark") != NULL, "%s knows no dark", path);
    for (size_t i = 0; i < size && strncmp(page + i, "<script", 7) != 0; i++) {
        in_quote ^= in_tag && page[i] == '"';
        if (!in_quote && page[i] == '<')
            CHECKF(!in_tag++, "%s: a tag within a tag at \"%.20s\"", path, page + i);
        if (!in_quote && in_tag && page[i] == '>')
            in_tag = 0;
    }
    CHECKF(!in_tag && !in_quote, "%s: a tag stays open", path);
}

static const char *const drawn[] = {"tokens",    "loss",  "logit-lens", "patterns",
                                    "attribute", "heads", "ablate",     "patch"};

static void draw(const char *command, const char *path, const char *more)
{
    const int two = strcmp(command, "patch") == 0;
    const char *const line = test_text(
        LENS MODEL "%s %s -o %s %s", command,
        two ? "'<b> & boy' '</b \"girl' --token ' was' --against ' a'" : "--file " TMP "odd.txt",
        path, more);
    if (works(line))
        CHECKF(out_size == 0, "%s printed something", line);
}

TEST(markup)
{
    char path[64];
    test_write(TMP "odd.txt", ODD, sizeof ODD - 1);
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        snprintf(path, sizeof path, TMP "odd-%s.html", drawn[i]);
        draw(drawn[i], path, "");
        check_markup(path, strcmp(drawn[i], "patterns") ? 2 : 2 + 24);
        snprintf(path, sizeof path, TMP "odd-%s.svg", drawn[i]);
        draw(drawn[i], path, "");
        check_markup(path, 0);
    }
    draw("patterns", TMP "odd-one.svg", "--layer 2 --head 3");
    check_markup(TMP "odd-one.svg", 0);
    CHECK(works(LENS MODEL "edges '<b> & boy' '</b \"girl' --token ' was' --against ' a' -o " TMP
                           "odd-edges.html"));
    check_markup(TMP "odd-edges.html", 2);
    CHECK(run(TEST_BUILD "/attn-convert tests/golden/long " TMP
                         "lens-tool-long.attn 2>/dev/null") == 0);
    refuses(1, "too many for an SVG of one head",
            LENS TMP "lens-tool-long.attn patterns --layer 0 --head 0 -o " TMP "x.svg "
                     "--ids \"$(yes 11 | head -n 257)\"");
}

/* HTML's entities back into text. */
static void unescape(char *text)
{
    static const char *const entities[] = {"&lt;", "&gt;", "&quot;", "&#10;", "&amp;"};
    char *to = text;
    while (*text) {
        size_t i = 0;
        while (i < 5 && strncmp(text, entities[i], strlen(entities[i])) != 0)
            i++;
        *to++ = i < 5 ? "<>\"\n&"[i] : *text;
        text += i < 5 ? strlen(entities[i]) : 1;
    }
    *to = 0;
}

/* The value that a page gives to a fact, as text that the caller frees. */
static char *fact_of(const char *path, const char *name)
{
    char *page = read_text(path), *value = NULL, term[64];
    snprintf(term, sizeof term, "<dt>%s</dt><dd dir=\"auto\">", name);
    char *at = page ? strstr(page, term) : NULL;
    if (CHECKF(at != NULL, "%s does not say its %s", path, name)) {
        at += strlen(term);
        *strstr(at, "</dd>") = 0;
        value = strdup(at);
        unescape(value);
    }
    free(page);
    return value;
}

static void is_fact(const char *path, const char *name, const char *want)
{
    SCOPED_TEXT value = fact_of(path, name);
    CHECKF(value && strcmp(value, want) == 0, "%s: the %s is \"%s\", not \"%s\"", path, name, value,
           want);
}

/* Every page and every SVG says which model, text, command and version made it. */
TEST(origins)
{
    char path[64], version[64], *picture;
    snprintf(version, sizeof version, "lens of attn.h %d.%d.%d", ATTN_VERSION_MAJOR,
             ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    for (size_t i = 0; i < sizeof drawn / sizeof drawn[0]; i++) {
        const int two = strcmp(drawn[i], "patch") == 0;
        snprintf(path, sizeof path, TMP "odd-%s.html", drawn[i]);
        is_fact(path, "model",
                "tiny-stories.attn: 4 layers of 6 heads, width 192, 2048 tokens in the vocabulary");
        is_fact(path, "version", version);
        if (two) {
            is_fact(path, "clean", "<b> & boy");
            is_fact(path, "corrupted", "</b \"girl");
        }
        snprintf(path, sizeof path, TMP "odd-%s.svg", drawn[i]);
        picture = read_text(path);
        CHECKF(picture && strstr(picture, version) && strstr(picture, ">model</text>") &&
                   strstr(picture, ">tiny-stories.attn: 4 layers") &&
                   strstr(picture, two ? ">&lt;b&gt; &amp; boy</text>" : ">prompt</text>") &&
                   strstr(picture, ">lens " TEST_BUILD "/tiny-stories.attn ") &&
                   strstr(picture, "role=\"img\" aria-label="),
               "%s", path);
        free(picture);
    }
}

/* The command on a page, given to a shell again, makes the same page: whatever was in the text. */
TEST(commands_again)
{
    char *second;
    CHECK(works(LENS MODEL
                "heads \"$(printf 'it'\"'\"'s \\\\n \\377\\342\\200\\256\n$x <b>')\" -o " TMP
                "again.html"));
    check_markup(TMP "again.html", 2);
    SCOPED_TEXT command = fact_of(TMP "again.html", "command");
    SCOPED_TEXT first = read_text(TMP "again.html");
    if (run("command -v bash") != 0) {
        test_skip("no bash here to read $'...'");
    } else if (command && first) {
        test_write(TMP "again.sh", command, strlen(command));
        CHECK(run("rm " TMP "again.html; bash -c 'lens() { " LENS "\"$@\"; }; . " TMP
                  "again.sh'") == 0);
        second = read_text(TMP "again.html");
        CHECKF(second && strcmp(first, second) == 0, "%s makes another page", command);
        free(second);
    }
}

/* Without a text, heads makes one: random tokens twice, of which a text that repeats itself is the
 * better half: duplicate-token heads look at nothing else. */
TEST(heads_without_a_text)
{
    static const char made[] = "the beginning-of-text token, then 50 random tokens twice, seed 1";
    CHECK(works(LENS MODEL "heads -o " TMP "made.html") && strstr(err, "made.html: a page"));
    is_fact(TMP "made.html", "prompt", made);
    if (works(LENS MODEL "heads"))
        CHECKF(strstr(out, "Means over 101 tokens, ") && strstr(out, made), "%s", out);
    same(LENS MODEL "heads --json", LENS MODEL "heads --json -t 1");
    same("printf 'Once upon' | " LENS MODEL "heads --json", LENS MODEL "heads 'Once upon' --json");
    CHECK(run(LENS MODEL "heads -q -o " TMP "made.svg") == 0 && err_size == 0);
}

/* Of the loss, or with options of a logit, for each head, and then for no head. */
TEST(ablation)
{
    static const char *const asked[] = {"", "--at 4 --token ' was' --against ' a'"};
    SCOPED_STORY s = {0};
    if (!open_story(&s, TINY, TEXT))
        return;
    for (int k = 0; k < 2; k++) {
        lens_pair text = {.clean = s.tokens, .n_tokens = s.n};
        const lens_ablate_desc d = {.pairs = &text, .n_pairs = 1};
        double changes[24], whole;
        if (k == 1)
            text.metric = (lens_metric){
                .kind = LENS_METRIC_LOGIT_DIFF, .token = 286, .against = 258, .from_end = s.n - 5};
        OK(&s.ctx, lens_ablate_heads(&s.ctx, changes, &whole, s.model, &d));
        const json_value *const all =
            parse(test_text(LENS MODEL "ablate '" TEXT "' --json %s", asked[k]));
        for (size_t i = 0; i < 24; i++)
            CHECK(fabs(number(cell(all, "heads", i, "change")) - changes[i]) < 1e-6);
        CHECK(fabs(number(fact(all, k ? "logit" : "mean_loss")) - whole) < 1e-5);
    }
    CHECK(works(LENS MODEL "ablate '" TEXT "'") && strstr(out, "Mean loss "));
}

/* The numbers of a page's picture, which its script draws. The caller frees them; they point into the
 * page, which is changed. */
static json_value *data_of(char *page)
{
    char *at = page ? strstr(page, "id=\"data\">\n") : NULL,
         *end = at ? strstr(at, "</script>") : NULL;
    json_value *data = NULL;
    attn_ctx ctx = {0};
    if (CHECKF(end != NULL, "a page has no data"))
        OK(&ctx, json_parse(&ctx, "data", at + 11, (size_t)(end - at - 11), &data));
    return data;
}

/* Cells show the numbers of --json; those beyond the scale are framed and counted. */
TEST(cells_of_pages)
{
    const json_value *table, *box;
    char want[64], legend[64];
    size_t row, n_clipped, total = 0;
    CHECK(works(LENS MODEL "patch '" BOY "' '" GIRL "' -o " TMP "cells.html"));
    CHECK(works(LENS MODEL "patch '" BOY "' '" GIRL "' -o " TMP "cells.svg"));
    const json_value *all = parse(LENS MODEL "patch '" BOY "' '" GIRL "' --json");
    SCOPED_TEXT page = read_text(TMP "cells.html");
    json_value *data = data_of(page);
    SCOPED_TEXT picture = read_text(TMP "cells.svg");
    double clean = number(fact(all, "clean"));
    double corrupted = number(fact(all, "corrupted"));
    for (size_t grid = 0; data && picture && grid < 4; grid++, total += n_clipped) {
        table = item(member(data, "tables"), grid);
        for (row = 0, n_clipped = 0; row < 4; row++)
            for (size_t column = 0; column < 6; column++) {
                const size_t at = row * 6 + column;
                const double answer =
                    number(grid < 3 ? cell(all, "positions", grid * 24 + at, "answer")
                                    : cell(all, "heads", at, "answer"));
                const double share = (answer - corrupted) / (clean - corrupted);
                box = item(member(table, "cells"), at);
                snprintf(want, sizeof want, "%.2f", fabs(share) < 0.005 ? 0.0 : share);
                CHECKF(json_is(item(box, 1), want), "not %s", want);
                CHECKF(fabs(number(item(box, 0)) - share) < 1e-3 * fmax(1, fabs(share)), "%s",
                       want);
                n_clipped += fabs(share) > 1.005;
            }
        snprintf(legend, sizeof legend, "beyond the scale (%d cell%s)", (int)n_clipped,
                 n_clipped == 1 ? "" : "s");
        CHECKF(!n_clipped || strstr(picture, legend), "%s", legend);
        CHECK(json_is(member(table, "corner"), grid < 3 ? "layer\\position" : "layer\\head"));
    }
    CHECK(total > 0 && data && picture);
    CHECK(occurrences(picture, " x\" fill-opacity=\"0.550\"") ==
          total + occurrences(picture, "beyond the scale"));
    CHECK(occurrences(picture, ">layer\\position</text>") == 3);
    free(data);
}

/* Patterns show square roots, and say so; an SVG names its axes. */
TEST(legends_of_patterns)
{
    char *page = read_text(TMP "odd-patterns.html"), *picture = read_text(TMP "odd-patterns.svg"),
         *one = read_text(TMP "odd-one.svg");
    CHECK(page && strstr(page, "{\"high\": \"1: all of a query's attention. "
                               "Colours show the square root of a weight"));
    CHECK(picture && strstr(picture, "Colours show the square root of a weight") &&
          strstr(picture, "Less than 1/64 is left out") && strstr(picture, ">layer\\head</text>") &&
          strstr(picture, "queries go down and keys across"));
    CHECK(one && strstr(one, ">query\\key</text>"));
    CHECK(works(LENS MODEL "patterns 'Once upon' --head 3 -o " TMP "column.svg"));
    free(picture);
    picture = read_text(TMP "column.svg");
    CHECK(picture && strstr(picture, ">layer\\head</text>") &&
          occurrences(picture, "<title>layer ") == 4 && strstr(picture, "<title>layer 3, head 3<"));
    free(page);
    free(picture);
    free(one);
}

/* Weights in a page are two digits of base 64 each, rows of the lower triangle. */
TEST(weights_in_pages)
{
    reference r;
    int wrong = 0;
    if (!open_reference(PLAIN_MODEL, &r))
        return;
    CHECK(works(command_of(&r, "patterns", "--layer 1 -o " TMP "weights.html")));
    attn_tensor want = safetensor(r.file, "blocks.1.attn.hook_pattern");
    char *page = read_text(TMP "weights.html");
    char *at = page;
    for (size_t head = 0; at && head < 4; head++) {
        at = strstr(at, "class=\"head\">");
        if (!CHECK(at))
            break;
        at += 13;
        for (size_t q = 0; q < r.n; q++)
            for (size_t k = 0; k <= q; k++, at += 2)
                wrong += fabs(((at[0] - '0') * 64 + at[1] - '0') / 4095. -
                              value_of(want, (head * r.n + q) * r.n + k)) > 0.5 / 4095 + 2e-5;
        CHECK(strncmp(at, "</script>", 9) == 0);
    }
    CHECKF(wrong == 0, "%d weights differ", wrong);
    free(page);
    free(r.file);
}

/* The document that Chromium makes of a page, in `out`; its console comes on standard error. */
static int browse(const char *path, int width)
{
    const char *const command = test_text(
        "b=$(command -v chromium || command -v chromium-browser || command -v google-chrome) "
        "&& timeout 60 \"$b\" --headless --no-sandbox --disable-gpu --no-first-run "
        "--disable-background-networking --user-data-dir=$PWD/" TMP
        "chromium --enable-logging=stderr --virtual-time-budget=3000 "
        "--window-size=%d,800 --dump-dom \"file://$PWD/%s\"",
        width, path);
    return run(command);
}

static size_t opened(const char *path, const char *what)
{
    const int code = browse(path, 1280);
    CHECKF(code == 0, "%s: chromium ended with %d", path, code);
    CHECKF(!strstr(err, "CONSOLE"), "%s: %s", path, strstr(err, "CONSOLE"));
    return occurrences(out, what);
}

/* A model whose numbers overflow, or a damaged one, makes patterns that are no numbers. A page says
 * so, and an SVG leaves them out. Here one bias of the first layer is none, so of the second layer
 * nothing is. */
TEST(patterns_that_are_no_numbers)
{
    size_t size, i, n = 0, others = 0;
    char *bytes = (char *)test_read(TEST_BUILD "/tiny-stories.attn", &size), *page, *at;
    for (i = 0; bytes && i < 8192 && strncmp(bytes + i, "blocks.0.attn.b_QKV", 20) != 0; i += 128)
        ;
    if (!CHECK(bytes && i < 8192))
        return;
    memset(bytes + (size_t)get_u64((unsigned char *)bytes + i + 96), 0xff, 4);
    test_write(TMP "nan.attn", bytes, size);
    free(bytes);
    CHECK(works(LENS TMP "nan.attn patterns 'Once upon a time' --skip-checksums --layer 1 -o " TMP
                         "nan.html"));
    check_markup(TMP "nan.html", 2 + 6);
    if ((page = read_text(TMP "nan.html")) != NULL)
        for (at = page; (at = strstr(at, "class=\"head\">")) != NULL;)
            for (at += 13; *at != '<'; at++) {
                n += *at == '-';
                others += *at != '-';
            }
    CHECKF(n == 6 * 2 * 10 && others == 0, "%d and %d digits", (int)n, (int)others);
    free(page);
    CHECK(works(LENS TMP "nan.attn patterns 'Once upon a time' --skip-checksums --layer 1 -o " TMP
                         "nan.svg"));
    check_markup(TMP "nan.svg", 0);
    if ((page = read_text(TMP "nan.svg")) != NULL)
        CHECK(occurrences(page, "class=\"line\"") == 6 && !strstr(page, "<path class=\"ink\""));
    free(page);
    CHECK(works(LENS TMP "nan.attn patterns 'Once upon a time' --skip-checksums") && out_size > 0);
}

/* Opens a page in which a script has run. What the script writes goes into <pre id="answer">. */
static int act(const char *path, int width, const char *script)
{
    char *page = read_text(path), *end = page ? strstr(page, "</body>") : NULL;
    int code = -1;
    if (!CHECKF(end != NULL, "%s has no body", path))
        return 0;
    *end = 0;
    char *with = (char *)malloc(strlen(page) + strlen(script) + 512);
    if (CHECK(with)) {
        sprintf(with,
                "%s<pre id=\"answer\" hidden></pre><script>const answer = text => {"
                "document.getElementById('answer').textContent += text + '\\n'; };\n"
                "%s</script></body></html>",
                page, script);
        test_write(TMP "acted.html", with, strlen(with));
        code = browse(TMP "acted.html", width);
        CHECKF(code == 0 && !strstr(err, "CONSOLE"), "%s: %d, %s", path, code, err);
    }
    free(with);
    free(page);
    return code == 0;
}

#define PRESS(key)                                                                                 \
    "document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: '" key                \
    "', bubbles: true, cancelable: true}));"

/* Says which head is shown, and whether its pattern, its button and the text are all in sight. */
#define SIGHT                                                                                      \
    "answer(document.getElementById('head').textContent + ['#head', '#large canvas', '.words', "   \
    "'[aria-pressed=true]'].map(name => { const box = "                                            \
    "document.querySelector(name).getBoundingClientRect(); return box.width > 20 && box.height > " \
    "15 && box.top >= 0 && box.top + 15 < innerHeight && box.left >= 0 && box.right <= "           \
    "document.documentElement.clientWidth ? ' seen' : ' unseen'; }).join('') + ' ' + "             \
    "document.querySelectorAll('[aria-pressed=true]').length + (document.documentElement."         \
    "scrollWidth > innerWidth ? ' cut' : ''));"

/* 144 heads: the chosen one stays in sight beside them, in wide windows and narrow ones, and
 * follows clicks and arrow keys; a token shows where it attends. */
static void many_heads(void)
{
    static const model_shape shape = {"144 heads", 12, 12, 24};
    static const int widths[] = {1280, 420};
    double best = -1;
    attn_ctx ctx = {0};
    size_t key, k;
    if (!OK(&ctx, model_write(&ctx, TMP "144.attn", &shape, ATTN_F32)))
        return;
    CHECK(
        works(LENS TMP "144.attn patterns --ids '1 2 3 4 5 6 7 8 9 10 11 12' -o " TMP "144.html"));
    check_markup(TMP "144.html", 2 + 144);
    for (size_t i = 0; i < 2; i++) {
        if (!act(TMP "144.html", widths[i],
                 "const all = document.querySelectorAll('#heads button'); all[143].click(); " SIGHT
                 "all[143].focus(); " PRESS("ArrowLeft") SIGHT PRESS("ArrowUp")
                     SIGHT PRESS("ArrowRight") SIGHT PRESS("ArrowRight") SIGHT
                 "all[0].blur(); document.activeElement.blur(); " PRESS("ArrowDown") SIGHT
                 "answer(location.hash);"))
            return;
        CHECKF(strstr(out, "Layer 11 head 11 seen seen seen seen 1\n"
                           "Layer 11 head 10 seen seen seen seen 1\n"
                           "Layer 10 head 10 seen seen seen seen 1\n"
                           "Layer 10 head 11 seen seen seen seen 1\n"
                           "Layer 10 head 11 seen seen seen seen 1\n"
                           "Layer 11 head 11 seen seen seen seen 1\n#11.11\n"),
               "%d: %s", widths[i], strstr(out, "id=\"answer\""));
    }
    /* The largest weight of query 7 in layer 0, head 0, which the page starts with. */
    char *page = read_text(TMP "144.html");
    char *at = page ? strstr(page, "class=\"head\">") : NULL;
    for (key = k = 0; at && k <= 7; k++) {
        const char *digits = at + 13 + 7 * 8 + 2 * k;
        const double weight = ((digits[0] - '0') * 64 + digits[1] - '0') / 4095.;
        key = weight > best ? k : key;
        best = fmax(best, weight);
    }
    free(page);
    const char *const want =
        test_text("7 8 attends to %d %d %.1f %%", (int)key, (int)key + 1, 100 * best);
    if (act(TMP "144.html", 420,
            "const token = document.querySelectorAll('.words span')[7]; token.dispatchEvent("
            "new PointerEvent('pointerenter')); answer(document.getElementById('said')."
            "textContent); document.querySelectorAll('.words span')[6].click(); " PRESS(
                "ArrowRight") "answer(document.getElementById('said').textContent + "
                              "[...document.querySelectorAll('.words span')].filter(word => "
                              "word.className == 'later').length + document.activeElement."
                              "ariaSelected);"))
        CHECKF(strstr(out, want) && strstr(strstr(out, want) + 1, want) && strstr(out, "4true\n"),
               "%s: %s", want, strstr(out, "id=\"answer\""));
    /* The arrow keys in the large pattern go from weight to weight. */
    if (act(TMP "144.html", 1280,
            "document.getElementById('large').focus(); " PRESS("ArrowUp")
                PRESS("ArrowLeft") "answer(document.getElementById('tip').textContent);"))
        CHECKF(strstr(out, "query 10  11\nkey 9  10\nweight "), "%s", strstr(out, "id=\"answer\""));
}

/* In the document that Chromium made of cells.html: cells beyond the scale, and what legends say. */
static size_t framed_cells(void)
{
    return occurrences(out, " beyond\" data-tip=");
}

static size_t counted_cells(void)
{
    size_t sum = 0;
    const char *at = out;
    while ((at = strstr(at, "beyond the scale (")) != NULL)
        sum += (size_t)strtoul(at += 18, NULL, 10);
    return sum;
}

TEST_IF(test_full(), in_a_browser)
{
    static const char broken[] = "<!DOCTYPE html><p id=here></p><script>nothing.here</script>";
    test_write(TMP "broken.html", broken, sizeof broken - 1);
    if (browse(TMP "broken.html", 1280) != 0 || !strstr(out, "here") || !strstr(err, "CONSOLE")) {
        test_skip("no Chromium here that can be run headless");
        return;
    }
    /* A canvas for all small patterns, and one for the large pattern. */
    CHECK(opened(TMP "odd-patterns.html", "<button") == 24 && occurrences(out, "<canvas") == 2);
    CHECK(strstr(out, "Layer 0 head 0") && occurrences(out, "aria-pressed=\"true\"") == 1 &&
          strstr(out, ">layer\\\xE2\x80\x8Bhead</span>"));
    CHECK(opened(TMP "odd-loss.html", "<span class=\"scale") == 1 && !strstr(out, "<b>"));
    CHECK(opened(TMP "odd-patch.html", "<table ") == 4 && occurrences(out, "<td") > 24 &&
          (occurrences(out, "<td") - 24) % (3 * 4) == 0);
    CHECK(opened(TMP "cells.html", "<table ") == 4 && framed_cells() == counted_cells());
    CHECK(opened(TMP "odd-heads.svg", "<title>layer 3, head 5") == 4 && !strstr(out, "error"));
    CHECK(opened(TMP "odd-loss.svg", "alert") == 0 || !strstr(out, "parsererror"));
    /* The pointer over a cell, and the focus on it, show what the cell has to tell. */
    if (act(TMP "odd-logit-lens.html", 1280,
            "const cell = document.querySelectorAll('td')[7];"
            "cell.dispatchEvent(new PointerEvent('pointermove', {clientX: 50, clientY: 50, "
            "bubbles: true}));"))
        CHECKF(strstr(out, "<div id=\"tip\" role=\"tooltip\" style") &&
                   strstr(out, ">embedding, at 7 "),
               "no tip");
    if (act(TMP "odd-logit-lens.html", 1280,
            "document.querySelectorAll('td')[7].click();" PRESS("ArrowRight") PRESS("ArrowDown")))
        CHECKF(strstr(out, "<div id=\"tip\" role=\"tooltip\" style") &&
                   strstr(out, ">after layer 0, at 8 ") &&
                   occurrences(out, " tabindex=\"0\"") == 1 &&
                   strstr(out, " aria-describedby=\"tip\""),
               "no tip at the focus");
    if (act(TMP "odd-loss.html", 420,
            "document.querySelector('.words span').click();" PRESS("ArrowRight") PRESS("End")
                PRESS("ArrowLeft")))
        CHECKF(strstr(out, "<div id=\"tip\" role=\"tooltip\" style") &&
                   strstr(strstr(out, "<div id=\"tip\""), "\nloss "),
               "no tip at a token");
    many_heads();
}

/* ---- terminals, ends ---- */

TEST(colours)
{
    if (run("command -v script >/dev/null && script -qec true " TMP "typescript") != 0) {
        test_skip("no script(1) here to play the terminal");
        return;
    }
    CHECK(run("env -u NO_COLOR script -qec \"" LENS MODEL "loss 'Once upon cat'\" /dev/null") == 0);
    CHECKF(strstr(out, "\033[") != NULL, "%s", out);
    CHECK(run("NO_COLOR=1 script -qec \"" LENS MODEL "loss 'Once upon cat'\" /dev/null") == 0);
    CHECKF(strstr(out, "upon") && !strstr(out, "\033["), "%s", out);
    CHECK(works(LENS MODEL "loss 'Once upon cat'") && !strchr(out, '\033'));
    /* Nothing in a text may command the terminal. */
    CHECK(works("printf 'a\\033[31mb\\302\\205c\\ad' | " LENS MODEL "-"));
    CHECKF(!strchr(out, '\033') && !strstr(out, "\xC2\x85") && !strchr(out, '\a'), "%s", out);
}

TEST(outputs_that_end)
{
    CHECK(run("{ " LENS MODEL "patterns '" TEXT "' --json; echo $? >" TMP "code; } | head -c 10") ==
          0);
    CHECKF(err_size == 0 && out_size == 10, "said \"%s\"", err);
    CHECK(run("trap '' PIPE; { " LENS MODEL "patterns '" TEXT "' --json; echo $? >" TMP
              "code; } | head -c 10") == 0);
    /* 0 if it had written everything before the reader left */
    CHECK(run("cat " TMP "code") == 0 && (strcmp(out, "141\n") == 0 || strcmp(out, "0\n") == 0));
    CHECK(run("trap '' PIPE; { " LENS MODEL "patterns '" TEXT "' --json; } 2>" TMP
              "said | head -c 10; cat " TMP "said >&2") == 0);
    CHECKF(!strstr(err, "lens:"), "said \"%s\"", err);
}

/* Ctrl-C while it sweeps; what is there stays. */
TEST(interrupt)
{
    test_write(TMP "sweep.html", "older", 5);
    CHECKF(run(LENS MODEL "patch --ids \"$(yes 11 | head -n 60)\" --corrupted-ids \"$(yes 12 | "
                          "head -n 60)\" --token 11 --isa portable --threads 1 -o " TMP
                          "sweep.html & " INTERRUPT "wait $run") == 130,
           "not 130: %s", err);
    CHECKF(err_size == 0, "said \"%s\"", err);
    CHECK(run("cat " TMP "sweep.html; ls " TMP "sweep.html*") == 0);
    CHECKF(strcmp(out, "older" TMP "sweep.html\n") == 0, "%s", out);
}

TEST(no_tokenizer)
{
    CHECK(run(TEST_BUILD "/attn-convert examples/tiny-stories " TMP "lens-bare.attn "
                         "--no-tokenizer 2>/dev/null") == 0);
    CHECK(works(LENS TMP "lens-bare.attn --ids '506 511' --json") && !strstr(out, "\"token\""));
    CHECK(works(LENS TMP "lens-bare.attn attribute --ids '506 511' --token 258") &&
          strstr(out, "logit of 258 after position 1 511"));
    CHECK(works(LENS TMP "lens-bare.attn patch --ids 506 --corrupted-ids 511 --token 258 -o " TMP
                         "bare.html"));
    check_markup(TMP "bare.html", 2);
    refuses(1, "has no tokenizer: give the text with --ids", LENS TMP "lens-bare.attn Once");
    refuses(1, "has no tokenizer: give the text with --corrupted-ids",
            LENS TMP "lens-bare.attn patch --ids 506 Once");
}

/* What a text holds of control characters and tags is spelled out in pictures and tables. */
TEST(texts_that_would_break_a_picture)
{
    static const char *const forms[][5] = {
        {"-o ", TMP "odd.svg", "&lt;", "&amp;", "&quot;"},
        {"-o ", TMP "odd.html", "\"\\u003c\"", "\"\\\\\"", "\" \\\"\""},
        {">", TMP "odd.txt", " \\x01 ", " \\x85 ", " & "}};
    for (size_t k = 0; k < 3; k++) {
        size_t size = 0, i = 0;
        CHECK(works(test_text(
            LENS MODEL "loss -q \"$(printf 'a\\001b < \\302\\205c & \\042 \\134 \\177')\" %s%s",
            forms[k][0], forms[k][1])));
        SCOPED_TEXT const text = (char *)test_read(forms[k][1], &size);
        while (text && i < size && ((unsigned char)text[i] >= 0x20 || text[i] == '\n') &&
               text[i] != '\x7f' && !(text[i] == '\xc2' && (unsigned char)text[i + 1] < 0xa0))
            i++;
        CHECKF(text && i == size, "%s has a control character at %d of %d", forms[k][1], (int)i,
               (int)size);
        for (i = 2; i < 5; i++)
            CHECKF(text && strstr(text, forms[k][i]), "%s has no %s", forms[k][1], forms[k][i]);
    }
}
