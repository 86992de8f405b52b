/* dtrain forecast: the numbers of ranks, links and the step time from the command line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "bench/forecast.h"
#include "cli/commands.h"

struct unit {
    const char *name;
    double factor;
};
static const struct unit rates[] = {{"Gb/s", 1e9 / 8}, {"Mb/s", 1e6 / 8}, {"GB/s", 1e9},
                                    {"MB/s", 1e6},     {"TB/s", 1e12},    {NULL, 0}};
static const struct unit times[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {NULL, 0}};

/* "100Gb/s"; the text after it, NULL if it is not a positive number with one of the units. */
static const char *parse_number(double *out, const char *text, const struct unit *units)
{
    char *end;
    double value = strtod(text, &end);
    for (; units->name; units++) {
        size_t n = strlen(units->name);
        if (strncmp(end, units->name, n) != 0)
            continue;
        *out = value * units->factor;
        return isfinite(value) && value > 0 ? end + n : NULL;
    }
    return NULL;
}

static dt_status parse_link(struct dt_link *out, const char *option, const char *text)
{
    const char *end = parse_number(&out->bytes_per_s, text, rates);
    if (end && *end == ',')
        end = parse_number(&out->latency_s, end + 1, times);
    else
        end = NULL;
    if (end && *end == '\0')
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_USAGE,
        "%s: \"%s\" is not a bandwidth and a latency such as 100Gb/s,2us (units: Mb/s, "
        "Gb/s, MB/s, GB/s, TB/s; ns, us, ms, s)",
        option, text);
}

/* "0.105" (s), "105ms" or "measured" */
static dt_status parse_step_time(double *out, const char *text)
{
    static const struct unit bare[] = {{"", 1}, {NULL, 0}};
    *out = 0;
    if (strcmp(text, "measured") == 0)
        return DT_OK;
    const char *end = parse_number(out, text, times);
    if (!end)
        end = parse_number(out, text, bare);
    if (end && *end == '\0')
        return DT_OK;
    DT_FAIL_ON_ALL_RANKS(
        DT_ERR_USAGE, "--step-time: \"%s\" is not a time such as 0.105, 105ms or measured", text);
}

dt_status dt_cmd_forecast(struct dt_comm *comm, const struct dt_config *config,
                          const struct dt_arguments *args)
{
    struct dt_forecast_options options = {.json_path = args->json};
    struct dt_forecast_network *network = &options.network;
    options.n_ranks = dt_text_integers(options.ranks, DT_MAX_FORECAST_RANKS, 1 << 20, args->ranks);
    if (options.n_ranks == 0)
        DT_FAIL_ON_ALL_RANKS(
            DT_ERR_USAGE,
            "--ranks: \"%s\" is not a list of at most %d numbers of ranks, such as 8,64,512",
            args->ranks, DT_MAX_FORECAST_RANKS);
    network->ranks_per_node = args->launch.ranks_per_node > 0 ? args->launch.ranks_per_node : 1;
    options.measure_link = strcmp(args->link, "measured") == 0;
    if (!options.measure_link)
        DT_TRY(parse_link(&network->link, "--link", args->link));
    if (!args->local_link != (network->ranks_per_node == 1))
        DT_FAIL_ON_ALL_RANKS(DT_ERR_USAGE,
                             "--local-link (between the ranks of a node) and --ranks-per-node of "
                             "2 or more need each other: give both or neither");
    if (args->local_link)
        DT_TRY(parse_link(&network->local, "--local-link", args->local_link));
    DT_TRY(parse_step_time(&options.step_s, args->step_time));
    return dt_forecast_run(comm, config, &options);
}
