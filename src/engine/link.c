#include "engine/engine.h"

#include "base/file.h"
#include "base/json.h"

/* A file that cannot be used is none. */
static bool load(struct dt_link *link, const char *path)
{
    struct dt_json_doc *doc = NULL;
    if (!dt_file_exists(path) || dt_json_load(&doc, path, NULL) != DT_OK) {
        dt_error_clear();
        return false;
    }
    const struct dt_json *root = dt_json_root(doc);
    link->bytes_per_s = dt_json_number(root, "bytes_per_s");
    link->latency_s = dt_json_number(root, "latency_s");
    dt_json_destroy(doc);
    return link->bytes_per_s > 0 && link->latency_s >= 0;
}

static dt_status save(const struct dt_link *link, const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{bytes_per_s: %g, latency_s: %g}", link->bytes_per_s, link->latency_s);
    return dt_jsonw_save(&w, path);
}

/* On rank 0. */
static dt_status keep(struct dt_link *link, const char *dir, int n_nodes, int n_ranks)
{
    struct dt_link kept = *link;
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/sums-%d-nodes-%d-ranks.json", dir, n_nodes, n_ranks));
    if (!load(&kept, path))
        return save(link, path);
    *link = kept;
    return DT_OK;
}

dt_status dt_link_find(struct dt_link *link, struct dt_comm *comm, const char *dir)
{
    int n_nodes = 0;
    DT_TRY(dt_comm_measure_link(comm, link, &n_nodes));
    dt_status status = DT_OK;
    if (n_nodes > 1 && dir && dt_comm_rank(comm) == 0)
        status = keep(link, dir, n_nodes, dt_comm_size(comm));
    DT_TRY(dt_comm_agree(comm, status));
    return dt_comm_bcast(comm, link, sizeof *link, 0);
}
