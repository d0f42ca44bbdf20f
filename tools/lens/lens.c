/* cc tools/lens/lens.c -I. -O2 -fopenmp -lm -o lens        (without -fopenmp: one thread)
 *
 * What a model makes of a text, from the inside: losses, the logit lens, attention patterns,
 * activation patching, attribution, kinds of heads, and activations for NumPy and PyTorch. Each
 * command below is a few calls of the header's third tier and the tables made of what they give;
 * the pictures are drawn by lens_html.h. */

#include "tools/common/system.h" /* first: it asks the system for POSIX */
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "tools/common/json.h"
#include "tools/common/json_out.h"
#include "tools/common/lines.h"
#include "tools/common/prompt.h"
#include "lens_html.h"
#include <math.h>

/* ---- the command line ---- */

typedef struct options {
    const char *model, *text, *output, *ids, *file, *lines, *corrupted_ids, *token, *against;
    size_t top, layer, head, position, rows, threads;
    int isa, bos, special, saved_scale, json, resume, skip_checksums, help, version;
} options;

static const size_t not_given = SIZE_MAX;

typedef struct lens lens;
static int run_losses(lens *l);
static int run_logit_lens(lens *l);
static int run_patterns(lens *l);
static int run_patch(lens *l);
static int run_attribute(lens *l);
static int run_heads(lens *l);
static int run_record(lens *l);

enum {
    TOKENS = 1,
    LOSS = 2,
    LENS = 4,
    PATTERNS = 8,
    PATCH = 16,
    ATTRIBUTE = 32,
    HEADS = 64,
    RECORD = 128,
    ALL = 255
};

static const struct command {
    const char *name;
    int bit;
    int (*run)(lens *l);
    const char *help;
} commands[] = {
    {"tokens", TOKENS, run_losses, "ids, losses and likeliest next tokens (if none is named)"},
    {"loss", LOSS, run_losses, "what each token cost, and the mean"},
    {"logit-lens", LENS, run_logit_lens, "what each layer would say next"},
    {"patterns", PATTERNS, run_patterns, "where each head looks"},
    {"patch", PATCH, run_patch, "which activations of TEXT repair TEXT2"},
    {"attribute", ATTRIBUTE, run_attribute, "which heads and layers make a logit"},
    {"heads", HEADS, run_heads, "previous-token, duplicate and induction heads"},
    {"record", RECORD, run_record, "activations into a .safetensors or .npz file"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static const struct option table[] = {
#define AT(member) offsetof(options, member)
    {'m', "model", "FILE", TEXT, AT(model), ALL, NULL, "the model, if it is not the first word"},
    {'p', "prompt", "TEXT", TEXT, AT(text), ALL, NULL, "the text, if it is not the next word"},
    {'f', "file", "FILE", TEXT, AT(file), ALL, NULL, "read the text from FILE (-: standard input)"},
    {'o', "output", "FILE", TEXT, AT(output), ALL, NULL,
     "a picture: FILE.html or FILE.svg\nrecord: FILE.safetensors or FILE.npz"},
    {0, "json", NULL, FLAG, AT(json), ALL, NULL, "print JSON in place of tables"},
    {0, "ids", "IDS", TEXT, AT(ids), ALL, NULL, "the text as token ids: \"464 995\""},
    {0, "bos", NULL, FLAG, AT(bos), ALL, NULL, "begin with the beginning-of-text token"},
    {0, "special", NULL, FLAG, AT(special), ALL, NULL, "<|endoftext|> in the text is a token"},
    {0, "top", "K", COUNT, AT(top), TOKENS | LOSS | LENS | PATTERNS, "0 50",
     "how many likely tokens, or keys, to show (default 5)"},
    {0, "layer", "L", COUNT, AT(layer), PATTERNS, "0 1000000", "patterns: of this layer alone"},
    {0, "head", "H", COUNT, AT(head), PATTERNS, "0 1000000", "patterns: of this head alone"},
    {0, "lines", "PATH", TEXT, AT(lines), RECORD, NULL,
     "record: of many texts, JSON lines with \"text\" or \"ids\", or a folder in which every file "
     "is a text; -o is a directory then, for shards and their index"},
    {0, "rows", "COUNT", COUNT, AT(rows), RECORD, "1 1000000000",
     "... rows of a shard (default: 64 MiB of them); a whole context at least"},
    {0, "resume", NULL, FLAG, AT(resume), RECORD, NULL, "record: go on after the last shard of -o"},
    {0, "saved-scale", NULL, FLAG, AT(saved_scale), LENS, NULL,
     "logit-lens: the last LayerNorm's scale is that of the real run, not each stream's own"},
    {0, "at", "POSITION", COUNT, AT(position), ATTRIBUTE, "0 1000000000",
     "attribute: what is said after this token (default: the last; they count from 0)"},
    {0, "token", "TOKEN", TEXT, AT(token), PATCH | ATTRIBUTE, NULL,
     "whose logit: text, or an id if --ids is used (default: the likeliest)"},
    {0, "against", "TOKEN", TEXT, AT(against), PATCH | ATTRIBUTE, NULL,
     "... minus this one's (patch without --token: the likeliest token after TEXT2 or, if it is "
     "the "
     "same after both texts, the two likely tokens whose logits change most)"},
    {0, "corrupted-ids", "IDS", TEXT, AT(corrupted_ids), PATCH, NULL, "patch: TEXT2 as token ids"},
    {'t', "threads", "COUNT", COUNT, AT(threads), ALL, THREADS, "default: one for each processor"},
    {0, "isa", "NAME", CHOICE, AT(isa), ALL, ISA_NAMES,
     "portable, base, avx2, avx2-vnni, avx512, avx512-vnni, neon, neon-dot, neon-i8mm, amx"},
    {0, "skip-checksums", NULL, FLAG, AT(skip_checksums), ALL, NULL,
     "open without verifying the file"},
    PROGRAM_OPTIONS(ALL),
};
enum { N_OPTIONS = sizeof table / sizeof table[0] };

static void print_help(void)
{
    int i;
    print_about("lens MODEL.attn [COMMAND] TEXT [options]\n"
                "lens MODEL.attn patch TEXT TEXT2 [NAME...] [options]\n"
                "lens MODEL.attn record TEXT [NAME...] -o FILE [options]\n"
                "lens MODEL.attn record --lines PATH NAME... -o DIRECTORY [options]",
                "What a model makes of a text, from the inside. The command may also follow TEXT. "
                "TEXT may be - for standard input, and what comes through a pipe is the text if "
                "there is no other. NAME is an activation or a pattern, such as "
                "blocks.0.attn.hook_pattern or *.hook_resid_post (record), hook_mlp_out or "
                "attn.hook_z (patch). After -- nothing is a command. Tables are coloured on a "
                "terminal, unless NO_COLOR is set.");
    printf("\nCommands:\n");
    for (i = 0; i < N_COMMANDS; i++)
        print_row(commands[i].name, 11, commands[i].help);
    print_options(table, N_OPTIONS);
}

/* ---- a run and what it keeps ---- */

typedef struct text {
    int32_t *ids;
    size_t n;
    const char **shown; /* each token as it is displayed */
} text;

struct lens {
    options o;
    const struct command *command;
    arguments given;
    const char *model_path, *clean_word, *corrupted_word;
    const char *const *names;
    size_t n_names;
    attn_ctx ctx;
    arena memory;
    attn_model *model;
    const attn_config *config;
    const attn_tokenizer *tokenizer;
    attn_session *session;
    text text, corrupted;
    const char *const *command_line; /* argv without the program's name */
    lens_fact facts[5];
    int colour;  /* the terminal shows colours */
    int columns; /* it has so many; 0: as many as there are */
};

static void *allocate(lens *l, size_t count, size_t size)
{
    return arena_alloc(&l->ctx, &l->memory, count ? count : 1, size);
}

/* A string that lives to the end; "" without memory, which l->ctx.status then says. */
static const char *keep(lens *l, const char *format, ...) TOOLS_PRINTF(2, 3);
static const char *keep(lens *l, const char *format, ...)
{
    va_list args;
    char *line;
    int length;
    va_start(args, format);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    line = (char *)arena_alloc(&l->ctx, &l->memory, (size_t)length + 1, 1);
    if (!line)
        return "";
    va_start(args, format);
    vsnprintf(line, (size_t)length + 1, format, args);
    va_end(args);
    return line;
}

/* ---- reading the command line ---- */

static const struct command *find_command(const lens *l, size_t word)
{
    size_t i;
    for (i = 0; word < l->given.n_free && i < N_COMMANDS; i++)
        if (strcmp(l->given.words[word], commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* The command that a word may have meant. */
static const char *nearest_command(const char *word)
{
    const char *best = NULL;
    size_t least = SIZE_MAX, distance;
    int i;
    for (i = 0; i < N_COMMANDS; i++)
        if ((distance = name_distance(word, commands[i].name)) < least) {
            least = distance;
            best = commands[i].name;
        }
    return best;
}

static int too_many_words(const lens *l, const char *not_a_command)
{
    const char *meant = not_a_command ? nearest_command(not_a_command) : NULL;
    if (meant)
        return fail(USAGE, "there is no command %s; do you mean %s?", not_a_command, meant);
    if (not_a_command && !strchr(not_a_command, ' ') && strchr(l->names[0], ' '))
        return fail(USAGE, "there is no command %s; --help lists the commands", not_a_command);
    return fail(USAGE, "too many arguments at \"%s\": quote the text; --help lists the commands",
                l->names[0]);
}

/* Sorts the words: MODEL [COMMAND] TEXT ... or MODEL TEXT COMMAND ... */
static int sort_words(lens *l)
{
    size_t next = 0;
    l->model_path = option_or_word(l->o.model, &l->given, &next);
    if (!l->model_path)
        return fail(USAGE, "no model given: lens MODEL.attn \"a text\" (--help tells more)");
    l->command = find_command(l, next);
    if (l->command) {
        next++;
    } else if ((l->command = find_command(l, next + 1)) != NULL) {
        l->given.words[next + 1] = l->given.words[next];
        next++;
    } else {
        l->command = &commands[0];
    }
    l->clean_word = l->o.ids || l->o.file || l->o.lines
                        ? l->o.text
                        : option_or_word(l->o.text, &l->given, &next);
    if (next < l->given.n_words && l->command->bit == PATCH && !l->o.corrupted_ids)
        l->corrupted_word = l->given.words[next++];
    l->names = l->given.words + next;
    l->n_names = l->given.n_words - next;
    if (l->n_names && !(l->command->bit & (PATCH | RECORD)))
        return too_many_words(l, l->command == &commands[0] ? l->clean_word : NULL);
    return FINE;
}

static int read_command(int argc, char **argv, lens *l)
{
    const size_t most = sizeof l->given.words / sizeof l->given.words[0] - 1;
    int i, code = parse_options(argc, argv, table, N_OPTIONS, &l->o, &l->given, most,
                                "name fewer activations");
    if (code != FINE)
        return code;
    if (l->o.help || l->o.version)
        return FINE;
    if ((code = sort_words(l)) != FINE)
        return code;
    for (i = 0; i < N_OPTIONS; i++)
        if (l->given.given >> i & 1 && !(table[i].commands & l->command->bit))
            return fail(USAGE, "--%s means nothing to %s", table[i].name, l->command->name);
    return FINE;
}

static int ends_in(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

#define NO_TEXT                                                                                    \
    "no text given: an argument, --file, --ids, - to type it, or --bos to begin with nothing"

static int check_usage(const lens *l)
{
    const options *o = &l->o;
    if (!!l->clean_word + !!o->file + !!o->ids + !!o->lines > 1)
        return fail(USAGE, "give one text: as an argument, with --file or with --ids; or --lines");
    if ((o->resume || o->rows) && !o->lines)
        return fail(USAGE, "--%s is for the texts of --lines", o->resume ? "resume" : "rows");
    if (o->lines && l->n_names == 0)
        return fail(USAGE, "--lines needs the names of activations, such as '*.hook_resid_post'");
    if (!l->clean_word && !o->file && !o->ids && !o->bos && !o->lines && system_is_terminal(stdin))
        return fail(USAGE, NO_TEXT);
    if (l->command->bit == PATCH && !l->corrupted_word && !o->corrupted_ids)
        return fail(USAGE, "patch needs two texts: a second argument, or --corrupted-ids");
    if (o->against && !o->token)
        return fail(USAGE, "--against needs --token, to be subtracted from");
    if (o->output && o->json && l->command->bit != RECORD)
        return fail(USAGE, "-o draws a picture and --json prints: give one of them");
    if (l->command->bit == RECORD && !o->output)
        return fail(USAGE, o->lines ? "record --lines writes shards into a directory: -o DIRECTORY"
                                    : "record writes a file: -o FILE.safetensors or -o FILE.npz");
    if (o->output && l->command->bit == RECORD && !o->lines &&
        !ends_in(o->output, ".safetensors") && !ends_in(o->output, ".npz"))
        return fail(USAGE, "%s: the name must end in .safetensors or .npz", o->output);
    if (o->output && l->command->bit != RECORD && !ends_in(o->output, ".html") &&
        !ends_in(o->output, ".svg"))
        return fail(USAGE, "%s: the name must end in .html or .svg", o->output);
    return FINE;
}

/* ---- tokens as they are shown ---- */

/* What has no look of its own, or turns the line around: controls, zero widths, directions. */
static int is_invisible(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || c == 0x61C ||
           (c >= 0x200B && c < 0x2010) || (c >= 0x2028 && c < 0x202F) ||
           (c >= 0x2060 && c < 0x2070) || c == 0xFEFF || (c >= 0xFFF0 && c < 0xFFFC) ||
           (c & 0xFFFE) == 0xFFFE;
}

/* The bytes of a token made visible: spaces as what is given, newlines and tabs as arrows, bytes
 * that are no character as \xNN. */
static const char *visible(lens *l, const char *bytes, size_t size, const char *space)
{
    const unsigned char *p = (const unsigned char *)bytes;
    char *out = (char *)arena_alloc(&l->ctx, &l->memory, size + 1, 8), *to = out;
    size_t i, length;
    uint32_t code;
    if (!out)
        return "";
    for (i = 0; i < size; i += length ? length : 1) {
        length = utf8_length(p + i, size - i, &code);
        if (length == 0)
            to += sprintf(to, "\\x%02x", (unsigned)p[i]);
        else if (code == ' ' || code == '\n' || code == '\t')
            to += sprintf(to, "%s", code == ' ' ? space : code == '\n' ? "↵" : "⇥");
        else if (is_invisible(code))
            to += sprintf(to, code < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)code);
        else
            to += sprintf(to, "%.*s", (int)length, bytes + i);
    }
    return out;
}

/* A token as it is displayed: its id, if the model has no tokenizer. */
static const char *shown_token(lens *l, int32_t id)
{
    size_t size;
    const char *bytes = l->tokenizer ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    return bytes ? visible(l, bytes, size, "·") : keep(l, "%ld", (long)id);
}

/* At most `most` columns of a shown token: what stands in a list may be short. */
static const char *brief(lens *l, const char *token, size_t most)
{
    const size_t size = strlen(token);
    size_t at = 0, length, used = 0;
    uint32_t code = 0;
    if (text_width(token, size) <= most)
        return token;
    for (; at < size; at += length) {
        length = utf8_length((const unsigned char *)token + at, size - at, &code);
        if ((used += (size_t)width_of(code)) > most - 1)
            break;
    }
    return keep(l, "%.*s…", (int)at, token);
}

/* ---- the text ---- */

/* A text and how its tokens are shown. */
static int make_text(lens *l, text *to, const char *word, const char *path, const char *option,
                     const char *ids)
{
    const text_source from = {word, path, ids, option, l->o.bos, l->o.special, NO_TEXT};
    const int code =
        read_tokens(&l->ctx, &l->memory, l->model, l->model_path, &from, &to->ids, &to->n);
    size_t i;
    if (code != FINE)
        return code;
    to->shown = (const char **)allocate(l, to->n, sizeof *to->shown);
    for (i = 0; to->shown && i < to->n; i++)
        to->shown[i] = shown_token(l, to->ids[i]);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

/* A token named by --token or --against. */
static int name_token(lens *l, const char *option, const char *name, int32_t *id)
{
    size_t n = 0;
    int32_t ids[2], *list;
    if (l->o.ids || !l->tokenizer) {
        if (!(list = (int32_t *)allocate(l, strlen(name), sizeof *list)))
            return failed(&l->ctx);
        if (read_ids(l->model, option, name, list, &n) != FINE)
            return FAILED;
        if (n != 1)
            return fail(FAILED, "--%s: \"%s\" is not one token id", option, name);
        *id = list[0];
        return FINE;
    }
    if (attn_encode(&l->ctx, ids, 2, &n, l->tokenizer, name, strlen(name), 1) || n != 1) {
        l->ctx.status = ATTN_OK;
        return fail(FAILED,
                    "--%s: \"%s\" is %zu tokens, where one is needed (most words begin "
                    "with a space)",
                    option, name, n);
    }
    *id = ids[0];
    return FINE;
}

static int stop_if_interrupted(const attn_activation *activation, void *user)
{
    (void)activation;
    (void)user;
    return interrupted;
}

/* A session for the text; Ctrl-C stops it between two layers. */
static int make_session(lens *l, size_t n_batch)
{
    attn_session_desc desc = {0};
    desc.n_ctx = l->text.n;
    desc.n_batch = n_batch;
    if (attn_session_new(&l->ctx, &l->session, l->model, &desc) ||
        attn_hook(&l->ctx, NULL, l->session, "blocks.*.hook_resid_pre", stop_if_interrupted, NULL))
        return failed(&l->ctx);
    return FINE;
}

/* ---- tables on a terminal ---- */

/* A text in `width` columns, cut with "…" if it needs more; a negative width aligns to the right,
 * as printf's does to the left; 0: as many as it needs. A second line goes behind a slash. `sgr` is
 * how a terminal shall show it, or NULL. */
static void put(const lens *l, const char *shown_text, int width, const char *sgr)
{
    const size_t size = strlen(shown_text);
    const int needed = (int)text_width(shown_text, size);
    const int columns = width < 0 ? -width : width ? width : needed;
    size_t at = 0, length;
    int used = 0;
    uint32_t code = 0;
    for (; width < 0 && used < columns - needed; used++)
        putchar(' ');
    if (sgr && l->colour)
        printf("\033[%sm", sgr);
    for (; at < size; at += length, used += width_of(code)) {
        length = utf8_length((const unsigned char *)shown_text + at, size - at, &code);
        if (needed > columns && used + width_of(code) > columns - 1) {
            printf("…");
            used++;
            break;
        }
        if (code == '\n')
            putchar('/');
        else
            fwrite(shown_text + at, 1, length, stdout);
    }
    if (sgr && l->colour)
        printf("\033[0m");
    for (; used < columns; used++)
        putchar(' ');
}

static void put_number(const lens *l, double value, int width, const char *sgr)
{
    char digits[40];
    snprintf(digits, sizeof digits, fabs(value) < 9999.995 ? "%.2f" : "%.3g", value);
    put(l, digits, -width, sgr);
}

/* A terminal's own colours for -1 to 1, which suit its ground, whatever that is. */
static const char *sgr_of(float colour)
{
    return colour > 0.6f    ? "1;34"
           : colour > 0.2f  ? "34"
           : colour < -0.6f ? "1;31"
           : colour < -0.2f ? "31"
                            : NULL;
}

static const char dim[] = "2", bold[] = "1";

/* A grid as it is printed. A grid with a column for each position is transposed, because a terminal
 * scrolls down. */
typedef struct table_layout {
    const char *const *rows, *const *columns;
    size_t n_rows, n_columns;
    int turned, label, width; /* columns of the terminal, for the first column and each other */
} table_layout;

static table_layout lay_out(const lens *l, const lens_grid *grid)
{
    table_layout t;
    int n;
    size_t i;
    t.turned = strcmp(grid->column_name, "position") == 0;
    t.n_rows = t.turned ? grid->n_columns : grid->n_rows;
    t.n_columns = t.turned ? grid->n_rows : grid->n_columns;
    t.rows = t.turned ? grid->columns : grid->rows;
    t.columns = t.turned ? grid->rows : grid->columns;
    t.label = t.turned ? l->columns && l->columns < 60 ? 16 : 20
                       : (int)(strlen(grid->row_name) + strlen(grid->column_name) + 1);
    t.width = 6;
    for (i = 0; i < grid->n_rows * grid->n_columns; i++)
        t.width = (n = (int)line_width(grid->cells[i].text)) > t.width ? n : t.width;
    for (i = 0; i < t.n_columns; i++)
        t.width = (n = (int)line_width(t.columns[i])) > t.width ? n : t.width;
    t.width = t.width > 10 ? 10 : t.width;
    return t;
}

/* Columns [first, end) of it. */
static void print_columns(lens *l, const lens_grid *grid, const table_layout *t, size_t first,
                          size_t end)
{
    size_t i, j;
    put(l,
        grid->row_name[0] ? keep(l, "%s\\%s", t->turned ? grid->column_name : grid->row_name,
                                 t->turned ? grid->row_name : grid->column_name)
                          : "",
        t->label, dim);
    for (j = first; j < end; j++) {
        printf(" ");
        put(l, t->columns[j], -t->width, dim);
    }
    printf("\n");
    for (i = 0; i < t->n_rows; i++) {
        put(l, t->rows[i], t->label, dim);
        for (j = first; j < end; j++) {
            const lens_cell *cell =
                &grid->cells[t->turned ? j * grid->n_columns + i : i * grid->n_columns + j];
            printf(" ");
            put(l, cell->text, -t->width, sgr_of(cell->colour));
        }
        printf("\n");
    }
}

/* A table that is too wide for the terminal is printed in parts, one below the other. */
static void print_grid(lens *l, const lens_grid *grid)
{
    const table_layout t = lay_out(l, grid);
    const int room = (l->columns - t.label) / (t.width + 1);
    const size_t most = !l->columns ? t.n_columns : room > 1 ? (size_t)room : 1;
    size_t first;
    put(l, grid->title, 0, bold);
    printf("\n");
    for (first = 0; first < t.n_columns; first += most)
        print_columns(l, grid, &t, first, t.n_columns - first < most ? t.n_columns : first + most);
}

/* ---- JSON ---- */

static void json_token(const lens *l, int32_t id)
{
    size_t size = 0;
    const char *bytes = l->tokenizer ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    printf("\"id\": %ld", (long)id);
    if (bytes) {
        fputs(", \"token\": ", stdout);
        json_text(stdout, bytes, size);
    }
}

/* "tokens": of the text. */
static void json_tokens(const lens *l)
{
    size_t t;
    printf("\"tokens\": [");
    for (t = 0; t < l->text.n; t++) {
        printf(t ? ", {" : "{");
        json_token(l, l->text.ids[t]);
        printf("}");
    }
    printf("]");
}

/* JSON has no infinities. */
static void json_figure(double value)
{
    if (isfinite(value))
        printf("%.9g", value);
    else
        fputs("null", stdout);
}

static void json_guesses(const lens *l, const attn_prediction *top, size_t k)
{
    size_t i;
    fputs("\"top\": [", stdout);
    for (i = 0; i < k; i++) {
        fputs(i ? ", {" : "{", stdout);
        json_token(l, top[i].token);
        fputs(", \"logit\": ", stdout);
        json_figure((double)top[i].logit);
        fputs(", \"probability\": ", stdout);
        json_figure((double)top[i].probability);
        fputs("}", stdout);
    }
    fputs("]", stdout);
}

static void json_stats(const attn_token_stats *stats)
{
    fputs(", \"loss\": ", stdout);
    json_figure((double)stats->nll);
    fputs(", \"probability\": ", stdout);
    json_figure((double)stats->probability);
    printf(", \"rank\": %zu", stats->rank);
}

static void json_quoted(const char *string)
{
    json_text(stdout, string, strlen(string));
}

static void json_strings(const char *const *strings, size_t n)
{
    size_t i;
    fputs("[", stdout);
    for (i = 0; i < n; i++) {
        fputs(i ? ", " : "", stdout);
        json_quoted(strings[i]);
    }
    fputs("]", stdout);
}

/* {"name": .., "values": [[..], ..]} by rows of the grid. */
static void json_grid(const lens_grid *grid)
{
    size_t i, j;
    fputs("{\"title\": ", stdout);
    json_quoted(grid->title);
    printf(", \"axes\": [\"%s\", \"%s\"], \"columns\": ", grid->row_name, grid->column_name);
    json_strings(grid->columns, grid->n_columns);
    fputs(", \"values\": [", stdout);
    for (i = 0; i < grid->n_rows; i++) {
        fputs(i ? ",\n  [" : "\n  [", stdout);
        for (j = 0; j < grid->n_columns; j++) {
            fputs(j ? ", " : "", stdout);
            json_figure((double)grid->cells[i * grid->n_columns + j].number);
        }
        fputs("]", stdout);
    }
    fputs("]}", stdout);
}

static void json_grids(const lens_grid *grids, size_t n)
{
    size_t i;
    fputs("\"grids\": [", stdout);
    for (i = 0; i < n; i++) {
        fputs(i ? ",\n " : "\n ", stdout);
        json_grid(&grids[i]);
    }
    fputs("]", stdout);
}

/* ---- where a page comes from ---- */

static int is_plain(const char *bytes, size_t size)
{
    size_t at, length;
    uint32_t code;
    for (at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)bytes + at, size - at, &code);
        if (length == 0 || is_invisible(code))
            return 0;
    }
    return 1;
}

/* A word as a shell takes it. Bytes that cannot be seen become \xNN between $' and '. */
static const char *quoted(lens *l, const char *word, size_t size)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                               "_-./,:=+@%";
    const int plain = is_plain(word, size);
    char *out = (char *)arena_alloc(&l->ctx, &l->memory, size + 1, 4), *to = out;
    size_t i, k, length;
    uint32_t code;
    if (!out)
        return "";
    if (size && strspn(word, safe) >= size)
        return keep(l, "%.*s", (int)size, word);
    for (i = 0; i < size; i += length) {
        length = utf8_length((const unsigned char *)word + i, size - i, &code);
        length = length ? length : 1;
        if (!is_plain(word + i, length))
            for (k = 0; k < length; k++)
                to += sprintf(to, "\\x%02x", (unsigned)(unsigned char)word[i + k]);
        else if (word[i] == '\'' || (!plain && word[i] == '\\'))
            to += sprintf(to, plain ? "'\\''" : "\\%c", word[i]);
        else
            to += sprintf(to, "%.*s", (int)length, word + i);
    }
    return keep(l, plain ? "'%s'" : "$'%s'", size ? out : "");
}

static const char *command_text(lens *l)
{
    const char *const *word, *line = PROGRAM;
    for (word = l->command_line; *word; word++)
        line = keep(l, "%s %s", line, quoted(l, *word, strlen(*word)));
    return line;
}

/* A text in one line, cut if it is long; its ids, if the model has no tokenizer. */
static const char *whole_text(lens *l, const text *of)
{
    const char *line = "";
    size_t t, size = 0, used = 0;
    char *bytes;
    for (t = 0; !l->tokenizer && t < of->n && t < 100; t++)
        line = keep(l, "%s%s%s", line, t ? " " : "", of->shown[t]);
    if (!l->tokenizer)
        return brief(l, line, 400);
    for (t = 0; t < of->n; t++, used += size)
        attn_token_bytes(&size, l->tokenizer, of->ids[t]);
    if (!(bytes = (char *)allocate(l, used, 1)))
        return "";
    for (t = 0, used = 0; t < of->n; t++, used += size) {
        const char *token = attn_token_bytes(&size, l->tokenizer, of->ids[t]);
        memcpy(bytes + used, token, size);
    }
    return brief(l, visible(l, bytes, used, " "), 400);
}

static const char *file_of(const char *path)
{
    const char *name = strrchr(path, '/');
    return name ? name + 1 : path;
}

/* A page that says which model, text, command and version made it. */
static lens_page make_page(lens *l, const char *title)
{
    const char *file = file_of(l->model_path);
    lens_page page = {title, "", NULL, l->facts, 0};
    l->facts[page.n_facts].name = "model";
    l->facts[page.n_facts++].value = keep(
        l, "%s: %u layers of %u heads, width %u, %u tokens in the vocabulary",
        visible(l, file, strlen(file), " "), (unsigned)l->config->n_layer,
        (unsigned)l->config->n_head, (unsigned)l->config->d_model, (unsigned)l->config->n_vocab);
    l->facts[page.n_facts].name = l->corrupted.n ? "clean" : "prompt";
    l->facts[page.n_facts++].value = whole_text(l, &l->text);
    if (l->corrupted.n) {
        l->facts[page.n_facts].name = "corrupted";
        l->facts[page.n_facts++].value = whole_text(l, &l->corrupted);
    }
    l->facts[page.n_facts].name = "command";
    l->facts[page.n_facts++].value = command_text(l);
    l->facts[page.n_facts].name = "version";
    l->facts[page.n_facts++].value = keep(l, PROGRAM " of attn.h %d.%d.%d", ATTN_VERSION_MAJOR,
                                          ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    return page;
}

/* ---- pictures ---- */

static int is_svg(const lens *l)
{
    return ends_in(l->o.output, ".svg");
}

static int open_picture(lens *l, attn_draft **picture)
{
    return attn_draft_begin(&l->ctx, picture, l->o.output) ? failed(&l->ctx) : FINE;
}

/* Keeps the picture if `code` is FINE and all of it could be written. */
static int close_picture(lens *l, attn_draft *picture, int code)
{
    const attn_status status =
        attn_draft_end(&l->ctx, picture, code == FINE ? ATTN_OK : ATTN_STOPPED);
    return code == FINE && status ? failed(&l->ctx) : code;
}

static int draw_grids(lens *l, const lens_page *page, const lens_grid *grids, size_t n)
{
    attn_draft *picture;
    int code;
    if (l->ctx.status)
        return failed(&l->ctx);
    if ((code = open_picture(l, &picture)) != FINE)
        return code;
    (is_svg(l) ? svg_grids : html_grids)((FILE *)attn_draft_stream(picture), page, grids, n);
    return close_picture(l, picture, interrupted ? INTERRUPTED : FINE);
}

/* The result of a command, which its page, its tables and its JSON all show. */
typedef struct findings {
    lens_page page;
    const lens_grid *grids;
    size_t n_grids;
    void (*json)(const lens *l, const void *of); /* prints the members before the grids, or NULL */
    const void *of;
} findings;

static void json_findings(const lens *l, const findings *found)
{
    printf("{");
    if (found->json)
        found->json(l, found->of);
    json_grids(found->grids, found->n_grids);
    printf("}\n");
}

static int present(lens *l, const findings *found)
{
    size_t i;
    if (l->ctx.status)
        return failed(&l->ctx);
    if (l->o.output)
        return draw_grids(l, &found->page, found->grids, found->n_grids);
    if (l->o.json) {
        json_findings(l, found);
        return FINE;
    }
    if (l->columns)
        print_wrapped(found->page.note, 0, 0, l->columns);
    else
        printf("%s\n", found->page.note);
    if (found->page.warning) {
        put(l, found->page.warning, 0, "33");
        printf("\n");
    }
    for (i = 0; i < found->n_grids; i++) {
        printf("\n");
        print_grid(l, &found->grids[i]);
    }
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

/* A grid with room for its numbers; labels of layers, if there is one for each row. */
static int make_grid(lens *l, lens_grid *grid, size_t n_rows, size_t n_columns)
{
    lens_cell *cells = (lens_cell *)allocate(l, n_rows * n_columns, sizeof *cells);
    const char **rows = (const char **)allocate(l, n_rows, sizeof *rows);
    const char **columns = (const char **)allocate(l, n_columns, sizeof *columns);
    size_t i;
    memset(grid, 0, sizeof *grid);
    grid->n_rows = n_rows;
    grid->n_columns = n_columns;
    grid->cells = cells;
    grid->rows = rows;
    grid->columns = columns;
    if (!cells || !rows || !columns)
        return failed(&l->ctx);
    for (i = 0; i < n_rows; i++)
        rows[i] = keep(l, "%zu", i);
    for (i = 0; i < n_columns; i++)
        columns[i] = keep(l, "%zu", i);
    grid->row_name = "layer";
    grid->column_name = "head";
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

/* The labels and cells of a grid are const to those who draw them; here they are made. */
static lens_cell *cell_of(const lens_grid *grid, size_t row, size_t column)
{
    return (lens_cell *)grid->cells + row * grid->n_columns + column;
}

/* "12 token" for each position. */
static void label_positions(lens *l, lens_grid *grid)
{
    size_t t;
    grid->column_name = "position";
    for (t = 0; t < grid->n_columns; t++)
        ((const char **)grid->columns)[t] = keep(l, "%zu %s", t, l->text.shown[t]);
}

/* A probability in few letters. */
static const char *percent(lens *l, double p)
{
    return keep(l, p < 0.0995 ? "%.1f%%" : "%.0f%%", 100 * p);
}

/* "\n 37% token" for each guess. */
static const char *list_guesses(lens *l, const attn_prediction *top, size_t k)
{
    const char *list = "";
    size_t i;
    for (i = 0; i < k; i++)
        list = keep(l, "%s\n%6.2f%%  %s", list, 100 * (double)top[i].probability,
                    brief(l, shown_token(l, top[i].token), 40));
    return list;
}

/* ---- tokens, loss ---- */

typedef struct losses {
    attn_token_stats *stats; /* [n - 1]: of the tokens after the first */
    attn_prediction *top;    /* [n, k] */
    size_t k;
    double mean, worst;
} losses;

static int find_losses(lens *l, losses *out)
{
    const size_t n = l->text.n;
    size_t t;
    int code;
    memset(out, 0, sizeof *out);
    out->k = l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab;
    out->stats = (attn_token_stats *)allocate(l, n, sizeof *out->stats);
    out->top = (attn_prediction *)allocate(l, n * (out->k + 1), sizeof *out->top);
    if (!out->stats || !out->top)
        return failed(&l->ctx);
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_score(&l->ctx, out->stats, out->top, out->k, l->session, l->text.ids, n))
        return failed(&l->ctx);
    for (t = 0; t + 1 < n; t++) {
        const double nll = (double)out->stats[t].nll;
        out->mean += nll;
        out->worst = nll > out->worst ? nll : out->worst;
    }
    out->mean /= n > 1 ? (double)(n - 1) : 1;
    return FINE;
}

static void json_losses(const lens *l, const losses *found, int with_top)
{
    const size_t n = l->text.n;
    size_t t;
    printf("{\"mean_loss\": ");
    json_figure(n > 1 ? found->mean : (double)NAN);
    printf(", \"perplexity\": ");
    json_figure(n > 1 ? exp(found->mean) : (double)NAN);
    printf(", \"tokens\": [");
    for (t = 0; t < n; t++) {
        printf("%s\n {\"position\": %zu, ", t ? "," : "", t);
        json_token(l, l->text.ids[t]);
        if (t)
            json_stats(&found->stats[t - 1]);
        if (with_top) {
            printf(", ");
            json_guesses(l, found->top + t * found->k, found->k);
        }
        printf("}");
    }
    printf("]}\n");
}

/* The tokens as they stand in the text, without colours. */
static lens_word *make_words(lens *l)
{
    lens_word *words = (lens_word *)allocate(l, l->text.n, sizeof *words);
    size_t t, size = 0;
    for (t = 0; words && t < l->text.n; t++) {
        const char *bytes =
            l->tokenizer ? attn_token_bytes(&size, l->tokenizer, l->text.ids[t]) : NULL;
        words[t].colour = 0;
        words[t].tip = NULL;
        words[t].breaks = bytes && memchr(bytes, '\n', size) != NULL;
        words[t].text = bytes ? visible(l, bytes, size, " ") : keep(l, "%s ", l->text.shown[t]);
    }
    return words;
}

/* The text itself, each token on the colour of its loss. */
static int draw_losses(lens *l, const losses *found)
{
    const size_t n = l->text.n;
    const double most = found->worst > 1 ? found->worst : 1;
    lens_word *words = make_words(l);
    lens_page page = make_page(l, "Loss of each token");
    attn_draft *picture;
    size_t t;
    int code;
    if (!words)
        return failed(&l->ctx);
    for (t = 0; t < n; t++) {
        const attn_token_stats *stats = t ? &found->stats[t - 1] : NULL;
        const char *name = l->text.shown[t], *next, *said;
        words[t].colour = stats ? -(float)((double)stats->nll / most) : 0;
        said = stats ? keep(l, "\nloss %.3f, probability %.3g, rank %zu", (double)stats->nll,
                            (double)stats->probability, stats->rank)
                     : "";
        next = list_guesses(l, found->top + t * found->k, found->k);
        words[t].tip = keep(l, "%zu  %s  (id %ld)%s%s%s", t, name, (long)l->text.ids[t], said,
                            found->k ? "\nlikeliest to come next:" : "", next);
    }
    page.note = n > 1 ? keep(l, "%zu tokens, mean loss %.3f nats, perplexity %.2f", n, found->mean,
                             exp(found->mean))
                      : "1 token";
    if (l->ctx.status)
        return failed(&l->ctx);
    if ((code = open_picture(l, &picture)) != FINE)
        return code;
    (is_svg(l) ? svg_words : html_words)((FILE *)attn_draft_stream(picture), &page,
                                         keep(l, "%.1f nats: unexpected", most), words, n);
    return close_picture(l, picture, FINE);
}

static const char *sgr_of_loss(double nll)
{
    return nll > 6 ? "1;31" : nll > 3 ? "31" : nll > 1.5 ? "33" : NULL;
}

/* Columns of the table of losses before the last one; a narrow terminal gets fewer. */
enum { WIDE = 59, NARROW = 28 };

static int is_narrow(const lens *l)
{
    return l->columns && l->columns < WIDE + 20;
}

static void print_token(const lens *l, const losses *found, size_t t)
{
    const attn_token_stats *stats = t ? &found->stats[t - 1] : NULL;
    const char *sgr = stats ? sgr_of_loss((double)stats->nll) : NULL;
    printf("%5zu ", t);
    if (!is_narrow(l))
        printf("%7ld ", (long)l->text.ids[t]);
    put(l, l->text.shown[t], is_narrow(l) ? 12 : 16, sgr);
    if (!stats) {
        printf("%*s", is_narrow(l) ? 8 : 26, "");
        return;
    }
    put_number(l, (double)stats->nll, 8, sgr);
    if (!is_narrow(l))
        printf(stats->probability < 0.0001f ? "  %8.1e %7zu" : "  %8.4f %7zu",
               (double)stats->probability, stats->rank);
}

/* As many as fit. */
static void print_guesses(lens *l, const losses *found, size_t t)
{
    int used = is_narrow(l) ? NARROW : WIDE;
    size_t i;
    for (i = 0; i < found->k; i++) {
        const attn_prediction *guess = &found->top[t * found->k + i];
        const char *token = brief(l, shown_token(l, guess->token), is_narrow(l) ? 6 : 12);
        const char *share = keep(l, " %s", percent(l, (double)guess->probability));
        used += (i ? 2 : 0) + (int)(text_width(token, strlen(token)) + strlen(share));
        if (l->columns && i && used > l->columns)
            break;
        printf(i ? "  " : "");
        put(l, token, 0, NULL);
        put(l, share, 0, dim);
    }
}

/* The loss as a bar, a sign for half a nat. */
static void print_bar(const lens *l, double nll)
{
    const int room = l->columns ? l->columns - (is_narrow(l) ? NARROW : WIDE) : 40;
    int i;
    for (i = 0; i < 2 * nll && i < 40 && i < room; i++)
        putchar('#');
}

static int run_losses(lens *l)
{
    const int guesses = l->command->bit == TOKENS;
    losses found;
    size_t t;
    const int code = find_losses(l, &found);
    if (code != FINE)
        return code;
    if (l->o.output)
        return draw_losses(l, &found);
    if (l->o.json) {
        json_losses(l, &found, guesses);
        return FINE;
    }
    put(l,
        is_narrow(l) ? "  pos token           loss"
                     : "  pos      id token               loss      prob    rank",
        0, dim);
    put(l, !guesses ? "" : is_narrow(l) ? "  next" : "  likeliest next", 0, dim);
    printf("\n");
    for (t = 0; t < l->text.n; t++) {
        print_token(l, &found, t);
        printf("  ");
        if (guesses)
            print_guesses(l, &found, t);
        else if (t)
            print_bar(l, (double)found.stats[t - 1].nll);
        printf("\n");
    }
    if (!guesses && l->text.n > 1)
        printf("mean loss %.4f nats, perplexity %.2f\n", found.mean, exp(found.mean));
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

/* ---- logit-lens ---- */

/* Judges positions [first, first + count): the k likeliest tokens of each layer's stream, and how
 * it rates the token that comes next. Results are [layers, positions]. */
static int judge_streams(lens *l, const attn_resid_stack *parts, size_t first, size_t count,
                         attn_prediction *top, attn_token_stats *next, size_t k)
{
    const size_t n = l->text.n, n_parts = parts->stack.shape[0];
    const attn_tensor resid = attn_slice(parts->stack, 1, first, count);
    const attn_tensor own = {0}, saved = attn_slice(parts->scale, 0, first, count);
    attn_tensor logits = {0}, rows;
    int32_t *targets = (int32_t *)allocate(l, n_parts * count, sizeof *targets);
    attn_prediction *some = (attn_prediction *)allocate(l, n_parts * count * (k + 1), sizeof *some);
    attn_token_stats *stats = (attn_token_stats *)allocate(l, n_parts * count, sizeof *stats);
    size_t i, t;
    if (!targets || !some || !stats)
        return failed(&l->ctx);
    for (i = 0; i < n_parts; i++)
        for (t = 0; t < count; t++) /* after the last token comes nothing; any will do */
            targets[i * count + t] = first + t + 1 < n ? l->text.ids[first + t + 1] : 0;
    if (attn_logit_lens(&l->ctx, &logits, l->model, resid, l->o.saved_scale ? saved : own, NULL, 0))
        return failed(&l->ctx);
    rows = attn_reshape(logits, attn_shape2(n_parts * count, l->config->n_vocab));
    if (attn_logit_stats(&l->ctx, stats, some, k, rows, targets))
        return failed(&l->ctx);
    attn_tensor_free(&l->ctx, &logits);
    for (i = 0; i < n_parts; i++)
        for (t = 0; t < count; t++) {
            next[i * n + first + t] = stats[i * count + t];
            memcpy(top + (i * n + first + t) * k, some + (i * count + t) * k, k * sizeof *top);
        }
    return FINE;
}

static void json_logit_lens(const lens *l, const attn_prediction *top, const attn_token_stats *next,
                            size_t n_parts, size_t k)
{
    const size_t n = l->text.n;
    size_t i, t;
    printf("{");
    json_tokens(l);
    printf(", \"layers\": [");
    for (i = 0; i < n_parts; i++) {
        printf("%s\n {\"stream\": \"%s\", \"positions\": [", i ? "," : "",
               attn_resid_label(l->model, ATTN_RESID_ACCUMULATED, i).text);
        for (t = 0; t < n; t++) {
            printf("%s\n  {", t ? "," : "");
            json_guesses(l, top + (i * n + t) * k, k);
            if (t + 1 < n)
                json_stats(&next[i * n + t]);
            printf("}");
        }
        printf("]}");
    }
    printf("]}\n");
}

static int run_logit_lens(lens *l)
{
    const size_t n = l->text.n, n_parts = attn_resid_count(l->model, ATTN_RESID_ACCUMULATED);
    const size_t k = l->o.top ? l->o.top < l->config->n_vocab ? l->o.top : l->config->n_vocab : 1;
    const size_t piece = 8; /* positions at a time, for a row of logits is long */
    attn_prediction *top = (attn_prediction *)allocate(l, n_parts * n * k, sizeof *top);
    attn_token_stats *next = (attn_token_stats *)allocate(l, n_parts * n, sizeof *next);
    attn_resid_stack parts = {0};
    lens_grid grid;
    findings found = {make_page(l, "Logit lens"), &grid, 1, NULL, NULL};
    size_t t, i, count;
    int code;
    if (!top || !next ||
        attn_decompose_resid(&l->ctx, &parts, l->model, l->text.ids, n, ATTN_RESID_ACCUMULATED, 0,
                             0))
        return failed(&l->ctx);
    for (t = 0; t < n; t += count) {
        count = n - t < piece ? n - t : piece;
        if (interrupted)
            return INTERRUPTED;
        if ((code = judge_streams(l, &parts, t, count, top, next, k)) != FINE)
            return code;
    }
    if (l->o.json) {
        json_logit_lens(l, top, next, n_parts, k);
        return FINE;
    }
    if ((code = make_grid(l, &grid, n_parts, n)) != FINE)
        return code;
    label_positions(l, &grid);
    grid.title = "likeliest next token, after each layer";
    grid.high = "1: the probability of that token";
    for (i = 0; i < n_parts; i++) {
        ((const char **)grid.rows)[i] =
            keep(l, "%s", attn_resid_label(l->model, ATTN_RESID_ACCUMULATED, i).text);
        for (t = 0; t < n; t++) {
            const attn_prediction *guess = top + (i * n + t) * k;
            const attn_token_stats *true_next = &next[i * n + t];
            lens_cell *cell = cell_of(&grid, i, t);
            cell->number = cell->colour = guess->probability;
            cell->text = shown_token(l, guess->token);
            cell->tip = keep(l, "%s at %zu %s%s", grid.rows[i], t, brief(l, l->text.shown[t], 40),
                             list_guesses(l, guess, k));
            if (t + 1 < n)
                cell->tip = keep(l, "%s\nin fact %s: %.2f%%, rank %zu", cell->tip,
                                 brief(l, l->text.shown[t + 1], 40),
                                 100 * (double)true_next->probability, true_next->rank);
        }
    }
    found.page.note = l->o.saved_scale
                          ? "Each layer's residual stream, unembedded with the scale that the last "
                            "LayerNorm had in the whole run."
                          : "Each layer's residual stream, unembedded as if it were the last one.";
    return present(l, &found);
}

/* ---- patterns ----
 *
 * The patterns of a long text are large, so each layer's goes out as it comes by. The session's
 * batch holds the whole text: every layer comes by once, whole, in order. */

typedef struct patterns {
    lens *l;
    FILE *file; /* of the picture, or NULL */
    double top; /* where the heads of an SVG begin */
    lens_heads heads;
    size_t n_done;
    attn_tensor matrix; /* of the head that is drawn */
    lens_grid *grids;   /* the overview's */
} patterns;

static float weight_at(const void *pattern, size_t query, size_t key)
{
    return attn_get2(*(const attn_tensor *)pattern, query, key);
}

static void json_pattern(const patterns *p, const attn_tensor *matrix, size_t layer, size_t head)
{
    const size_t n = p->l->text.n;
    size_t q, k;
    printf("%s\n {\"layer\": %zu, \"head\": %zu, \"pattern\": [", p->n_done ? "," : "", layer,
           head);
    for (q = 0; q < n; q++) {
        printf(q ? ",\n  [" : "\n  [");
        for (k = 0; k <= q; k++) {
            printf(k ? ", " : "");
            json_figure((double)weight_at(matrix, q, k));
        }
        printf("]");
    }
    printf("]}");
}

/* One head: the keys that each query looks at most. */
static void print_pattern(lens *l, const attn_tensor *matrix)
{
    const size_t n = l->text.n;
    unsigned char *taken = (unsigned char *)allocate(l, n, 1);
    size_t q, k, i;
    for (q = 0; taken && q < n; q++) {
        printf("%5zu ", q);
        put(l, l->text.shown[q], 16, NULL);
        memset(taken, 0, n);
        for (i = 0; i <= q && i < l->o.top; i++) {
            size_t best = n;
            for (k = 0; k <= q; k++)
                if (!taken[k] &&
                    (best == n || weight_at(matrix, q, k) > weight_at(matrix, q, best)))
                    best = k;
            taken[best] = 1;
            printf("  ");
            put(l, keep(l, "%zu %s", best, brief(l, l->text.shown[best], 12)), 0, NULL);
            put(l, keep(l, " %s", percent(l, (double)weight_at(matrix, q, best))), 0, dim);
        }
        printf("\n");
    }
}

enum { TO_FIRST, TO_ITSELF, DISTANCE, N_OVERVIEWS };

/* Adds up one head's overview: shares of its attention, and how far back it looks. */
static void sum_up(patterns *p, const attn_tensor *matrix, size_t layer, size_t head)
{
    const size_t n = p->l->text.n;
    double sums[N_OVERVIEWS] = {0};
    size_t q, k, i;
    for (q = 0; q < n; q++)
        for (k = 0; k <= q; k++) {
            const double weight = (double)weight_at(matrix, q, k);
            sums[TO_FIRST] += k == 0 ? weight : 0;
            sums[TO_ITSELF] += k == q ? weight : 0;
            sums[DISTANCE] += weight * (double)(q - k);
        }
    for (i = 0; i < N_OVERVIEWS; i++) {
        lens_cell *cell = cell_of(&p->grids[i], layer, head);
        cell->number = (float)(sums[i] / (double)n);
        cell->colour = i == DISTANCE ? cell->number / (float)n : cell->number;
        cell->text = keep(p->l, "%.2f", (double)cell->number);
    }
}

static int take_patterns(const attn_activation *activation, void *user)
{
    patterns *p = (patterns *)user;
    lens *l = p->l;
    const size_t layer = (size_t)activation->layer;
    size_t head;
    for (head = 0; head < l->config->n_head && !interrupted; head++) {
        attn_tensor matrix = attn_select(activation->value, 0, head);
        if (l->o.head != not_given && head != l->o.head)
            continue;
        if (p->file && is_svg(l) && p->heads.n_heads == 1)
            attn_copy(&l->ctx, &p->matrix, matrix);
        else if (p->file && is_svg(l))
            svg_pattern(p->file, &p->heads, p->n_done, p->top, weight_at, &matrix, l->text.n);
        else if (p->file)
            html_pattern(p->file, weight_at, &matrix, l->text.n);
        else if (l->o.json)
            json_pattern(p, &matrix, layer, head);
        else if (p->heads.n_heads == 1)
            print_pattern(l, &matrix);
        else
            sum_up(p, &matrix, layer, head);
        p->n_done++;
    }
    return interrupted || l->ctx.status;
}

static int feed_patterns(patterns *p)
{
    lens *l = p->l;
    const char *name = l->o.layer == not_given
                           ? "blocks.*.attn.hook_pattern"
                           : keep(l, "blocks.%zu.attn.hook_pattern", l->o.layer);
    const int code = make_session(l, l->text.n);
    if (code != FINE)
        return code;
    if (attn_hook(&l->ctx, NULL, l->session, name, take_patterns, p) ||
        attn_feed(&l->ctx, l->session, l->text.ids, l->text.n))
        return failed(&l->ctx);
    return FINE;
}

static int print_overview(patterns *p)
{
    static const char *const titles[N_OVERVIEWS] = {
        "share of attention on the first token", "on the token itself",
        "mean distance to what is looked at, in tokens"};
    lens *l = p->l;
    lens_grid grids[N_OVERVIEWS];
    size_t i, layer;
    int code = FINE;
    for (i = 0; i < N_OVERVIEWS && code == FINE; i++) {
        code = make_grid(l, &grids[i], l->config->n_layer, l->config->n_head);
        grids[i].title = titles[i];
    }
    p->grids = grids;
    if (code == FINE)
        code = feed_patterns(p);
    p->grids = NULL;
    if (code != FINE)
        return code;
    for (i = 0; i < N_OVERVIEWS; i++) {
        for (layer = 0; layer < grids[i].n_rows * grids[i].n_columns; layer++)
            if (!grids[i].cells[layer].text) /* not chosen */
                cell_of(&grids[i], 0, layer)->text = "";
        printf(i ? "\n" : "");
        print_grid(l, &grids[i]);
    }
    return FINE;
}

/* One head as an SVG is a grid of tokens by tokens. */
static int svg_one_pattern(lens *l, FILE *file, const lens_page *page, attn_tensor matrix)
{
    const size_t n = l->text.n;
    lens_grid grid;
    size_t q, k;
    const int code = make_grid(l, &grid, n, n);
    if (code != FINE)
        return code;
    label_positions(l, &grid);
    grid.title = "queries down, keys across";
    grid.high = "1: all of a query's attention";
    grid.row_name = "query";
    grid.column_name = "key";
    for (q = 0; q < n; q++) {
        ((const char **)grid.rows)[q] = keep(l, "%s", brief(l, grid.columns[q], 20));
        for (k = 0; k < n; k++) {
            const float weight = k <= q ? attn_get2(matrix, q, k) : 0;
            lens_cell *cell = cell_of(&grid, q, k);
            cell->colour = weight;
            cell->text = k <= q ? keep(l, "%.2f", (double)weight) : "";
            cell->tip = k <= q ? keep(l, "query %s\nkey %s\nweight %.4f", grid.columns[q],
                                      grid.columns[k], (double)weight)
                               : "";
        }
    }
    svg_grids(file, page, &grid, 1);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

static int draw_patterns(patterns *p, FILE *file)
{
    lens *l = p->l;
    const lens_word *words = make_words(l);
    lens_page page = make_page(l, "Attention patterns");
    int code;
    page.note =
        p->heads.n_heads == 1
            ? keep(l, "Layer %zu, head %zu, over %zu tokens.", l->o.layer, l->o.head, l->text.n)
        : is_svg(l)
            ? keep(l, "%zu heads over %zu tokens. In each, queries go down and keys across.",
                   p->heads.n_heads, l->text.n)
            : keep(l,
                   "%zu heads over %zu tokens. A click or the arrow keys choose a head; a "
                   "token of the text shows where it attends.",
                   p->heads.n_heads, l->text.n);
    if (l->ctx.status)
        return failed(&l->ctx);
    p->file = file;
    if (!is_svg(l))
        html_patterns_begin(file, &page, &p->heads, l->text.shown, words, l->text.n);
    else if (p->heads.n_heads > 1)
        p->top = svg_patterns_begin(file, &page, &p->heads);
    if ((code = feed_patterns(p)) != FINE)
        return code;
    if (!is_svg(l))
        html_patterns_end(file);
    else if (p->heads.n_heads > 1)
        fputs("</svg>\n", file);
    else
        code = svg_one_pattern(l, file, &page, p->matrix);
    return code;
}

/* The heads that were chosen: a row for each layer, or, for one head of all layers, a column. */
static int choose_heads(lens *l, lens_heads *heads)
{
    const size_t n_layer = l->config->n_layer, n_head = l->config->n_head;
    const int by_head = l->o.head != not_given;
    size_t layer, head;
    if (l->o.layer != not_given && l->o.layer >= n_layer)
        return fail(FAILED, "there is no layer %zu: the model has %zu, from 0", l->o.layer,
                    n_layer);
    if (by_head && l->o.head >= n_head)
        return fail(FAILED, "there is no head %zu: a layer has %zu, from 0", l->o.head, n_head);
    heads->heads = (size_t(*)[2])allocate(l, n_layer * n_head, sizeof *heads->heads);
    if (!heads->heads)
        return failed(&l->ctx);
    for (layer = 0; layer < n_layer; layer++)
        for (head = 0; head < n_head; head++)
            if ((l->o.layer == not_given || layer == l->o.layer) &&
                (!by_head || head == l->o.head)) {
                heads->heads[heads->n_heads][0] = layer;
                heads->heads[heads->n_heads++][1] = head;
            }
    heads->row_name = by_head ? "head" : "layer";
    heads->column_name = by_head ? "layer" : "head";
    heads->n_columns = by_head ? heads->n_heads : n_head;
    return FINE;
}

static int run_patterns(lens *l)
{
    const size_t n = l->text.n;
    const size_t most = (size_t)1 << 28; /* bytes that a browser may be asked to take */
    patterns p = {0};
    attn_draft *picture;
    int code = choose_heads(l, &p.heads);
    if (code != FINE)
        return code;
    p.l = l;
    if (l->o.output && is_svg(l) && p.heads.n_heads == 1 && n > 256)
        return fail(FAILED,
                    "%zu tokens are too many for an SVG of one head; a page (.html) has "
                    "room for them",
                    n);
    /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): a model has a head, and one was chosen */
    if (l->o.output && n * n > most / p.heads.n_heads)
        return fail(FAILED,
                    "%zu patterns of %zu tokens are too much for a picture; choose with "
                    "--layer or --head",
                    p.heads.n_heads, n);
    if (l->o.output) {
        if ((code = open_picture(l, &picture)) != FINE)
            return code;
        return close_picture(l, picture, draw_patterns(&p, (FILE *)attn_draft_stream(picture)));
    }
    if (l->o.json) {
        printf("{");
        json_tokens(l);
        printf(", \"patterns\": [");
        code = feed_patterns(&p);
        printf("]}\n");
        return code;
    }
    return p.heads.n_heads == 1 ? feed_patterns(&p) : print_overview(&p);
}

/* ---- a question to the model: one logit, or the difference of two ---- */

typedef struct question {
    int32_t token, against; /* against -1: none */
    const char *text;       /* "logit of X - logit of Y" */
} question;

static int likeliest(lens *l, const text *what, size_t n, int32_t *token, float *logits)
{
    const size_t n_vocab = l->config->n_vocab;
    attn_session *session = NULL;
    attn_prediction best;
    attn_tensor row;
    attn_status status;
    status = attn_session_new(&l->ctx, &session, l->model, NULL);
    if (status == ATTN_OK)
        status =
            attn_hook(&l->ctx, NULL, session, "blocks.*.hook_resid_pre", stop_if_interrupted, NULL);
    if (status == ATTN_OK)
        status = attn_feed(&l->ctx, session, what->ids, n);
    if (status == ATTN_OK) {
        memcpy(logits, attn_logits(session), n_vocab * sizeof *logits);
        row = attn_borrow(logits, ATTN_F32, attn_shape2(1, n_vocab));
        status = attn_logit_stats(&l->ctx, NULL, &best, 1, row, NULL);
        *token = best.token;
    }
    attn_session_free(session);
    return status ? failed(&l->ctx) : FINE;
}

static int name_tokens(lens *l, question *q)
{
    int code = FINE;
    if (l->o.token)
        code = name_token(l, "token", l->o.token, &q->token);
    if (l->o.against && code == FINE)
        code = name_token(l, "against", l->o.against, &q->against);
    if (code != FINE)
        return code;
    q->text = q->against < 0 ? keep(l, "logit of %s", shown_token(l, q->token))
                             : keep(l, "logit of %s minus logit of %s", shown_token(l, q->token),
                                    shown_token(l, q->against));
    return FINE;
}

/* ---- patch ---- */

static int judge_logits(float *value, const float *logits, void *user)
{
    const question *q = (const question *)user;
    *value = logits[q->token] - (q->against < 0 ? 0 : logits[q->against]);
    return interrupted;
}

/* A share of a gap below this many logits is mostly noise. */
static const double small_gap = 0.5;

typedef struct patching {
    question question, changes; /* changes: the likely tokens whose logits change most */
    double changes_gap;
    const char *reason; /* for the question, if it was not asked by the user */
    attn_patch_desc desc;
    float clean, corrupted;
} patching;

static double gap_of(const patching *p)
{
    return (double)p->clean - (double)p->corrupted;
}

static int is_small(const patching *p)
{
    return !(fabs(gap_of(p)) >= small_gap);
}

/* Among the likeliest tokens after either text: the one whose logit is raised most by the clean
 * text, and the one whose logit is lowered most. A rare token's logit may change more and say
 * less. `logits` are [2, n_vocab]: clean, corrupted. */
static int find_changes(lens *l, float *logits, patching *p)
{
    enum { MOST = 50 };
    const size_t n_vocab = l->config->n_vocab, k = n_vocab < MOST ? n_vocab : MOST;
    const attn_tensor rows = attn_borrow(logits, ATTN_F32, attn_shape2(2, n_vocab));
    attn_prediction top[2 * MOST];
    double most = -INFINITY, least = INFINITY;
    size_t i;
    if (attn_logit_stats(&l->ctx, NULL, top, k, rows, NULL))
        return failed(&l->ctx);
    for (i = 0; i < 2 * k; i++) {
        const int32_t id = top[i].token;
        const double change = (double)logits[id] - (double)logits[n_vocab + (size_t)id];
        if (change > most) {
            most = change;
            p->changes.token = id;
        }
        if (change < least) {
            least = change;
            p->changes.against = id;
        }
    }
    p->changes_gap = most - least;
    return FINE;
}

/* The difference of two logits that the texts settle differently, if there is one. */
static int choose_question(lens *l, patching *p)
{
    const size_t n_vocab = l->config->n_vocab;
    float *logits = (float *)allocate(l, 2 * n_vocab, sizeof *logits);
    int code;
    if (!logits)
        return failed(&l->ctx);
    p->question.against = -1;
    if ((code = likeliest(l, &l->text, l->text.n, &p->question.token, logits)) != FINE ||
        (code = likeliest(l, &l->corrupted, l->text.n, &p->question.against, logits + n_vocab)) !=
            FINE ||
        (code = find_changes(l, logits, p)) != FINE)
        return code;
    p->reason = " (the likeliest token after each text)";
    if (l->o.token) {
        p->question.against = -1;
        p->reason = "";
    } else if (p->question.token == p->question.against) {
        if (p->changes.token == p->changes.against)
            return fail(FAILED, "the logits are the same after both texts: patching needs two "
                                "texts that the model tells apart");
        p->reason = keep(l,
                         " (%s is the likeliest token after both texts; of the likely tokens, the "
                         "logits of these two change most)",
                         shown_token(l, p->question.token));
        p->question = p->changes;
    }
    return name_tokens(l, &p->question);
}

static int ask_about_patches(lens *l, patching *p)
{
    const int code =
        l->text.n == l->corrupted.n
            ? choose_question(l, p)
            : fail(FAILED, "the texts have %zu and %zu tokens; patching needs as many in both",
                   l->text.n, l->corrupted.n);
    p->desc.clean = l->text.ids;
    p->desc.corrupted = l->corrupted.ids;
    p->desc.n_tokens = l->text.n;
    p->desc.metric = judge_logits;
    p->desc.user = &p->question;
    p->desc.clean_value = &p->clean;
    p->desc.corrupted_value = &p->corrupted;
    return code;
}

/* The answers to one sweep; finish_patches makes texts and colours of them. */
static int sweep(lens *l, patching *p, const char *name, lens_grid *grid)
{
    const int by_head = strncmp(name, "attn.", 5) == 0;
    attn_tensor values = {0};
    size_t i, j;
    int code;
    if ((by_head ? attn_patch_heads : attn_patch_positions)(&l->ctx, &values, l->model, &p->desc,
                                                            name))
        return failed(&l->ctx);
    if ((code = make_grid(l, grid, values.shape[0], values.shape[1])) != FINE)
        return code;
    if (!by_head)
        label_positions(l, grid);
    grid->title =
        keep(l, "%s, %s", name, by_head ? "of one head at all positions" : "at one position");
    for (i = 0; i < grid->n_rows; i++)
        for (j = 0; j < grid->n_columns; j++)
            cell_of(grid, i, j)->number = attn_get2(values, i, j);
    for (j = 0; !by_head && j < grid->n_columns; j++)
        if (l->text.ids[j] != l->corrupted.ids[j])
            ((const char **)grid->columns)[j] =
                keep(l, "%s\n%s", grid->columns[j], l->corrupted.shown[j]);
    attn_tensor_free(&l->ctx, &values);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

static double change_of(const patching *p, const lens_cell *cell)
{
    return (double)cell->number - (double)p->corrupted;
}

static double largest_change(const patching *p, const lens_grid *grids, size_t n)
{
    double most = 1e-9;
    size_t g, i;
    for (g = 0; g < n; g++)
        for (i = 0; i < grids[g].n_rows * grids[g].n_columns; i++)
            most = fmax(most, fabs(change_of(p, &grids[g].cells[i])));
    return most;
}

/* The cell's value is its change divided by `unit`; one of `most` has the full colour. */
static void finish_patch(lens *l, const patching *p, const lens_grid *grid, size_t index,
                         double unit, double most)
{
    lens_cell *cell = cell_of(grid, 0, index);
    const double change = change_of(p, cell), value = change / unit;
    const char *column = grid->columns[index % grid->n_columns], *second = svg_next(column);
    cell->colour = (float)(value / most);
    cell->text = keep(l, "%.2f", fabs(value) < 0.005 ? 0.0 : value);
    cell->tip = keep(l, "layer %zu, %s %.*s%s%s\n%s: %.4f\n%+.4f logits%s", index / grid->n_columns,
                     grid->column_name, (int)strcspn(column, "\n"), column, second ? "/" : "",
                     second ? second : "", p->question.text, (double)cell->number, change,
                     is_small(p) ? "" : keep(l, ", %.3f of the gap", value));
}

/* Cells show shares of the gap; if it is small, the changes themselves, in logits. */
static void finish_patches(lens *l, const patching *p, lens_grid *grids, size_t n)
{
    const double unit = is_small(p) ? 1 : gap_of(p);
    const double most = is_small(p) ? largest_change(p, grids, n) : 1;
    size_t g, i;
    for (g = 0; g < n; g++) {
        grids[g].low = is_small(p) ? keep(l, "-%.2f logits", most) : "-1: as far the other way";
        grids[g].high = is_small(p) ? keep(l, "%.2f logits", most) : "1: as in the clean text";
        for (i = 0; i < grids[g].n_rows * grids[g].n_columns; i++)
            finish_patch(l, p, &grids[g], i, unit, most);
    }
}

/* A token as --token takes it. */
static const char *token_argument(lens *l, int32_t id)
{
    size_t size = 0;
    const char *bytes =
        l->tokenizer && !l->o.ids ? attn_token_bytes(&size, l->tokenizer, id) : NULL;
    return bytes ? quoted(l, bytes, size) : keep(l, "%ld", (long)id);
}

/* NULL unless the gap is small. */
static const char *warn_of_gap(lens *l, const patching *p)
{
    const question *other = &p->changes;
    const char *advice = "";
    if (!is_small(p))
        return NULL;
    if (p->changes_gap > 2 * fabs(gap_of(p)))
        advice =
            keep(l, " With --token %s --against %s it is %.3f.", token_argument(l, other->token),
                 token_argument(l, other->against), p->changes_gap);
    return keep(l,
                "warning: the gap between the texts is only %.3f logits. A share of so small a "
                "gap says little, so cells show changes in logits.%s",
                fabs(gap_of(p)), advice);
}

static void json_question(const lens *l, const question *q)
{
    printf(", \"token\": {");
    json_token(l, q->token);
    if (q->against >= 0) {
        printf("}, \"against\": {");
        json_token(l, q->against);
    }
    printf("},\n");
}

static void json_patches(const lens *l, const void *of)
{
    const patching *p = (const patching *)of;
    fputs("\"clean\": ", stdout);
    json_figure((double)p->clean);
    fputs(", \"corrupted\": ", stdout);
    json_figure((double)p->corrupted);
    fputs(", \"gap\": ", stdout);
    json_figure(gap_of(p));
    printf(", \"gap_is_small\": %s", is_small(p) ? "true" : "false");
    json_question(l, &p->question);
}

static int run_patch(lens *l)
{
    static const char *const usual[] = {"hook_resid_pre", "hook_attn_out", "hook_mlp_out",
                                        "attn.hook_z"};
    const char *const *names = l->n_names ? l->names : usual;
    const size_t n = l->n_names ? l->n_names : sizeof usual / sizeof usual[0];
    lens_grid *grids = (lens_grid *)allocate(l, n, sizeof *grids);
    patching p = {0};
    findings found = {make_page(l, "Activation patching"), grids, n, json_patches, &p};
    size_t i;
    int code;
    if (!grids)
        return failed(&l->ctx);
    if ((code = ask_about_patches(l, &p)) != FINE)
        return code;
    for (i = 0; i < n; i++)
        if ((code = sweep(l, &p, names[i], &grids[i])) != FINE)
            return code;
    finish_patches(l, &p, grids, n);
    found.page.warning = warn_of_gap(l, &p);
    found.page.note =
        keep(l,
             "%s%s: %.3f after the clean text, %.3f after the corrupted one, a gap of %.3f. Each "
             "cell runs the corrupted text with one activation of the clean text and shows %s.",
             p.question.text, p.reason, (double)p.clean, (double)p.corrupted, gap_of(&p),
             is_small(&p) ? "by how many logits this changes the answer"
                          : "the share of the gap that this restores: 0 none, 1 all of it");
    return present(l, &found);
}

/* ---- attribute ---- */

/* The terms of a logit's sum, by layers and heads (the last column: the MLP), and the others. */
typedef struct terms {
    lens_grid layers, others;
    double sum;
    float logit; /* the model's own */
} terms;

static void set_term(lens *l, lens_grid *grid, size_t row, size_t column, float value)
{
    lens_cell *cell = cell_of(grid, row, column);
    cell->number = value;
    cell->text = keep(l, "%.2f", fabs((double)value) < 0.005 ? 0.0 : (double)value);
}

/* Puts a part where its label says: "L3H4", "3_mlp_out", or among the others. */
static void place_term(lens *l, terms *out, const char *label, float value, size_t *n_others)
{
    unsigned layer, head;
    char end;
    out->sum += (double)value;
    /* NOLINTBEGIN(cert-err34-c): the numbers are attn_resid_label's */
    if (sscanf(label, "L%uH%u%c", &layer, &head, &end) == 2) {
        set_term(l, &out->layers, layer, head, value);
    } else if (sscanf(label, "%u_mlp_ou%c", &layer, &end) == 2) {
        /* NOLINTEND(cert-err34-c) */
        set_term(l, &out->layers, layer, l->config->n_head, value);
    } else {
        ((const char **)out->others.columns)[*n_others] = keep(l, "%s", label);
        set_term(l, &out->others, 0, (*n_others)++, value);
    }
}

static int find_terms(lens *l, const question *q, size_t position, terms *out)
{
    attn_resid_stack parts = {0};
    attn_tensor directions = {0}, values = {0}, bias = {0};
    size_t i, n_others = 0, n_parts = attn_resid_count(l->model, ATTN_RESID_HEADS);
    int code;
    if (attn_logit_directions(&l->ctx, &directions, l->model, &q->token,
                              q->against < 0 ? NULL : &q->against, 1) ||
        attn_decompose_resid(&l->ctx, &parts, l->model, l->text.ids, l->text.n, ATTN_RESID_HEADS,
                             position, 1) ||
        attn_logit_attrs(&l->ctx, &values, l->model, parts.stack, parts.scale, directions) ||
        attn_bias_logit_attrs(&l->ctx, &bias, l->model, directions))
        return failed(&l->ctx);
    if ((code = make_grid(l, &out->layers, l->config->n_layer, l->config->n_head + 1)) != FINE ||
        (code = make_grid(l, &out->others, 1,
                          n_parts + 1 - l->config->n_layer * ((size_t)l->config->n_head + 1))) !=
            FINE)
        return code;
    ((const char **)out->layers.columns)[l->config->n_head] = "MLP";
    ((const char **)out->others.rows)[0] = "";
    for (i = 0; i < n_parts; i++)
        place_term(l, out, attn_resid_label(l->model, ATTN_RESID_HEADS, i).text,
                   attn_get2(values, i, 0), &n_others);
    place_term(l, out, "ln_final.b", attn_get1(bias, 0), &n_others);
    return FINE;
}

/* Colours and tips, once the largest term is known. */
static void finish_terms(lens *l, terms *out)
{
    lens_grid *const grids[] = {&out->layers, &out->others};
    double most = 1e-9;
    size_t g, i;
    for (g = 0; g < 2; g++)
        for (i = 0; i < grids[g]->n_rows * grids[g]->n_columns; i++)
            most = fmax(most, fabs((double)grids[g]->cells[i].number));
    for (g = 0; g < 2; g++) {
        grids[g]->low = keep(l, "-%.2f", most);
        grids[g]->high = keep(l, "%.2f", most);
        for (i = 0; i < grids[g]->n_rows * grids[g]->n_columns; i++) {
            lens_cell *cell = cell_of(grids[g], 0, i);
            const char *column = grids[g]->columns[i % grids[g]->n_columns];
            cell->colour = (float)((double)cell->number / most);
            cell->tip =
                g ? keep(l, "%s\n%.5f", column, (double)cell->number)
                  : keep(l, "layer %zu, %s%s\n%.5f", i / grids[g]->n_columns,
                         strcmp(column, "MLP") ? "head " : "", column, (double)cell->number);
        }
    }
    out->layers.title = "what heads and MLPs add to it";
    out->others.title = "what else does";
    out->others.row_name = "";
    out->others.column_name = "part";
}

typedef struct attribution {
    size_t position;
    question question;
    terms terms;
} attribution;

static void json_attribution(const lens *l, const void *of)
{
    const attribution *a = (const attribution *)of;
    printf("\"position\": %zu, \"logit\": ", a->position);
    json_figure((double)a->terms.logit);
    fputs(", \"sum\": ", stdout);
    json_figure(a->terms.sum);
    json_question(l, &a->question);
}

static int run_attribute(lens *l)
{
    const size_t position = l->o.position == not_given ? l->text.n - 1 : l->o.position;
    float *logits = (float *)allocate(l, l->config->n_vocab, sizeof *logits);
    attribution a = {0};
    lens_grid grids[2];
    findings found = {make_page(l, "Direct logit attribution"), grids, 2, json_attribution, &a};
    int code;
    a.position = position;
    a.question.against = -1;
    if (!logits)
        return failed(&l->ctx);
    if (position >= l->text.n)
        return fail(FAILED, "there is no position %zu: the text has %zu tokens, from 0", position,
                    l->text.n);
    if ((code = likeliest(l, &l->text, position + 1, &a.question.token, logits)) != FINE ||
        (code = name_tokens(l, &a.question)) != FINE ||
        (code = find_terms(l, &a.question, position, &a.terms)) != FINE)
        return code;
    finish_terms(l, &a.terms);
    judge_logits(&a.terms.logit, logits, &a.question);
    grids[0] = a.terms.layers;
    grids[1] = a.terms.others;
    found.page.note =
        keep(l, "%s after position %zu %s: %.4f; the terms sum to %.4f", a.question.text, position,
             brief(l, l->text.shown[position], 40), (double)a.terms.logit, a.terms.sum);
    return present(l, &found);
}

/* ---- heads ---- */

static int run_heads(lens *l)
{
    static const char *const titles[] = {"previous-token heads", "duplicate-token heads",
                                         "induction heads", "entropy of the attention, in nats"};
    static const char *const highs[] = {"1: all of the attention goes to the token before",
                                        "1: ... to earlier places of the same token",
                                        "1: ... to what followed those"};
    enum { N = ATTN_N_HEAD_KINDS + 1 };
    const size_t n = l->text.n;
    const double even = n > 1 ? log((double)n) : 1;
    lens_grid grids[N];
    findings found = {make_page(l, "Kinds of heads"), grids, N, NULL, NULL};
    attn_tensor entropy = {0}, scores = {0}, mean = {0};
    size_t kind, i, j;
    int code;
    if (attn_detect_heads(&l->ctx, &entropy, &scores, l->model, l->text.ids, n) ||
        attn_mean(&l->ctx, &mean, entropy))
        return failed(&l->ctx);
    for (kind = 0; kind < N; kind++) {
        if ((code = make_grid(l, &grids[kind], l->config->n_layer, l->config->n_head)) != FINE)
            return code;
        grids[kind].title = titles[kind];
        grids[kind].high = kind < ATTN_N_HEAD_KINDS
                               ? highs[kind]
                               : keep(l, "%.2f: even over the whole text", even);
        for (i = 0; i < grids[kind].n_rows; i++)
            for (j = 0; j < grids[kind].n_columns; j++) {
                lens_cell *cell = cell_of(&grids[kind], i, j);
                cell->number = kind < ATTN_N_HEAD_KINDS ? attn_get3(scores, kind, i, j)
                                                        : attn_get3(mean, i, j, 0);
                cell->colour =
                    kind < ATTN_N_HEAD_KINDS ? cell->number : (float)((double)cell->number / even);
                cell->text = keep(l, "%.2f", (double)cell->number);
                cell->tip = keep(l, "layer %zu, head %zu\n%.4f", i, j, (double)cell->number);
            }
    }
    found.page.note = keep(l,
                           "Means over %zu tokens. Duplicate-token and induction heads show in "
                           "texts that repeat themselves.",
                           n);
    return present(l, &found);
}

/* ---- record ---- */

static void json_record(lens *l, const attn_record *record)
{
    const size_t n = attn_record_count(record);
    size_t i;
    int d;
    printf("{");
    for (i = 0; i < n; i++) {
        const char *name = attn_record_name(record, i);
        attn_tensor value = {0};
        attn_record_get(&l->ctx, &value, record, name);
        printf("%s\n \"%s\": [", i ? "," : "", name);
        for (d = 0; d < value.ndim; d++)
            printf("%s%zu", d ? ", " : "", value.shape[d]);
        printf("]");
    }
    printf("\n}\n");
}

/* Many texts: the lines of a file, or the files of a folder in the order of their names. Their rows
 * stand behind each other in shards, DIRECTORY/00001.safetensors and so on: a tensor for each
 * activation, the tokens in "ids", and the number of the line (or file) each row comes from in
 * "line". DIRECTORY/index.jsonl tells of every shard its lines and rows, of every file its name, and
 * of every text that was refused why. A shard takes its name when it is whole, and its entry follows;
 * so what was interrupted goes on after the last entry. */
typedef struct corpus {
    line_reader lines;
    json_out listing;   /* of everything in the folder, each ended by a zero */
    const char **files; /* [n_files]: the names of its files, in order; NULL: the texts are lines */
    size_t n_files;
    uint64_t line; /* the number of the text that was read last */
    FILE *index;
    char path[1024];
    attn_record *record;
    void *memory;          /* the record's, of one text */
    size_t n;              /* activations, before "ids" and "line" */
    attn_tensor *values;   /* [n + 2]: of a shard */
    const char **names;    /* [n + 2] */
    size_t capacity, rows; /* of a shard */
    uint64_t last_line;    /* that a shard has */
    uint64_t n_shards;
    json_out waiting; /* entries of texts that go in front of the next shard's */
} corpus;

enum {
    MAX_SHARD = 1 << 26, /* bytes, unless one text takes more */
    MAX_WAITING = 1 << 22
};

/* Room for the rows of a shard. The record of one position tells how wide each activation is. */
static int make_shard(lens *l, corpus *c)
{
    const size_t n_ctx = l->config->n_ctx;
    const int32_t id = 0;
    attn_shape shape;
    size_t i, width = 2 * sizeof(float);
    c->n = attn_record_count(c->record);
    c->values = (attn_tensor *)allocate(l, c->n + 2, sizeof *c->values);
    c->names = (const char **)allocate(l, c->n + 2, sizeof *c->names);
    if (!c->values || !c->names || attn_feed(&l->ctx, l->session, &id, 1))
        return failed(&l->ctx);
    for (i = 0; i < c->n; i++) {
        c->names[i] = attn_record_name(c->record, i);
        if (ends_in(c->names[i], "attn.hook_pattern") || ends_in(c->names[i], "hook_attn_scores"))
            return fail(FAILED, "%s has no row for each position: record it text by text",
                        c->names[i]);
        if (attn_record_get(&l->ctx, &c->values[i], c->record, c->names[i]))
            return failed(&l->ctx);
        width += attn_count(c->values[i]) * sizeof(float);
    }
    c->capacity = l->o.rows ? l->o.rows : MAX_SHARD / width;
    c->capacity = c->capacity > n_ctx ? c->capacity : n_ctx;
    for (i = 0; i < c->n + 2; i++) {
        shape.ndim = i < c->n ? c->values[i].ndim : 1;
        memcpy(shape.dim, c->values[i].shape, sizeof shape.dim);
        shape.dim[0] = c->capacity;
        memset(&c->values[i], 0, sizeof c->values[i]);
        if (attn_zeros(&l->ctx, &c->values[i], i < c->n ? ATTN_F32 : ATTN_I32, shape))
            return failed(&l->ctx);
    }
    c->names[c->n] = "ids";
    c->names[c->n + 1] = "line";
    return attn_truncate(&l->ctx, l->session, 0) ? failed(&l->ctx) : FINE;
}

static int fail_index(const corpus *c)
{
    return fail(FAILED, "%s: %s", c->path, why(errno));
}

/* Writes the shard and its entry. `last` is the last line that was read. */
static int end_shard(lens *l, corpus *c, uint64_t last)
{
    json_out entry = {NULL, 0, 0, 0, 0};
    char name[32];
    size_t i;
    if (c->rows == 0 && c->waiting.size == 0)
        return FINE;
    if (c->waiting.failed)
        return fail(FAILED, "no memory for the entries of %s", c->path);
    snprintf(name, sizeof name, "%05llu.safetensors", TOOLS_LLU(c->n_shards + 1));
    for (i = 0; i < c->n + 2; i++)
        c->values[i].shape[0] = c->rows;
    if (c->rows &&
        attn_save(&l->ctx, keep(l, "%s/%s", l->o.output, name), c->names, c->values, c->n + 2))
        return failed(&l->ctx);
    for (i = 0; i < c->n + 2; i++)
        c->values[i].shape[0] = c->capacity;
    if (c->waiting.size)
        fwrite(c->waiting.text, 1, c->waiting.size, c->index);
    c->waiting.size = 0;
    out_open(&entry, '{');
    out_key(&entry, "file");
    if (c->rows)
        out_word(&entry, name);
    else
        out_null(&entry);
    out_key(&entry, "first_line");
    out_count(&entry, c->last_line + 1);
    out_key(&entry, "last_line");
    out_count(&entry, last);
    out_key(&entry, "rows");
    out_count(&entry, c->rows);
    out_close(&entry, '}');
    out_line(&entry, c->index);
    out_free(&entry);
    c->n_shards += c->rows > 0;
    c->last_line = last;
    c->rows = 0;
    return fflush(c->index) ? fail_index(c) : FINE;
}

/* Feeds a text and copies its rows into the shard. */
static int feed_text(lens *l, corpus *c, const int32_t *ids, size_t n)
{
    size_t i, t;
    if (attn_truncate(&l->ctx, l->session, 0) || attn_feed(&l->ctx, l->session, ids, n))
        return failed(&l->ctx);
    for (i = 0; i < c->n; i++) {
        attn_tensor value = {0}, place = attn_slice(c->values[i], 0, c->rows, n);
        if (attn_record_get(&l->ctx, &value, c->record, c->names[i]) ||
            attn_copy(&l->ctx, &place, value))
            return failed(&l->ctx);
    }
    for (t = 0; t < n; t++) {
        ((int32_t *)c->values[c->n].data)[c->rows + t] = ids[t];
        ((int32_t *)c->values[c->n + 1].data)[c->rows + t] = (int32_t)c->line;
    }
    c->rows += n;
    return FINE;
}

/* Room for the ids of so many bytes, and <bos> in front if it is asked for. */
static int begin_ids(lens *l, arena *memory, size_t size, text *to)
{
    to->ids = (int32_t *)arena_alloc(&l->ctx, memory, size + 2, sizeof *to->ids);
    if (to->ids && l->o.bos)
        to->ids[to->n++] = l->config->bos;
    return to->ids != NULL;
}

static void append_words(lens *l, const char *words, size_t size, text *to)
{
    size_t n = 0;
    if (attn_encode(&l->ctx, to->ids + to->n, size, &n, l->tokenizer, words, size, l->o.special) ==
        ATTN_OK)
        to->n += n;
}

/* The ids of a line's text. */
static void read_line(lens *l, arena *memory, uint64_t number, char *line, size_t size, text *to)
{
    const json_value *words, *list, *v;
    json_value *root = NULL;
    uint64_t id;
    size_t i;
    if (json_parse_at(&l->ctx, "input", (size_t)number, line, size, &root) != ATTN_OK)
        return;
    words = json_get(root, "text");
    list = json_get(root, "ids");
    if (!words == !list || (words && words->kind != JSON_STRING) ||
        (list && list->kind != JSON_ARRAY))
        tool_fail(&l->ctx, ATTN_E_FORMAT, "expected a \"text\", or a list of \"ids\"");
    else if (begin_ids(l, memory, size, to) && words)
        append_words(l, words->text, words->size, to);
    for (i = 0, v = list ? list + 1 : NULL; v && !l->ctx.status && i < list->size;
         i++, v += v->span)
        if (json_u64(v, &id) && id < l->config->n_vocab)
            to->ids[to->n++] = (int32_t)id;
        else
            tool_fail(&l->ctx, ATTN_E_TOKEN, "ids[%zu] is not in the vocabulary of %u", i,
                      (unsigned)l->config->n_vocab);
    free(root);
}

/* The ids of a file, which is a text as it stands. */
static void read_text_file(lens *l, arena *memory, const char *name, text *to)
{
    const char *const path = arena_path(&l->ctx, memory, l->o.lines, name);
    char *words = NULL;
    size_t size = 0, at, length;
    uint32_t code;
    if (!path || read_file(&l->ctx, memory, path, MAX_LINE, &words, &size) != ATTN_OK)
        return;
    for (at = 0; at < size; at += length) {
        length = utf8_length((const unsigned char *)words + at, size - at, &code);
        if (length == 0) {
            tool_fail(&l->ctx, ATTN_E_FORMAT, "%s: byte %zu is not UTF-8", path, at + 1);
            return;
        }
    }
    if (begin_ids(l, memory, size, to))
        append_words(l, words, size, to);
}

/* The beginning of a text's entry: its number and, if it is a file, its name. */
static void open_entry(const corpus *c, json_out *o, uint64_t line)
{
    out_open(o, '{');
    out_key(o, "line");
    out_count(o, line);
    if (c->files) {
        out_key(o, "id");
        out_word(o, c->files[line - 1]);
    }
}

/* Leaves an entry for a file, and for a line that is refused; it waits for the next shard's. */
static void add_entry(lens *l, corpus *c)
{
    json_out *const o = &c->waiting;
    if (!c->files && !l->ctx.status)
        return;
    open_entry(c, o, c->line);
    if (l->ctx.status) {
        out_key(o, "error");
        out_word(o, l->ctx.message);
    }
    out_close(o, '}');
    out_bytes(o, "\n", 1);
    o->follows = 0;
    l->ctx.status = ATTN_OK;
}

/* Adds a text, a line or the name of a file, to the shard, or the reason why it is refused to the
 * index. */
static int add_text(lens *l, corpus *c, line_status status, const char *line, size_t size)
{
    arena memory = {NULL};
    text words = {NULL, 0, NULL};
    int refused, code = FINE;
    char *copy = arena_text(&l->ctx, &memory, line, size);
    if (status == LINE_TOO_LONG)
        tool_fail(&l->ctx, ATTN_E_SPACE, "the line is longer than %d bytes", (int)MAX_LINE);
    else if (copy && c->files)
        read_text_file(l, &memory, copy, &words);
    else if (copy)
        read_line(l, &memory, c->line, copy, size, &words);
    if (!l->ctx.status && (words.n == 0 || words.n > l->config->n_ctx))
        tool_fail(&l->ctx, ATTN_E_CONTEXT, "the text has %zu tokens; expected 1 to %u", words.n,
                  (unsigned)l->config->n_ctx);
    refused = l->ctx.status != ATTN_OK;
    if (!refused && words.n > c->capacity - c->rows)
        code = end_shard(l, c, c->line - 1);
    if (code == FINE)
        add_entry(l, c);
    if (code == FINE && !refused)
        code = feed_text(l, c, words.ids, words.n);
    if (code == FINE && c->waiting.size > MAX_WAITING)
        code = end_shard(l, c, c->line);
    arena_free(&memory);
    return code;
}

/* The first entry of the index: what all shards have in common. */
static void put_header(lens *l, const corpus *c, json_out *o)
{
    size_t i;
    out_open(o, '{');
    out_key(o, "model");
    out_word(o, base_name(l->model_path));
    out_key(o, "bos");
    out_flag(o, l->o.bos);
    if (c->files) {
        out_key(o, "folder");
        out_flag(o, 1);
    }
    out_key(o, "activations");
    out_open(o, '[');
    for (i = 0; i < c->n; i++)
        out_word(o, c->names[i]);
    out_close(o, ']');
    out_close(o, '}');
}

/* 1 if the entry of a file says of another one that it has this number. */
static int is_other_file(const corpus *c, const json_value *entry, const char *line, size_t size)
{
    json_out expected = {NULL, 0, 0, 0, 0};
    uint64_t number;
    int other = 0;
    if (c->files && json_u64(json_get(entry, "line"), &number)) {
        if (number > 0 && number <= c->n_files)
            open_entry(c, &expected, number);
        other = !expected.text || size < expected.size ||
                memcmp(line, expected.text, expected.size) != 0;
    }
    out_free(&expected);
    return other;
}

/* An entry of the index. */
static int read_entry(lens *l, corpus *c, uint64_t number, const char *line, size_t size,
                      uint64_t *last)
{
    arena memory = {NULL};
    json_value *root = NULL;
    int code = FINE;
    char *const copy = arena_text(&l->ctx, &memory, line, size);
    *last = 0;
    if (!copy || json_parse_at(&l->ctx, c->path, (size_t)number, copy, size, &root))
        code = failed(&l->ctx);
    else if (is_other_file(c, root, line, size))
        code = fail(FAILED, "--resume: since %s was made, the files of %s have changed", c->path,
                    l->o.lines);
    else if (json_u64(json_get(root, "last_line"), last))
        c->n_shards += json_get(root, "file")->kind == JSON_STRING;
    free(root);
    arena_free(&memory);
    return code;
}

/* Reads an index: its header must be ours. Entries behind the last shard's are cut off. */
static int read_index(lens *l, corpus *c, const json_out *header)
{
    line_reader old = {NULL, NULL, 0, 0, 0, 0, 0, 0, 0, 0};
    const char *line = "";
    size_t size = 0;
    uint64_t end = 0, last = 0;
    int code = FINE;
    old.file = c->index;
    while (code == FINE && lines_next(&old, 1, &line, &size) == LINE_READ) {
        if (old.n_lines == 1 && (size != header->size || memcmp(line, header->text, size) != 0))
            code = fail(FAILED,
                        "--resume: %s was made with another model, --bos or activations, or a "
                        "folder in place of lines",
                        c->path);
        else if (old.at_end && old.start == old.end && old.buffer[old.end - 1] != '\n')
            break; /* half an entry */
        else if (old.n_lines > 1)
            code = read_entry(l, c, old.n_lines, line, size, &last);
        if (old.n_lines == 1 || last > c->last_line) {
            end = old.n_bytes;
            c->last_line = last;
        }
    }
    lines_free(&old);
    if (code == FINE && (system_cut(c->index, end) != 0 || system_seek(c->index, end) != 0))
        return fail_index(c);
    return code;
}

static int open_index(lens *l, corpus *c)
{
    json_out header = {NULL, 0, 0, 0, 0};
    uint64_t size = 0;
    int code = FINE;
    const char *kind = system_not_a_file(l->o.output);
    if (!system_exists(l->o.output))
        return fail(FAILED, "there is no directory %s: make it first (mkdir)", l->o.output);
    if (!kind || strcmp(kind, "a directory") != 0)
        return fail(FAILED, "%s is not a directory: the shards need one", l->o.output);
    put_header(l, c, &header);
    snprintf(c->path, sizeof c->path, "%s/index.jsonl", l->o.output);
    c->index = system_exists(c->path) ? system_open(c->path, "rb+") : system_open(c->path, "wb");
    if (!c->index)
        code = fail(FAILED, "%s: %s", c->path, why(errno));
    else if (system_size(c->index, &size) == 0 && size > 0 && !l->o.resume)
        code = fail(FAILED, "%s is there already: --resume goes on; or choose another directory",
                    c->path);
    else if (size > 0)
        code = read_index(l, c, &header);
    if (code == FINE && c->last_line == 0 && c->n_shards == 0 &&
        (system_cut(c->index, 0) != 0 || system_seek(c->index, 0) != 0 ||
         !out_line(&header, c->index) || fflush(c->index)))
        code = fail_index(c);
    out_free(&header);
    return code;
}

/* The next line, or the name of the next file. */
static line_status next_text(corpus *c, const char **line, size_t *size)
{
    line_status status;
    if (c->files && c->line == c->n_files)
        return LINE_END;
    if (c->files) {
        *line = c->files[c->line++];
        *size = strlen(*line);
        return LINE_READ;
    }
    status = lines_next(&c->lines, 1, line, size);
    c->line = c->lines.n_lines;
    return status;
}

/* The share of the texts that was read, if that can be known. */
static double share_read(const corpus *c)
{
    uint64_t all = 0;
    if (c->files)
        return (double)c->line / (double)c->n_files;
    return system_size(c->lines.file, &all) == 0 && all ? (double)c->lines.n_bytes / (double)all
                                                        : 0;
}

/* Records every text behind the last that a shard has. */
static int record_texts(lens *l, corpus *c)
{
    const char *line = "";
    size_t size = 0;
    line_status status = LINE_READ;
    progress bar;
    int code = FINE;
    progress_begin(&bar, "texts");
    while (code == FINE && status != LINE_END) {
        status = next_text(c, &line, &size);
        if (interrupted)
            code = INTERRUPTED;
        else if (status == LINE_FAILED)
            code = fail(FAILED, "%s: %s", l->o.lines, why(errno));
        else if ((status == LINE_READ || status == LINE_TOO_LONG) && c->line > c->last_line)
            code = add_text(l, c, status, line, size);
        if (share_read(c) > 0)
            progress_at(&bar, share_read(c));
    }
    progress_end(&bar);
    return code == FINE ? end_shard(l, c, c->line) : code;
}

/* A system_list callback. */
static void add_name(const char *name, void *names)
{
    out_bytes((json_out *)names, name, strlen(name) + 1);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The files of the folder, without what is in folders of it. */
static int list_files(lens *l, corpus *c)
{
    size_t at, n = 0;
    if (system_list(l->o.lines, add_name, &c->listing) != 0)
        return fail(FAILED, "%s: %s", l->o.lines, why(errno));
    if (c->listing.failed)
        return fail(FAILED, "no memory for the names of the files of %s", l->o.lines);
    if (!l->tokenizer)
        return fail(FAILED, "%s has no tokenizer: give the texts as lines with \"ids\"",
                    l->model_path);
    for (at = 0; at < c->listing.size; at++)
        n += c->listing.text[at] == 0;
    if (!(c->files = (const char **)allocate(l, n, sizeof *c->files)))
        return failed(&l->ctx);
    for (at = 0; at < c->listing.size; at += strlen(c->listing.text + at) + 1) {
        arena memory = {NULL};
        const char *path = arena_path(&l->ctx, &memory, l->o.lines, c->listing.text + at);
        if (path && !system_not_a_file(path))
            c->files[c->n_files++] = c->listing.text + at;
        arena_free(&memory);
    }
    qsort(c->files, c->n_files, sizeof *c->files, compare_names);
    return l->ctx.status ? failed(&l->ctx) : FINE;
}

static int open_texts(lens *l, corpus *c)
{
    if (system_same_file(l->o.lines, l->o.output))
        return fail(FAILED, "%s cannot have both texts and shards: choose another -o", l->o.output);
    if (system_is_directory(l->o.lines))
        return list_files(l, c);
    if (strcmp(l->o.lines, "-") != 0)
        announce_pipe(l->o.lines);
    c->lines.file = strcmp(l->o.lines, "-") == 0 ? stdin : system_open(l->o.lines, "rb");
    return c->lines.file ? FINE : fail(FAILED, "%s: %s", l->o.lines, why(errno));
}

static int run_corpus(lens *l)
{
    corpus c;
    attn_record_desc desc = {0};
    size_t bytes = 0;
    int code;
    memset(&c, 0, sizeof c);
    desc.names = l->names;
    desc.n_names = l->n_names;
    l->text.n = l->config->n_ctx;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    code = open_texts(l, &c);
    if (code == FINE && attn_record_size(&l->ctx, &bytes, l->model, &desc))
        code = failed(&l->ctx);
    if (code == FINE && (!(c.memory = allocate(l, bytes, 1)) ||
                         attn_record_new(&l->ctx, &c.record, l->session, &desc, c.memory, bytes)))
        code = failed(&l->ctx);
    if (code == FINE && (code = make_shard(l, &c)) == FINE && (code = open_index(l, &c)) == FINE)
        code = record_texts(l, &c);
    if (c.index && fclose(c.index) != 0 && code == FINE)
        code = fail_index(&c);
    attn_record_free(c.record);
    lines_free(&c.lines);
    out_free(&c.listing);
    out_free(&c.waiting);
    return code;
}

static int run_record(lens *l)
{
    const size_t piece = 64; /* Ctrl-C is heard between two of them */
    attn_record_desc desc = {0};
    attn_record *record = NULL;
    size_t bytes = 0, t, n;
    void *memory;
    int code;
    if (l->o.lines)
        return run_corpus(l);
    desc.names = l->names;
    desc.n_names = l->n_names;
    desc.n_positions = l->text.n;
    if ((code = make_session(l, 0)) != FINE)
        return code;
    if (attn_record_size(&l->ctx, &bytes, l->model, &desc))
        return failed(&l->ctx);
    memory = malloc(bytes ? bytes : 1);
    if (!memory)
        return fail(FAILED, "no memory for %.0f MiB of activations; name fewer of them",
                    (double)bytes / 1048576);
    if (attn_record_new(&l->ctx, &record, l->session, &desc, memory, bytes))
        code = failed(&l->ctx);
    for (t = 0; t < l->text.n && code == FINE; t += n) {
        n = l->text.n - t < piece ? l->text.n - t : piece;
        if (attn_feed(&l->ctx, l->session, l->text.ids + t, n))
            code = failed(&l->ctx);
    }
    if (code == FINE && attn_record_save(&l->ctx, l->o.output, record))
        code = failed(&l->ctx);
    if (code == FINE && l->o.json)
        json_record(l, record);
    attn_record_free(record);
    free(memory);
    return code;
}

/* ---- all of it ---- */

static int run_all(lens *l)
{
    int code;
    if ((code = check_usage(l)) != FINE)
        return code;
    l->ctx.n_threads = (int)l->o.threads;
    code = open_model(&l->ctx, &l->model, l->model_path, l->o.isa, l->o.skip_checksums);
    if (code != FINE)
        return code;
    l->config = attn_model_config(l->model);
    l->tokenizer = attn_model_tokenizer(l->model);
    if (!l->o.lines &&
        (code = make_text(l, &l->text, l->clean_word, l->o.file, "ids", l->o.ids)) != FINE)
        return code;
    if (l->command->bit == PATCH && (code = make_text(l, &l->corrupted, l->corrupted_word, NULL,
                                                      "corrupted-ids", l->o.corrupted_ids)) != FINE)
        return code;
    if (l->o.output) /* its draft is removed whatever comes */
        system_catch(on_interrupt);
    signal(SIGINT, on_interrupt);
    return l->command->run(l);
}

int main(int argc, char **argv)
{
    static lens l;
    int code;
    system_begin(&argc, &argv);
    l.o.top = 5;
    l.o.layer = l.o.head = l.o.position = not_given;
    l.colour = shows_colour(stdout);
    l.columns = line_columns(stdout);
    l.command_line = (const char *const *)argv + 1;
    system_binary(stdout);
    if ((code = read_command(argc, argv, &l)) != FINE)
        return code;
    if (!print_on_request(l.o.help, l.o.version, print_help))
        code = run_all(&l);
    code = finish_output(code);
    attn_session_free(l.session);
    attn_ctx_free(&l.ctx);
    attn_model_close(l.model);
    arena_free(&l.memory);
    if (interrupted && interrupted != SIGINT)
        system_end_by(interrupted);
    return code;
}
