/* Lines over shares, such as the faithfulness of circuits of growing size, as a picture. */
#ifndef LENS_SVG_CHART_H
#define LENS_SVG_CHART_H

#include "lens_svg.h"

enum { CHART_WIDE = 520, CHART_HIGH = 240, CHART_LEFT = 64, CHART_STYLES = 6 };

/* Lines over positive numbers, on a logarithmic scale. */
typedef struct lens_chart {
    const char *title, *x_name;
    const double *x; /* [n_points], growing */
    size_t n_points;
    const char *const *names; /* [n_lines] */
    const double *y;          /* [n_lines, n_points] */
    size_t n_lines;
    const double *low, *high; /* [n_lines, n_points], or NULL: the ends of whiskers */
} lens_chart;

/* The first lines differ by colour and dashes; more repeat them. */
static const char *const chart_styles[CHART_STYLES] = {
    "more\" stroke-width=\"2.5",
    "less\" stroke-width=\"2.5",
    "more\" stroke-width=\"2.5\" stroke-dasharray=\"8 4",
    "less\" stroke-width=\"2.5\" stroke-dasharray=\"8 4",
    "quiet\" stroke-width=\"2\" stroke-dasharray=\"2 4",
    "quiet\" stroke-width=\"2.5"};

typedef struct chart_range {
    double low, high, step;
} chart_range;

static void chart_widen(chart_range *r, const double *y, size_t n)
{
    for (size_t i = 0; y && i < n; i++)
        if (isfinite(y[i])) {
            r->low = y[i] < r->low ? y[i] : r->low;
            r->high = y[i] > r->high ? y[i] : r->high;
        }
}

/* The range of all finite numbers, 0 and 1, in at most eight steps. */
static chart_range chart_range_of(const lens_chart *chart)
{
    static const double factors[] = {2.5, 2, 2};
    chart_range r = {0, 1, 0.1};
    const size_t n = chart->n_lines * chart->n_points;
    chart_widen(&r, chart->y, n);
    chart_widen(&r, chart->low, n);
    chart_widen(&r, chart->high, n);
    for (size_t i = 0; (r.high - r.low) / r.step > 8; i++)
        r.step *= factors[i % 3];
    r.low = r.step * floor(r.low / r.step + 1e-9);
    r.high = r.step * ceil(r.high / r.step - 1e-9);
    return r;
}

static double chart_x(const lens_chart *chart, size_t i)
{
    const double first = log(chart->x[0]), last = log(chart->x[chart->n_points - 1]);
    return SVG_EDGE + CHART_LEFT +
           (last > first ? CHART_WIDE * (log(chart->x[i]) - first) / (last - first) : 0);
}

static double chart_y(const chart_range *r, double top, double value)
{
    return top + CHART_HIGH * (r->high - value) / (r->high - r->low);
}

static void chart_rule(canvas *to, double x, double y, double to_x, double to_y)
{
    ink_format(to, "<path class=\"rule\" d=\"M%.1f %.1fL%.1f %.1f\"/>\n", x, y, to_x, to_y);
}

static void chart_axes(canvas *to, const lens_chart *chart, const chart_range *r, double top)
{
    const double left = SVG_EDGE + CHART_LEFT, bottom = top + CHART_HIGH;
    double x, last = -100;
    char number[32];
    for (size_t i = 0; (double)i < (r->high - r->low) / r->step + 0.5; i++) {
        const double value = r->low + (double)i * r->step;
        const double y = chart_y(r, top, value);
        chart_rule(to, left, y, left + CHART_WIDE, y);
        snprintf(number, sizeof number, "%.3g", fabs(value) < r->step / 2 ? 0 : value);
        svg_text(to, left - 8, y + 4.5, "dim r", number, 8);
    }
    for (size_t i = 0; i < chart->n_points; i++) {
        x = chart_x(chart, i);
        chart_rule(to, x, bottom, x, bottom + 5);
        snprintf(number, sizeof number, "%.3g%%", 100 * chart->x[i]);
        if (x - last < SVG_LETTER * 6) /* a label there would meet the last one */
            continue;
        svg_text(to, x, bottom + 19, "dim c", number, 8);
        last = x;
    }
    svg_text(to, left + CHART_WIDE / 2.0, bottom + 19 + SVG_LINE, "dim c", chart->x_name, 60);
}

/* A whisker at each point of a line, with a bar at each end. */
static void chart_whiskers(canvas *to, const lens_chart *chart, const chart_range *r, double top,
                           size_t line)
{
    for (size_t i = 0; chart->low && i < chart->n_points; i++) {
        const double low = chart->low[line * chart->n_points + i];
        const double high = chart->high[line * chart->n_points + i];
        if (isfinite(low) && isfinite(high))
            ink_format(to,
                       "<path fill=\"none\" class=\"%s\" d=\"M%.1f %.1fh8m-4 0V%.1fm-4 0h8\"/>\n",
                       line % CHART_STYLES % 2 ? "less" : "more", chart_x(chart, i) - 4,
                       chart_y(r, top, low), chart_y(r, top, high));
    }
}

static void chart_line(canvas *to, const lens_chart *chart, const chart_range *r, double top,
                       size_t line)
{
    const double *y = chart->y + line * chart->n_points;
    int begun = 0;
    ink_format(to, "<path fill=\"none\" class=\"%s\" d=\"", chart_styles[line % CHART_STYLES]);
    for (size_t i = 0; i < chart->n_points; begun = isfinite(y[i++]))
        if (isfinite(y[i]))
            ink_format(to, "%c%.1f %.1f", begun ? 'L' : 'M', chart_x(chart, i),
                       chart_y(r, top, y[i]));
    ink(to, "\"/>\n");
    for (size_t i = 0; i < chart->n_points; i++)
        if (isfinite(y[i])) {
            ink_format(to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" class=\"%s\"><title>",
                       chart_x(chart, i), chart_y(r, top, y[i]),
                       line % CHART_STYLES % 2 ? "l" : "m");
            ink_text(to, chart->names[line]);
            ink_format(to, ", %.3g%%: %.4f</title></circle>\n", 100 * chart->x[i], y[i]);
        }
}

/* Draws a chart from y on, or measures it. */
static double svg_chart(canvas *to, const lens_chart *chart, double y, double *width)
{
    const double top = y + (*chart->title ? 1.6 : 0.8) * SVG_LINE,
                 below = top + CHART_HIGH + 2.6 * SVG_LINE;
    const chart_range r = chart_range_of(chart);
    const size_t letters = (CHART_WIDE + CHART_LEFT) / 8;
    *width = svg_wider(*width, CHART_WIDE + CHART_LEFT + 3 * SVG_EDGE);
    if (to && *chart->title)
        svg_text(to, SVG_EDGE, y + 15, "", chart->title, letters);
    if (to)
        chart_axes(to, chart, &r, top);
    for (size_t i = 0; i < chart->n_lines && to; i++) {
        const double at = below + SVG_LINE * (double)i;
        chart_whiskers(to, chart, &r, top, i);
        chart_line(to, chart, &r, top, i);
        ink_format(to, "<path fill=\"none\" class=\"%s\" d=\"M%d %.1fh32\"/>\n",
                   chart_styles[i % CHART_STYLES], SVG_EDGE + CHART_LEFT, at + 8);
        svg_text(to, SVG_EDGE + CHART_LEFT + 42, at + 13, "dim", chart->names[i], letters - 14);
    }
    return below - y + SVG_LINE * (double)(chart->n_lines + 1);
}

typedef struct lens_charts {
    const lens_chart *charts;
    size_t n;
} lens_charts;

/* lens_figure's function, of lens_charts: one below the other. */
TOOLS_FN double svg_charts(canvas *to, const void *of, double y, double *width)
{
    const lens_charts *all = (const lens_charts *)of;
    const double top = y;
    for (size_t i = 0; i < all->n; i++)
        y += svg_chart(to, &all->charts[i], y, width);
    return y - top;
}

#endif
