/* What runs have in common and what not, as tables of texts: a row with the names of the runs, then
 * a row for each fact, its label first. Printed by the page and by dtrain compare. */
#ifndef DTRAIN_PAGE_TABLE_H
#define DTRAIN_PAGE_TABLE_H

#include "page/page_run.h"

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
/* Whether the runs differ in that row; whether none of them has anything in it. */
bool dt_table_row_differs(const struct dt_table *table, size_t row);
bool dt_table_row_is_empty(const struct dt_table *table, size_t row);

/* Status, best and last value of each metric, time to 75 and 90 % of the best accuracy of all runs,
 * speed, time. Each fills an empty table; DT_ERR_MEMORY. */
dt_status dt_facts_results(struct dt_table *table, const struct dt_run *runs, size_t n);
/* All keys of the runs but output.dir; beside those of a single run, the defaults. */
dt_status dt_facts_config(struct dt_table *table, const struct dt_run *runs, size_t n);
dt_status dt_facts_environment(struct dt_table *table, const struct dt_run *runs, size_t n);

#endif
