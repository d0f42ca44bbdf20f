/* Draws what the heads of one layer look at, as an SVG picture.
 *
 *     make && cc examples/from_scratch/draw_pattern.c -I. -O2 -lm -o draw && ./draw >pattern.svg
 *
 * Options: ./draw build/tiny-stories.attn LAYER "Some text". A row is a token that looks, a column
 * one that is looked at; since nobody looks ahead, the upper triangle is free for the names.
 */
#include "notebook.h"

enum { CELL = 15, PANEL_GAP = 56, PER_ROW = 3, TOP = 54 };

typedef struct picture {
    const attn_tokenizer *tokenizer;
    const attn_token *ids;
    size_t layer;
} picture;

/* A token's bytes as text of an XML file, without the space in front. */
static void print_token(const attn_tokenizer *tokenizer, attn_token id)
{
    size_t size = 0;
    const char *bytes = attn_token_bytes(&size, tokenizer, id);
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '&' || c == '<' || c == '>')
            printf("&#%d;", c);
        else if (c > ' ' && c < 127)
            putchar(c);
    }
}

static void draw_head(const picture *p, attn_tensor pattern, int head, int x, int y)
{
    const size_t n = pattern.shape[0];
    printf("<g transform=\"translate(%d %d)\"><text class=\"head\" y=\"-9\">head %zu.%d</text>\n",
           x, y, p->layer, head);
    printf("<path class=\"past\" d=\"M0 0");
    for (size_t row = 0; row < n; row++)
        printf("H%dv%d", (int)(row + 1) * CELL, CELL);
    printf("H0z\"/>\n");
    for (size_t row = 0; row < n; row++) {
        for (size_t column = 0; column <= row; column++) {
            const float weight = attn_get2(pattern, row, column);
            if (weight >= 0.01f)
                printf("<rect x=\"%d\" y=\"%d\" fill-opacity=\"%.2f\"/>", (int)column * CELL,
                       (int)row * CELL, weight);
        }
        printf("<text x=\"%d\" y=\"%d\">", (int)(row + 1) * CELL + 5, (int)row * CELL + 11);
        print_token(p->tokenizer, p->ids[row]);
        printf("</text>\n");
    }
    printf("</g>\n");
}

static int draw(const attn_activation *a, void *user)
{
    const picture *p = (const picture *)user;
    const int n_head = (int)a->value.shape[0], side = (int)a->value.shape[1] * CELL;
    const int step = side + PANEL_GAP, n_rows = (n_head + PER_ROW - 1) / PER_ROW;
    const int width = PER_ROW * step + 24, height = TOP + n_rows * (side + 42);
    printf("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
           "height=\"%d\" role=\"img\">\n",
           width, height, width, height);
    printf("<title>What the %d heads of layer %zu look at</title>\n", n_head, a->layer);
    printf("<style>\n"
           "text { font: 11px ui-sans-serif, system-ui, sans-serif; fill: #57606a }\n"
           ".head { font-weight: 600; font-size: 12px; fill: #1f2328 }\n"
           "rect { width: %dpx; height: %dpx; fill: #0a58b5 }\n"
           ".past { fill: #8c959f; fill-opacity: 0.14 }\n"
           "@media (prefers-color-scheme: dark) {\n"
           "text { fill: #9198a1 } .head { fill: #f0f6fc }\n"
           "rect { fill: #6cb6ff } .past { fill-opacity: 0.16 } }\n"
           "</style>\n",
           CELL, CELL);
    printf(
        "<text x=\"16\" y=\"20\">Each row is a token that looks; the stronger a square, the more "
        "it takes from that column&#39;s token. Rows sum to 1.</text>\n");
    for (int head = 0; head < n_head; head++)
        draw_head(p, attn_select(a->value, 0, (size_t)head), head, 16 + head % PER_ROW * step,
                  TOP + head / PER_ROW * (side + 42));
    printf("</svg>\n");
    return 0;
}

int main(int argc, char **argv)
{
    const char *text = argc > 3 ? argv[3] : "Lily had a red ball. Tom took the ball and Lily";
    attn_ctx ctx = {0};
    attn_model *model = NULL;
    attn_session *session = NULL;
    attn_token ids[64];
    size_t n_ids = 64;
    char name[64];
    picture p;

    if (attn_model_open(&ctx, &model, argc > 1 ? argv[1] : BUILD "/tiny-stories.attn", NULL) ||
        attn_session_new(&ctx, &session, model, NULL) ||
        attn_encode(&ctx, ids, &n_ids, attn_model_tokenizer(model), text, strlen(text)))
        return finish(&ctx);
    p.tokenizer = attn_model_tokenizer(model);
    p.ids = ids;
    p.layer = argc > 2 ? strtoul(argv[2], NULL, 10) : 2;
    snprintf(name, sizeof name, "blocks.%zu.attn.hook_pattern", p.layer);
    if (attn_hook(&ctx, NULL, session, name, draw, &p) == ATTN_OK)
        attn_feed(&ctx, session, ids, n_ids);
    attn_session_free(session);
    attn_model_close(model);
    return finish(&ctx);
}
