/* Prints the fp32 GFLOP/s of fused multiply-adds on registers, the most that this machine can
 * compute with all threads of OMP_NUM_THREADS at once: the best of some bursts.
 *
 * Built with -DLANES=N, the floats of a register: 4 (SSE), 8 (AVX2), 16 (AVX-512). */
#include <stdio.h>
#include <time.h>

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));

enum { N_LINKS = 2000000, N_BURSTS = 20 };

/* More chains than the latency times the number of units. Variables, because gcc keeps an array in
 * memory. The empty statement prevents that a chain is shortened or left out. */
enum { N_CHAINS = 12 };
#define CHAINS(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define START(i)  lanes chain##i = term * (float)i;
#define LINK(i)                          \
    chain##i = chain##i * factor + term; \
    __asm__ volatile("" : "+x"(chain##i));

static double clock_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void burst(void)
{
    lanes factor = {0}, term = {0};
    factor += 0.999f;
    term += 0.001f;
    CHAINS(START)
    for (int i = 0; i < N_LINKS; i++) {
        CHAINS(LINK)
    }
}

int main(void)
{
    double best = 0;
    for (int i = 0; i < N_BURSTS; i++) {
        int n_threads = 0;
        const double begin_s = clock_s();
#pragma omp parallel reduction(+ : n_threads)
        {
            burst();
            n_threads = 1;
        }
        const double rate = 2.0 * LANES * N_CHAINS * N_LINKS * n_threads / (clock_s() - begin_s);
        if (rate > best)
            best = rate;
    }
    printf("%.1f\n", best / 1e9);
    return 0;
}
