/* sh tools/lens/program/draw/embed.sh >lens_embedded.h && cc tools/lens/program/lens.c -I. -O2 -fopenmp -lm -o lens
 *                                                          (without -fopenmp: one thread)
 *
 * What a model makes of a text, from the inside: losses, the logit lens, attention patterns,
 * activation and path patching, attribution, decomposition, kinds of heads, circuits, sparse
 * autoencoders, attribution graphs, steering, and activations and their gradients for NumPy and PyTorch. This file reads
 * the command line. Each command is a header in this folder whose name begins with cmd_: it calls attn.h
 * and the headers in the folder above, and shows the results. All of them use
 *
 *     help.h         the options and the pages of help
 *     columns.h      the tables and columns of the answers
 *     run.h          the values of the options, the texts, the labels of tokens
 *     commands.h     the table of commands, what they refuse, and where their answers go
 *     findings.h     what a command makes: tables of the answer (tools/waist/answer.h), and grids that show them
 *     show.h         an answer as tables of a terminal (print_table.h), as pictures (draw/), JSON and CSV
 *     edits.h        changes that --edit makes in the model while it reads
 *     question.h     a logit, or the difference of two, which patch, path and attribute ask about */

#include "tools/common/system.h"
#define ATTN_IMPLEMENTATION
#include "attn.h"
#define PROGRAM "lens"
#define INPUT   "text"
#include "tools/common/interrupt.h"
#include "asked.h"
#include "tools/receipt/question.h"

/* ---- reading the command line ---- */

static const lens_command *find_command(const arguments *given, size_t word)
{
    for (size_t i = 0; word < given->n_free && i < N_COMMANDS; i++)
        if (strcmp(given->words[word], commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

/* The command whose name is nearest to a word; NULL if none is near. */
static const char *nearest_command(const char *word)
{
    const char *best = NULL;
    size_t least = SIZE_MAX, distance;
    for (int i = 0; i < N_COMMANDS; i++)
        if ((distance = name_distance(word, commands[i].name)) < least) {
            least = distance;
            best = commands[i].name;
        }
    return best;
}

static int too_many_words(const char *word, const char *not_a_command)
{
    const char *meant = not_a_command ? nearest_command(not_a_command) : NULL;
    if (meant)
        return fail(USAGE, "there is no command %s; do you mean %s?", not_a_command, meant);
    if (not_a_command && !strchr(not_a_command, ' ') && strchr(word, ' '))
        return fail(USAGE, "there is no command %s; --help lists the commands", not_a_command);
    return fail(USAGE, "too many arguments at \"%s\": quote the text; --help lists the commands",
                word);
}

/* Says that a word was taken as a text, if it is almost the name of a command. */
static void note_near_command(const char *word)
{
    const char *const near_by = word ? nearest_command(word) : NULL;
    if (near_by && name_distance(word, near_by) <= 1)
        fprintf(stderr, "note: \"%s\" is taken as a text; there is a command %s\n", word, near_by);
}

/* Finds model and command: MODEL [COMMAND] WORD ..., MODEL TEXT COMMAND ... or COMMAND MODEL WORD ... *next becomes
 * the number of the first of the words that are left. */
static int find_model_and_command(lens *l, arguments *given, size_t *next)
{
    const lens_command *const first = l->o.model ? NULL : find_command(given, 0);
    const char *const word = given->words[0];
    if (first && given->n_free > 1 && !find_command(given, 1)) {
        given->words[0] = given->words[1];
        given->words[1] = word;
    }
    l->model_path = option_or_word(l->o.model, given, next);
    if (!l->model_path || (first && given->n_free == 1 && !system_exists(word)))
        return fail(USAGE, "no model given: %s MODEL.attn %s%s\"a text\" (--help tells more)",
                    called, first ? first->name : "", first ? " " : "");
    l->command = find_command(given, *next);
    if (l->command) {
        (*next)++;
    } else if ((l->command = find_command(given, *next + 1)) != NULL) {
        given->words[*next + 1] = given->words[*next];
        (*next)++;
    } else {
        l->command = &commands[0];
    }
    return FINE;
}

/* Makes settings of the words. An option that gives a text leaves its word to the next setting. */
static int take_words_of_command(lens *l, arguments *given)
{
    lens_options *const o = &l->o;
    size_t next = 0;
    const int code = find_model_and_command(l, given, &next);
    if (code != FINE)
        return code;
    const int bit = l->command->bit, had_text = o->text != NULL;
    if (bit & (SAE | PAIRS) && next < given->n_words)
        *(bit == SAE ? &o->directory : &o->task) = given->words[next++];
    if (!(o->ids || o->file || o->lines || o->pairs || bit & OF_WEIGHTS))
        o->text = option_or_word(o->text, given, &next);
    if (!o->model && !had_text)
        swap_model(&l->model_path, &o->text);
    if (next < given->n_words && bit & OF_TWO_TEXTS && !o->corrupted && !o->corrupted_ids &&
        !o->pairs)
        o->corrupted = given->words[next++];
    if ((!had_text && check_text_word(o->text) != FINE) || check_text_word(o->corrupted) != FINE)
        return USAGE;
    if (l->command == &commands[0] && next == given->n_words)
        note_near_command(o->text);
    if (next < given->n_words && bit & OF_WEIGHTS)
        return fail(USAGE, "%s reads no text: leave out \"%s\"", l->command->name,
                    given->words[next]);
    if (next < given->n_words && !(bit & (PATCH | OF_TENSORS)))
        return too_many_words(given->words[next], l->command == &commands[0] ? o->text : NULL);
    for (; next < given->n_words; next++)
        if (!texts_add(&o->names, given->words[next]))
            return fail(USAGE, "too many arguments at \"%s\": name fewer activations",
                        given->words[next]);
    return FINE;
}

/* Refuses options that the command does not know. Those of the page on --edit belong to all commands that
 * know --edit. */
static int check_known(const lens *l)
{
    const int bits = l->command->bit | (l->command->bit & EDITED ? EDITS : 0);
    int row, known;
    for (int i = 0; i < N_OPTIONS; i++) {
        for (row = known = 0; row < N_OPTIONS; row++)
            known |= strcmp(lens_settings[row].name, lens_settings[i].name) == 0 &&
                     lens_settings[row].commands & bits;
        if (l->given[i] && !known)
            return fail(USAGE, "--%s means nothing to %s", lens_settings[i].name, l->command->name);
    }
    return FINE;
}

/* ---- all of it ---- */

static const lens_asked *const *asked_programs(void)
{
    static const lens_asked *const programs[] = {&asked_lens, NULL};
    return programs;
}

static int answer_with_receipt(lens *l)
{
    static answer_units units;
    lens_options o = l->o; /* commands change theirs */
    const receipt_asked asked = {&asked_lens, l->command->name, &o, o.file, &l->answer};
    int code = l->o.lines ? fail(USAGE, "--receipt is of an answer, and --lines writes shards")
                          : receipt_begin(&l->ctx, l->o.isa);
    l->units = &units;
    o.text = o.text && strcmp(o.text, "-") == 0 ? NULL : o.text;
    if (code == FINE && (code = answer_question(l)) == FINE)
        code = receipt_of_question(&l->ctx, &asked, &units, l->model, l->model_path, o.receipt);
    units_free(&units);
    return code;
}

static int run_all(lens *l)
{
    int code;
    if ((code = check_together(l)) != FINE)
        return code;
    l->ctx.n_threads = (int)l->o.threads;
    l->ctx.stop_flag = &interrupted;
    code = open_model(&l->ctx, &l->model, l->model_path, l->o.isa, l->o.skip_checksums);
    if (code != FINE)
        return code;
    if (l->o.output || l->o.each) /* a signal must not leave an unfinished file */
        system_catch(on_interrupt);
    signal(SIGINT, on_interrupt);
    return l->o.receipt ? answer_with_receipt(l) : answer_question(l);
}

/* A failure over a file that an option named ends with what the option takes. */
static int run_and_tell(lens *l)
{
    char message[FAILURE_SIZE] = "";
    const char *path, *argument;
    failure = message;
    int code = run_all(l);
    failure = NULL;
    for (int i = 0; code == FAILED && i < N_OPTIONS; i++) {
        argument = l->given[i] && !lens_settings[i].letter ? lens_settings[i].argument : NULL;
        if (!argument || (strcmp(argument, "FILE") != 0 && strcmp(argument, "PATH") != 0))
            continue;
        memcpy(&path, (const char *)&l->o + lens_settings[i].at, sizeof path);
        if (strstr(message, base_name(path)))
            return fail(FAILED, "%s (--%s %s: %s)", message, lens_settings[i].name, argument,
                        lens_settings[i].help);
    }
    return *message ? fail(code, "%s", message) : code;
}

static void print_edits(void)
{
    printf("\nEdits:\n");
    print_row("zero NAME", 16, "NAME becomes 0");
    print_row("mean NAME", 16, "NAME becomes its mean over the positions of the text");
    print_row("set NAME", 16, "NAME becomes what it is in the text of --second");
    print_row("scale NAME by F", 16, "NAME is multiplied by F");
    print_row("add NAME by F", 16,
              "F times a direction is added: the mean of NAME over the text of --towards, "
              "minus its mean over the text of --away");
    print_row("... head H", 16, "only head H");
    print_row("... at P", 16, "only position P");
}

int main(int argc, char **argv)
{
    static lens l;
    static arguments given;
    const size_t most = sizeof given.words / sizeof given.words[0] - 1;
    help_page pages[N_PAGES];
    const program self = {lens_settings,
                          N_OPTIONS,
                          most,
                          "name fewer activations",
                          pages,
                          N_PAGES,
                          "Commands (COMMAND --help)",
                          lens_command_at,
                          lens_columns};
    int code;
    memcpy(pages, lens_pages, sizeof pages);
    pages[N_PAGES - 1].print_rows =
        print_edits; /* not in the table, for a library prints nothing */
    system_begin(&argc, &argv);
    set_defaults(&l.o);
    l.colour = shows_colour(stdout);
    l.columns = line_columns(stdout);
    l.command_line = (const char *const *)argv + 1;
    system_binary(stdout);
    if (!read_command_line(&self, argc, argv, &l.o, &given, &code))
        return code;
    memcpy(l.given, given.given, sizeof l.given);
    if ((code = take_words_of_command(&l, &given)) != FINE || (code = check_known(&l)) != FINE)
        return code;
    code = finish_output(run_and_tell(&l));
    end_question(&l);
    attn_model_close(l.model);
    if (interrupted && interrupted != SIGINT)
        system_end_by(interrupted);
    return code;
}
