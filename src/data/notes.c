/* What is told of images that can be decoded. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/dataset.h"
#include "image/decode.h"

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
               "%" PRId64 " of %" PRId64 " images of %s are PNG files of 16 bits with values up to "
               "%" PRId64 " of 65535 only, which makes them dark: multiply the values by %d",
               notes->n_deep, notes->n, what, notes->peak, factor);
    return DT_OK;
}

/* --- Images of equal bytes --- */

static int compare(const void *a, const void *b, void *hashes)
{
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    const int order =
        memcmp((uint64_t *)hashes + 2 * (size_t)i, (uint64_t *)hashes + 2 * (size_t)j, 16);
    return order ? order : (i > j) - (i < j);
}

dt_status dt_dataset_twins(uint64_t *hashes, const struct dt_dataset *const sets[2])
{
    static const char *const like[] = {"images have the same bytes as another one",
                                       "validation images have the same bytes as a training image"};
    const uint32_t split = dt_dataset_size(sets[0]);
    const uint32_t n = split + (sets[1] ? dt_dataset_size(sets[1]) : 0);
    struct {
        int64_t n;
        uint32_t pair[2];
    } found[2] = {0}; /* in a set, in both */
    uint32_t *ids, n_known = 0;
    char names[2][512];
    DT_TRY(DT_NEW(ids, n));
    for (uint32_t i = 0; i < n; i++)
        if (hashes[2 * (size_t)i] | hashes[2 * (size_t)i + 1])
            ids[n_known++] = i;
    qsort_r(ids, n_known, sizeof *ids, compare, hashes);
    for (uint32_t i = 1, first = 0; i < n_known; i++) {
        const uint32_t a = ids[first], b = ids[i], across = a < split && b >= split;
        if (memcmp(hashes + 2 * (size_t)a, hashes + 2 * (size_t)b, 16) != 0)
            first = i;
        else if (found[across].n++ == 0 || b < found[across].pair[1])
            memcpy(found[across].pair, (uint32_t[]){a, b}, sizeof found->pair);
    }
    free(ids);
    for (int across = 0; across < 2; across++) {
        for (int i = 0; i < 2 && found[across].n > 0; i++) {
            const uint32_t id = found[across].pair[i];
            dt_dataset_name(sets[id >= split], id >= split ? id - split : id, names[i],
                            sizeof *names);
        }
        if (found[across].n > 0)
            dt_log(DT_LOG_WARNING, "%" PRId64 " %s, the first are %s and %s", found[across].n,
                   like[across], names[0], names[1]);
    }
    return DT_OK;
}
