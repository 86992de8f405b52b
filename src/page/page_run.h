/* A run as its metrics.jsonl tells it (events: dtrain/events.h): curves, facts and notes. The file
 * may be that of a run that is still going on, and as long as it likes: memory is bounded. */
#ifndef DTRAIN_PAGE_PAGE_RUN_H
#define DTRAIN_PAGE_PAGE_RUN_H

#include <stdbool.h>

#include "base/file.h"
#include "base/json.h"

/* A quantity over the steps of a run, in bounded memory however long the run is: the steps are
 * divided into equal stretches, and of each the lowest and the highest point are kept. */
enum { DT_CURVE_STRETCHES = 500, DT_CURVE_POINTS = 2 * DT_CURVE_STRETCHES, DT_CURVE_NAME = 64 };

struct dt_point {
    int64_t step;
    double elapsed_s, value; /* elapsed_s: as in struct dt_run */
    bool is_aside;           /* of an evaluation that does not count for the best */
};

struct dt_curve {
    char name[DT_CURVE_NAME]; /* event and field: "eval.top1" */
    int64_t width;            /* steps per stretch; 0 = empty */
    struct dt_stretch {
        int n;
        struct dt_point points[2]; /* by step */
    } stretches[DT_CURVE_STRETCHES];
};

/* Adds a point with step >= 0; steps must not decrease. It replaces one of the same step. */
void dt_curve_add(struct dt_curve *curve, const struct dt_point *point);
/* Removes all points after `step`. */
void dt_curve_cut(struct dt_curve *curve, int64_t step);
/* Copies the points in order of their steps; returns their number. */
size_t dt_curve_points(const struct dt_curve *curve, struct dt_point out[DT_CURVE_POINTS]);

/* A mark in the charts. */
enum { DT_TIME_BYTES = 20 };
struct dt_note {
    bool is_restart; /* else a warning */
    int64_t step;
    double elapsed_s;
    char time[DT_TIME_BYTES], *text;
};

/* A start: where the run's clock stood, and the time, in seconds since 1970. */
struct dt_start {
    double elapsed_s, unix_s;
};

/* Seconds that the steps of an epoch took, however often they were trained: */
enum { DT_N_TIMES = 5 }; /* computing, waiting for data, exposed communication, sync, other */
struct dt_times {
    double seconds[DT_N_TIMES];
};

struct dt_run {
    char folder[DT_PATH_MAX], path[DT_PATH_MAX]; /* of the run, absolute; of its metrics.jsonl */
    char name[DT_PATH_MAX]; /* last part of the folder; the whole where two would be the same */
    /* The last run_start; the run_end after it, NULL if there is none. */
    struct dt_json_doc *start, *end;
    struct dt_curve *curves;
    struct dt_note *notes; /* the first 200 */
    struct dt_start *starts;
    struct dt_times *times; /* of every epoch, to 10,000 */
    size_t n_curves, n_notes, n_starts, n_times;
    int64_t n_warnings, n_restarts;
    char ranks[64];     /* of all starts, "4, 3, 5": changes only, the last ones if not all fit */
    char launches[128]; /* exit codes of the last starts in restarts.jsonl, "" if there is none */
    /* At the last event. elapsed_s is the time from run_start to the last event, summed over all
     * starts: the pauses between them do not count, repeated steps do. */
    int64_t step, total_steps;
    double elapsed_s;
    double median_images_per_s; /* over the step events, NAN if there is none */
    const char *state;          /* running, finished, stopped, failed, hung or killed */
    char why[512];
};

/* Reads run folders or files like metrics.jsonl; half a line at the end is ignored. Of several
 * folders, those in which no run has begun are skipped with a warning, and *n is less. A warning
 * counts other lines that are no events, with file and line of the first. DT_ERR_DATA if no run has
 * begun; DT_ERR_NO_INPUT, DT_ERR_PERMISSION, DT_ERR_IO. Free or reset in any case; free accepts
 * NULL. */
dt_status dt_runs_load(struct dt_run **runs, char *const *paths, size_t *n);
void dt_runs_free(struct dt_run *runs, size_t n);
dt_status dt_run_load(struct dt_run *run, const char *path);
void dt_run_reset(struct dt_run *run);

/* Whether the folder is that of a run that has begun; whether a folder in it is. */
bool dt_run_exists(const char *folder);
bool dt_runs_found(const char *folder);

/* NULL if the run has no such curve. */
const struct dt_curve *dt_run_curve(const struct dt_run *run, const char *name);
/* Its points, at most DT_CURVE_POINTS; 0 if there is none. */
size_t dt_run_points(const struct dt_run *run, const char *name, struct dt_point *out);
/* Steps as epochs, NAN if the steps of an epoch are unknown. */
double dt_run_epochs(const struct dt_run *run, int64_t step);
/* A field of an event that may be NULL: NAN or "" if it is not there. */
double dt_event_number(const struct dt_json_doc *event, const char *key);
const char *dt_event_text(const struct dt_json_doc *event, const char *key);
void dt_event_time(char out[DT_TIME_BYTES], const struct dt_json_doc *event); /* UTC, for people */

#endif
