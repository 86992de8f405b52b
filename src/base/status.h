/* Status codes and the error trail.
 *
 * Every function that can fail returns dt_status; results go through out-parameters. The code is
 * also the exit code of the program (sysexits where one exists). The text of the last error, where
 * it was raised and the callers it passed through are kept per thread until the next error or
 * dt_error_clear. Only the command line prints them, once. */
#ifndef DTRAIN_BASE_STATUS_H
#define DTRAIN_BASE_STATUS_H

/* X(code, name, number, what users read about it as an exit code). DATA: damaged or inconsistent
 * input; INTERNAL: a bug in dtrain; HANG: a rank or its device made no progress in time. */
#define DT_STATUS_LIST(X)                                                                      \
    X(DT_OK, OK, 0, "done")                                                                    \
    X(DT_ERR_USAGE, USAGE, 64, "usage")                                                        \
    X(DT_ERR_DATA, DATA, 65, "bad data")                                                       \
    X(DT_ERR_NO_INPUT, NO_INPUT, 66, "input missing")                                          \
    X(DT_ERR_DEVICE, DEVICE, 69, "device")                                                     \
    X(DT_ERR_INTERNAL, INTERNAL, 70, "internal error")                                         \
    X(DT_ERR_MEMORY, MEMORY, 71, "memory")                                                     \
    X(DT_ERR_CREATE, CREATE, 73, "cannot create output")                                       \
    X(DT_ERR_IO, IO, 74, "I/O")                                                                \
    X(DT_STOPPED, STOPPED, 75, "stopped with a checkpoint (run again)")                        \
    X(DT_ERR_DISAGREE, DISAGREE, 76, "ranks disagree, or slower than bench --compare accepts") \
    X(DT_ERR_PERMISSION, PERMISSION, 77, "permission")                                         \
    X(DT_ERR_CONFIG, CONFIG, 78, "configuration")                                              \
    X(DT_ERR_HANG, HANG, 80, "hang")                                                           \
    X(DT_ERR_NUMERICAL, NUMERICAL, 81, "numerical")                                            \
    X(DT_ERR_DIVERGED, DIVERGED, 82, "weights differ between ranks")                           \
    X(DT_ERR_NO_CHECKPOINT, NO_CHECKPOINT, 83, "no checkpoint")                                \
    X(DT_ERR_IN_USE, IN_USE, 84, "run folder in use")
#define DT_STATUS_VALUE(code, name, number, text) code = number,
typedef enum dt_status { DT_STATUS_LIST(DT_STATUS_VALUE) } dt_status;
#undef DT_STATUS_VALUE

/* Short name of a code ("CONFIG", "DATA", ...), never NULL. */
const char *dt_status_name(dt_status status);

/* Records the text, starts a new trail, returns `status`. Text is truncated at 16 KiB. */
dt_status dt_error_set(dt_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Appends "function (file:line)" to the trail, returns `status`. */
dt_status dt_error_pass(dt_status status, const char *function, const char *file, int line);
/* Text and trail of this thread's last error; "" if there is none. Valid until the next error. */
const char *dt_error_text(void);
const char *dt_error_trail(void);
/* The rank that prints the last error: its origin if all ranks have agreed on it (dt_comm_agree)
 * and exit in good order, or DT_ORIGIN_LOCAL if only this rank knows of it. In that case this rank
 * prints it and aborts the job, because the others may be waiting in a collective call. */
enum { DT_ORIGIN_LOCAL = -1 };
int dt_error_origin(void);
void dt_error_set_origin(int rank);
void dt_error_clear(void);
/* Around work whose failure is no error of the caller: restore brings back what keep has kept, one
 * record per thread. */
void dt_error_keep(void);
void dt_error_restore(void);

/* An error as an expression, for use inside DT_TRY_OUT: DT_TRY_OUT(DT_ERROR(DT_ERR_IO, "...")). */
#define DT_ERROR(code, ...) dt_error_set((code), __FILE__, __LINE__, __VA_ARGS__)

#define DT_FAIL(code, ...) return DT_ERROR(code, __VA_ARGS__)

/* For a failure that all ranks detect alike from numbers they share. */
#define DT_FAIL_ON_ALL_RANKS(code, ...)                   \
    do {                                                  \
        dt_status dt_alike = DT_ERROR(code, __VA_ARGS__); \
        dt_error_set_origin(0);                           \
        return dt_alike;                                  \
    } while (0)

#define DT_TRY(call)                                                           \
    do {                                                                       \
        dt_status dt_try_status = (call);                                      \
        if (dt_try_status != DT_OK)                                            \
            return dt_error_pass(dt_try_status, __func__, __FILE__, __LINE__); \
    } while (0)

/* Needs a local `dt_status status` and a label `out:` that releases and returns it. */
#define DT_TRY_OUT(call)                                         \
    do {                                                         \
        status = (call);                                         \
        if (status != DT_OK) {                                   \
            dt_error_pass(status, __func__, __FILE__, __LINE__); \
            goto out;                                            \
        }                                                        \
    } while (0)

#endif
