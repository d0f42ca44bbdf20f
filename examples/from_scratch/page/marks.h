/* For `make docs`, which makes a page of each notebook. What is printed begins with a mark that names the
 * line that prints it, and tensors are followed by a heat map in HTML. page.awk reads both:
 *
 *     \036L file:line caller \n text        \036H html \n
 *
 * The caller is the address to which the function returns: it tells two calls from a loop. */
#ifndef MARKS_H
#define MARKS_H

static inline void mark(const char *file, int line, const void *caller)
{
    printf("\036L%s:%d %p\n", file, line, caller);
}

/* One matrix as SVG: a cell is the darker, the nearer its number is to `most` or to -most. */
static inline void mark_matrix(attn_tensor x, double most, const char *const *names)
{
    const size_t rows = x.shape[0], columns = x.shape[1];
    const int cell = columns > 16 ? 12 : 22, left = names ? 62 : 0, top = names ? 18 : 0;
    printf("<svg role=\"img\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">",
           (int)columns * cell * (names ? 2 : 1) + left, (int)rows * cell + top,
           (int)columns * cell * (names ? 2 : 1) + left, (int)rows * cell + top);
    for (size_t j = 0; names && j < columns; j++)
        printf("<text x=\"%d\" y=\"13\">%s</text>", left + (int)j * cell * 2, names[j]);
    for (size_t i = 0; i < rows; i++) {
        if (names)
            printf("<text x=\"0\" y=\"%d\">%s</text>", top + (int)i * cell + 15, names[i]);
        for (size_t j = 0; j < columns; j++) {
            const double value = (double)attn_get2(x, i, j), share = fmin(fabs(value) / most, 1);
            printf("<rect class=\"%c\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" "
                   "fill-opacity=\"%.2f\"><title>[%d, %d]: %.4f</title></rect>",
                   value == -HUGE_VAL ? 'i'
                   : value < 0        ? 'n'
                                      : 'p',
                   left + (int)j * cell * (names ? 2 : 1), top + (int)i * cell,
                   cell * (names ? 2 : 1) - 1, cell - 1, value == -HUGE_VAL ? 0.0 : share, (int)i,
                   (int)j, value);
            if (names)
                printf("<text class=\"v%s\" x=\"%d\" y=\"%d\">%.0f%%</text>",
                       share > 0.6 ? " w" : "", left + ((int)j + 1) * cell * 2 - 6,
                       top + (int)i * cell + 15, value * 100);
        }
    }
    printf("</svg>");
}

/* The first three matrices of a tensor, of at most `limit` rows and columns, and their scale: from 0 to 1
 * if all numbers are in between; else to the largest, and from minus that if there are negative ones. */
static inline void mark_tensor(attn_tensor x, const char *const *names, size_t limit)
{
    double most = 0, least = 0;
    size_t n = 1;
    attn_tensor dense = none;
    attn_ctx ctx = {0};
    if (x.ndim == 1)
        x = attn_reshape(x, attn_shape2(1, x.shape[0]));
    if (x.ndim < 2 || x.dtype == ATTN_I32 || x.shape[x.ndim - 1] < 2 ||
        x.shape[x.ndim - 1] > limit || x.shape[x.ndim - 2] > limit)
        return;
    for (size_t i = 0; (int)i < x.ndim - 2; i++)
        n *= x.shape[i];
    attn_copy(&ctx, &dense, x);
    for (size_t i = 0; i < attn_count(dense); i++) {
        const double value = (double)((const float *)dense.data)[i];
        most = fabs(value) < HUGE_VAL && fabs(value) > most ? fabs(value) : most;
        least = value > -HUGE_VAL && value < least ? value : least;
    }
    most = least >= 0 && most <= 1 ? 1 : most;
    dense = attn_reshape(dense, attn_shape3(n, x.shape[x.ndim - 2], x.shape[x.ndim - 1]));
    printf("\036H<figure>");
    for (size_t i = 0; i < n && i < 3 && most > 0; i++)
        mark_matrix(attn_select(dense, 0, i), most, n > 1 ? NULL : names);
    if (least < 0)
        printf("<figcaption>%.3g <i class=\"signed\"></i> %.3g</figcaption>", -most, most);
    else
        printf("<figcaption>0 <i></i> %.3g</figcaption>", most);
    printf("</figure>\n");
    attn_ctx_free(&ctx);
}

static inline void mark_show(const char *sentence, attn_tensor x)
{
    show(sentence, x);
    mark_tensor(x, NULL, 16);
}

/* The heat map in place of letters */
static inline void mark_picture(const char *sentence, attn_tensor x, const char *const *names)
{
    printf("\n%s\n", sentence);
    mark_tensor(x, names, 64);
}

#define MARK              mark(__FILE__, __LINE__, __builtin_return_address(0))
#define printf(...)       (MARK, printf(__VA_ARGS__))
#define show(s, x)        (MARK, mark_show(s, x))
#define show_picture(...) (MARK, mark_picture(__VA_ARGS__))
#define show_number(...)  (MARK, show_number(__VA_ARGS__))
#define show_shape(...)   (MARK, show_shape(__VA_ARGS__))

#endif
