/* Who is to blame: the rules of watchdog.h as a function of what a rank sees of all others. */
#ifndef DTRAIN_WATCH_BLAME_H
#define DTRAIN_WATCH_BLAME_H

#include <stdbool.h>

#include "watch/heartbeat.h"

struct dt_view {
    struct dt_heartbeat beat;
    bool is_known; /* it has written its beat in this run */
    double age_s;  /* since its beat changed, or since the start; 0 for oneself */
};

struct dt_verdict_case {
    const struct dt_view *ranks;
    int n_ranks, self;
    bool is_blind;   /* the beats cannot be read now: the ages stand still */
    bool has_folder; /* of a run */
    bool has_checkpoint;
    double period_s; /* of the watchdogs: how old a beat is in health */
    double slack_s;  /* the limits are that much shorter */
};

enum { DT_VERDICT_TEXT = 2048 };
struct dt_verdict {
    bool expired;
    int speaker;                /* the lowest rank that answers */
    char text[DT_VERDICT_TEXT]; /* one line without its end; "" if not expired */
};

void dt_verdict_find(struct dt_verdict *out, const struct dt_verdict_case *c);
/* Whether that rank still writes its beat. */
bool dt_verdict_answers(const struct dt_verdict_case *c, int rank);

#endif
