/* Inside the loader: the state shared by loader.c (creation, caller) and loader_worker.c (workers).
 *
 * Worker threads take single images (micro-batch, row) in order under one mutex, fill the row
 * without it, and the last row of a micro-batch makes its slot ready. A slot goes FREE -> FILLING
 * -> READY -> HELD (by the caller) -> FREE, and slots are used in turn. With mixing a task is
 * two neighbouring rows: positions 2k and 2k+1 of the order form a pair for any number of ranks.
 *
 * After the last micro-batch of an epoch the workers continue with the first of the next epoch,
 * whose order one of them computes first; the caller gets these batches once it has started that
 * epoch. */
#ifndef DTRAIN_DATA_LOADER_H
#define DTRAIN_DATA_LOADER_H

#include <pthread.h>

#include "data/row.h"

enum { DT_LOADER_TEXT_MAX = 2048 };

enum dt_slot_state { DT_SLOT_FREE, DT_SLOT_FILLING, DT_SLOT_READY, DT_SLOT_HELD };

struct dt_slot {
    enum dt_slot_state state;
    uint64_t lap;
    int n_rows, n_pending; /* all, and those not yet finished */
    struct dt_batch batch;
    size_t row_bytes; /* of its canvas */
    void *memory;     /* all columns in whole pages, for a device to pin */
};

struct dt_worker {
    struct dt_loader *loader;
    struct dt_row_reader *reader;
    struct dt_truth *truths; /* max_boxes of an image */
    pthread_t thread;
    double mix_s; /* of the current task */
};

/* Micro-batch m of an epoch. Laps count passes over the data, since in an evaluation every pass has
 * the same epoch number. */
struct dt_position {
    uint32_t epoch;
    uint64_t lap, m;
};

/* The order of one epoch. */
struct dt_order {
    uint32_t *ids;
    struct dt_sampler_batch *batches;
    bool is_known;
    uint32_t epoch;
    int n_users; /* rows being made with it */
};

struct dt_loader {
    struct dt_dataset *dataset;
    struct dt_loader_options options;
    uint32_t n_samples;
    uint64_t n_batches, end;                       /* global batches and micro-batches per epoch */
    int max_rows;                                  /* of the largest micro-batch */
    size_t slot_bytes, column_bytes[DT_N_COLUMNS]; /* bytes of a row of each column, at most */
    uint8_t *canvas_of;                            /* of each sample; NULL = one */
    uint32_t *waiting;                             /* for the worker that computes an order */
    int32_t *labels;                               /* of all samples; NULL: not balanced */
    uint32_t *balancing;                           /* memory of dt_sampler_balance */
    int max_boxes;                                 /* of an image; 0 = none have boxes */
    int n_slots, n_workers, n_started;
    struct dt_slot *slots;
    struct dt_worker *workers;

    /* Guards all below and the state of the slots. The only lock of the loader; rows are made and
     * orders computed without it. */
    pthread_mutex_t mutex;
    pthread_cond_t work; /* for workers: a row may be available, or stop */
    pthread_cond_t done; /* for the caller: a slot is ready, all workers are idle, or failure */
    bool is_running, is_stopping;
    bool is_ordering;         /* a worker is computing an order */
    struct dt_order order[2]; /* even and odd epochs; ids change only without users */
    int n_busy;
    struct dt_position fill, next; /* where workers fill, and what the caller gets next */
    uint64_t n_filled, n_given;    /* micro-batches in total: they use the slots in turn */
    int fill_row;
    uint8_t *bad; /* one bit per sample */
    uint64_t n_bad;
    uint64_t n_bad_ahead, n_bad_now,
        n_bad_before; /* bad samples at positions of this rank: in
                         the lap after the caller's, in it, before it */
    bool is_fresh;    /* the first wait after a start without prefetch */
    struct dt_loader_times times;
    dt_status failure; /* the first one; final */
    char failure_text[DT_LOADER_TEXT_MAX];
};

/* `argument`: a struct dt_worker. */
void *dt_loader_work(void *argument);
/* Moves a position from the end of an epoch to the next one (evaluation: the same again). */
void dt_loader_wrap(struct dt_position *position, const struct dt_loader *loader);

#endif
