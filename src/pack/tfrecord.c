/* TFRecord files with image/encoded, image/class/label, or whatever the options call them, and
 * optionally image/class/synset.
 *
 * A record: length u64, masked CRC-32C of the length, data, masked CRC-32C of the data. The data
 * are a protobuf message tf.Example { Features features = 1; }, Features { map<string, Feature>
 * feature = 1; }, Feature { BytesList 1, FloatList 2, Int64List 3 }, each list { repeated value =
 * 1; }. Indexing reads the structure through a small window and skips the images; the CRC of the
 * data is checked when a sample is read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "data/shard_list.h"
#include "pack/pack.h"
#include "pack/source.h"

enum {
    HEAD_BYTES = 12,
    SUM_BYTES = 4,
    WINDOW = 1024,
    MAX_LABEL = 1000000,
    MAX_TEXT = 256,
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5
};

struct reader {
    int fd;
    const char *path, *image_key, *label_key;
    uint64_t bytes; /* size of the file */
    uint64_t first; /* file offset of the window */
    size_t held;
    uint8_t window[WINDOW];
};

/* Part of the file: the unread rest of a message. */
struct span {
    uint64_t at, end;
};

struct field {
    uint64_t number, wire, value; /* value: varints only */
    struct span span;             /* WIRE_BYTES only */
};

static dt_status next_byte(struct reader *reader, uint64_t at, uint8_t *out)
{
    if (at < reader->first || at >= reader->first + reader->held) {
        const uint64_t rest = reader->bytes - at;
        reader->held = rest < WINDOW ? (size_t)rest : WINDOW;
        reader->first = at;
        DT_TRY(dt_file_pread(reader->fd, reader->window, reader->held, at, reader->path));
    }
    *out = reader->window[at - reader->first];
    return DT_OK;
}

static dt_status next_varint(struct reader *reader, struct span *message, uint64_t *out)
{
    uint8_t byte = 0x80;
    *out = 0;
    for (int shift = 0; byte & 0x80; shift += 7) {
        if (message->at >= message->end || shift > 63)
            DT_FAIL(DT_ERR_DATA, "%s has no tf.Example near byte %llu", reader->path,
                    (unsigned long long)message->at);
        DT_TRY(next_byte(reader, message->at++, &byte));
        *out |= (uint64_t)(byte & 0x7f) << shift;
    }
    return DT_OK;
}

/* Reads the next field of the message. */
static dt_status next_field(struct reader *reader, struct span *message, struct field *field)
{
    static const uint64_t fixed[] = {[WIRE_64] = 8, [WIRE_32] = 4};
    uint64_t key, bytes = 0;
    DT_TRY(next_varint(reader, message, &key));
    field->number = key >> 3;
    field->wire = key & 7;
    if (field->wire == WIRE_VARINT)
        return next_varint(reader, message, &field->value);
    if (field->wire == WIRE_BYTES)
        DT_TRY(next_varint(reader, message, &bytes));
    else if (field->wire < DT_COUNT(fixed))
        bytes = fixed[field->wire];
    if ((bytes == 0 && field->wire != WIRE_BYTES) || bytes > message->end - message->at)
        DT_FAIL(DT_ERR_DATA, "%s has no tf.Example near byte %llu", reader->path,
                (unsigned long long)message->at);
    field->span = (struct span){message->at, message->at + bytes};
    message->at += bytes;
    return DT_OK;
}

/* The last field of the message with this number and wire type; sets *found. */
static dt_status find_field(struct reader *reader, struct span message, uint64_t number,
                            uint64_t wire, struct field *out, bool *found)
{
    struct field field;
    *found = false;
    while (message.at < message.end) {
        DT_TRY(next_field(reader, &message, &field));
        if (field.number != number || field.wire != wire)
            continue;
        *out = field;
        *found = true;
    }
    return DT_OK;
}

/* --- One record --- */

/* A feature: how many values it has, and the last. */
struct feature {
    uint64_t n, integer; /* integer: of a list of integers */
    struct span bytes;   /* of a list of bytes */
};

struct example {
    struct feature encoded, label;
    char synset[MAX_TEXT];
    char keys[1024]; /* of all features */
};

static dt_status read_text(struct reader *reader, struct span span, char *out)
{
    out[0] = 0;
    if (span.end - span.at >= MAX_TEXT)
        return DT_OK;
    DT_TRY(dt_file_pread(reader->fd, out, (size_t)(span.end - span.at), span.at, reader->path));
    out[span.end - span.at] = 0;
    return DT_OK;
}

enum { BYTES_LIST = 1, INTEGERS_LIST = 3 };

/* Adds the values of a Feature's list of this kind, whose integers are packed or not. */
static dt_status read_values(struct reader *reader, struct span feature, uint64_t kind,
                             struct feature *out)
{
    struct field list, value;
    bool found;
    DT_TRY(find_field(reader, feature, kind, WIRE_BYTES, &list, &found));
    while (found && list.span.at < list.span.end) {
        DT_TRY(next_field(reader, &list.span, &value));
        const bool is_one = value.wire == (kind == BYTES_LIST ? WIRE_BYTES : WIRE_VARINT);
        if (is_one && value.number == 1)
            *out = (struct feature){out->n + 1, value.value, value.span};
        for (; !is_one && value.wire == WIRE_BYTES && value.span.at < value.span.end; out->n++)
            DT_TRY(next_varint(reader, &value.span, &out->integer));
    }
    return DT_OK;
}

static dt_status read_feature(struct reader *reader, struct span entry, struct example *example)
{
    struct field key, value;
    struct feature synset = {0};
    char name[MAX_TEXT];
    bool has_key, has_value;
    DT_TRY(find_field(reader, entry, 1, WIRE_BYTES, &key, &has_key));
    DT_TRY(find_field(reader, entry, 2, WIRE_BYTES, &value, &has_value));
    if (!has_key || !has_value)
        return DT_OK;
    DT_TRY(read_text(reader, key.span, name));
    struct dt_text keys = {example->keys, sizeof example->keys, strlen(example->keys)};
    dt_text_add_whole(&keys, "%s%s", keys.used ? ", " : "", name);
    if (strcmp(name, reader->image_key) == 0)
        return read_values(reader, value.span, BYTES_LIST, &example->encoded);
    if (strcmp(name, reader->label_key) == 0)
        return read_values(reader, value.span, INTEGERS_LIST, &example->label);
    if (strcmp(name, "image/class/synset") != 0)
        return DT_OK;
    DT_TRY(read_values(reader, value.span, BYTES_LIST, &synset));
    return read_text(reader, synset.bytes, example->synset);
}

static dt_status read_features(struct reader *reader, struct span data, struct example *example)
{
    struct field features, entry;
    bool found;
    DT_TRY(find_field(reader, data, 1, WIRE_BYTES, &features, &found));
    while (found && features.span.at < features.span.end) {
        DT_TRY(next_field(reader, &features.span, &entry));
        if (entry.number == 1 && entry.wire == WIRE_BYTES)
            DT_TRY(read_feature(reader, entry.span, example));
    }
    return DT_OK;
}

/* An image and a label must have one value each. */
static dt_status read_example(struct reader *reader, struct span data, uint32_t number,
                              struct example *example)
{
    *example = (struct example){0};
    DT_TRY(read_features(reader, data, example));
    const bool is_image = example->encoded.n != 1;
    const char *key = is_image ? reader->image_key : reader->label_key;
    const uint64_t n = is_image ? example->encoded.n : example->label.n;
    if (n > 1)
        DT_FAIL(DT_ERR_DATA, "record %u of %s has %llu values of %s, where one is expected",
                (unsigned)number, reader->path, (unsigned long long)n, key);
    if (n == 1)
        return DT_OK;
    DT_FAIL(DT_ERR_DATA,
            "record %u of %s has no %s with %s; its keys are: %s; name those to use with "
            "--image-key and --label-key",
            (unsigned)number, reader->path, key, is_image ? "an image" : "an integer",
            example->keys[0] ? example->keys : "none");
}

/* --- Files --- */

struct opening {
    struct dt_images *images;
    int label_offset;
    struct dt_names synsets; /* in order of appearance */
    uint32_t *synset;        /* per label: 1 + index in synsets; 0 = none */
    size_t n_labels, capacity;
};

static uint64_t little_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << 8 * i;
    return value;
}

static bool is_head(const uint8_t head[HEAD_BYTES])
{
    return dt_crc32c_masked(head, 8) == little_endian(head + 8, 4);
}

bool dt_tfrecord_found(const char *path)
{
    uint8_t head[HEAD_BYTES];
    uint64_t bytes;
    int fd = -1;
    if (dt_file_open(&fd, &bytes, path) != DT_OK) {
        dt_error_clear(); /* the next call to open it reports the error */
        return false;
    }
    const bool found =
        bytes >= HEAD_BYTES && pread(fd, head, sizeof head, 0) == HEAD_BYTES && is_head(head);
    close(fd);
    return found;
}

/* One label must not have two names. */
static dt_status keep_synset(struct opening *opening, uint32_t label, const char *name,
                             const char *path)
{
    DT_TRY(DT_GROW(opening->synset, opening->capacity, label, "labels"));
    if (label >= opening->n_labels)
        opening->n_labels = (size_t)label + 1;
    uint32_t *synset = &opening->synset[label];
    if (!name[0])
        return DT_OK;
    if (*synset == 0) {
        DT_TRY(dt_names_add(&opening->synsets, name, strlen(name)));
        *synset = (uint32_t)opening->synsets.n;
    }
    if (strcmp(dt_names_get(&opening->synsets, *synset - 1), name) != 0)
        DT_FAIL(DT_ERR_DATA, "%s: label %u is class %s here but was %s before", path,
                (unsigned)label, name, dt_names_get(&opening->synsets, *synset - 1));
    return DT_OK;
}

static dt_status add_record(struct opening *opening, struct reader *reader, struct span data,
                            uint32_t number)
{
    struct dt_images *images = opening->images;
    const uint32_t file = (uint32_t)images->files.n - 1;
    struct example example;
    char name[32];
    DT_TRY(read_example(reader, data, number, &example));
    const uint64_t value = example.label.integer;
    const struct span image_at = example.encoded.bytes;
    if (value > MAX_LABEL || (int64_t)value < opening->label_offset)
        DT_FAIL(DT_ERR_DATA,
                "record %u of %s has label %lld; with --label-offset %d they must be %d to %d",
                (unsigned)number, reader->path, (long long)value, opening->label_offset,
                opening->label_offset, MAX_LABEL);
    const uint32_t label = (uint32_t)((int64_t)value - opening->label_offset);
    snprintf(name, sizeof name, "record %u", (unsigned)number);
    DT_TRY(
        dt_images_add(images, name, image_at.at, image_at.end - image_at.at, file, (int32_t)label));
    struct dt_image *image = &images->image[images->n - 1];
    image->before = (uint32_t)(image_at.at - data.at);
    image->after = (uint32_t)(data.end - image_at.end) + SUM_BYTES;
    return keep_synset(opening, label, example.synset, reader->path);
}

static dt_status read_records(struct opening *opening, struct reader *reader)
{
    uint8_t head[HEAD_BYTES];
    uint64_t at = 0;
    for (uint32_t number = 0; at < reader->bytes; number++) {
        if (reader->bytes - at < HEAD_BYTES + SUM_BYTES)
            DT_FAIL(DT_ERR_DATA, "%s is truncated at byte %llu", reader->path,
                    (unsigned long long)at);
        DT_TRY(dt_file_pread(reader->fd, head, sizeof head, at, reader->path));
        const uint64_t bytes = little_endian(head, 8);
        if (!is_head(head))
            DT_FAIL(DT_ERR_DATA,
                    "%s is damaged or not a TFRecord file: the length at byte %llu does not match "
                    "its checksum",
                    reader->path, (unsigned long long)at);
        if (bytes > DT_MAX_ENCODED_BYTES || bytes > reader->bytes - at - HEAD_BYTES - SUM_BYTES)
            DT_FAIL(DT_ERR_DATA,
                    "%s: the record at byte %llu has %llu bytes; the file is truncated, or the "
                    "record is larger than %d",
                    reader->path, (unsigned long long)at, (unsigned long long)bytes,
                    DT_MAX_ENCODED_BYTES);
        at += HEAD_BYTES;
        DT_TRY(add_record(opening, reader, (struct span){at, at + bytes}, number));
        at += bytes + SUM_BYTES;
    }
    return DT_OK;
}

/* Class names are kept only if every label from 0 to the highest has one. */
static dt_status name_classes(struct opening *opening)
{
    for (size_t i = 0; i < opening->n_labels; i++)
        if (opening->synset[i] == 0) {
            if (opening->synsets.n > 0)
                dt_log(DT_LOG_WARNING,
                       "label %zu has no image/class/synset, so no class names are written", i);
            return DT_OK;
        }
    for (size_t i = 0; i < opening->n_labels; i++) {
        const char *name = dt_names_get(&opening->synsets, opening->synset[i] - 1);
        DT_TRY(dt_names_add(&opening->images->classes, name, strlen(name)));
    }
    return DT_OK;
}

dt_status dt_tfrecord_open(struct dt_dataset *dataset, const struct dt_shard_options *options)
{
    dt_status status = DT_OK;
    struct opening opening = {.label_offset = options->label_offset};
    const char *image_key = options->image_key, *label_key = options->label_key;
    struct dt_names paths = {0};
    const double start_s = dt_clock_s();
    DT_TRY(DT_NEW(opening.images, 1));
    dataset->state = opening.images;
    dataset->classes = &opening.images->classes;
    DT_TRY_OUT(dt_brace_expand(&paths, options->src));
    for (size_t i = 0; i < paths.n; i++) {
        struct reader reader = {.fd = -1,
                                .path = dt_names_get(&paths, i),
                                .image_key = image_key ? image_key : "image/encoded",
                                .label_key = label_key ? label_key : "image/class/label"};
        DT_TRY_OUT(dt_names_add(&opening.images->files, reader.path, strlen(reader.path)));
        DT_TRY_OUT(dt_file_open(&reader.fd, &reader.bytes, reader.path));
        status = read_records(&opening, &reader);
        close(reader.fd);
        DT_TRY_OUT(status);
        dt_log_progress_of("listing", i + 1, paths.n, "files", start_s);
    }
    DT_TRY_OUT(name_classes(&opening));
    dataset->n = (uint32_t)opening.images->n;
out:
    dt_log_progress("");
    dt_names_reset(&paths);
    dt_names_reset(&opening.synsets);
    free(opening.synset);
    return status;
}

dt_status dt_tfrecord_read(const struct dt_dataset *dataset, uint32_t id, struct dt_sample *sample)
{
    const struct dt_images *images = dataset->state;
    const struct dt_image *image = &images->image[id];
    DT_TRY(dt_images_read(dataset, id, sample));
    const size_t bytes = sample->bytes - SUM_BYTES;
    if (dt_crc32c_masked(sample->data, bytes) != little_endian(sample->data + bytes, SUM_BYTES))
        DT_FAIL(DT_ERR_DATA, "%s of %s is damaged: its checksum differs",
                dt_names_get(&images->names, image->name),
                dt_names_get(&images->files, image->file));
    memmove(sample->data, sample->data + image->before, image->bytes);
    sample->bytes = image->bytes;
    return DT_OK;
}
