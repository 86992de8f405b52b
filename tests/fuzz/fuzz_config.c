/* The configuration. First byte 'f': the rest is a file. Otherwise the rest is a list of --set
 * arguments, each terminated by a NUL. An accepted configuration prints as a file that loads as the
 * same configuration. */
#include "dtrain/config.h"
#include "fuzz.h"

enum { MAX_SETS = 16 };

static dt_status load_sets(struct dt_config *config, const uint8_t *data, size_t bytes)
{
    const char *sets[MAX_SETS];
    size_t n = 0;
    char *text = calloc(bytes + 1, 1);
    FUZZ_CHECK(text);
    if (bytes > 0)
        memcpy(text, data, bytes);
    for (size_t at = 0; at < bytes && n < MAX_SETS; at += strlen(text + at) + 1)
        sets[n++] = text + at;
    dt_status status = dt_config_load(config, NULL, sets, n);
    free(text);
    return status;
}

static void check_round_trip(const struct dt_config *config)
{
    struct dt_config again;
    char *text = NULL;
    FUZZ_CHECK(dt_config_print(&text, config) == DT_OK);
    const char *path = fuzz_file((const uint8_t *)text, strlen(text));
    FUZZ_CHECK(dt_config_load(&again, path, NULL, 0) == DT_OK);
    memcpy(again.notes, config->notes, sizeof again.notes); /* of the changes while loading */
    FUZZ_CHECK(memcmp(&again, config, sizeof again) == 0);
    free(text);
    fuzz_accept(1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct dt_config config;
    if (bytes == 0)
        return 0;
    dt_status status = data[0] == 'f'
                           ? dt_config_load(&config, fuzz_file(data + 1, bytes - 1), NULL, 0)
                           : load_sets(&config, data + 1, bytes - 1);
    if (status == DT_OK)
        check_round_trip(&config);
    else
        fuzz_check_refusal(status, DT_ERR_CONFIG);
    return 0;
}
