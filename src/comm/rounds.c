#include "comm/rounds.h"

size_t dt_schedule_segment(size_t *first, size_t count, int n, int index)
{
    size_t each = (count + (size_t)n - 1) / (size_t)n;
    each = (each + DT_SCHEDULE_ALIGN - 1) / DT_SCHEDULE_ALIGN * DT_SCHEDULE_ALIGN;
    const size_t begin = each * (size_t)index;
    *first = begin < count ? begin : count;
    const size_t left = count - *first;
    return left < each ? left : each;
}

size_t dt_schedule_max_messages(enum dt_schedule schedule, int n)
{
    return (size_t)DT_SCHEDULE_SEGMENT * (schedule == DT_SCHEDULE_RING ? (size_t)n : 1);
}

/* Largest k with 2^k <= n. */
static int log2_of(int n)
{
    int k = 0;
    while (n >> (k + 1))
        k++;
    return k;
}

int dt_schedule_rounds(enum dt_schedule schedule, int n)
{
    const int k = log2_of(n), is_uneven = n != 1 << k;
    switch (schedule) {
    case DT_SCHEDULE_RING:
        return 2 * (n - 1);
    case DT_SCHEDULE_HALVING:
        return 2 * (k + is_uneven);
    case DT_SCHEDULE_TREE:
        return 2 * (k + is_uneven);
    case DT_N_SCHEDULES:
        break;
    }
    return 0;
}

static void ring(struct dt_round *out, int n, int rank, int round, size_t count)
{
    out->to = (rank + 1) % n;
    out->from = (rank + n - 1) % n;
    out->n_out = dt_schedule_segment(&out->out, count, n, ((rank - round) % n + n) % n);
    out->n_in = dt_schedule_segment(&out->in, count, n, ((rank - round - 1) % n + n) % n);
    out->gathers = round >= n - 1;
    out->is_first = round == n - 1;
}

/* First float and length of `size` segments out of p, from segment `begin` on. */
static size_t window(size_t *first, size_t count, int p, int begin, int size)
{
    size_t last, n;
    (void)dt_schedule_segment(first, count, p, begin);
    n = dt_schedule_segment(&last, count, p, begin + size - 1);
    return last + n - *first;
}

static void send_all(struct dt_round *out, int to, size_t count)
{
    out->to = to;
    out->n_out = count;
}

static void receive_all(struct dt_round *out, int from, size_t count)
{
    out->from = from;
    out->n_in = count;
}

static void halving(struct dt_round *out, int n, int rank, int round, size_t count)
{
    const int k = log2_of(n), p = 1 << k, rest = n - p;
    const bool is_paired = rank < 2 * rest, is_out = is_paired && rank % 2 == 0;
    const int own = is_paired ? rank / 2 : rank - rest; /* among the p that exchange */
    const int step = round - (rest > 0);                /* 0 .. 2 k - 1 in between */
    out->gathers = step >= k;
    if (step < 0 || step >= 2 * k) {
        if (is_paired && is_out == (step < 0))
            send_all(out, is_out ? rank + 1 : rank - 1, count);
        else if (is_paired)
            receive_all(out, is_out ? rank + 1 : rank - 1, count);
        return;
    }
    if (is_out)
        return;
    const int apart = p >> (out->gathers ? 2 * k - step : step + 1);
    const int partner = own ^ apart, of_own = own & ~(apart - 1),
              of_partner = partner & ~(apart - 1);
    out->to = out->from = partner < rest ? 2 * partner + 1 : partner + rest;
    out->n_out = window(&out->out, count, p, out->gathers ? of_own : of_partner, apart);
    out->n_in = window(&out->in, count, p, out->gathers ? of_partner : of_own, apart);
    out->is_first = step == k;
}

static void tree(struct dt_round *out, int n, int rank, int round, size_t count)
{
    const int half = dt_schedule_rounds(DT_SCHEDULE_TREE, n) / 2;
    const int bit = 1 << (round < half ? round : 2 * half - 1 - round);
    out->gathers = round >= half;
    if (rank & (bit - 1))
        return;
    const bool is_child = rank & bit;
    const int other = is_child ? rank - bit : rank + bit;
    if (other >= n)
        return;
    if (is_child == out->gathers)
        receive_all(out, other, count);
    else
        send_all(out, other, count);
    out->is_first = round == half;
}

void dt_schedule_round(struct dt_round *out, enum dt_schedule schedule, int n, int rank, int round,
                       size_t count)
{
    static void (*const rounds[])(struct dt_round *, int, int, int, size_t) = {
        [DT_SCHEDULE_RING] = ring, [DT_SCHEDULE_HALVING] = halving, [DT_SCHEDULE_TREE] = tree};
    *out = (struct dt_round){.to = -1, .from = -1};
    rounds[schedule](out, n, rank, round, count);
}

static double model_s(enum dt_schedule schedule, int n, double bytes, const struct dt_link *link)
{
    const int k = log2_of(n), is_uneven = n != 1 << k;
    const double messages = dt_schedule_rounds(schedule, n), p = 1 << k;
    double sent = 2 * bytes * (n - 1) / n;
    if (schedule == DT_SCHEDULE_HALVING)
        sent = 2 * bytes * ((p - 1) / p + is_uneven);
    if (schedule == DT_SCHEDULE_TREE)
        sent = messages * bytes;
    return messages * link->latency_s + sent / link->bytes_per_s;
}

enum dt_schedule dt_schedule_choose(enum dt_sum sum, int n, double bytes,
                                    const struct dt_link *link)
{
    enum dt_schedule best = DT_SCHEDULE_RING;
    if (sum == DT_SUM_HALVING)
        return DT_SCHEDULE_HALVING;
    if (sum == DT_SUM_TREE)
        return DT_SCHEDULE_TREE;
    for (enum dt_schedule s = 0; s < DT_N_SCHEDULES && sum == DT_SUM_AUTO; s++)
        if (model_s(s, n, bytes, link) < model_s(best, n, bytes, link))
            best = s;
    return best;
}
