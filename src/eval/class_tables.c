/* Tables: per class, of the confusion matrix, of single images; the matrix as a picture. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "eval/class_metrics.h"

enum { NAME_BYTES = 256 };

/* --- On the console --- */

static const char *printable(char out[NAME_BYTES], const char *name)
{
    snprintf(out, NAME_BYTES, "%s", name);
    dt_utf8_escape(out);
    return out;
}

static void put_value(FILE *out, const char *before, double value, const char *after)
{
    if (isnan(value))
        fprintf(out, "%s undefined%s", before, after + (strncmp(after, " %", 2) == 0 ? 2 : 0));
    else
        fprintf(out, "%s %.6g%s", before, value, after);
}

static void print_two(FILE *out, const struct dt_ranking *ranking, const double *value,
                      const char *positive)
{
    char name[NAME_BYTES];
    fprintf(out, "positive class %s: ", printable(name, positive));
    put_value(out, "sensitivity", value[DT_METRIC_SENSITIVITY], " %, ");
    put_value(out, "specificity", value[DT_METRIC_SPECIFICITY], " %\n");
    put_value(out, "AUC", ranking->auc, ", ");
    put_value(out, "average precision", ranking->average_precision, "\n");
    /* Then the best rule calls all images positive. */
    if (ranking->sensitivity + ranking->specificity < 1 + 1e-14) {
        fprintf(out, "no threshold separates the classes: Youden's index is 0 at best\n");
        return;
    }
    fprintf(out, "the table uses a threshold of 0.5; Youden's index is highest at ");
    put_value(out, "probability", ranking->threshold, ": ");
    put_value(out, "sensitivity", 100 * ranking->sensitivity, " %, ");
    put_value(out, "specificity", 100 * ranking->specificity, " %\n");
}

void dt_class_counts_print(FILE *out, const struct dt_class_counts *counts,
                           const struct dt_ranking *ranking, const char *const *names)
{
    double value[DT_N_METRICS];
    char name[NAME_BYTES];
    dt_class_counts_metrics(value, counts, ranking);
    fprintf(out, "precision %%  recall %%      F1 %%   support  class\n");
    for (int c = 0; c < counts->n_classes; c++) {
        const struct dt_class_metrics m = dt_class_counts_of(counts, c);
        fprintf(out, "%11.2f%10.2f%10.2f%10" PRId64 "  %s\n", 100 * m.precision, 100 * m.recall,
                100 * m.f1, m.support, printable(name, names[c]));
    }
    put_value(out, "balanced accuracy", value[DT_METRIC_BALANCED_ACCURACY], " %, ");
    put_value(out, "macro F1", value[DT_METRIC_MACRO_F1], " %\n");
    if (counts->n_classes == 2)
        print_two(out, ranking, value, names[1]);
}

/* --- CSV --- */

static void put_field(FILE *out, const char *prefix, const char *text)
{
    const bool quote = text[strcspn(text, ",\"\r\n")] != '\0';
    fprintf(out, quote ? "\"%s" : "%s", prefix);
    for (const char *c = text; *c; c++)
        fprintf(out, *c == '"' ? "\"%c" : "%c", *c);
    if (quote)
        putc('"', out);
}

static void put_header(FILE *out, const char *first, const char *prefix, int n_classes,
                       const char *const *names)
{
    fputs(first, out);
    for (int c = 0; c < n_classes; c++) {
        putc(',', out);
        put_field(out, prefix, names[c]);
    }
}

void dt_class_counts_print_csv(FILE *out, const struct dt_class_counts *counts,
                               const char *const *names)
{
    const int n = counts->n_classes;
    const int64_t *count = counts->confusion;
    int n_columns = n;
    for (int label = 0; label < n; label++)
        if (count[(size_t)label * (size_t)(n + 1) + (size_t)n])
            n_columns = n + 1;
    put_header(out, "label", "", n, names);
    fputs(n_columns > n ? ",\n" : "\n", out);
    for (int label = 0; label < n; label++, count += n + 1) {
        put_field(out, "", names[label]);
        for (int c = 0; c < n_columns; c++)
            fprintf(out, ",%" PRId64, count[c]);
        putc('\n', out);
    }
}

void dt_class_counts_put_table(struct dt_jsonw *w, const struct dt_class_counts *counts,
                               const char *const *names)
{
    const int n = counts->n_classes;
    const int64_t *row = counts->confusion;
    dt_jsonw_begin(w, NULL, '[');
    for (int label = 0; label < n; label++, row += n + 1) {
        const struct dt_class_metrics m = dt_class_counts_of(counts, label);
        int other = label == 0;
        for (int c = 0; c < n; c++)
            other = c != label && row[c] > row[other] ? c : other;
        dt_jsonw_add(w,
                     "{class: %s, precision: %g, recall: %g, f1: %g, images: %" PRId64
                     ", predicted: %" PRId64 ", confused_with: %s, confused: %" PRId64 "}",
                     names[label], m.precision, m.recall, m.f1, m.support, m.n_predicted,
                     row[other] > 0 ? names[other] : "", row[other]);
    }
    dt_jsonw_close(w, ']');
}

void dt_predictions_print_head(FILE *out, int n_classes, const char *const *names)
{
    put_header(out, "file,label,prediction", "p_", n_classes, names);
    putc('\n', out);
}

void dt_predictions_print_row(FILE *out, const char *file, int label, int prediction,
                              const double *probabilities, int n_classes, const char *const *names)
{
    put_field(out, "", file);
    putc(',', out);
    put_field(out, "", names[label]);
    putc(',', out);
    put_field(out, "", prediction < 0 ? "" : names[prediction]);
    for (int c = 0; c < n_classes; c++)
        if (prediction < 0)
            putc(',', out);
        else
            fprintf(out, ",%.9g", probabilities[c]);
    putc('\n', out);
}

/* The most probable class after `last` in falling order, where of equal ones the first comes first;
 * -1: of all. */
static int next_best(const double *probabilities, int n_classes, int last)
{
    int best = -1;
    for (int c = 0; c < n_classes; c++) {
        bool comes = last < 0 || probabilities[c] < probabilities[last] ||
                     (probabilities[c] == probabilities[last] && c > last);
        if (comes && (best < 0 || probabilities[c] > probabilities[best]))
            best = c;
    }
    return best;
}

void dt_predictions_print_top(FILE *out, const char *file, int top, int prediction,
                              const double *probabilities, int n_classes, const char *const *names)
{
    int n = prediction < 0 ? 0 : top < n_classes ? top : n_classes;
    if (file)
        fputs(file, out);
    for (int i = 0, c = -1; i < n; i++) {
        c = next_best(probabilities, n_classes, c);
        fprintf(out, file ? "\t%s\t%.9g" : "%s\t%.9g\n", names[c], probabilities[c]);
    }
    if (file)
        putc('\n', out);
}

void dt_predictions_put_top(struct dt_jsonw *w, const char *file, int top, int prediction,
                            const double *probabilities, int n_classes, const char *const *names)
{
    const int n = prediction < 0 ? 0 : top < n_classes ? top : n_classes;
    dt_jsonw_add(w, "{image: %s, classes: [", file);
    for (int i = 0, c = -1; i < n; i++) {
        c = next_best(probabilities, n_classes, c);
        dt_jsonw_add(w, "{class: %s, probability: %g}", names[c], probabilities[c]);
    }
    dt_jsonw_add(w, "]}");
}

/* --- The confusion matrix as a picture; viewers scale it --- */

/* In pixels; a name takes CHARACTER for each of its bytes. */
enum { FONT = 13, CHARACTER = 8, GAP = 10, MAX_WIDTH = 1600 };

static int cell_of(int n_classes)
{
    return n_classes > 20 ? 28 : 52;
}

static void put_name(FILE *out, const char *text)
{
    char name[NAME_BYTES];
    for (const char *c = printable(name, text); *c; c++)
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

/* Cells without images are not drawn, so that a matrix of many classes stays small. */
static void put_cells(FILE *out, const struct dt_class_counts *counts, int label, int margin)
{
    const int64_t support = dt_class_counts_of(counts, label).support;
    const int cell = cell_of(counts->n_classes), y = margin + label * cell;
    for (int c = 0; c < counts->n_classes; c++) {
        int64_t count =
            counts->confusion[(size_t)label * (size_t)(counts->n_classes + 1) + (size_t)c];
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

void dt_class_counts_print_svg(FILE *out, const struct dt_class_counts *counts,
                               const char *const *names)
{
    const int n = counts->n_classes;
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
            size, size, size < MAX_WIDTH ? size : MAX_WIDTH, FONT, margin - GAP, margin - GAP);
    put_names(out, n, margin, names);
    put_grid(out, n, margin);
    for (int label = 0; label < n; label++)
        put_cells(out, counts, label, margin);
    fputs("</svg>\n", out);
}
