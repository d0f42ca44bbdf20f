/* A grid of which a command has set nothing, in each form that lens shows, below a title that has control characters. */
#define PROGRAM "lens"
#define INPUT   "text"
#if defined(__GNUC__)
#pragma GCC diagnostic ignored                                                                     \
    "-Wunused-function" /* the other functions of the program's headers */
#endif
#include "tools/common/system.h"
#include "attn.h"
#include "tools/lens/program/findings.h"
#include "tools/lens/program/draw/shared.h"
#include "tests/support/test.h"
#include "tests/support/comma.h"

SUITE();

TEST(an_empty_grid)
{
    static lens l;
    static const char *const no_words[] = {NULL};
    const char *const path = TEST_TMP "empty-grid";
    lens_grid grid;
    size_t size;
    canvas to = {.file = fopen(path, "w")};
    lens_page page = {.title = "a\x01 \xc2\x85", .note = ""};
    if (!CHECK(to.file != NULL))
        return;
    l.command_line = no_words;
    CHECK(make_grid(&l, &grid, 2, 3) == FINE);
    for (size_t i = 0; i < 6; i++)
        CHECK(strcmp(grid.cells[i].text, "") == 0 && strcmp(grid.cells[i].tip, "") == 0);
    html_grids(&to, &page, &grid, 1);
    svg_grids(&to, &page, &grid, 1);
    l.out = &to;
    print_grid(&l, &grid);
    fclose(to.file);
    char *text = (char *)test_read(path, &size);
    CHECK(text && strstr(text, "<!DOCTYPE html>") && strstr(text, "</svg>"));
    CHECK(text && !strchr(text, 1) && !strstr(text, "\xc2\x85") && strstr(text, "a\\x01 \\x85"));
    free(text);
    arena_free(&l.memory);
    attn_ctx_free(&l.ctx);
}

/* A caller's picture has points where its locale has commas. */
TEST(pictures_with_points)
{
    static const float nll[] = {0.25f, 1.5f};
    static const char *const tokens[] = {"a", "b"};
    const lens_losses losses = {"", tokens, tokens, nll, 2};
    attn_ctx ctx = {0};
    char *plain = NULL, *drawn = NULL;
    CHECK(lens_draw_losses(&ctx, &plain, &losses) == ATTN_OK);
    if (comma_begin())
        CHECK(lens_draw_losses(&ctx, &drawn, &losses) == ATTN_OK && strcmp(plain, drawn) == 0);
    else
        test_skip("no locale with a decimal comma can be made");
    comma_end();
    attn_free(plain);
    attn_free(drawn);
}
