/* The sampler: a permutation, the same everywhere, different every epoch. */
#include "data_files.h"
#include "dtrain/data.h"

enum { N = 1000 };

TEST(permutation)
{
    static const uint32_t sizes[] = {0, 1, 2, 3, 10, N};
    uint32_t order[N];
    unsigned char seen[N];

    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (uint32_t epoch = 0; epoch < 5; epoch++) {
            dt_sampler_order(order, sizes[s], 42, epoch, true);
            memset(seen, 0, sizeof seen);
            for (uint32_t i = 0; i < sizes[s]; i++) {
                assert_true(order[i] < sizes[s]);
                assert_int_equal(seen[order[i]]++, 0);
            }
        }
}

/* Slices of all ranks over an epoch: each id once, and the same global batches for any rank count.
 */
TEST(ranks)
{
    enum { G = 24 };
    uint32_t order[N];

    dt_sampler_order(order, N, 7, 3, true);
    for (uint32_t n_ranks = 1; n_ranks <= 4; n_ranks++) {
        unsigned char seen[N] = {0};
        uint32_t n_seen = 0;
        for (uint32_t rank = 0; rank < n_ranks; rank++) {
            uint32_t own[N]; /* computed on that rank */
            dt_sampler_order(own, N, 7, 3, true);
            for (uint32_t g = 0; g < N / G; g++)
                for (uint32_t i = 0; i < G / n_ranks; i++) {
                    const uint32_t position = g * G + rank * (G / n_ranks) + i;
                    assert_int_equal(own[position], order[position]);
                    assert_int_equal(seen[own[position]]++, 0);
                    n_seen++;
                }
        }
        assert_int_equal(n_seen, N / G * G);
    }
}

TEST(epochs_differ)
{
    uint32_t first[N], second[N];
    size_t n_equal = 0;

    dt_sampler_order(first, N, 42, 0, true);
    dt_sampler_order(second, N, 42, 1, true);
    for (size_t i = 0; i < N; i++)
        n_equal += first[i] == second[i];
    assert_true(n_equal < 10); /* one is expected */
    dt_sampler_order(second, N, 43, 0, true);
    assert_memory_not_equal(first, second, sizeof first);
    dt_sampler_order(second, N, 42, 0, true);
    assert_memory_equal(first, second, sizeof first);
    dt_sampler_order(second, N, 42, 9, false);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(second[i], i);
}

/* All orders of three are about equally frequent. */
TEST(uniform)
{
    enum { N_EPOCHS = 6000 };
    int count[27] = {0}, n_used = 0;

    for (uint32_t epoch = 0; epoch < N_EPOCHS; epoch++) {
        uint32_t order[3];
        dt_sampler_order(order, 3, 1, epoch, true);
        count[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    for (int i = 0; i < 27; i++) {
        n_used += count[i] > 0;
        assert_true(count[i] == 0 || abs(count[i] - N_EPOCHS / 6) < 150); /* five sigma */
    }
    assert_int_equal(n_used, 6);
}

/* A change of these numbers would change every run that is resumed. */
TEST(pinned)
{
    static const uint32_t expected[8] = {976, 577, 541, 712, 529, 93, 689, 975};
    uint32_t order[N];

    dt_sampler_order(order, N, 42, 0, true);
    assert_memory_equal(order, expected, sizeof expected);
}

/* Classes of 900, 90, 10 and 0 images: each of the three comes once in every round, in an order
 * that differs; within a class all come before one comes again, in the order of the epoch. */
TEST(balanced)
{
    enum { N_CLASSES = 4 };
    static const uint32_t begin[N_CLASSES + 1] = {0, 900, 990, 1000, 1000};
    uint32_t order[N], shuffled[N], memory[N + 3 * N_CLASSES], n_of[N_CLASSES] = {0}, seen[N] = {0};
    uint32_t n_first[N_CLASSES] = {0};
    int32_t labels[N];
    for (int32_t c = 0; c < N_CLASSES; c++)
        for (uint32_t id = begin[c]; id < begin[c + 1]; id++)
            labels[id] = c;
    dt_sampler_order(shuffled, N, 42, 3, true);
    memcpy(order, shuffled, sizeof order);
    dt_sampler_balance(order, N, labels, N_CLASSES, 42, 3, memory);
    for (uint32_t i = 0; i < N; i++) {
        const int32_t c = labels[order[i]];
        const uint32_t size = begin[c + 1] - begin[c];
        assert_int_equal(seen[order[i]]++, n_of[c] / size);
        assert_true(n_of[c]++ == i / 3);
        n_first[c] += i % 3 == 0;
    }
    for (int c = 0; c < 3; c++)
        assert_true(abs((int)n_first[c] - N / 9) < 45); /* five sigma */
    for (uint32_t i = 0, at = 0; i < N; i++) { /* those of class 0, as they were shuffled */
        while (labels[order[i]] == 0 && labels[shuffled[at]] != 0)
            at++;
        if (labels[order[i]] == 0)
            assert_int_equal(order[i], shuffled[at++]);
    }
}

TEST_MAIN(NULL, NULL)
