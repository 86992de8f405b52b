#include "page/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum { CELL_BYTES = 1024 };

void dt_table_add(struct dt_table *table, const char *format, ...)
{
    char text[CELL_BYTES];
    void *block = table->cells;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    table->failed |= dt_mem_grow(&block, &table->capacity, table->n_cells, sizeof *table->cells,
                                 "a table") != DT_OK;
    table->cells = block;
    table->failed |=
        table->failed || dt_mem_copy_text(&table->cells[table->n_cells], text) != DT_OK;
    table->n_cells += !table->failed;
}

const char *dt_table_cell(const struct dt_table *table, size_t row, size_t column)
{
    return table->cells[row * table->n_columns + column];
}

size_t dt_table_rows(const struct dt_table *table)
{
    return table->n_cells / table->n_columns;
}

bool dt_table_row_differs(const struct dt_table *table, size_t row)
{
    for (size_t i = 2; i < table->n_columns; i++)
        if (strcmp(dt_table_cell(table, row, i), dt_table_cell(table, row, 1)) != 0)
            return true;
    return false;
}

bool dt_table_row_is_empty(const struct dt_table *table, size_t row)
{
    return !dt_table_row_differs(table, row) && dt_table_cell(table, row, 1)[0] == '\0';
}

void dt_table_reset(struct dt_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct dt_table){0};
}
