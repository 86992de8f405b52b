/* Matches sets of boxes with anchors on the CPU, for comparison with torchvision. Standard input is
 * a sequence of sets: i32 levels, height and width of the canvas, base, whether low-quality matches
 * count, images, slots; i32 height and width of every level; f32 boxes, i32 labels. Standard output
 * is, for each, i32 match of every image and anchor and f32 count of every image. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "dtrain/backend.h"

enum { THREADS = 2 };
static const struct dt_backend *const cpu = &dt_backend_cpu;

struct set {
    struct dt_detect detect;
    int n_images, n_slots;
};

static dt_status read_all(void *to, size_t bytes)
{
    if (fread(to, 1, bytes, stdin) != bytes)
        DT_FAIL(DT_ERR_DATA, "a set is too short");
    return DT_OK;
}

static dt_status read_set(struct set *set, const int32_t head[7])
{
    struct dt_anchors *a = &set->detect.anchors;
    int32_t grid[2];
    *set = (struct set){.detect = {.background = 0.4f, .foreground = 0.5f, .low_quality = head[4]},
                        .n_images = head[5],
                        .n_slots = head[6]};
    *a = (struct dt_anchors){
        .n_levels = head[0], .canvas_height = head[1], .canvas_width = head[2], .base = head[3]};
    for (int i = 0; i < head[0]; i++) {
        DT_TRY(read_all(grid, sizeof grid));
        a->height[i] = grid[0];
        a->width[i] = grid[1];
    }
    return DT_OK;
}

static dt_status build(struct dt_graph *g, const struct set *set)
{
    const struct dt_anchors *a = &set->detect.anchors;
    DT_TRY(dt_graph_begin(g, DT_TRAIN, set->n_images, a->canvas_height, a->canvas_width));
    DT_TRY(dt_graph_boxes(g, set->n_slots));
    dt_graph_match(g, &set->detect);
    return dt_graph_check(g);
}

/* The memory of the node's tensors is in address[]. */
static dt_status run_node(struct dt_device *dev, struct dt_exec **exec, const struct dt_graph *g,
                          void **address)
{
    void *scratch;
    const struct dt_scalars scalars = {.diff_scale = 1};
    DT_TRY(cpu->autotune(dev, cpu->prepare(dev, exec, g, 0)));
    const size_t bytes = cpu->scratch_bytes(dev, *exec);
    DT_TRY(cpu->alloc(dev, &scratch, bytes));
    DT_TRY(cpu->bind(dev, *exec, address, scratch));
    DT_TRY(cpu->set_scalars(dev, &scalars));
    dt_status status = cpu->run(dev, *exec);
    cpu->free(dev, scratch, bytes);
    return status;
}

static size_t bytes_of(const struct dt_graph *g, int tensor)
{
    return dt_tensor_elements(&g->tensor[tensor]) * dt_dtype_bytes(g->tensor[tensor].dtype);
}

static dt_status run_set(struct dt_device *dev, const struct dt_graph *g)
{
    const struct dt_node *node = &g->node[0];
    struct dt_exec *exec = NULL;
    void **address;
    dt_status status = DT_OK;
    DT_TRY(DT_NEW(address, (size_t)g->n_tensors));
    for (int t = 0; t < g->n_tensors; t++)
        DT_TRY_OUT(cpu->alloc(dev, &address[t], bytes_of(g, t)));
    for (int i = 0; i < node->n_src; i++)
        DT_TRY_OUT(read_all(address[node->src[i]], bytes_of(g, node->src[i])));
    DT_TRY_OUT(run_node(dev, &exec, g, address));
    for (int i = 0; i < node->n_dst; i++)
        fwrite(address[node->dst[i]], 1, bytes_of(g, node->dst[i]), stdout);
out:
    cpu->release(dev, exec);
    for (int t = 0; t < g->n_tensors; t++)
        cpu->free(dev, address[t], bytes_of(g, t));
    free(address);
    return status;
}

static dt_status match_set(struct dt_device *dev, const int32_t head[7])
{
    struct dt_graph *g = NULL;
    struct set set;
    dt_status status = DT_OK;
    DT_TRY_OUT(read_set(&set, head));
    DT_TRY_OUT(dt_graph_create(&g));
    DT_TRY_OUT(build(g, &set));
    DT_TRY_OUT(run_set(dev, g));
out:
    dt_graph_destroy(g);
    return status;
}

int main(void)
{
    const struct dt_device_options options = {.threads = THREADS};
    struct dt_device *dev = NULL;
    int32_t head[7];
    dt_status status = cpu->open(&dev, &options);
    while (status == DT_OK && fread(head, sizeof head, 1, stdin) == 1)
        status = match_set(dev, head);
    cpu->close(dev);
    if (status != DT_OK)
        fprintf(stderr, "match_tool: %s\n", dt_error_text());
    return status;
}
