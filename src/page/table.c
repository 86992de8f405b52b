#include "page/table.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void dt_table_add(struct dt_table *table, const char *format, ...)
{
    void *block = table->cells;
    va_list args;
    if (dt_mem_grow(&block, &table->capacity, table->n_cells, DT_CELL_BYTES, "table") != DT_OK) {
        table->failed = true;
        return;
    }
    table->cells = block;
    va_start(args, format);
    vsnprintf(table->cells[table->n_cells++], DT_CELL_BYTES, format, args);
    va_end(args);
}

void dt_table_append(struct dt_table *table, const char *format, ...)
{
    va_list args;
    if (table->n_cells == 0)
        return;
    char *cell = table->cells[table->n_cells - 1];
    size_t used = strlen(cell);
    va_start(args, format);
    vsnprintf(cell + used, DT_CELL_BYTES - used, format, args);
    va_end(args);
}

dt_status dt_table_check(const struct dt_table *table)
{
    return table->failed ? DT_ERROR(DT_ERR_MEMORY, "out of memory for a table") : DT_OK;
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
