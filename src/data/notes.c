/* Warnings about images that can be decoded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sort.h"
#include "data/dataset.h"
#include "image/decode.h"

enum dt_exif dt_exif_of(const struct dt_config_data *data, bool boxes)
{
    return data->exif == DT_EXIF_AUTO && !boxes ? DT_EXIF_IGNORE : data->exif;
}

void dt_image_notes_add(struct dt_image_notes *notes, const struct dt_decoder *decoder, int64_t id)
{
    const int peak = dt_decoder_peak(decoder);
    if (dt_decoder_orientation(decoder) > 1 && (notes->n_turned++ == 0 || id < notes->turned))
        notes->turned = id;
    notes->n_deep += peak > 0;
    notes->peak = peak > notes->peak ? peak : notes->peak;
}

dt_status dt_dataset_tell(const struct dt_dataset *dataset, const struct dt_image_notes *notes,
                          const char *what)
{
    char name[512], turned[1024];
    int factor = 1;
    dt_dataset_name(dataset, (uint32_t)notes->turned, name, sizeof name);
    snprintf(turned, sizeof turned,
             "%" PRId64 " of %" PRId64 " images of %s have an EXIF orientation other than 1, the "
             "first is %s",
             notes->n_turned, notes->n, what, name);
    if (notes->n_turned > 0 && dataset->exif == DT_EXIF_AUTO)
        DT_FAIL(DT_ERR_CONFIG, "%s: " DT_EXIF_QUESTION, turned);
    if (notes->n_turned > 0)
        dt_log(DT_LOG_NOTICE, "%s: their pixels are %s", turned,
               dataset->exif == DT_EXIF_APPLY ? "turned upright"
                                              : "used as stored, like PIL's and torchvision's "
                                                "loaders do; data.exif=apply turns them upright");
    while (notes->peak > 0 && 2 * factor * notes->peak < 1 << 16)
        factor *= 2;
    if (factor > 1)
        dt_log(DT_LOG_WARNING,
               "%" PRId64 " of %" PRId64 " images of %s are files of 16 bits with values up to "
               "%" PRId64 " of 65535 only, which makes them dark: multiply the values by %d",
               notes->n_deep, notes->n, what, notes->peak, factor);
    return DT_OK;
}

/* --- Images of equal bytes --- */

dt_status dt_dataset_twins(const uint64_t *hashes, const struct dt_dataset *const sets[2])
{
    static const char *const like[] = {"images have the same bytes as another one",
                                       "validation images have the same bytes as a training image"};
    const uint32_t split = dt_dataset_size(sets[0]);
    const uint32_t n = split + (sets[1] ? dt_dataset_size(sets[1]) : 0);
    uint32_t *first, n_found[2] = {0}, found[2] = {0}; /* in a set, in both */
    char names[2][512];
    DT_TRY(dt_find_repeated(&first, hashes, n));
    for (uint32_t i = n; first && i-- > 0;)
        if (first[i] < i && hashes[i]) {
            const int across = first[i] < split && i >= split;
            n_found[across]++;
            found[across] = i;
        }
    for (int across = 0; across < 2; across++) {
        if (n_found[across] == 0)
            continue;
        const uint32_t pair[] = {first[found[across]], found[across]};
        for (int i = 0; i < 2; i++)
            dt_dataset_name(sets[pair[i] >= split], pair[i] - (pair[i] >= split ? split : 0),
                            names[i], sizeof names[i]);
        dt_log(DT_LOG_WARNING, "%u of %u %s, the first are %s and %s", (unsigned)n_found[across],
               (unsigned)(across ? n - split : n), like[across], names[0], names[1]);
    }
    free(first);
    return DT_OK;
}
