/* The op table, generated from DT_OP_LIST. */
#include "graph/graph_internal.h"

static const struct dt_op_row table[DT_N_OPS] = {
#define ROW(NAME, op, ...) [DT_OP_##NAME] = {.name = #op, .rule = &dt_rule_##op, __VA_ARGS__},
    DT_OP_LIST(ROW)
#undef ROW
};

const struct dt_op_row *dt_op_row(enum dt_op op)
{
    return &table[op];
}

const char *dt_op_name(enum dt_op op)
{
    return table[op].name;
}

unsigned dt_op_inplace(enum dt_op op)
{
    return table[op].in_place;
}
