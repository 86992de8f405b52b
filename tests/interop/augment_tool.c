/* Recolours and mixes rows as the loader does, for comparison with Pillow and torchvision. Commands
 * on stdin, one a line, each followed by its raw RGB rows; the answer is a line of what was drawn
 * and the rows:
 *   recolour SIZE JITTER ERASING ID    "order x 3, factor x 3, x y w h of the erased part"; one row
 *   pair SIZE MIXUP CUTMIX ID          "share of its own image that a row keeps"; two rows */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/mix.h"
#include "image/colour.h"

enum { SEED = 7, EPOCH = 1 };

struct command {
    char name[16];
    int size;
    double first, second;
    unsigned id;
};

static void recolour(uint8_t *rows, const struct command *command)
{
    struct dt_colour_change drawn;
    const struct dt_config_data data = {.color_jitter = command->first,
                                        .random_erasing = command->second,
                                        .mean = {0.485, 0.456, 0.406}};
    dt_colour_draw(&drawn, &data, SEED, EPOCH, command->id, command->size, command->size);
    dt_colour_apply(rows, 3 * (size_t)command->size, command->size, command->size, &data, SEED,
                    EPOCH, command->id);
    for (int i = 0; i < DT_COLOURS; i++)
        printf("%d ", (int)drawn.order[i]);
    for (int i = 0; i < DT_COLOURS; i++)
        printf("%.9g ", (double)drawn.factors[i]);
    printf("%d %d %d %d\n", drawn.erased.x, drawn.erased.y, drawn.erased.w, drawn.erased.h);
}

static void pair(uint8_t *rows, const struct command *command)
{
    uint8_t *second = rows + (size_t)command->size * (size_t)command->size * 3;
    const struct dt_config_data data = {.mixup = command->first, .cutmix = command->second};
    float share = dt_mix_pair(rows, second, &data, SEED, EPOCH, command->id, command->size);
    printf("%.9g\n", (double)share);
}

static dt_status answer(const struct command *command)
{
    dt_status status = DT_OK;
    bool is_pair = strcmp(command->name, "pair") == 0;
    size_t bytes = (size_t)command->size * (size_t)command->size * 3 * (is_pair ? 2 : 1);
    uint8_t *rows;
    DT_TRY(DT_NEW(rows, bytes));
    if (fread(rows, 1, bytes, stdin) != bytes)
        status = DT_ERROR(DT_ERR_USAGE, "%s wants %zu bytes of pixels", command->name, bytes);
    else if (is_pair)
        pair(rows, command);
    else
        recolour(rows, command);
    if (status == DT_OK && (fwrite(rows, 1, bytes, stdout) != bytes || fflush(stdout)))
        status = DT_ERROR(DT_ERR_IO, "cannot write %zu bytes of pixels", bytes);
    free(rows);
    return status;
}

int main(void)
{
    dt_status status = DT_OK;
    char line[256];
    while (status == DT_OK && fgets(line, sizeof line, stdin)) {
        struct command command;
        if (sscanf(line, "%15s %d %lf %lf %u", command.name, &command.size, &command.first,
                   &command.second, &command.id) != 5)
            status = DT_ERROR(DT_ERR_USAGE, "cannot read the command: %s", line);
        else
            status = answer(&command);
    }
    if (status != DT_OK)
        fprintf(stderr, "augment_tool: %s\n", dt_error_text());
    return (int)status;
}
