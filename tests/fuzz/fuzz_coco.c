/* COCO's files. First byte 'd': the rest is a list of detections for two images. 'j': any JSON,
 * which the stream accepts exactly if the parser of trees does. Otherwise the rest is a file of
 * annotations, and accepted tables are consistent. */
#include "base/json.h"
#include "base/json_stream.h"
#include "base/log.h"
#include "boxes/coco.h"
#include "fuzz.h"

static const char annotations[] =
    "{\"images\":[{\"id\":1,\"file_name\":\"a.jpg\",\"width\":9,\"height\":9},"
    "{\"id\":7,\"file_name\":\"b.jpg\",\"width\":9,\"height\":9}],\"annotations\":[],"
    "\"categories\":[{\"id\":1,\"name\":\"x\"},{\"id\":3,\"name\":\"y\"}]}";

static void try_detections(const uint8_t *data, size_t bytes)
{
    struct dt_coco coco;
    struct dt_found *found;
    size_t n;
    const char *path = fuzz_file((const uint8_t *)annotations, strlen(annotations));
    FUZZ_CHECK(dt_coco_open(&coco, path, &(struct dt_coco_rules){0}) == DT_OK);
    dt_status status = dt_coco_read_found(&found, &n, &coco, fuzz_file(data, bytes));
    if (status == DT_OK)
        fuzz_accept(n);
    else
        fuzz_check_refusal(status, DT_ERR_DATA);
    for (size_t i = 0; status == DT_OK && i < n; i++) {
        FUZZ_CHECK(found[i].image < 2 && found[i].label >= 0 && found[i].label < 2);
        FUZZ_CHECK(found[i].w >= 0 && found[i].h >= 0);
    }
    free(found);
    dt_coco_reset(&coco);
}

/* What only the parser of trees refuses. */
static int is_only_of_trees(const char *error)
{
    static const char *const texts[] = {"key appears twice", "more than 10000 values",
                                        "string of more than"};
    for (int i = 0; i < 3; i++)
        if (strstr(error, texts[i]))
            return 1;
    return 0;
}

static void try_json(const uint8_t *data, size_t bytes)
{
    struct dt_json_stream *stream;
    struct dt_json_doc *doc = NULL;
    FUZZ_CHECK(dt_json_stream_open(&stream, fuzz_file(data, bytes)) == DT_OK);
    dt_status status = dt_json_stream_skip(stream);
    if (status == DT_OK)
        status = dt_json_stream_end(stream);
    dt_json_stream_close(stream);
    if (status == DT_OK)
        fuzz_accept(1);
    else
        fuzz_check_refusal(status, DT_ERR_DATA);
    const dt_status tree = dt_json_parse(&doc, (const char *)data, bytes, "text", NULL);
    FUZZ_CHECK(status == tree || (status == DT_OK && is_only_of_trees(dt_error_text())));
    dt_json_destroy(doc);
}

static void check_tables(const struct dt_coco *coco)
{
    fuzz_accept(coco->n_images);
    FUZZ_CHECK(coco->first_truth[0] == 0 && coco->files.n >= coco->n_images);
    for (uint32_t i = 0; i < coco->n_images; i++) {
        const char *name = dt_names_get(&coco->files, coco->images[i].name);
        FUZZ_CHECK(i == 0 || coco->images[i].id > coco->images[i - 1].id);
        FUZZ_CHECK(coco->first_truth[i + 1] >= coco->first_truth[i]);
        FUZZ_CHECK(coco->first_truth[i + 1] - coco->first_truth[i] <= coco->max_boxes);
        FUZZ_CHECK(name[0] && name[0] != '/' && strncmp(name, "../", 3) != 0);
    }
    for (size_t i = 0; i < coco->first_truth[coco->n_images]; i++) {
        const struct dt_truth *t = &coco->truths[i];
        FUZZ_CHECK(t->label >= 0 && t->label < coco->n_categories);
        FUZZ_CHECK(t->w >= 0 && t->h >= 0 && t->area >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct dt_coco coco;
    dt_log_init(DT_LOG_ERROR, 0, 1); /* no warnings about odd boxes */
    if (bytes > 0 && data[0] == 'd') {
        try_detections(data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'j') {
        try_json(data + 1, bytes - 1);
    } else {
        /* Some rows may be of no use. */
        dt_status status =
            dt_coco_open(&coco, fuzz_file(data, bytes), &(struct dt_coco_rules){.max_bad = 0.5});
        if (status == DT_OK)
            check_tables(&coco);
        else
            fuzz_check_refusal(status, DT_ERR_DATA);
        dt_coco_reset(&coco);
    }
    return 0;
}
