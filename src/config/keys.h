/* Inside the config module: the key table and functions on single keys. */
#ifndef DTRAIN_CONFIG_KEYS_H
#define DTRAIN_CONFIG_KEYS_H

#include "base/member.h"
#include "base/text.h"
#include "dtrain/config.h"

/* Types beside those of enum dt_member_type. */
enum dt_key_type {
    DT_KEY_LIST = DT_MEMBER_HASH + 1, /* of numbers; with choices also one of these names: 0, -1,
                                         ... for n_items */
    DT_KEY_NAMES,                     /* list of strings, stored with a newline after each */
    DT_KEY_TABLE,                     /* list of objects with integers */
};

/* Effect of changing a key when a run is resumed. */
enum dt_key_effect {
    DT_KEY_FIXED,   /* it would be another run */
    DT_KEY_INEXACT, /* the same run up to rounding */
    DT_KEY_FREE,    /* no effect on the weights */
    DT_KEY_LENGTH,  /* free if the learning rate does not depend on the length of the run */
    DT_KEY_EVAL,    /* free if the learning rate does not depend on evaluations */
};

/* One row. The type determines which members are used; the others are 0. */
struct dt_key {
    const char *path; /* "train.epochs" */
    int type;
    size_t offset, bytes;       /* in struct dt_config */
    double number;              /* default of bool, choice and numbers */
    const char *text;           /* default of a string or names */
    const double *items;        /* default of a list */
    int n_items;                /* its length */
    double min, max;            /* of a number, or of each item of a list */
    bool above_min, below_max;  /* the bound itself is excluded */
    bool or_bool;               /* an int that may also be true or false, stored as 1 and 0 */
    int min_length, max_length; /* bytes of a string or of names together, items of a list */
    size_t count_offset;        /* int with the number of items; 0 = always max_length */
    const char *const *choices; /* names in the order of the enum, then NULL; of names: NULL = any;
                                   of an int: names that it may be instead, stored as -1, -2, ... */
    const struct dt_member *columns; /* of a table: int, 0 if it is not given */
    int n_columns;
    const char *help; /* one sentence without its full stop */
    enum dt_key_effect effect;
    const char *instead_of; /* key that is 0, unless it is given too, if this one is given */
    bool of_detectors;      /* with a classifier it must have its default */
};

extern const struct dt_key dt_keys[];
size_t dt_config_n_keys(void);

/* The row of a path, or NULL. */
const struct dt_key *dt_key_find(const char *path);
/* Bytes of the section name in a path: "train" in "train.epochs". */
int dt_key_section(const struct dt_key *key);
/* True if the row is the first of its section; the rows of a section are contiguous. */
bool dt_key_begins_section(const struct dt_key *key);
bool dt_key_is_section(const char *name);
/* bool, choice and number keys as doubles; the value must have been checked. */
double dt_key_get_number(const struct dt_key *key, const struct dt_config *config);
void dt_key_set_number(const struct dt_key *key, struct dt_config *config, double value);
/* Whether both configurations have the same value. */
bool dt_key_is_same(const struct dt_key *key, const struct dt_config *a, const struct dt_config *b);
const char *dt_key_get_string(const struct dt_key *key, const struct dt_config *config);
const double *dt_key_get_list(const struct dt_key *key, const struct dt_config *config,
                              int *n_items);
void dt_key_set_list(const struct dt_key *key, struct dt_config *config, const double *items,
                     int n_items);
/* The numbers of a table, row by row. */
int *dt_key_table(const struct dt_key *key, const struct dt_config *config, int *n_rows);
const struct dt_member *dt_key_column(const struct dt_key *key, const char *name);
bool dt_key_is_comment(const char *name);
/* False if the value is invalid; *culprit is then the value to show. */
bool dt_key_set_value(const struct dt_key *key, struct dt_config *config,
                      const struct dt_json *value, const struct dt_json **culprit);
/* True if the value is one of the key's names, as in device.kind="gpu". */
bool dt_key_takes_choice(const struct dt_key *key, const struct dt_json *value);
/* Appends text..end with the environment's values in place of ${NAME} and ${NAME:-VALUE}, and ${ in
 * place of $${. False: `mistake` says what is wrong. VALUE is expanded too, values are not. */
bool dt_key_expand(struct dt_text *out, const char *text, const char *end, struct dt_text *mistake);
/* The reverse, for a value without variables. */
void dt_key_escape(struct dt_text *out, const char *text);
/* The value as JSON; `name` is NULL outside an object. */
void dt_key_print(struct dt_jsonw *w, const char *name, const struct dt_key *key,
                  const struct dt_config *config);
/* "an integer from 1 to 100"; returns out. Of a table: what one of its columns takes. */
const char *dt_column_expects(char *out, size_t bytes, const struct dt_member *column);
const char *dt_key_expects(char *out, size_t bytes, const struct dt_key *key);
/* Shortest readable form of a number. */
const char *dt_key_format(char out[32], double value);

/* Names that are not keys, and what to suggest instead: a key, with a value unless that is NULL, or
 * advice. */
struct dt_hint {
    const char *names; /* words: last parts of paths, or whole paths; NULL ends the list */
    const char *key, *value, *advice;
};
extern const struct dt_hint dt_hints[];

/* For an unknown path: "; did you mean train.epochs?", "; use train.precision=fp16",
 * "; train has the keys ..." or "". */
const char *dt_key_suggest(char *out, size_t bytes, const char *path);

/* Checks the rules that involve several keys, once each key is valid by itself. Calls `report` for
 * every broken rule with the path to blame. */
typedef void dt_config_report(void *context, const char *path, const char *what);
void dt_config_check(const struct dt_config *config, dt_config_report *report, void *context);

#endif
