/* The confusion matrix as a picture. Cells without images are left out, so that a matrix of many
 * classes stays small; viewers scale the picture. */
#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "judge/judge.h"

/* In pixels; a name takes CHARACTER for each of its bytes. */
enum { FONT = 13, CHARACTER = 8, GAP = 10, MOST_WIDTH = 1600 };

static int cell_of(int n_classes)
{
    return n_classes > 20 ? 28 : 52;
}

static void put_name(FILE *out, const char *text)
{
    char name[256];
    snprintf(name, sizeof name, "%s", text);
    dt_utf8_escape(name);
    for (const char *c = name; *c; c++)
        if (*c == '&' || *c == '<' || *c == '\n')
            fprintf(out, "&#%d;", *c);
        else
            putc(*c, out);
    fputs("</text>\n", out);
}

static void put_names(FILE *out, int n, int margin, const char *const *names)
{
    const int cell = cell_of(n);
    for (int c = 0; c < n; c++) {
        int at = margin + c * cell + cell / 2, edge = margin - GAP;
        fprintf(out, "<text text-anchor=\"end\" x=\"%d\" y=\"%d\">", edge, at + FONT / 3);
        put_name(out, names[c]);
        fprintf(out, "<text transform=\"translate(%d %d) rotate(-90)\">", at + FONT / 3, edge);
        put_name(out, names[c]);
    }
}

static void put_row(FILE *out, const struct dt_judge *judge, int label, int margin)
{
    const int64_t support = dt_judge_class(judge, label).support;
    const int cell = cell_of(judge->n_classes), y = margin + label * cell;
    for (int c = 0; c < judge->n_classes; c++) {
        int64_t count =
            judge->confusion[(size_t)label * (size_t)(judge->n_classes + 1) + (size_t)c];
        int x = margin + c * cell;
        if (count == 0)
            continue;
        double share = (double)count / (double)support;
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"#14427d\" "
                "fill-opacity=\"%.3f\"/><text text-anchor=\"middle\" x=\"%d\" y=\"%d\" "
                "fill=\"%s\">%" PRId64 "</text>\n",
                x, y, cell, cell, share, x + cell / 2, y + cell / 2 + FONT / 3,
                share > 0.5 ? "white" : "black", count);
    }
}

static void put_grid(FILE *out, int n, int margin)
{
    const int cell = cell_of(n), size = n * cell;
    fputs("<path stroke=\"#cccccc\" fill=\"none\" d=\"", out);
    for (int c = 0; c <= n; c++)
        fprintf(out, "M%d %dh%dM%d %dv%d", margin, margin + c * cell, size, margin + c * cell,
                margin, size);
    fputs("\"/>\n", out);
}

void dt_judge_print_svg(FILE *out, const struct dt_judge *judge, const char *const *names)
{
    const int n = judge->n_classes;
    size_t longest = strlen("label \\ prediction");
    for (int c = 0; c < n; c++)
        longest = strlen(names[c]) > longest ? strlen(names[c]) : longest;
    const int margin = (int)longest * CHARACTER + 2 * GAP, size = margin + n * cell_of(n) + GAP;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
            "font-family=\"sans-serif\" font-size=\"%d\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
            "<text font-weight=\"bold\" text-anchor=\"end\" x=\"%d\" y=\"%d\">label \\ "
            "prediction</text>\n",
            size, size, size < MOST_WIDTH ? size : MOST_WIDTH, FONT, margin - GAP, margin - GAP);
    put_names(out, n, margin, names);
    put_grid(out, n, margin);
    for (int label = 0; label < n; label++)
        put_row(out, judge, label, margin);
    fputs("</svg>\n", out);
}
