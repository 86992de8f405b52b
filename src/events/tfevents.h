/* Records of a TensorBoard event file: TFRecord frames around messages of event.proto. */
#ifndef DTRAIN_EVENTS_TFEVENTS_H
#define DTRAIN_EVENTS_TFEVENTS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Writes protocol buffers: fields in the order of the calls, nested messages between open and
 * close. Running out of memory is remembered in `status`. */
struct dt_proto {
    uint8_t *at;
    size_t used, capacity;
    dt_status status;
};

/* Fields of the types int64, double and string. */
void dt_proto_integer(struct dt_proto *p, int field, int64_t value);
void dt_proto_double(struct dt_proto *p, int field, double value);
void dt_proto_text(struct dt_proto *p, int field, const char *text);
/* Returns what close needs. */
size_t dt_proto_open(struct dt_proto *p, int field);
void dt_proto_close(struct dt_proto *p, size_t begin);

/* Begin and end make one record of what is called in between: p->at[0 .. p->used). */
void dt_tfevents_begin(struct dt_proto *p, double wall_time_s, int64_t step);
dt_status dt_tfevents_end(struct dt_proto *p);

/* The whole content of an event: the first of a file; or that the run has (re)started, so that
 * readers drop earlier events of this step and later ones. */
void dt_tfevents_version(struct dt_proto *p);
void dt_tfevents_restart(struct dt_proto *p);

/* Values go between these two. */
size_t dt_tfevents_open_summary(struct dt_proto *p);
#define dt_tfevents_close_summary dt_proto_close

/* `description` may be NULL. */
void dt_tfevents_scalar(struct dt_proto *p, const char *tag, double value, const char *description);
void dt_tfevents_text(struct dt_proto *p, const char *tag, const char *text);
/* A picture file (PNG, JPEG) of that size. */
void dt_tfevents_image(struct dt_proto *p, const char *tag, int64_t width, int64_t height,
                       const uint8_t *file, size_t bytes);
/* A PNG file, which has its size in it; DT_ERR_DATA is recorded if it is none. */
void dt_tfevents_png(struct dt_proto *p, const char *tag, const uint8_t *png, size_t bytes);
/* Data of a plug-in: what is written between the two is its message. */
struct dt_tfevents_plugin {
    size_t value, metadata, plugin, content;
};
struct dt_tfevents_plugin dt_tfevents_open_plugin(struct dt_proto *p, const char *tag,
                                                  const char *plugin);
void dt_tfevents_close_plugin(struct dt_proto *p, struct dt_tfevents_plugin at);

#endif
