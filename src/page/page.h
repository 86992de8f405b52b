/* Runs as one HTML page, and as tables of texts. */
#ifndef DTRAIN_PAGE_PAGE_H
#define DTRAIN_PAGE_PAGE_H

#include <stdio.h>

#include "page/page_run.h"

/* page.c: saves the page as the file `path`; samples.png, errors.jpg and confusion.svg of the run
 * folders are part of it. A path that ends with .svg gets a picture of the first two charts
 * instead. Errors as of dt_file_save, and of reading the pictures. */
dt_status dt_page_save(const char *path, const struct dt_run *runs, size_t n);
dt_status dt_page_print(FILE *out, const struct dt_run *runs, size_t n);
/* curves.c: the curves of all runs in common charts. */
dt_status dt_curves_print(FILE *out, const struct dt_run *runs, size_t n);
/* The first two charts side by side as an SVG image; each chart as such an image in a folder, which
 * is made if there is none. */
dt_status dt_curves_draw(FILE *out, const struct dt_run *runs, size_t n);
dt_status dt_curves_save(const char *folder, const struct dt_run *runs, size_t n);
/* classes.c: classes.json of the run folders, with a warning if it is damaged. */
dt_status dt_classes_print(FILE *out, const struct dt_run *runs, size_t n);

/* times.c: what the steps spent their time on, a bar for each epoch of a run or for each run. */
void dt_times_print(FILE *out, const struct dt_run *runs, size_t n);

/* --- table.c: the common facts and the differences of runs, as tables of texts --- */

/* A row with the names of the runs, then a row for each fact, its label first. */
enum { DT_CELL_BYTES = 1024 };

struct dt_table {
    size_t n_columns, n_cells, capacity;
    char (*cells)[DT_CELL_BYTES]; /* row by row; the owner frees them */
    bool failed;                  /* out of memory */
};

/* Adds a cell; longer texts are truncated. */
void dt_table_add(struct dt_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* DT_ERR_MEMORY if a cell could not be added. */
dt_status dt_table_check(const struct dt_table *table);
const char *dt_table_cell(const struct dt_table *table, size_t row, size_t column);
size_t dt_table_rows(const struct dt_table *table);
/* True if the runs differ in that row. */
bool dt_table_row_differs(const struct dt_table *table, size_t row);

/* Status, best and last value of each metric, time to 75 and 90 % of the best accuracy of all runs,
 * speed, time. Each fills an empty table; DT_ERR_MEMORY. */
dt_status dt_facts_results(struct dt_table *table, const struct dt_run *runs, size_t n);
/* A row for the run in the folder and for each in a folder in it, if they have begun: name, state,
 * epochs, best value, speed, time since its last event, and why it ended; what cannot be read is
 * only a warning. DT_ERR_NO_INPUT if there is none; the caller frees the cells in any case. */
dt_status dt_facts_list(struct dt_table *table, const char *folder);
/* All keys of the runs but output.dir; next to those of a single run, the defaults. */
dt_status dt_facts_config(struct dt_table *table, const struct dt_run *runs, size_t n);
dt_status dt_facts_environment(struct dt_table *table, const struct dt_run *runs, size_t n);

/* --- serve.c: the pages of live.c for browsers --- */

/* Listens on this IP address and port (0: any free one), prints the URL, and answers until SIGINT
 * or SIGTERM end the process with code 0. PAGE?events=STATE sends "changed" as server-sent
 * events when its runs are no longer in that state, data-live of the page. On a loopback address,
 * requests to another host's name are refused. Returns only DT_ERR_USAGE if the address is none,
 * DT_ERR_IO or DT_ERR_PERMISSION if it cannot be used. */
dt_status dt_serve(char *const *paths, size_t n, const char *address, int port);

/* live.c: the pages of runs that may still be going on. "/" shows the runs of these paths on one
 * page; or, if the only path is that of a folder of runs, a list of them, and each as "/run/NAME".
 */
bool dt_live_has(char *const *paths, size_t n, const char *page);
/* Another number after a file of the page's runs has changed, one of them was killed, or one has
 * been added or removed; never 0. *bytes: of their metrics. */
uint64_t dt_live_state(char *const *paths, size_t n, const char *page, uint64_t *bytes);
/* If the runs cannot be read, the page says why. DT_ERR_MEMORY. */
dt_status dt_live_print(FILE *out, char *const *paths, size_t n, const char *page);

#endif
