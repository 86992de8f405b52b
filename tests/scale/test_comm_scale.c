/* Sums of 2 to 4,096 ranks without the ranks: a simulator that runs the rounds of comm/rounds.h and
 * the places of comm/node.h, as the data plane does. Ranges are summed side by side in LANES, a
 * message starts once both ends have reached its round (nothing is buffered), and it takes its time
 * on the links of both nodes, which their ranks share. Every sum must end, be complete, and have
 * the same bits on all ranks.
 *
 * With DTRAIN_LONG=1 all shapes, and a table of times for ResNet-50's gradients. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/node.h"
#include "comm/rounds.h"
#include "test.h"

enum { LANES = 16 }; /* as in comm/mpi.c */

/* --- The simulator --- */

struct network {
    struct dt_link link, local; /* between nodes; between ranks of one */
    double add_bytes_per_s;     /* of a rank: what it receives and adds */
    double memory_bytes_per_s;  /* of a node: what its ranks read and write in their own sums */
};

/* A rank in one range. */
struct place {
    int round, n_pending;
    bool is_sending, is_receiving; /* it waits for the other end */
    double posted_s;
};

struct range {
    size_t first, count;
    struct place *places; /* of all members */
};

/* Something that ends at `s`: a message of a range, for both ends, or a round that begins. */
struct event {
    double s;
    int range, to, from; /* from -1: `to` may begin its round */
};

struct simulation {
    const struct network *network;
    enum dt_schedule schedule;
    int n;              /* ranks that sum by messages */
    const int *node_of; /* of each */
    float **values;     /* their buffers, NULL = only times */
    struct range *ranges;
    int n_ranges;
    int *n_started;               /* ranges of each rank */
    double *out_s, *in_s, *add_s; /* until when the links of nodes and the ranks are busy */
    struct event *heap;
    size_t n_events, capacity;
    double end_s;
    int64_t n_messages;
};

static void push(struct simulation *s, struct event event)
{
    if (s->n_events == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 1024;
        s->heap = realloc(s->heap, s->capacity * sizeof *s->heap);
        assert_non_null(s->heap);
    }
    size_t i = s->n_events++;
    for (; i > 0 && s->heap[(i - 1) / 2].s > event.s; i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = event;
}

static struct event pop(struct simulation *s)
{
    const struct event first = s->heap[0], last = s->heap[--s->n_events];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < s->n_events) {
        child += child + 1 < s->n_events && s->heap[child + 1].s < s->heap[child].s;
        if (s->heap[child].s >= last.s)
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return first;
}

static void round_of(const struct simulation *s, struct dt_round *out, int range, int rank)
{
    const struct range *r = &s->ranges[range];
    dt_schedule_round(out, s->schedule, s->n, rank, r->places[rank].round, r->count);
}

/* The message from `from` to `to`, if both ends have begun its round. */
static void start_message(struct simulation *s, int range, int from, int to)
{
    struct place *sender = &s->ranges[range].places[from], *receiver = &s->ranges[range].places[to];
    if (!sender->is_sending || !receiver->is_receiving || sender->round != receiver->round)
        return;
    struct dt_round round;
    round_of(s, &round, range, from);
    assert_int_equal(round.to, to);
    const bool is_local = s->node_of[from] == s->node_of[to];
    const struct dt_link *link = is_local ? &s->network->local : &s->network->link;
    double *out_s = is_local ? &s->add_s[from] : &s->out_s[s->node_of[from]];
    double *in_s = is_local ? &s->add_s[to] : &s->in_s[s->node_of[to]];
    const double ready_s = fmax(sender->posted_s, receiver->posted_s);
    const double begin_s = fmax(ready_s, fmax(*out_s, *in_s));
    *out_s = *in_s = begin_s + (double)round.n_out * sizeof(float) / link->bytes_per_s;
    sender->is_sending = receiver->is_receiving = false;
    s->n_messages++;
    push(s, (struct event){*in_s + link->latency_s, range, to, from});
}

static void begin_range(struct simulation *s, int rank, double now_s);

/* Begins the next round in which the rank has something to do. */
static void begin_round(struct simulation *s, int range, int rank, double now_s)
{
    struct place *place = &s->ranges[range].places[rank];
    struct dt_round round = {.to = -1, .from = -1};
    for (; place->round < dt_schedule_rounds(s->schedule, s->n); place->round++) {
        round_of(s, &round, range, rank);
        if (round.to >= 0 || round.from >= 0)
            break;
    }
    s->end_s = fmax(s->end_s, now_s);
    if (round.to < 0 && round.from < 0) {
        begin_range(s, rank, now_s);
        return;
    }
    place->posted_s = now_s;
    place->is_sending = round.to >= 0;
    place->is_receiving = round.from >= 0;
    place->n_pending = place->is_sending + place->is_receiving;
    if (round.to >= 0)
        start_message(s, range, rank, round.to);
    if (round.from >= 0)
        start_message(s, range, round.from, rank);
}

static void begin_range(struct simulation *s, int rank, double now_s)
{
    if (s->n_started[rank] < s->n_ranges)
        push(s, (struct event){now_s, s->n_started[rank]++, rank, -1});
}

static void end_half(struct simulation *s, int range, int rank, double now_s)
{
    struct place *place = &s->ranges[range].places[rank];
    if (--place->n_pending == 0) {
        place->round++;
        push(s, (struct event){now_s, range, rank, -1});
    }
}

/* A message has arrived. */
static void arrive(struct simulation *s, const struct event *e)
{
    const struct range *range = &s->ranges[e->range];
    struct dt_round in;
    round_of(s, &in, e->range, e->to);
    assert_int_equal(in.from, e->from);
    for (size_t i = range->first + in.in; s->values && i < range->first + in.in + in.n_in; i++) {
        const float value = s->values[e->from][i];
        s->values[e->to][i] = in.gathers ? value : s->values[e->to][i] + value;
    }
    double ready_s = e->s;
    if (!in.gathers) {
        ready_s = fmax(e->s, s->add_s[e->to]) +
                  (double)in.n_in * sizeof(float) / s->network->add_bytes_per_s;
        s->add_s[e->to] = ready_s;
    }
    end_half(s, e->range, e->from, e->s);
    end_half(s, e->range, e->to, ready_s);
}

/* Sums values[.][0 .. count) over n ranks; returns the seconds. */
static double simulate(enum dt_schedule schedule, int n, const int *node_of, float **values,
                       size_t count, const struct network *network, int64_t *n_messages)
{
    const size_t max = dt_schedule_max_messages(schedule, n);
    struct simulation s = {.network = network,
                           .schedule = schedule,
                           .n = n,
                           .node_of = node_of,
                           .values = values,
                           .n_ranges = (int)((count + max - 1) / max)};
    s.ranges = calloc((size_t)s.n_ranges, sizeof *s.ranges);
    s.n_started = calloc((size_t)n, sizeof *s.n_started);
    s.out_s = calloc(3 * (size_t)n, sizeof *s.out_s);
    assert_true(s.ranges && s.n_started && s.out_s);
    s.in_s = s.out_s + n;
    s.add_s = s.in_s + n;
    for (int r = 0; r < s.n_ranges; r++) {
        const size_t first = (size_t)r * max;
        s.ranges[r] = (struct range){first, count - first < max ? count - first : max,
                                     calloc((size_t)n, sizeof(struct place))};
        assert_non_null(s.ranges[r].places);
    }
    for (int rank = 0; rank < n; rank++)
        for (int lane = 0; lane < LANES; lane++)
            begin_range(&s, rank, 0);
    while (s.n_events > 0) {
        const struct event e = pop(&s);
        if (e.from < 0)
            begin_round(&s, e.range, e.to, e.s);
        else
            arrive(&s, &e);
    }
    for (int r = 0; r < s.n_ranges; r++) /* else it is stuck */
        for (int rank = 0; rank < n; rank++)
            assert_int_equal(s.ranges[r].places[rank].round, dt_schedule_rounds(schedule, n));
    if (n_messages)
        *n_messages += s.n_messages;
    for (int r = 0; r < s.n_ranges; r++)
        free(s.ranges[r].places);
    free(s.ranges);
    free(s.n_started);
    free(s.out_s);
    free(s.heap);
    return s.end_s;
}

/* --- Sums by node --- */

struct shape {
    int n, n_nodes, n_parts;
    int *first, *node_of; /* of each rank */
    struct dt_node *nodes;
};

static struct shape make_shape(int n, int per_node, bool is_uneven)
{
    static char no_counts[64];
    struct shape shape = {.n = n};
    shape.first = calloc(2 * (size_t)n, sizeof *shape.first);
    shape.nodes = calloc((size_t)n, sizeof *shape.nodes);
    assert_true(shape.first && shape.nodes);
    shape.node_of = shape.first + n;
    for (int r = 0; r < n; shape.n_nodes++)
        for (int size = per_node + (is_uneven && shape.n_nodes % 2), begin = r;
             r < n && r < begin + size; r++) {
            shape.first[r] = begin;
            shape.node_of[r] = shape.n_nodes;
        }
    struct dt_comm_memory memory = {.shared.data = no_counts, .first = shape.first};
    assert_int_equal(dt_node_count(&memory, n), DT_OK);
    for (int r = 0; r < n; r++) {
        assert_int_equal(dt_node_open(&shape.nodes[r], r, n, &memory), DT_OK);
        shape.nodes[r].memory = NULL; /* it is needed no longer */
    }
    shape.n_parts = shape.nodes[0].n_parts;
    return shape;
}

static void free_shape(struct shape *shape)
{
    for (int r = 0; r < shape->n; r++)
        dt_node_close(&shape->nodes[r]);
    free(shape->nodes);
    free(shape->first);
}

/* What dt_node_add and dt_node_spread do, for the parts of all ranks. */
static void add_within_nodes(const struct shape *shape, float **values, size_t count)
{
    for (int r = 0; r < shape->n; r++) {
        size_t first;
        const size_t n = dt_node_part(&shape->nodes[r], &first, count);
        for (size_t i = first; i < first + n; i++) {
            float sum = values[shape->first[r]][i];
            for (int q = shape->first[r] + 1; q < shape->first[r] + shape->nodes[r].n_local; q++)
                sum += values[q][i];
            values[r][i] = sum;
        }
    }
}

static void spread_within_nodes(const struct shape *shape, float **values, size_t count)
{
    for (int r = 0; r < shape->n; r++) {
        size_t first;
        const size_t n = dt_node_part(&shape->nodes[r], &first, count);
        for (int q = shape->first[r]; q < shape->first[r] + shape->nodes[r].n_local && n > 0; q++)
            if (q != r)
                memcpy(values[q] + first, values[r] + first, n * sizeof(float));
    }
}

/* The parts share the links of their nodes, of which each has its share here; the slowest counts.
 */
static double simulate_by_node(const struct shape *shape, enum dt_sum sum, float **values,
                               size_t count, const struct network *network, int64_t *n_messages)
{
    struct network share = *network;
    double longest_s = 0;
    share.link.bytes_per_s /= shape->n_parts;
    if (values)
        add_within_nodes(shape, values, count);
    for (int p = 0; p < shape->n_parts; p++) {
        const struct dt_node *node = &shape->nodes[shape->first[0] + p];
        size_t first;
        const size_t n = dt_node_part(node, &first, count);
        const enum dt_schedule schedule =
            dt_schedule_choose(sum, node->n_owners, (double)n * sizeof(float), &share.link);
        float **parts = calloc((size_t)node->n_owners, sizeof *parts);
        int *node_of = calloc((size_t)node->n_owners, sizeof *node_of);
        assert_true(parts && node_of);
        for (int i = 0; i < node->n_owners; i++) {
            node_of[i] = i;
            parts[i] = values ? values[node->owners[i]] + first : NULL;
        }
        if (n > 0 && node->n_owners > 1 && (values || p == 0))
            longest_s = fmax(longest_s, simulate(schedule, node->n_owners, node_of,
                                                 values ? parts : NULL, n, &share, n_messages));
        free(parts);
        free(node_of);
    }
    if (values)
        spread_within_nodes(shape, values, count);
    return longest_s;
}

/* Of a node's own sum: its ranks read and write each buffer once. */
static double memory_s(const struct shape *shape, size_t count, const struct network *network)
{
    const int n = shape->nodes[0].n_local;
    return n > 1 ? 2.0 * (double)count * sizeof(float) * n / network->memory_bytes_per_s : 0;
}

/* --- Tests --- */

static const struct network usual = {.link = {12.5e9, 5e-6},
                                     .local = {20e9, 1e-6},
                                     .add_bytes_per_s = 10e9,
                                     .memory_bytes_per_s = 100e9};

static float value(int rank, size_t i)
{
    return (float)(1 + ((unsigned)rank * 7919U + (unsigned)i * 104729U) % 1000003U) / 65536.0F;
}

/* Complete up to rounding, and the same bits on all ranks. */
static void check_sum(int n, int per_node, bool is_uneven, enum dt_sum sum, size_t count)
{
    struct shape shape = make_shape(n, per_node, is_uneven);
    float **values = calloc((size_t)n, sizeof *values),
          *all = calloc((size_t)n * count, sizeof *all);
    assert_true(values && all);
    for (int r = 0; r < n; r++) {
        values[r] = all + (size_t)r * count;
        for (size_t i = 0; i < count; i++)
            values[r][i] = value(r, i);
    }
    if (sum <= DT_SUM_BY_NODE)
        simulate_by_node(&shape, sum, values, count, &usual, NULL);
    else
        simulate(dt_schedule_choose(sum, n, 0, &usual.link), n, shape.node_of, values, count,
                 &usual, NULL);
    for (size_t i = 0; i < count; i++) {
        double exact = 0;
        for (int r = 0; r < n; r++)
            exact += (double)value(r, i);
        if (!(fabs((double)all[i] - exact) <= 1e-6 * n * exact))
            fail_msg("%d ranks, %d per node, sum %d: element %zu is %g, not %g", n, per_node,
                     (int)sum, i, (double)all[i], exact);
    }
    for (int r = 1; r < n; r++)
        assert_memory_equal(values[0], values[r], count * sizeof(float));
    free(values);
    free(all);
    free_shape(&shape);
}

static bool is_long(void)
{
    return getenv("DTRAIN_LONG") != NULL;
}

TEST(sums)
{
    static const int ranks[] = {2, 3, 5, 8, 64, 100, 512, 1000, 4096};
    static const int per_node[] = {1, 2, 3, 8, 16};
    for (size_t i = 0; i < DT_COUNT(ranks); i++)
        for (size_t k = 0; k < DT_COUNT(per_node); k++)
            for (enum dt_sum sum = DT_SUM_AUTO; sum < DT_SUM_LIBRARY; sum++)
                for (int uneven = 0; uneven < 2; uneven++) {
                    const int n = ranks[i];
                    const size_t counts[] = {1, 1000, n < 100 ? 300007 : 4099};
                    const bool is_by_node = sum <= DT_SUM_BY_NODE;
                    if ((n > 512 && !is_long()) || (!is_by_node && (k > 0 || uneven)))
                        continue;
                    for (size_t c = 0; c < DT_COUNT(counts); c++)
                        if (c == 0 || n <= 512 || c == 1)
                            check_sum(n, per_node[k], uneven, sum, counts[c]);
                }
}

/* The fewest messages for small sums, the fewest bytes for large ones; by the model a tree never
 * wins. */
TEST(choices)
{
    static const struct dt_link link = {1e9, 1e-5};
    static const struct {
        enum dt_sum sum;
        int n;
        double bytes;
        enum dt_schedule schedule;
    } rows[] = {
        {DT_SUM_AUTO, 2, 1e3, DT_SCHEDULE_RING},       {DT_SUM_AUTO, 8, 100, DT_SCHEDULE_HALVING},
        {DT_SUM_AUTO, 100, 100, DT_SCHEDULE_HALVING},  {DT_SUM_AUTO, 8, 1e8, DT_SCHEDULE_HALVING},
        {DT_SUM_AUTO, 100, 1e9, DT_SCHEDULE_RING},     {DT_SUM_BY_NODE, 8, 100, DT_SCHEDULE_RING},
        {DT_SUM_HALVING, 3, 100, DT_SCHEDULE_HALVING}, {DT_SUM_TREE, 3, 1e9, DT_SCHEDULE_TREE}};
    for (size_t i = 0; i < DT_COUNT(rows); i++)
        assert_int_equal(dt_schedule_choose(rows[i].sum, rows[i].n, rows[i].bytes, &link),
                         rows[i].schedule);
}

/* One bucket after the other; while one is on the way, the next is added within the nodes. */
static double time_buckets(const struct shape *shape, enum dt_sum sum, const size_t *buckets, int n,
                           const struct network *network, int64_t *n_messages)
{
    double added_s = 0, sent_s = 0;
    const enum dt_schedule schedule = dt_schedule_choose(sum, shape->n, 0, &network->link);
    for (int b = 0; b < n; b++) {
        if (sum <= DT_SUM_BY_NODE)
            added_s += memory_s(shape, buckets[b], network);
        sent_s = fmax(sent_s, added_s) +
                 (sum <= DT_SUM_BY_NODE
                      ? simulate_by_node(shape, sum, NULL, buckets[b], network, n_messages)
                      : simulate(schedule, shape->n, shape->node_of, NULL, buckets[b], network,
                                 n_messages));
    }
    return sent_s;
}

/* ResNet-50's gradients, against what the links and the memory of a node take at least. */
TEST(times)
{
    static const size_t buckets[] = {2050000, 6553600, 6553600, 6553600, 3850000};
    static const double gbits[] = {25, 100, 400};
    static const int ranks[] = {512, 1024};
    static const struct {
        enum dt_sum sum;
        const char *name;
    } rows[] = {{DT_SUM_AUTO, "auto"},
                {DT_SUM_BY_NODE, "hierarchical"},
                {DT_SUM_HALVING, "halving"},
                {DT_SUM_RING, "ring"}};
    enum { PER_NODE = 8, N_BUCKETS = DT_COUNT(buckets) };
    for (size_t i = 0; i < DT_COUNT(ranks) && is_long(); i++)
        for (size_t g = 0; g < DT_COUNT(gbits); g++) {
            struct network network = usual;
            struct shape shape = make_shape(ranks[i], PER_NODE, false);
            double link_s = 0, add_s = 0;
            network.link.bytes_per_s = gbits[g] * 1e9 / 8;
            for (int b = 0; b < N_BUCKETS; b++) {
                link_s += 2 * (double)buckets[b] * sizeof(float) * (shape.n_nodes - 1) /
                          shape.n_nodes / network.link.bytes_per_s;
                add_s += memory_s(&shape, buckets[b], &network);
            }
            print_message("%d ranks, %d per node, %g Gb/s: at least %.1f ms (links %.1f, memory "
                          "%.1f)\n",
                          ranks[i], PER_NODE, gbits[g], 1e3 * fmax(link_s, add_s), 1e3 * link_s,
                          1e3 * add_s);
            for (size_t k = 0; k < DT_COUNT(rows); k++) {
                int64_t n_messages = 0;
                const double s =
                    time_buckets(&shape, rows[k].sum, buckets, N_BUCKETS, &network, &n_messages);
                print_message("  %-12s %8.1f ms  %5.1f %%  %9lld messages\n", rows[k].name, 1e3 * s,
                              100 * fmax(link_s, add_s) / s, (long long)n_messages);
                assert_true(s >= link_s);
            }
            free_shape(&shape);
        }
}

TEST_MAIN(NULL, NULL)
