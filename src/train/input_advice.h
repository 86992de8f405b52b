/* Turns input pipeline measurements into text: whether it keeps up, and what to change if not. */
#ifndef DTRAIN_TRAIN_INPUT_ADVICE_H
#define DTRAIN_TRAIN_INPUT_ADVICE_H

#include <stdbool.h>

/* Means over the ranks of a stretch of training. */
struct dt_input_case {
    double wait_share;     /* of the step time that a rank waits for data, 0 .. 1 */
    double read_s, work_s; /* of its workers: reading; decoding, resizing, mixing */
    double capacity;       /* images/s its workers produce when none of them is idle */
    double demand;         /* images/s it would consume if it never waited */
    int workers, prefetch;
    int cpus, threads; /* that a rank may use; that computing uses */
    bool on_cpu;       /* so computing threads can be traded for workers */
    bool is_raw;       /* synthetic images: nothing is decoded */
    double mean_bytes; /* of an encoded image */
    int resize;        /* shorter side that suffices for the image size */
    double set_bytes;  /* encoded, the whole data set */
    double free_bytes; /* memory a rank may still take */
    double cache_bytes;
};

/* Above this share a run is input-bound. */
#define DT_INPUT_BOUND 0.05

enum { DT_INPUT_TEXT = 384 };
/* One line: "input: ..." or "input-bound: ...; <limit>; try <up to three settings>". */
void dt_input_diagnosis(char out[DT_INPUT_TEXT], const struct dt_input_case *c);

/* Whether images are so much larger than needed that reduced shards save most of the decoding: a
 * photo with a shorter side of `resize` takes about a third of a byte per pixel. */
bool dt_input_is_large(double mean_bytes, int resize);

#endif
