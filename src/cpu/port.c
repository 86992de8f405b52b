/* Ports: how a prepared node accesses its tensors. Copies between the stored format and the one the
 * node wants go through scratch, and all primitives, memory objects and argument lists are made in
 * prepare and bind, so that running only executes. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cpu/cpu_internal.h"

size_t dt_cpu_reserve(struct dt_exec *exec, size_t bytes)
{
    size_t offset = exec->scratch_bytes;
    exec->scratch_bytes += (bytes + 63) / 64 * 64;
    return offset;
}

/* Goes on to a port whose tensor is present. */
static int next_tensor(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    while (exec->n_ports < node->n_src && node->src[exec->n_ports] < 0)
        exec->port[exec->n_ports++].tensor = -1;
    const int d = exec->n_ports - node->n_src;
    return d < 0 ? node->src[exec->n_ports] : node->dst[d];
}

static struct dt_cpu_port *next_port(struct dt_exec *exec)
{
    const int tensor = next_tensor(exec);
    struct dt_cpu_port *port = &exec->port[exec->n_ports];
    port->is_dst = exec->n_ports++ >= exec->node->n_src;
    port->tensor = tensor;
    return port;
}

/* Activations are, parameters and their gradients are not. */
static bool is_in_passes(const struct dt_exec *exec, const struct dt_cpu_port *port)
{
    return exec->n_passes > 1 && dt_cpu_stored_type(exec->formats, port->tensor) == DT_BF16 &&
           exec->graph->tensor[port->tensor].role != DT_PARAM;
}

/* Whether a descriptor of weights is the one of a tag. */
static dt_status is_tagged(bool *is, dt_md_ref md, enum dt_dtype type, const dnnl_dims_t dims,
                           dnnl_format_tag_t tag)
{
    dt_md tagged = NULL;
    DT_TRY(DT_DNNL("weights", dt_md_create(&tagged, type, 4, dims, tag)));
    *is = dnnl_memory_desc_equal(md, tagged);
    dt_md_destroy(tagged);
    return DT_OK;
}

bool dt_cpu_is_wide(int *wide, dt_md_ref md, const dnnl_dims_t dims)
{
    static const struct {
        int wide;
        dnnl_format_tag_t tag;
    } rows[] = {{64, dnnl_AcdB16b64a2b},
                {48, dnnl_AcdB16b48a2b},
                {32, dnnl_AcdB16b32a2b},
                {16, dnnl_AcdB16b16a2b}};
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        bool is = false;
        *wide = rows[i].wide;
        if (dims[0] % rows[i].wide == 0 && dims[1] % 32 == 0 &&
            is_tagged(&is, md, DT_BF16, dims, rows[i].tag) == DT_OK && is)
            return true;
    }
    return false;
}

static dt_status find_relayout(const struct dt_exec *exec, struct dt_cpu_port *port,
                               dt_md_ref wanted, enum dt_dtype type, const dnnl_dims_t dims)
{
    const dnnl_dims_t other = {dims[1], dims[0], dims[2], dims[3]};
    const int64_t *from = exec->mirrored ? other : dims;
    bool is_from_16 = false;
    static const struct {
        int side;
        dnnl_format_tag_t from, to;
        enum dt_dtype type;
        enum dt_cpu_relayout_to how;
        bool inputs_first;
    } rows[] = {
        {16, dnnl_ABcd16b16a, dnnl_ABcd8b16a2b, DT_BF16, DT_CPU_PAIRS_OF_INPUTS, false},
        {16, dnnl_ABcd16b16a, dnnl_ABcd8a16b2a, DT_BF16, DT_CPU_PAIRS_OF_OUTPUTS, false},
        {16, dnnl_ABcd16b16a, dnnl_BAcd8a16b2a, DT_BF16, DT_CPU_PAIRS_OF_OUTPUTS, true},
        {8, dnnl_ABcd8b8a, dnnl_ABcd8a8b, DT_F32, DT_CPU_TRANSPOSED, false},
    };
    int wide;
    DT_TRY(is_tagged(&is_from_16, port->stored, DT_BF16, from, dnnl_ABcd16b16a));
    if (is_from_16 && type == DT_BF16 && dt_cpu_is_wide(&wide, wanted, dims)) {
        port->relayout = (struct dt_cpu_relayout){.to = exec->mirrored ? DT_CPU_PAIRS_OF_OUTPUTS
                                                                       : DT_CPU_PAIRS_OF_INPUTS,
                                                  .side = 16,
                                                  .outputs = (int)from[0] / 16,
                                                  .inputs = (int)from[1] / 16,
                                                  .taps = (int)(dims[2] * dims[3]),
                                                  .wide = wide,
                                                  .mirrored = exec->mirrored};
        return DT_OK;
    }
    for (size_t i = 0; i < DT_COUNT(rows); i++) {
        bool is_from = false, is_to = false;
        const int side = rows[i].side;
        if (rows[i].type != type)
            continue;
        DT_TRY(is_tagged(&is_from, port->stored, DT_BF16, dims, rows[i].from));
        DT_TRY(is_tagged(&is_to, wanted, type, dims, rows[i].to));
        if (is_from && is_to)
            port->relayout = (struct dt_cpu_relayout){.to = rows[i].how,
                                                      .side = side,
                                                      .outputs = (int)(dims[0] + side - 1) / side,
                                                      .inputs = (int)(dims[1] + side - 1) / side,
                                                      .taps = (int)(dims[2] * dims[3]),
                                                      .inputs_first = rows[i].inputs_first};
    }
    return DT_OK;
}

/* A copy that our own loops make several times as fast as oneDNN. */
static dt_status find_own_copy(const struct dt_exec *exec, struct dt_cpu_port *port,
                               dt_md_ref wanted, int n_dims, const dnnl_dims_t dims)
{
    const struct dt_tensor *t = &exec->graph->tensor[port->tensor];
    const enum dt_dtype type = dt_cpu_wanted_type(exec, port->tensor);
    dnnl_dims_t part;
    dt_md same = NULL;
    if (t->dtype != DT_F32)
        return DT_OK;
    memcpy(part, dims, sizeof part);
    if (is_in_passes(exec, port))
        part[0] /= exec->n_passes;
    DT_TRY(DT_DNNL(t->name, dt_md_retype(&same, port->stored, type, n_dims, part)));
    if (!exec->mirrored && dnnl_memory_desc_equal(same, wanted))
        port->n_converted = dnnl_memory_desc_get_size(wanted) / dt_dtype_bytes(type);
    dt_md_destroy(same);
    return n_dims == 4 && t->role == DT_PARAM &&
                   dt_cpu_stored_type(exec->formats, port->tensor) == DT_BF16
               ? find_relayout(exec, port, wanted, type, dims)
               : DT_OK;
}

/* The primitive that copies between the format that is wanted and another, and its memories. */
static dt_status make_copy(const struct dt_exec *exec, struct dt_cpu_port *port, dt_md_ref other)
{
    const char *name = exec->graph->tensor[port->tensor].name;
    dt_md_ref from = port->is_dst ? port->wanted : other, to = port->is_dst ? other : port->wanted;
    dnnl_primitive_desc_t pd = NULL;
    DT_TRY(DT_DNNL(name, dnnl_reorder_primitive_desc_create(&pd, from, exec->dev->engine, to,
                                                            exec->dev->engine, NULL)));
    dt_status status = DT_DNNL(name, dnnl_primitive_create(&port->copy, pd));
    dnnl_primitive_desc_destroy(pd);
    DT_TRY(status);
    DT_TRY(DT_DNNL(name, dnnl_memory_create(&port->stored_memory, other, exec->dev->engine,
                                            DNNL_MEMORY_NONE)));
    return DT_DNNL(name, dnnl_memory_create(&port->wanted_memory, port->wanted, exec->dev->engine,
                                            DNNL_MEMORY_NONE));
}

dt_status dt_cpu_port_add_dims(struct dt_exec *exec, dt_md_ref wanted, int n_dims,
                               const dnnl_dims_t dims)
{
    struct dt_cpu_port *port = next_port(exec);
    const char *name = exec->graph->tensor[port->tensor].name;
    const struct dt_cpu_format *format = dt_cpu_format_of(exec->formats, port->tensor);

    if (!format->md)
        DT_TRY(dt_cpu_format_set(exec->formats, port->tensor, wanted, n_dims, dims));
    const bool is_16_bit = dt_cpu_stored_type(exec->formats, port->tensor) == DT_BF16;
    port->stored = is_16_bit && format->shadow ? format->shadow : format->md;
    DT_TRY(DT_DNNL(name, dt_md_clone(&port->wanted, wanted)));
    if (dnnl_memory_desc_equal(port->stored, wanted))
        return DT_OK;
    if (exec->graph->tensor[port->tensor].whole >= 0)
        DT_FAIL(DT_ERR_INTERNAL, "node '%s' would copy '%s', which is part of another tensor",
                exec->node->name, name);
    port->copy_offset = dt_cpu_reserve(exec, dnnl_memory_desc_get_size(wanted));
    DT_TRY(find_own_copy(exec, port, wanted, n_dims, dims));
    if (port->n_converted > 0 || port->relayout.side > 0)
        return DT_OK;

    return make_copy(exec, port, port->stored);
}

dt_status dt_cpu_port_add_merged(struct dt_exec *exec, dt_md_ref wanted, const dnnl_dims_t dims,
                                 const struct dt_cpu_merge *merge)
{
    struct dt_cpu_port *port = next_port(exec);
    const char *name = exec->graph->tensor[port->tensor].name;
    const struct dt_cpu_format *format = dt_cpu_format_of(exec->formats, port->tensor);
    dnnl_dims_t own;
    dt_md plain = NULL;
    dt_status status = DT_OK;
    if (!format->md) {
        (void)dt_cpu_dims(own, &exec->graph->tensor[port->tensor]);
        DT_TRY_OUT(DT_DNNL(name, dt_md_create(&plain, DT_F32, 4, own, dnnl_abcd)));
        DT_TRY_OUT(dt_cpu_format_set(exec->formats, port->tensor, plain, 4, own));
        dt_md_destroy(plain);
        plain = NULL;
    }
    DT_TRY_OUT(DT_DNNL(name, dt_md_create(&plain, dt_cpu_stored_type(exec->formats, port->tensor),
                                          5, dims, dnnl_abcde)));
    DT_TRY_OUT(DT_DNNL(name, dt_md_clone(&port->wanted, wanted)));
    port->merge = *merge;
    port->merge_offset = dt_cpu_reserve(exec, dnnl_memory_desc_get_size(plain));
    port->copy_offset = dt_cpu_reserve(exec, dnnl_memory_desc_get_size(wanted));
    DT_TRY_OUT(make_copy(exec, port, plain));
out:
    dt_md_destroy(plain);
    return status;
}

dt_status dt_cpu_port_add(struct dt_exec *exec, dt_md_ref wanted)
{
    dnnl_dims_t dims;
    int n_dims = dt_cpu_dims(dims, &exec->graph->tensor[next_tensor(exec)]);
    return dt_cpu_port_add_dims(exec, wanted, n_dims, dims);
}

dt_status dt_cpu_port_add_block(struct dt_exec *exec, size_t bytes)
{
    struct dt_cpu_port *port = next_port(exec);
    struct dt_cpu_format *format = dt_cpu_format_of(exec->formats, port->tensor);
    if (format->md)
        DT_FAIL(DT_ERR_INTERNAL, "tensor '%s' of node '%s' is used both as a block and by format",
                exec->graph->tensor[port->tensor].name, exec->node->name);
    if (bytes)
        format->bytes = bytes;
    return DT_OK;
}

dt_status dt_cpu_port_add_blocks(struct dt_exec *exec, dnnl_format_tag_t rows, int block)
{
    const bool is_16 = block == 16;
    while (exec->n_ports < exec->node->n_src + exec->node->n_dst) {
        const int tensor = next_tensor(exec);
        const struct dt_tensor *t = &exec->graph->tensor[tensor];
        const bool is_value = t->role == DT_ACT || t->role == DT_DIFF;
        dnnl_dims_t dims;
        dt_md md = NULL;
        int n_dims = dt_cpu_dims(dims, t);
        const bool is_depthwise = !is_value && n_dims == 4 && dims[1] == 1;
        if (is_depthwise) {
            const dnnl_dims_t groups = {dims[0], 1, 1, dims[2], dims[3]};
            memcpy(dims, groups, sizeof dims);
            n_dims = 5;
        }
        const dnnl_format_tag_t tag = n_dims == 1    ? dnnl_a
                                      : is_value     ? rows
                                      : is_depthwise ? is_16 ? dnnl_Abcde16a : dnnl_Abcde8a
                                      : is_16        ? dnnl_ABcd16b16a
                                                     : dnnl_ABcd8b8a;
        DT_TRY(DT_DNNL(t->name,
                       dt_md_create(&md, dt_cpu_wanted_type(exec, tensor), n_dims, dims, tag)));
        dt_status status = dt_cpu_port_add_dims(exec, md, n_dims, dims);
        dt_md_destroy(md);
        DT_TRY(status);
    }
    return DT_OK;
}

dt_status dt_cpu_port_add_rows(struct dt_exec *exec, dnnl_format_tag_t tag, int own)
{
    int tensor[DT_MAX_SRC + DT_MAX_DST], n = dt_node_tensors(exec->node, tensor);
    for (int i = 0; i < n; i++) {
        struct dt_cpu_rows rows;
        dt_md md = NULL;
        DT_TRY(dt_cpu_rows_choose(&rows, &md, exec, tensor[i], tag));
        dt_status status = dt_cpu_port_add(exec, md);
        dt_md_destroy(md);
        DT_TRY(status);
        if (tensor[i] == own)
            exec->rows = rows;
    }
    return DT_OK;
}

dt_status dt_cpu_port_add_plain(struct dt_exec *exec)
{
    const struct dt_node *node = exec->node;
    while (exec->n_ports < node->n_src + node->n_dst) {
        const int tensor = next_tensor(exec);
        const struct dt_tensor *t = &exec->graph->tensor[tensor];
        if (t->dtype != DT_F32) {
            DT_TRY(dt_cpu_port_add_block(exec, 0));
            continue;
        }
        dnnl_dims_t dims;
        int n_dims = dt_cpu_dims(dims, t);
        dt_md plain = NULL;
        DT_TRY(DT_DNNL(t->name, dt_md_create(&plain, dt_cpu_wanted_type(exec, tensor), n_dims, dims,
                                             n_dims == 1 ? dnnl_a : dnnl_abcd)));
        dt_status status = dt_cpu_port_add(exec, plain);
        dt_md_destroy(plain);
        DT_TRY(status);
    }
    return DT_OK;
}

dt_status dt_cpu_port_add_kinds(struct dt_exec *exec, dt_md md, size_t mask_bytes)
{
    const struct dt_node *node = exec->node;
    dt_status status = DT_OK;
    while (exec->n_ports < node->n_src + node->n_dst) {
        (void)next_tensor(exec);
        const char kind = dt_node_kind(node, exec->n_ports);
        DT_TRY_OUT(kind == 'a' ? dt_cpu_port_add(exec, md)
                               : dt_cpu_port_add_block(exec, kind == 'w' ? mask_bytes : 0));
    }
out:
    dt_md_destroy(md);
    return status;
}

dt_status dt_cpu_port_argument(struct dt_exec *exec, int arg, dt_md_ref md)
{
    struct dt_cpu_port *port = &exec->port[exec->n_ports - 1];
    DT_TRY(DT_DNNL(exec->node->name, dnnl_memory_create(&port->argument, md ? md : port->wanted,
                                                        exec->dev->engine, DNNL_MEMORY_NONE)));
    exec->arg[exec->n_args++] = (dnnl_exec_arg_t){arg, port->argument};
    return DT_OK;
}

dt_status dt_cpu_primitive(struct dt_exec *exec, dnnl_primitive_desc_t pd)
{
    const char *name = exec->node->name;
    dt_md_ref scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    DT_TRY(DT_DNNL(name, dnnl_primitive_create(&exec->primitive, pd)));
    DT_TRY(DT_DNNL(name, dnnl_memory_create(&exec->scratchpad, scratchpad, exec->dev->engine,
                                            DNNL_MEMORY_NONE)));
    exec->scratchpad_offset = dt_cpu_reserve(exec, dnnl_memory_desc_get_size(scratchpad));
    exec->arg[exec->n_args++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, exec->scratchpad};
    return DT_OK;
}

static dt_status set_handle(const struct dt_exec *exec, dnnl_memory_t memory, void *data)
{
    if (memory)
        DT_TRY(DT_DNNL(exec->node->name, dnnl_memory_set_data_handle(memory, data)));
    return DT_OK;
}

dt_status dt_cpu_ports_bind(struct dt_exec *exec, void *const *address, char *scratch)
{
    for (int i = 0; i < exec->n_ports; i++) {
        struct dt_cpu_port *port = &exec->port[i];
        if (port->tensor < 0)
            continue;
        void *stored = address[port->tensor];
        if (!stored)
            DT_FAIL(DT_ERR_INTERNAL, "tensor '%s' of node '%s' has no address",
                    exec->graph->tensor[port->tensor].name, exec->node->name);
        const bool is_copied = port->copy || port->n_converted > 0 || port->relayout.side > 0;
        port->data = is_copied ? scratch + port->copy_offset : stored;
        port->stored_data = stored;
        DT_TRY(set_handle(exec, port->stored_memory,
                          port->merge.merged > 1 ? scratch + port->merge_offset : stored));
        DT_TRY(set_handle(exec, port->wanted_memory, port->data));
        DT_TRY(set_handle(exec, port->argument, port->data));
    }
    if (scratch) {
        DT_TRY(set_handle(exec, exec->scratchpad, scratch + exec->scratchpad_offset));
        exec->work = scratch + exec->work_offset;
    }
    return DT_OK;
}

/* From bf16 or to bf16, as all that is stored in another type than a node wants is stored in bf16.
 */
static dt_status convert(struct dt_device *dev, const struct dt_cpu_port *port, int pass)
{
    uint16_t *stored = (uint16_t *)port->stored_data + (size_t)pass * port->n_converted;
    return port->is_dst ? dev->isa->to_bf16(stored, port->data, port->n_converted)
                        : dev->isa->to_f32(port->data, stored, port->n_converted);
}

/* Between stored weights and merged ones, which are at the other end of `copy`. */
static dt_status merge(const struct dt_exec *exec, const struct dt_cpu_port *port)
{
    const struct dt_cpu_merge *m = &port->merge;
    const size_t bytes = m->row * dt_dtype_bytes(dt_cpu_stored_type(exec->formats, port->tensor));
    void *merged;
    DT_TRY(DT_DNNL(exec->node->name, dnnl_memory_get_data_handle(port->stored_memory, &merged)));
    for (int i = 0; i < m->outputs; i++) {
        char *row = (char *)merged + (size_t)i * bytes * (size_t)m->merged;
        char *own = row + (size_t)(i / m->per_group % m->merged) * bytes;
        char *stored = (char *)port->stored_data + (size_t)i * bytes;
        if (!port->is_dst)
            memset(row, 0, bytes * (size_t)m->merged);
        memcpy(port->is_dst ? stored : own, port->is_dst ? own : stored, bytes);
    }
    return DT_OK;
}

static dt_status run_copies(struct dt_exec *exec, bool dst)
{
    for (int i = 0; i < exec->n_ports; i++) {
        const struct dt_cpu_port *port = &exec->port[i];
        if (port->is_dst != dst)
            continue;
        if (port->n_converted > 0 && !is_in_passes(exec, port))
            DT_TRY(convert(exec->dev, port, 0));
        if (port->relayout.side > 0)
            DT_TRY(exec->dev->isa->relayout(port->data, port->stored_data, &port->relayout));
        if (!port->copy)
            continue;
        if (port->merge.merged > 1 && !dst)
            DT_TRY(merge(exec, port));
        const dnnl_exec_arg_t arg[2] = {
            {DNNL_ARG_FROM, dst ? port->wanted_memory : port->stored_memory},
            {DNNL_ARG_TO, dst ? port->stored_memory : port->wanted_memory}};
        DT_TRY(DT_DNNL(exec->node->name,
                       dnnl_primitive_execute(port->copy, exec->dev->stream, 2, arg)));
        if (port->merge.merged > 1 && dst)
            DT_TRY(merge(exec, port));
    }
    return DT_OK;
}

dt_status dt_cpu_ports_read(struct dt_exec *exec)
{
    return run_copies(exec, false);
}

dt_status dt_cpu_ports_write(struct dt_exec *exec)
{
    return run_copies(exec, true);
}

dt_status dt_cpu_run_primitive(struct dt_exec *exec)
{
    return DT_DNNL(exec->node->name, dnnl_primitive_execute(exec->primitive, exec->dev->stream,
                                                            exec->n_args, exec->arg));
}

static dt_status convert_pass(const struct dt_exec *exec, int pass, bool dst)
{
    for (int i = 0; i < exec->n_ports; i++) {
        const struct dt_cpu_port *port = &exec->port[i];
        if (port->tensor >= 0 && port->is_dst == dst && is_in_passes(exec, port))
            DT_TRY(convert(exec->dev, port, pass));
    }
    return DT_OK;
}

/* Gradients of parameters: where this pass puts them, or what it adds to those before it. */
static dt_status add_sums(struct dt_exec *exec, int pass, bool after)
{
    char *part = exec->work;
    for (int i = exec->node->n_src; i < exec->n_ports; i++) {
        struct dt_cpu_port *port = &exec->port[i];
        if (port->tensor < 0 || is_in_passes(exec, port))
            continue;
        const size_t bytes = dnnl_memory_desc_get_size(port->wanted);
        if (after && pass > 0)
            DT_TRY(
                exec->dev->isa->accumulate(port->data, (void *)part, bytes / sizeof(float), false));
        if (!after)
            DT_TRY(set_handle(exec, port->argument, pass > 0 ? part : port->data));
        part += (bytes + 63) / 64 * 64;
    }
    return DT_OK;
}

dt_status dt_cpu_run_passes(struct dt_exec *exec)
{
    for (int pass = 0; pass < exec->n_passes; pass++) {
        DT_TRY(convert_pass(exec, pass, false));
        DT_TRY(add_sums(exec, pass, false));
        DT_TRY(dt_cpu_run_primitive(exec));
        DT_TRY(add_sums(exec, pass, true));
        DT_TRY(convert_pass(exec, pass, true));
    }
    return DT_OK;
}

void dt_cpu_exec_destroy(struct dt_exec *exec)
{
    for (int i = 0; i < exec->n_ports; i++) {
        struct dt_cpu_port *port = &exec->port[i];
        dt_md_destroy(port->wanted);
        if (port->copy)
            dnnl_primitive_destroy(port->copy);
        dnnl_memory_destroy(port->stored_memory);
        dnnl_memory_destroy(port->wanted_memory);
        dnnl_memory_destroy(port->argument);
    }
    if (exec->primitive)
        dnnl_primitive_destroy(exec->primitive);
    dnnl_memory_destroy(exec->scratchpad);
    free(exec);
}
