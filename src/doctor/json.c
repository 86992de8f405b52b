/* The report as JSON, for scripts. */
#include "base/json.h"

#include <stdio.h>

#include "doctor/doctor.h"

static void write_findings(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "findings", '[');
    for (int i = 0; i < d->n_findings; i++) {
        const struct dt_finding *finding = &d->findings[i];
        const bool *ranks = d->ranks_of + (size_t)i * (size_t)d->n_ranks;
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_bool(w, "is_problem", finding->status != DT_OK);
        dt_jsonw_integer(w, "code", finding->status);
        dt_jsonw_string(w, "text", finding->text);
        dt_jsonw_begin(w, "ranks", '[');
        for (int r = 0; r < d->n_ranks; r++)
            if (ranks[r] && !finding->is_named)
                dt_jsonw_integer(w, NULL, r);
        dt_jsonw_close(w, ']');
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_ranks(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "ranks", '[');
    for (int r = 0; r < d->n_ranks; r++) {
        const struct dt_patient *own = &d->all[r];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "rank", r);
        dt_jsonw_string(w, "host", dt_comm_host(d->comm, r));
        dt_jsonw_integer(w, "cpus", own->n_cpus);
        dt_jsonw_integer(w, "ranks_on_these_cpus", own->n_sharing);
        dt_jsonw_string(w, "gpu", own->gpu);
        dt_jsonw_string(w, "build", own->build);
        dt_jsonw_number(w, "cpu_flops_per_s", own->cpu_flops_per_s);
        dt_jsonw_number(w, "cpu_share", own->cpu_share);
        dt_jsonw_number(w, "gpu_flops_per_s", own->gpu_flops_per_s);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_interfaces(const struct dt_patient *own, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "interfaces", '[');
    for (int i = 0; i < own->n_interfaces; i++) {
        const struct dt_interface *at = &own->interfaces[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_string(w, "name", at->name);
        dt_jsonw_string(w, "address", at->address);
        dt_jsonw_integer(w, "mtu", at->mtu);
        if (at->mbit_per_s > 0)
            dt_jsonw_number(w, "bytes_per_s", at->mbit_per_s * 1e6 / 8);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_hosts(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "hosts", '[');
    for (int h = 0; h < d->n_hosts; h++) {
        const struct dt_patient *own = &d->all[d->first_of[h]];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_string(w, "host", dt_doctor_host(d, h));
        dt_jsonw_number(w, "memory_bytes", own->memory_bytes);
        dt_jsonw_number(w, "memory_free_bytes", own->memory_free_bytes);
        dt_jsonw_number(w, "clock_ahead_s", own->clock_s);
        dt_jsonw_number(w, "disk_free_bytes", own->disk_free_bytes);
        dt_jsonw_number(w, "write_bytes_per_s", own->write_bytes_per_s);
        write_interfaces(own, w);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_pairs(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "pairs", '[');
    for (int i = 0; i < d->n_pairs; i++) {
        const struct dt_pair *pair = &d->pairs[i];
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "from", pair->from);
        dt_jsonw_integer(w, "to", pair->to);
        dt_jsonw_bool(w, "is_between_hosts", pair->is_remote);
        dt_jsonw_number(w, "latency_s", pair->latency_s);
        dt_jsonw_number(w, "forth_bytes_per_s", pair->forth_bytes_per_s);
        dt_jsonw_number(w, "back_bytes_per_s", pair->back_bytes_per_s);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

static void write_sums(const struct dt_doctor *d, struct dt_jsonw *w)
{
    dt_jsonw_begin(w, "all_reduce", '[');
    for (int i = 0; i < DT_SUM_SIZES && d->sums[i].bytes > 0; i++) {
        dt_jsonw_begin(w, NULL, '{');
        dt_jsonw_integer(w, "bytes", (int64_t)d->sums[i].bytes);
        dt_jsonw_number(w, "seconds", d->sums[i].seconds);
        dt_jsonw_close(w, '}');
    }
    dt_jsonw_close(w, ']');
}

dt_status dt_doctor_save(const struct dt_doctor *d, const char *path)
{
    struct dt_jsonw w;
    dt_jsonw_init(&w, true);
    dt_jsonw_begin(&w, NULL, '{');
    dt_jsonw_string(&w, "dtrain", DTRAIN_VERSION);
    dt_jsonw_integer(&w, "exit_code", d->n_findings > 0 ? d->findings[0].status : DT_OK);
    dt_jsonw_string(&w, "run_folder", d->folder);
    write_findings(d, &w);
    write_ranks(d, &w);
    write_hosts(d, &w);
    write_pairs(d, &w);
    write_sums(d, &w);
    dt_jsonw_close(&w, '}');
    return dt_jsonw_save(&w, path);
}
