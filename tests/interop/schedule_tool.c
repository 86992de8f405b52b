/* Prints the learning rate of every step, for comparison with PyTorch.
 *
 *   schedule_tool BATCH IMAGES KEY=VALUE...
 *
 * Schedule plateau reads the metric after every epoch from standard input. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/schedule.h"
#include "train/best.h"

static void print_rates(const struct dt_config *config, int batch, uint32_t n_images)
{
    struct dt_schedule schedule;
    struct dt_checkpoint at = {0};
    const uint32_t by_canvas[DT_MAX_CANVASES] = {n_images};
    double value;
    dt_best_init(&at, config);
    dt_schedule_init(&schedule, config, batch, by_canvas);
    for (int64_t step = 0; step < schedule.total_steps; step++) {
        printf("%.17g\n", dt_schedule_lr(&schedule, step));
        if (at.plateau.factor > 0 && (step + 1) % (n_images / (uint32_t)batch) == 0 &&
            scanf("%lf", &value) == 1 && dt_plateau_count(&at.plateau, &schedule, value))
            schedule.plateau = at.plateau.factor;
    }
}

int main(int n_args, char **args)
{
    struct dt_config config;
    if (n_args < 3)
        return 64;
    if (dt_config_load(&config, NULL, (const char *const *)args + 3, (size_t)n_args - 3) != DT_OK) {
        fprintf(stderr, "%s\n", dt_error_text());
        return 1;
    }
    print_rates(&config, atoi(args[1]), atoi(args[2]));
    return 0;
}
