/* The pages for people, as a reader follows them: the programs of a page are compiled, its commands
 * are run in their order, and print what the page says. */
#include "tests/support/command.h"

SUITE_WITH(NULL, forget);

#define DIR TEST_TMP

/* A directory that looks like the top of the repository and may be written to. The `cc` in it
 * leaves out the kernels and the optimiser: their code is tested elsewhere, and they take long. */
static void make_place(const char *name)
{
    static const char cc[] = "#!/bin/sh\nPATH=${PATH#*:}\nexec cc -DATTN_NO_SIMD \"$@\" -O0\n";
    CHECK(run("rm -rf " DIR "%s; mkdir -p " DIR
              "%s/bin && for f in attn.h examples tools tests; do "
              "ln -s \"$PWD/$f\" " DIR "%s || exit; done; ln -s \"$BUILT\" " DIR "%s/build",
              name, name, name, name) == 0);
    const char *const path = test_text(DIR "%s/bin/cc", name);
    test_write(path, cc, sizeof cc - 1);
    CHECK(run("chmod +x %s", path) == 0);
}

/* The commands of a block; they find the block before them as block.sh. */
static void run_block(const char *page, const char *name, const char *block, size_t size)
{
    test_write(test_text(DIR "%s/block.sh", name), block, size);
    int code = run("cd " DIR "%s && PATH=\"$PWD/bin:$PATH\" sh -e block.sh", name);
    CHECKF(code == 0, "%s: exit code %d of\n%.*s%s", page, code, (int)size, block, err);
}

/* A block that is a file has its name in the first line, as a comment. */
static void write_block(const char *page, const char *name, const char *block, size_t size)
{
    char path[128], file[64] = "";
    if (!CHECKF(sscanf(block, "/* %63[^ ] */", file) == 1 ||
                    sscanf(block, "# %63[^ \n]", file) == 1,
                "%s: a block without a name:\n%.*s", page, (int)size, block))
        return;
    snprintf(path, sizeof path, DIR "%s/%s", name, file);
    test_write(path, block, size);
}

static void follow(const char *page, const char *name)
{
    size_t size, n = 0, length;
    char *text = (char *)test_read(page, &size), *at = text, *block, *end;
    if (!CHECKF(text, "%s cannot be read", page))
        return;
    make_place(name);
    for (; (at = strstr(at, "\n```")) != NULL; at = end + 4, n++) {
        at += 4;
        block = strchr(at, '\n') + 1;
        if (!CHECK((end = strstr(block, "\n```")) != NULL))
            break;
        length = (size_t)(end + 1 - block);
        if (strncmp(at, "sh\n", 3) == 0)
            run_block(page, name, block, length);
        else if (strncmp(at, "text\n", 5) == 0)
            CHECKF(out_size == length && memcmp(out, block, length) == 0,
                   "%s says\n%.*sbut what is printed is\n%s", page, (int)length, block, out);
        else
            write_block(page, name, block, length);
    }
    CHECKF(n > 0, "%s has nothing to run", page);
    free(text);
}

TEST(embed)
{
    follow("examples/embed.md", "embed");
}

TEST(lens)
{
    follow("tools/lens/README.md", "lens");
}

TEST(many)
{
    follow("examples/many.md", "many");
}

TEST(convert)
{
    follow("tools/convert/convert.md", "convert");
}

TEST(surprisal)
{
    follow("tools/surprisal/README.md", "surprisal");
}

TEST(speed)
{
    follow("tools/bench/speed.md", "speed");
}

/* The first program of the README is examples/hello.c, and the commands below it compile and run it. */
TEST(readme)
{
    static const char first[] = "\n```c\n", next[] = "```\n\n```sh\n";
    size_t size, n_lines = 0, length;
    char *readme = (char *)test_read("README.md", &size), *line = readme, *block = NULL,
         *end = NULL;
    SCOPED_TEXT hello = (char *)test_read("examples/hello.c", &size);
    for (; line && *line; line += length + (line[length] == '\n'), n_lines++)
        CHECKF((length = strcspn(line, "\n")) <= 100, "a line of README.md is too long: %.100s",
               line);
    CHECKF(n_lines <= 60, "README.md has %d lines; expected at most 60, one screen", (int)n_lines);
    make_place("readme");
    if (readme && hello && (block = strstr(readme, first)) != NULL)
        end = strstr(block += sizeof first - 1, next);
    if (CHECK(end != NULL)) {
        CHECKF((size_t)(end - block) == size && memcmp(block, hello, size) == 0,
               "README.md's first program is not examples/hello.c");
        test_write(DIR "readme/app.c", block, (size_t)(end - block));
        block = end + sizeof next - 1;
        run_block("README.md", "readme", block, strcspn(block, "`"));
        CHECKF(strncmp(out, "Once upon a time, there was", 27) == 0, "%s", out);
    }
    free(readme);
}

/* The beginning of a program names the command that compiles it from the top. It is run as far as
 * the compiler's syntax check, without the implementation but in the bench, which looks inside; `make`
 * links the same programs. */
static void compile_as_told(const char *file)
{
    size_t size, length;
    char *text = (char *)test_read(file, &size), start[128];
    snprintf(start, sizeof start, "cc %s -I. ", file);
    char *command = text ? strstr(text, start) : NULL;
    if (CHECKF(command && command - text < 300, "%s does not begin with \"%s...\"", file, start)) {
        length = strcspn(command, "\n&(");
        if (strncmp(text, "/* sh ", 6) == 0) { /* a script first, on the same line */
            length += (size_t)(command - text) - 3;
            command = text + 3;
        }
        CHECKF(run("cd " DIR "first && PATH=\"$PWD/bin:$PATH\" && %.*s", (int)length, command) == 0,
               "%.*s\nsays\n%s", (int)length, command, err);
    }
    free(text);
}

TEST(first_lines)
{
    static const char cc[] = "#!/bin/sh\nPATH=${PATH#*:}\ncase \"$*\" in *bench.c*) ;; *) set -- "
                             "-DATTN__IMPLEMENTED \"$@\" ;; "
                             "esac\nexec cc -DATTN_NO_SIMD -fsyntax-only \"$@\"\n";
    char *file;
    size_t n = 0;
    make_place("first");
    test_write(DIR "first/bin/cc", cc, sizeof cc - 1);
    SCOPED_TEXT list =
        prints("ls examples/*.c examples/*/*.c tools/*.c tools/*/*.c tools/lens/program/*.c | "
               "grep -v -e /hello.c "
               "-e examples/web/");
    for (file = strtok(list, "\n"); file; file = strtok(NULL, "\n"), n++)
        compile_as_told(file);
    CHECKF(n > 20, "%d programs", (int)n);
}

/* The text between the backticks at `at`, one or two, without the blanks beside them; `rest` begins
 * after them. NULL if there are none. */
static char *quoted(char *at, char **rest)
{
    const char *const mark = strncmp(at, "`` ", 3) == 0 ? " ``" : "`";
    char *const text = at + strlen(mark), *end = *at == '`' ? strstr(text, mark) : NULL;
    if (!end)
        return NULL;
    *end = 0;
    *rest = end + strlen(mark);
    return text;
}

/* Every mistake of the list "Compiling and linking" is made, and answered in the words of the list. */
TEST(mistakes)
{
    size_t size, n = 0;
    char *text = (char *)test_read("examples/embed.md", &size), *at, *said, *command;
    if (!CHECK(text))
        return;
    make_place("mistakes");
    for (at = text; (at = strstr(at, "\n- `")) != NULL; n++) {
        if (!CHECKF((said = quoted(at + 3, &at)) != NULL && strncmp(at, ", after\n  `", 11) == 0 &&
                        (command = quoted(at + 10, &at)) != NULL && strncmp(at, ".\n", 2) == 0,
                    "not an item of words, a command and a cure: %.200s", at))
            break;
        run("cd " DIR "mistakes && PATH=\"$PWD/bin:$PATH\" && %s", command);
        CHECKF(strstr(err, said) || strstr(out, said), "%s\nsays\n%s%s\nand not\n%s", command, err,
               out, said);
    }
    CHECKF(n >= 6, "%d mistakes", (int)n);
    free(text);
}

/* Every function of the header is on the page that `make docs` makes, with the file format and the versions
 * behind them, and mandoc takes it. */
TEST(docs)
{
    CHECK(run("sh tools/packaging/docs.sh attn.h >" DIR "attn.3") == 0);
    CHECKF(run("for f in $(sed -n 's/^ATTN_API .*[ *]\\(attn_[a-z0-9_]*\\)(.*/\\1/p' attn.h); do "
               "grep -q \"$f(\" " DIR "attn.3 || echo $f; echo >&2; done") == 0 &&
               out_size == 0 && err_size > 100,
           "missing: %s", out);
    CHECK(run("grep -c '^\\.SH' " DIR "attn.3") == 0 && atoi(out) >= 18);
    CHECK(run("sed -n '/^.SH FILE FORMAT/,/^.SH/p' " DIR
              "attn.3 | grep -q 'size of the whole file'") == 0);
    CHECK(run("sed -n '/^.SH VERSIONS/,$p' " DIR "attn.3 | grep -q attn_parallel_for") == 0);
    if (run("command -v mandoc") != 0) {
        test_skip("no mandoc here to look at the page");
        return;
    }
    CHECKF(run("mandoc -T lint -W warning " DIR "attn.3") == 0, "%s", out);
    /* The page: an entry of its contents for each section, and no line of code broken twice. */
    CHECK(run("mandoc -T html " DIR "attn.3 | awk -f tools/packaging/page.awk") == 0 &&
          out_size > 0);
    size_t n = occurrences(out, "<h1 class=\"Sh\"");
    CHECK(n >= 18 && occurrences(out, "\n<a href=\"#") == n);
    CHECK(occurrences(out, "<br/>") == 0 &&
          strstr(out, "    #include &lt;stdio.h&gt;\n\n    int main(int argc, char **argv)"));
}

/* The rules that scripts read off the sources, each broken once: by a sed script for one file. */
TEST(rules)
{
    static const struct {
        const char *script, *file, *change, *says;
    } broken[] = {
        {"api", "attn.h", "s/\\(attn_session_truncate(.*size_t \\)length);/\\1n_keep);/",
         "is defined with the parameters ctx, session, length, but declared with"},
        {"api", "attn.h", "s/Shortens the session to `length`/Shortens the session to `n_keep`/",
         "the comment on attn_session_truncate has n_keep"},
        {"api", "attn.h",
         "s/^ATTN_API size_t attn_session_length(/ATTN_API int attn_new(void);\\n&/",
         "attn_new is called by no program"},
        {"api", "attn.h", "s/^    float min_p; .*/&\\n    float top_n_sigma;/",
         "the setting top_n_sigma of attn_sampler_desc is not in examples/gpt2/gpt2.c, "},
        {"api", "attn.h", "/^#define ATTN_VERSION_MAJOR/{p;p;p;p;p;p;p;p}",
         "lines of code; at most "},
        {"pages", "README.md", "s/[Ii]nstall/build/g", "nothing on \"install\""},
        {"pages", "README.md", "s/bench.speed.md/nowhere.md/", "a link to tools/nowhere.md"},
        {"pages", "tools/lens/program/run.h",
         "s/^ *X(LOSS, .*/&\\n    X(NORMS, \"norms\", \"prompt\", run_norms, losses) \\\\/",
         "lens norms has no test in tests/suites/lens-tool"},
    };
    if (run("command -v python3") != 0) {
        test_skip("no python3 here");
        return;
    }
    CHECK(run("rm -rf " DIR "rules && mkdir " DIR
              "rules && cp -R attn.h README.md Makefile examples "
              "tools tests " DIR "rules && chmod -R u+w " DIR "rules") == 0);
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        const char *const file = broken[i].file, *const script = broken[i].script;
        CHECK(run("sed '%s' %s >" DIR "rules/%s", broken[i].change, file, file) == 0);
        CHECKF(run("python3 tests/%s.py " DIR "rules", script) == 1 && strstr(out, broken[i].says),
               "%s says \"%s\", not \"%s\"", script, out, broken[i].says);
        CHECK(run("cp -f %s " DIR "rules/%s", file, file) == 0);
    }
    CHECK(run("rm -rf " DIR "rules") == 0);
    CHECKF(run("make -s format-check FORMATTED=no-such-file.c") != 0 &&
               strstr(out, "within the rules of attn.h") && strstr(out, "what they name is there"),
           "format-check ends at its first stage: %s%s", out, err);
}
