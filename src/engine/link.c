#include "engine/link.h"

#include "base/file.h"
#include "base/json.h"

struct figures {
    double ranks, nodes;
    struct dt_link link;
};

/* A file that cannot be used is none. */
static bool load(struct figures *found, const char *path)
{
    struct dt_json_doc *doc = NULL;
    if (!dt_file_exists(path) || dt_json_load(&doc, path, NULL) != DT_OK) {
        dt_error_clear();
        return false;
    }
    const struct dt_json *root = dt_json_root(doc);
    found->ranks = dt_json_number(root, "ranks");
    found->nodes = dt_json_number(root, "nodes");
    found->link.bytes_per_s = dt_json_number(root, "bytes_per_s");
    found->link.latency_s = dt_json_number(root, "latency_s");
    dt_json_destroy(doc);
    return found->link.bytes_per_s > 0 && found->link.latency_s >= 0;
}

static dt_status save(const struct figures *found, const char *path)
{
    struct dt_jsonw w = {.pretty = true};
    dt_jsonw_add(&w, "{ranks: %g, nodes: %g, bytes_per_s: %g, latency_s: %g}", found->ranks,
                 found->nodes, found->link.bytes_per_s, found->link.latency_s);
    return dt_jsonw_save(&w, path);
}

/* On rank 0: those of the last start hold if it had as many ranks and nodes. */
static dt_status keep(struct figures *own, const char *dir)
{
    struct figures kept = {0};
    char path[DT_PATH_MAX];
    DT_TRY(dt_file_path(path, "%s/sums.json", dir));
    if (!load(&kept, path) || kept.ranks != own->ranks || kept.nodes != own->nodes)
        return save(own, path);
    own->link = kept.link;
    return DT_OK;
}

dt_status dt_link_find(struct dt_link *link, struct dt_comm *comm, const char *dir)
{
    struct figures found = {.ranks = dt_comm_size(comm), .link = *link};
    int n_nodes = 0;
    DT_TRY(dt_comm_measure_link(comm, &found.link, &n_nodes));
    found.nodes = n_nodes;
    dt_status status = DT_OK;
    if (n_nodes > 1 && dir && dt_comm_rank(comm) == 0)
        status = keep(&found, dir);
    DT_TRY(dt_comm_agree(comm, status));
    *link = found.link;
    return dt_comm_bcast(comm, link, sizeof *link, 0);
}
