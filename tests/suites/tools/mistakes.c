/* What people get wrong, and the sentence that each mistake is answered with: it names what was
 * wrong and says what to do. */
#include "tests/support/command.h"
#include <unistd.h>
SUITE_WITH(NULL, forget);

#define BIN(name) TEST_BUILD "/" name " "
#define GPT2      BIN("gpt2")
#define LENS      BIN("lens")
#define CONVERT   BIN("attn-convert")
#define MODEL     TEST_BUILD "/tiny-stories.attn "
#define TMP       TEST_TMP
#define FULL_DISK "cannot write the output: No space left on device"
#define STORIES   "examples/tiny-stories "

typedef struct mistake {
    const char *what;
    int code;
    const char *command, *answer; /* the whole of it */
} mistake;

static const mistake mistakes[] = {
    /* the model */
    {"no model", 2, GPT2, "gpt2: no model given: gpt2 MODEL.attn \"a prompt\" (--help tells more)"},
    {"a command alone", 2, LENS "patch",
     "lens: no model given: lens MODEL.attn patch \"a text\" (--help tells more)"},
    {"a wrong path", 1, GPT2 "nowhere.attn Once",
     "gpt2: nowhere.attn: No such file or directory; is the path right?"},
    {"a directory as the model", 1, LENS "tests Once",
     "lens: tests is a directory, where an .attn file is needed; attn-convert makes one of a "
     "checkpoint's directory"},
    {"a checkpoint that is not converted", 1, GPT2 "examples/tiny-stories Once",
     "gpt2: examples/tiny-stories is a directory, where an .attn file is needed; attn-convert "
     "makes "
     "one of a checkpoint's directory"},
    {"the weights of a checkpoint", 1, GPT2 "examples/tiny-stories/model.safetensors Once",
     "gpt2: examples/tiny-stories/model.safetensors is not an .attn file but a safetensors file; "
     "give its directory to attn-convert, which makes an .attn file"},
    {"a model of another program", 1, GPT2 "tests/fixtures/convert/tiny.gguf Once",
     "gpt2: tests/fixtures/convert/tiny.gguf is not an .attn file but a GGUF file; attn-convert "
     "makes an .attn file of it"},
    {"a picture as the model", 1, GPT2 TMP "cat.png Once",
     "gpt2: " TMP "cat.png is not an .attn file but a picture; is that the path to the model?"},
    {"a text as the model", 1, BIN("attn-info") "README.md",
     "attn-info: README.md is not an .attn file but a text; is that the path to the model?"},
    {"a compressed model", 1, BIN("perplexity") TMP "model.gz README.md",
     "perplexity: " TMP "model.gz is not an .attn file but a compressed file; unpack it first"},
    {"an empty file", 1, GPT2 TMP "empty.attn Once",
     "gpt2: " TMP "empty.attn: the file is empty; expected an .attn file"},
    {"a model that is cut", 1, GPT2 TMP "cut.attn Once",
     "gpt2: " TMP "cut.attn: the file has 5000 bytes but was written with 4608640; it is cut"},
    /* options */
    {"a misspelt option", 2, GPT2 MODEL "Once --temprature 1",
     "gpt2: there is no option --temprature; do you mean --temperature?"},
    {"a shortened option", 2, CONVERT STORIES TMP "x.attn --tok d",
     "attn-convert: there is no option --tok; do you mean --tokenizer?"},
    {"one dash for two", 2, GPT2 MODEL "Once -seed 3",
     "gpt2: there is no option -seed; do you mean --seed?"},
    {"an option of another program", 2, GPT2 MODEL "Once --ngl 33",
     "gpt2: there is no option --ngl; --help lists them"},
    {"an option without its value", 2, GPT2 MODEL "Once -n", "gpt2: --tokens needs a value: COUNT"},
    {"a value forgotten in between", 2, LENS MODEL "Once -o --json",
     "lens: --output needs a value (FILE) before --json"},
    {"a word for a number", 2, GPT2 MODEL "Once -n ten",
     "gpt2: --tokens: \"ten\" is not a whole number from 0 to 1000000000"},
    {"a number out of range", 2, GPT2 MODEL "Once --top-p 90",
     "gpt2: --top-p: \"90\" is not a number from 0 to 1"},
    {"a type that is none", 2, CONVERT STORIES TMP "x.attn --dtype int8",
     "attn-convert: --dtype: there is no \"int8\"; choose f32, f16, q8 or q4"},
    /* the prompt */
    {"a prompt without quotes", 2, GPT2 MODEL "Once upon a time",
     "gpt2: too many arguments at \"upon\": quote the prompt"},
    {"a prompt that begins with a dash", 2, GPT2 MODEL "'- first, we'",
     "gpt2: there is no option - first, we...: if that is a text, write -- before it"},
    {"no prompt", 2, GPT2 MODEL,
     "gpt2: no prompt given: text, --file, --ids, or --bos to begin with nothing"},
    {"an empty prompt", 1, GPT2 MODEL "''",
     "gpt2: the prompt is empty: give some text, or --bos to begin with nothing"},
    {"a huge prompt", 1, "yes a | head -c 200000 | " GPT2 MODEL,
     "gpt2: the prompt has 199999 tokens, but the model's context holds 256: give less text"},
    {"a file of prompts that is not there", 1, GPT2 MODEL "--file prompt.txt",
     "gpt2: prompt.txt: No such file or directory; is the path right?"},
    {"a file as a prompt", 2, GPT2 MODEL "README.md -n 3",
     "gpt2: README.md is a file: -f README.md takes the text in it, -p README.md takes its name as "
     "the text"},
    {"a file as a text of lens", 2, LENS MODEL "loss README.md",
     "lens: README.md is a file: -f README.md takes the text in it, -p README.md takes its name as "
     "the text"},
    {"a picture as a prompt", 1, GPT2 MODEL "-f " TMP "noise.png",
     "gpt2: " TMP "noise.png is no text: it has many control characters. --exact takes any bytes"},
    {"a program as a prompt", 1, GPT2 MODEL "<" TMP "noise.png",
     "gpt2: standard input is no text: it has many control characters. --exact takes any bytes"},
    {"a text as a file", 2, BIN("perplexity") MODEL "'Once upon a time'",
     "perplexity: there is no file \"Once upon a time\". If that is a text: echo \"a text\" | "
     "perplexity MODEL.attn"},
    {"an output that gpt2 has not", 2, GPT2 "-o x",
     "gpt2: there is no option -o: the result is on standard output, so > FILE keeps it"},
    {"ids twice", 2, GPT2 MODEL "Once --json --print-ids",
     "gpt2: --json and --print-ids contradict each other: leave one of them out"},
    {"a text that is the name of a file too", 0, GPT2 MODEL "LICENSE -qn 1 >/dev/null",
     "gpt2: note: \"LICENSE\" is the text; -f LICENSE takes the text in the file of that name"},
    {"two heads in an edit", 2,
     LENS MODEL "loss Once --edit 'zero blocks.0.attn.hook_z head 0 head 1'",
     "lens: --edit: \"head\" stands twice: write an edit for each, with ; between them"},
    {"text for ids", 2, GPT2 MODEL "--ids Once", "gpt2: --ids: no token id at \"Once\""},
    {"text for ids on a pipe", 1, "echo Once | " BIN("attn-tokenize") MODEL "--decode",
     "attn-tokenize: entry 0 of the input, \"Once\", is not a token id"},
    /* the output */
    {"a full disk", 1, GPT2 MODEL "Once -qn 3 >/dev/full",
     "gpt2: cannot write the output: No space left on device; free some space, or write elsewhere"},
    {"a full disk for a conversation", 1, "echo hi | " BIN("chat") MODEL ">/dev/full",
     "cannot write the text"},
    {"for eight texts", 1, BIN("eight") MODEL ">/dev/full", FULL_DISK},
    {"for a table of tokens", 1, BIN("top5") MODEL "Once >/dev/full", FULL_DISK},
    {"for an ablation", 1, BIN("ablate") MODEL "0 1 Once >/dev/full", FULL_DISK},
    {"for patching", 1, BIN("patch") MODEL "'a cat' 'a dog' >/dev/full", FULL_DISK},
    {"for a record", 1, BIN("record") MODEL "Once " TMP "full.safetensors >/dev/full", FULL_DISK},
    {"for a notebook", 1, BIN("from_scratch/000_scores") ">/dev/full", FULL_DISK},
    {"a file beyond the limit", 1, "ulimit -f 64; " CONVERT STORIES TMP "limited.attn",
     "attn-convert: " TMP "limited.attn: writing failed: File too large"},
    {"a directory that is not there", 1, CONVERT STORIES TMP "no/x.attn",
     "attn-convert: " TMP "no/x.attn: cannot be written: No such file or directory"},
    {"no output", 2, CONVERT STORIES,
     "attn-convert: no output given: attn-convert examples/tiny-stories OUTPUT.attn (--help tells "
     "more)"},
    {"a directory as the output", 1, CONVERT STORIES TMP "onnx",
     "attn-convert: " TMP "onnx is a directory; expected a file name"},
    {"the input as the output", 1, CONVERT STORIES "examples/tiny-stories/config.json",
     "attn-convert: examples/tiny-stories/config.json is part of the input"},
    {"a directory that holds no checkpoint", 1, CONVERT "tools " TMP "x.attn",
     "attn-convert: tools holds no config.json, which a Hugging Face directory would"},
    {"OpenAI's checkpoint", 1, CONVERT TMP "124M " TMP "x.attn",
     "attn-convert: 124M is OpenAI's TensorFlow checkpoint, which Python changes: transformers 4 "
     "has transformers.models.gpt2.convert_gpt2_original_tf_checkpoint_to_pytorch"},
    {"OpenAI's checkpoint by its name", 1, CONVERT TMP "124M/model.ckpt " TMP "x.attn",
     "attn-convert: model.ckpt is OpenAI's TensorFlow checkpoint, which Python changes: "
     "transformers 4 "
     "has transformers.models.gpt2.convert_gpt2_original_tf_checkpoint_to_pytorch"},
    {"a model of rust-bert", 1, CONVERT TMP "rust " TMP "x.attn",
     "attn-convert: " TMP "rust has no model.safetensors, but rust_model.ot, the weights for "
     "rust-bert; the same model as transformers saves it converts"},
    {"the output first", 1, CONVERT TMP "none.attn examples/tiny-stories",
     "attn-convert: there is no " TMP "none.attn; the output comes last: attn-convert "
     "examples/tiny-stories " TMP "none.attn"},
    {"weights for ONNX", 1, CONVERT TMP "onnx " TMP "x.attn",
     "attn-convert: " TMP "onnx has no model.safetensors, but model.onnx, the weights for ONNX; "
     "the same model as transformers saves it converts"},
    {"a picture of another kind", 2, LENS MODEL "loss Once -o x.png",
     "lens: x.png: the name must end in .html, .svg, .csv, .json or .npz"},
    /* lens */
    {"a command that is none", 2, LENS MODEL "atribute Once",
     "lens: there is no command atribute; do you mean attribute?"},
    {"a command of another name", 2, LENS MODEL "attention 'Once upon'",
     "lens: there is no command attention; --help lists the commands"},
    {"an activation that is none", 1, LENS MODEL "record Once -o " TMP "x.npz nonsense",
     "lens: no activation is called \"nonsense\"; names look like \"blocks.0.attn.hook_pattern\" "
     "or "
     "\"ln_final.hook_scale\""},
    {"a layer beyond the last", 1, LENS MODEL "patterns Once --layer 4",
     "lens: there is no layer 4: the model has 4, from 0"},
};

TEST(each_is_answered)
{
    char noise[100];
    test_write(TMP "cat.png", "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16);
    test_write(TMP "model.gz", "\x1f\x8b\x08\0\0\0\0\0", 8);
    test_write(TMP "empty.attn", "", 0);
    memset(noise, 1, sizeof noise);
    test_write(TMP "noise.png", noise, sizeof noise);
    CHECK(run("cd " TMP " && mkdir -p 124M onnx rust && touch 124M/hparams.json "
              "124M/model.ckpt.index onnx/model.onnx rust/rust_model.ot") == 0 &&
          run("for d in onnx rust; do cp examples/tiny-stories/config.json " TMP "$d; done") == 0);
    CHECK(run("head -c 5000 " MODEL ">" TMP "cut.attn") == 0);
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        const mistake *m = &mistakes[i];
        const int code = run("%s", m->command);
        const size_t size = strlen(m->answer);
        CHECKF(code == m->code && out_size == 0, "%s: exit code %d, printed \"%.40s\"", m->what,
               code, out);
        CHECKF(err_size == size + 1 && memcmp(err, m->answer, size) == 0,
               "%s is answered with\n%sin place of\n%s", m->what, err, m->answer);
    }
}

/* The model may come after the text or the file. */
TEST(the_model_second)
{
    static const char *const programs[][3] = {
        {GPT2 "-q -n 3", "'Once upon'", ""},
        {LENS "loss", "'Once upon'", ""},
        {BIN("surprisal") "-q", TMP "texts.txt", ""},
        {BIN("surprisal") "-q", TMP "texts.csv", "--column s"},
        {BIN("perplexity"), TMP "texts.txt", ""},
        {BIN("score") "-q --lines", TMP "texts.txt", ""},
        {BIN("attn-verify"), TMP "receipt.json", ""},
    };
    test_write(TMP "texts.txt", "The cat\nThe dog sat.\n", 21);
    test_write(TMP "texts.csv", "s,n\nThe cat,1\n", 14);
    CHECK(run(GPT2 MODEL "Once -q -n 2 --receipt " TMP "receipt.json") == 0);
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        const char *const *p = programs[i];
        same(test_text("%s " MODEL "%s %s", p[0], p[1], p[2]),
             test_text("%s %s " MODEL "%s", p[0], p[1], p[2]));
    }
    refuses(2, "texts.txt is a file: -f", GPT2 TMP "texts.txt " MODEL);
    refuses(2, "texts.txt is a file: -f", LENS "patterns " TMP "texts.txt " MODEL);
    refuses(1, "no.attn: No such file or directory", GPT2 TMP "no.attn Once");
    refuses(1, "no.attn: No such file or directory", BIN("surprisal") TMP "no.attn " MODEL);
}

/* Root may read everything, so somebody else tries. */
TEST(a_model_without_permission)
{
    const char *as = getuid() ? "" : "setpriv --reuid=65534 --clear-groups ";
    CHECK(run("rm -f " TMP "mine.attn; cp " MODEL TMP "mine.attn && chmod 000 " TMP "mine.attn") ==
          0);
    if (run("%stest -x " TEST_BUILD "/gpt2", as) != 0) {
        test_skip("nobody else can run programs here");
        return;
    }
    CHECKF(run("%s" GPT2 TMP "mine.attn Once", as) == 1 && out_size == 0 &&
               strcmp(err,
                      "gpt2: " TMP "mine.attn: Permission denied; ask the owner, or change its "
                      "permissions with chmod\n") == 0,
           "%s", err);
    CHECK(run("rm -f " TMP "mine.attn") == 0);
}

/* A reader that has gone is no reason for words. */
TEST(a_closed_pipe)
{
    CHECKF(run("{ trap '' PIPE; sleep 0.3; " GPT2 MODEL "Once -q; echo $? >" TMP "code; } | :") ==
                   0 &&
               err_size == 0,
           "said %s", err);
    same("cat " TMP "code", "echo 141");
}

/* >> Somebody sits at a terminal that has not the size, or the input, that was hoped for. */

TEST(nothing_typed)
{
    if (!has_terminal())
        return;
    CHECKF(run("script -qec '" GPT2 MODEL "' /dev/null") == 0 &&
               strstr(out, "Type a text, then Enter; /help lists the commands, Ctrl-D ends.\r\n") &&
               strstr(out, "\r\n> "),
           "%s", out);
    CHECKF(run("script -qec '" GPT2 MODEL "-' /dev/null") == 1 &&
               strstr(out, "Type the prompt, then Enter and Ctrl-D.\r\n"),
           "%s", out);
    CHECKF(run("script -qec '" GPT2 MODEL "-i' /dev/null") == 0 &&
               strstr(out, "Type a prompt, then Enter; Ctrl-D ends.\r\n> "),
           "%s", out);
    CHECKF(run("script -qec '" LENS MODEL "loss -' /dev/null") == 1 &&
               strstr(out, "Type the text, then Enter and Ctrl-D.\r\n"),
           "%s", out);
    CHECKF(run("script -qec '" BIN("attn-tokenize") MODEL "' /dev/null") == 0 &&
               strstr(out, "Type the text, then Enter and Ctrl-D.\r\n"),
           "%s", out);
}

/* The prompt has a colour of its own where a person sees it, and nowhere else. */
TEST(colours)
{
    static const char coloured[] = "\033[36mOnce upon\033[0m a time";
    if (!has_terminal())
        return;
#define TRY(settings)                                                                              \
    run("env -u NO_COLOR TERM=xterm " settings "script -qec \"" GPT2 MODEL                         \
        "'Once upon' -qn2\" /dev/null")
    CHECKF(TRY("") == 0 && strstr(out, coloured), "%s", out);
    CHECKF(TRY("NO_COLOR=1 ") == 0 && strstr(out, "Once upon a time") && !strchr(out, '\033'), "%s",
           out);
    CHECKF(TRY("TERM=dumb ") == 0 && strstr(out, "Once upon a time") && !strchr(out, '\033'), "%s",
           out);
    CHECK(run(GPT2 MODEL "'Once upon' -qn2") == 0 && strcmp(out, "Once upon a time\n") == 0);
}

/* A reader that sleeps for three seconds holds the run within its prompt: so long that a person is
 * told how far it is, on one line that does not stay. */
TEST(a_long_prompt)
{
    if (!has_terminal())
        return;
    CHECKF(run("rm -f " TMP "fifo; mkfifo " TMP "fifo; { sleep 3; cat; } <" TMP "fifo >/dev/null & "
               "COLUMNS=60 script -qec \"" GPT2 MODEL "-n 1 -q --logits " TMP
               "fifo --ids '$(yes 11 | head -n 200 | tr '\\n' ' ')'\" /dev/null") == 0,
           "%s%s", out, err);
    char *line = out ? strstr(out, "\rprompt [") : NULL;
    CHECKF(line && strstr(line, " s left") && strstr(line, " %, "), "%s", out);
    if (CHECK(line && strchr(line + 1, '\r')))
        CHECKF(strcspn(line + 1, "\r") < 60, "%s", line);
}

/* No line is wider than the terminal says it is. */
TEST(narrow_terminals)
{
    static const char *const commands[] = {
        LENS MODEL "'Once upon a time'", LENS MODEL "loss 'Once upon a time'",
        LENS MODEL "logit-lens 'Once upon a time'", LENS MODEL "heads 'Once upon a time'",
        BIN("attn-info") MODEL};
    static const int widths[] = {40, 60, 79, 100};
    const char *line;
    size_t size;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        for (size_t k = 0; k < 4; k++) {
            RUNS("COLUMNS=%d %s", widths[k], commands[i]);
            for (line = out; line && *line; line += size + (line[size] == '\n')) {
                size_t columns = 0;
                size = strcspn(line, "\n");
                for (size_t at = 0; at < size; at++) /* characters of UTF-8 */
                    columns += ((unsigned char)line[at] & 0xC0) != 0x80;
                CHECKF(columns <= (size_t)widths[k] || memcmp(line, "entropy", 7) == 0,
                       "%s at %d columns: %.*s", commands[i], widths[k], (int)size, line);
            }
        }
    CHECK(run(LENS MODEL "heads 'Once upon a time'") == 0 &&
          strstr(out, "layer\\head      0      1      2      3      4      5\n"));
    CHECK(run("COLUMNS=40 " LENS MODEL "heads 'Once upon a time'") == 0 &&
          strstr(out, "layer\\head      0      1      2      3\n") &&
          strstr(out, "layer\\head      4      5\n"));
    CHECK(run(LENS MODEL "logit-lens 'Once upon a time'") == 0 && strstr(out, "position\\layer "));
}

/* Inputs with which a program can do nothing: all of a file is refused, or there is none of it. None of them is a
 * success, but for filters of lines: of no lines they make none. */
TEST(nothing_to_do)
{
    static const struct {
        int code;
        const char *command, *says;
    } table[] = {
        {1, "gpt2 $m -f none", "the prompt is empty"},
        {0, "gpt2 $m -i <none", ""},
        {0, "gpt2 $m -i --json <none", ""},
        {1, "gpt2 $m -i --json <blank", "2 of 2 lines could not be continued"},
        {1, "gpt2 $m -i --json <key", "there is no key \"txt\""},
        {1, "gpt2 $m -i <long", "line 1: the prompt has 301 tokens"},
        {0, "score $m -q none", ""},
        {1, "score $m -q blank", "no line of blank could be answered, of 2"},
        {1, "score $m -q blank --lines", "The first error: the text is empty\n"},
        {1, "score $m -q key", "there is no key \"txt\""},
        {1, "score $m -q long --lines --task embed", "The first error: the text has 301 tokens"},
        {1, "perplexity $m none", "none has 0 tokens"},
        {1, "perplexity $m blank", "blank has 1 token"},
        {2, "attn-verify $m none", "none is empty"},
        {1, "surprisal $m none", "none is empty"},
        {1, "surprisal $m blank", "blank has no words"},
        {2, "surprisal $m table.csv --column txt", "txt"},
        {1, "reproduce $m --figures none", "none is empty"},
        {1, "reproduce $m --figures blank", "none of the figures"},
        {1, "attn-convert folder made", "holds no config.json"},
        {1, "lens $m loss -f none", "the text is empty"},
        {1, "lens $m loss -f blank", "the text has one token"},
        {1, "lens $m loss -f blank -o made.html", "the text has one token"},
        {1, "lens $m patch --pairs none", "none is empty"},
        {1, "lens $m edges --pairs blank", "there are no pairs"},
        {1, "lens $m edges --pairs key", "line 1: expected \"clean\""},
        {1, "$record none", "there are no texts in none"},
        {1, "$record folder", "there are no texts in folder"},
        {1, "$record blank", "no text of blank could be recorded, of 2. The first reason: "},
        {1, "$record key",
         "no text of key could be recorded, of 2. The first reason: expected a \"text\""},
        {1, "$record long", "no text of long could be recorded, of 1. The first reason: "},
        {1, "$record key --shuffle 1 --rows 2", "no text of key could be recorded, of 2"},
        {0, "$record some", "note: 1 of 2 texts were refused; index/index.jsonl has the reasons"}};
    CHECK(
        run("mkdir -p " TMP "nothing/folder && cd " TMP
            "nothing && : >none && echo >blank && echo >>blank && "
            "echo '{\"txt\": \"a\"}' >key && echo '{\"txt\": \"b\"}' >>key && echo a,b >table.csv && "
            "echo c,d >>table.csv && echo '{\"text\": \"a\"}' >some && echo >>some && "
            "yes the | head -n 300 | tr '\\n' ' ' >long") == 0);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const int code =
            run("cd " TMP "nothing && rm -rf index && mkdir index && PATH=\"$BUILT:$PATH\" && "
                "m=$BUILT/tiny-stories.attn && "
                "record=\"lens $m record hook_embed -o index --lines\" && %s",
                table[i].command);
        CHECKF(code == table[i].code && strstr(err, table[i].says), "%s: exit code %d: %s",
               table[i].command, code, err);
        CHECKF(run("! ls " TMP "nothing/made* >&2") == 0, "%s made a file", table[i].command);
    }
}
