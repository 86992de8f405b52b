/* The examination: stage by stage, then what all ranks have found is compared and reported. */
#include "doctor/doctor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static const double patience_s = 1; /* without a word */

static const struct {
    const char *what;
    dt_status (*run)(struct dt_doctor *d);
} stages[] = {
    [DT_STAGE_DEVICES] = {"trying the devices", dt_doctor_devices},
    [DT_STAGE_FOLDER] = {"writing to the run folder", dt_doctor_folder},
    [DT_STAGE_DATA] = {"opening the data", dt_doctor_data},
    [DT_STAGE_CLOCKS] = {"comparing the clocks", dt_doctor_clocks},
    [DT_STAGE_NETWORK] = {"measuring the network", dt_doctor_network},
    [DT_STAGE_SUMS] = {"summing over the ranks", dt_doctor_sums},
};

static void say(const struct dt_doctor *d, const char *what, double begin_s)
{
    char line[128];
    snprintf(line, sizeof line, "doctor: %s", what);
    if (d->rank == 0 && !dt_log_is_terminal() && dt_clock_s() - begin_s > patience_s)
        dt_log(DT_LOG_INFO, "%s", line);
    if (d->rank == 0)
        dt_log_progress(line);
}

static dt_status allocate(struct dt_doctor *d)
{
    const size_t n = (size_t)d->n_ranks;
    DT_TRY(DT_NEW(d->host_of, n));
    DT_TRY(DT_NEW(d->first_of, n));
    DT_TRY(DT_NEW(d->all, n));
    DT_TRY(DT_NEW(d->findings, DT_FINDINGS));
    DT_TRY(DT_NEW(d->ranks_of, DT_FINDINGS * n));
    return DT_OK;
}

static void number_hosts(struct dt_doctor *d)
{
    for (int r = 0; r < d->n_ranks; r++) {
        int h = 0;
        while (h < d->n_hosts && strcmp(dt_doctor_host(d, h), dt_comm_host(d->comm, r)) != 0)
            h++;
        d->host_of[r] = h;
        if (h == d->n_hosts)
            d->first_of[d->n_hosts++] = r;
    }
}

static dt_status examine(struct dt_doctor *d, const char *json_path)
{
    const double begin_s = dt_clock_s();
    DT_TRY(dt_comm_agree(d->comm, allocate(d)));
    number_hosts(d);
    for (size_t i = 0; i < DT_COUNT(stages); i++) {
        say(d, stages[i].what, begin_s);
        DT_TRY(stages[i].run(d));
    }
    dt_log_progress("");
    DT_TRY(dt_comm_gather(d->comm, d->all, &d->own, sizeof d->own));
    dt_doctor_merge(d);
    dt_doctor_compare(d);
    if (d->rank == 0)
        dt_doctor_print(d);
    DT_TRY(
        dt_comm_agree(d->comm, d->rank == 0 && json_path ? dt_doctor_save(d, json_path) : DT_OK));
    if (d->n_findings > 0 && d->findings[0].status != DT_OK)
        DT_FAIL_ALIKE((dt_status)d->findings[0].status,
                      "these ranks are not fit for training; the report above says why");
    return DT_OK;
}

dt_status dt_doctor(struct dt_comm *comm, const struct dt_config *config, const char *json_path)
{
    struct dt_doctor *d;
    DT_TRY(DT_NEW(d, 1));
    d->comm = comm;
    d->config = config;
    d->rank = dt_comm_rank(comm);
    d->n_ranks = dt_comm_size(comm);
    d->own.clock_s = d->own.cpu_flops_per_s = d->own.cpu_share = d->own.gpu_flops_per_s = NAN;
    d->own.disk_free_bytes = d->own.write_bytes_per_s = NAN;
    dt_sets_init(&d->bench.sets, comm, config);
    dt_engine_init(&d->bench.engine, comm, config);
    dt_status status = examine(d, json_path);
    dt_comm_close_reduce(comm);
    dt_engine_close(&d->bench.engine, &d->bench.sets, status);
    free(d->host_of);
    free(d->first_of);
    free(d->all);
    free(d->pairs);
    free(d->findings);
    free(d->ranks_of);
    free(d);
    return status;
}
