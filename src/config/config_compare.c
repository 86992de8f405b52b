/* Changes of the configuration on resuming: compares every key by the table. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "config/keys.h"

enum { VALUE_BYTES = 512 };

static bool is_same(const struct dt_key *key, const struct dt_config *a, const struct dt_config *b)
{
    if (key->offset == offsetof(struct dt_config, train.global_batch_size) &&
        a->train.batch_size_per_rank == 0 && b->train.batch_size_per_rank == 0)
        return dt_config_batch_size(a, 1) == dt_config_batch_size(b, 1); /* 0 stands for 256 */
    if (key->offset == offsetof(struct dt_config, model.dropout) &&
        strcmp(a->model.name, b->model.name) == 0)
        return dt_config_model_options(a, 1).dropout == dt_config_model_options(b, 1).dropout;
    if (key->offset == offsetof(struct dt_config, schedule.metric))
        return dt_config_plateau_metric(a) == dt_config_plateau_metric(b);
    return dt_key_is_same(key, a, b);
}

/* A longer run is what people ask for: whoever resumes it says what becomes of the schedule. */
static enum dt_key_effect effect_of(const struct dt_key *key, const struct dt_config *saved,
                                    const struct dt_config *now)
{
    const enum dt_schedule_kind kind = saved->schedule.kind;
    const bool is_shorter = now->train.epochs < saved->train.epochs;
    bool is_fixed = key->effect == DT_KEY_LENGTH ? dt_schedule_has_end(kind) && is_shorter
                                                 : kind == DT_SCHEDULE_PLATEAU;
    if (key->effect != DT_KEY_LENGTH && key->effect != DT_KEY_EVAL)
        return key->effect;
    return is_fixed ? DT_KEY_FIXED : DT_KEY_FREE;
}

/* The value as JSON, but names of choices without quotes. */
static void format_value(char out[VALUE_BYTES], const struct dt_key *key,
                         const struct dt_config *config)
{
    struct dt_jsonw w = {0};
    snprintf(out, VALUE_BYTES, "?");
    if (key->type == DT_MEMBER_CHOICE) {
        snprintf(out, VALUE_BYTES, "%s", key->choices[(int)dt_key_get_number(key, config)]);
        return;
    }
    dt_key_print(&w, NULL, key, config);
    if (dt_jsonw_end(&w) == DT_OK)
        snprintf(out, VALUE_BYTES, "%s", w.text);
    dt_jsonw_reset(&w);
}

void dt_config_compare(const struct dt_config *saved, const struct dt_config *now, char *refused,
                       char *inexact, size_t bytes)
{
    char old[VALUE_BYTES], current[VALUE_BYTES];
    struct dt_text fixed = dt_text_in(refused, bytes), other = dt_text_in(inexact, bytes);
    for (size_t i = 0; i < dt_config_n_keys(); i++) {
        const struct dt_key *key = &dt_keys[i];
        enum dt_key_effect effect = effect_of(key, saved, now);
        struct dt_text *list = effect == DT_KEY_FIXED ? &fixed : &other;
        if (effect == DT_KEY_FREE || is_same(key, saved, now))
            continue;
        format_value(old, key, saved);
        format_value(current, key, now);
        dt_text_add_whole(list, "%s    %s: was %s, now %s", list->used ? "\n" : "", key->path, old,
                          current);
    }
}
