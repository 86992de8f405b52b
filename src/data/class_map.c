/* See dataset.h. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/names.h"
#include "base/sort.h"
#include "base/text.h"
#include "data/dataset.h"

enum { LIST_BYTES = 512, LIST_NAMES = 8, NUMBER_DIGITS = 9 };

int dt_dataset_label_of(const struct dt_dataset *dataset, uint32_t id)
{
    const int label = dataset->kind->label ? dataset->kind->label(dataset, id) : 0;
    return dataset->label_map ? dataset->label_map[label] : label;
}

static bool is_filled(const struct dt_names *names)
{
    return names && names->n > 0;
}

bool dt_dataset_has_names(const struct dt_dataset *dataset)
{
    return is_filled(dataset->classes);
}

/* --- Names that are numbers --- */

/* -1 if it is none. */
static int number_of(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    return digits > 0 && digits <= NUMBER_DIGITS && !name[digits] ? (int)strtol(name, NULL, 10)
                                                                  : -1;
}

static bool are_numbers(const struct dt_names *names)
{
    for (size_t i = 0; i < names->n; i++)
        if (number_of(dt_names_get(names, i)) < 0)
            return false;
    return true;
}

int dt_dataset_label_limit(const struct dt_dataset_options *options)
{
    return is_filled(options->classes) && are_numbers(options->classes) ? 0 : options->num_classes;
}

/* --- Messages --- */

/* "circle, cross, ...", or with numbers "0 = circle, 1 = cross, ...". */
static const char *list_names(char out[LIST_BYTES], const struct dt_names *names, int first)
{
    struct dt_text text = dt_text_in(out, LIST_BYTES);
    for (size_t i = 0; i < names->n && i < LIST_NAMES; i++) {
        dt_text_add(&text, "%s", i ? ", " : "");
        if (first >= 0)
            dt_text_add(&text, "%d = ", first + (int)i);
        dt_text_add(&text, "%s", dt_names_get(names, i));
    }
    dt_text_add(&text, "%s", names->n > LIST_NAMES ? ", ..." : "");
    return out;
}

static dt_status refuse_pair(const char *named, const struct dt_names *names, const char *numbered)
{
    char list[LIST_BYTES];
    DT_FAIL(DT_ERR_DATA,
            "classes have names in %s (%s) and numbers in %s, and nothing says which number is "
            "which class: list the names in the order of the numbers, one per line, in a file for "
            "data.class_map",
            named, list_names(list, names, -1), numbered);
}

/* --- The map --- */

static dt_status refuse_label(const struct dt_dataset *dataset, uint32_t id,
                              const struct dt_dataset_options *options)
{
    char name[DT_PATH_MAX + 64], list[LIST_BYTES];
    dataset->kind->name(dataset, id, name, sizeof name);
    DT_FAIL(DT_ERR_DATA, "%s has the label %d, but the classes of %s are %s", name,
            dataset->kind->label(dataset, id) + options->data->label_offset, options->classes_of,
            list_names(list, options->classes, -1));
}

/* Uses only samples whose class is listed; others may be there with `subset`. */
static dt_status keep_listed(struct dt_dataset *dataset, size_t n_labels,
                             const struct dt_dataset_options *options)
{
    DT_TRY(DT_NEW(dataset->ids, dataset->n));
    for (uint32_t id = 0; id < dataset->n; id++)
        if (dt_dataset_label_of(dataset, id) >= 0)
            dataset->ids[dataset->n_ids++] = id;
        else if (!options->subset)
            return refuse_label(dataset, id, options);
    dataset->fingerprint =
        XXH64(dataset->label_map, n_labels * sizeof *dataset->label_map, dataset->fingerprint);
    return DT_OK;
}

static dt_status map_names(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const struct dt_names *own = dataset->classes;
    DT_TRY(DT_NEW(dataset->label_map, own->n));
    DT_TRY(dt_classes_map(dataset->label_map, own, options->classes, options->subset,
                          options->part == DT_PART_TRAIN, options->path));
    return keep_listed(dataset, own->n, options);
}

/* The classes are called by numbers. */
static dt_status map_numbers(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    const int n = dataset->n_classes;
    DT_TRY(DT_NEW(dataset->label_map, (size_t)n));
    for (int i = 0; i < n; i++)
        dataset->label_map[i] = -1;
    for (size_t i = options->classes->n; i-- > 0;) { /* of 7 and 007 the first */
        const int label =
            number_of(dt_names_get(options->classes, i)) - options->data->label_offset;
        if (label >= 0 && label < n)
            dataset->label_map[label] = (int)i;
    }
    dt_log(DT_LOG_NOTICE, "%s: label N is the class named N of %s", options->path,
           options->classes_of);
    return keep_listed(dataset, (size_t)n, options);
}

/* The classes are numbers, and so are the names of this set. */
static dt_status map_to_numbers(struct dt_dataset *dataset,
                                const struct dt_dataset_options *options)
{
    const struct dt_names *own = dataset->classes;
    const int offset = options->data->label_offset;
    const int limit = options->num_classes > 0 ? options->num_classes : DT_MAX_CLASSES;
    DT_TRY(DT_NEW(dataset->label_map, own->n));
    dataset->n_classes = options->num_classes;
    for (size_t i = 0; i < own->n; i++) {
        const int label = number_of(dt_names_get(own, i)) - offset;
        if (label < 0 || label >= limit)
            DT_FAIL(DT_ERR_DATA, "%s has the class %s, but the labels of %s are %d to %d",
                    options->path, dt_names_get(own, i), options->classes_of, offset,
                    offset + limit - 1);
        dataset->label_map[i] = label;
        if (label >= dataset->n_classes)
            dataset->n_classes = label + 1;
    }
    dt_log(DT_LOG_NOTICE, "%s: class named N is label N of %s", options->path, options->classes_of);
    dataset->classes = NULL;
    return keep_listed(dataset, own->n, options);
}

/* Names the labels by the class map. */
static dt_status name_labels(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    char list[LIST_BYTES];
    const struct dt_names *names = options->class_map;
    if ((size_t)dataset->n_classes > names->n)
        DT_FAIL(DT_ERR_DATA, "%s holds the label %d, but %s lists %zu classes only",
                dt_dataset_in_messages(options),
                dataset->n_classes - 1 + options->data->label_offset, options->data->class_map,
                names->n);
    dt_log(DT_LOG_NOTICE, "%s: labels are %s", dt_dataset_in_messages(options),
           list_names(list, names, options->data->label_offset));
    dataset->classes = names;
    dataset->n_classes = (int)names->n;
    return DT_OK;
}

/* Pairs a set that has names with `options` that know the number of classes only. */
static dt_status meet_numbers(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    char list[LIST_BYTES];
    if (are_numbers(dataset->classes))
        return map_to_numbers(dataset, options);
    if (!options->by_order)
        return refuse_pair(options->path, dataset->classes, options->classes_of);
    dt_log(DT_LOG_NOTICE, "%s do not name the classes, so they are taken from %s in byte order: %s",
           options->classes_of, options->path, list_names(list, dataset->classes, 0));
    return DT_OK;
}

/* Checks labels that are made here, or have been mapped with their boxes. */
static dt_status check_positions(const struct dt_dataset *dataset,
                                 const struct dt_dataset_options *options)
{
    if ((size_t)dataset->n_classes > options->classes->n)
        DT_FAIL(DT_ERR_DATA, "%s holds the label %d, but there are names of %zu classes only",
                dt_dataset_in_messages(options), dataset->n_classes - 1, options->classes->n);
    return DT_OK;
}

static dt_status meet_names(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    if (dt_dataset_has_names(dataset))
        DT_TRY(map_names(dataset, options));
    else if (dataset->kind->raw || options->images || dataset->set)
        DT_TRY(check_positions(dataset, options));
    else if (are_numbers(options->classes))
        DT_TRY(map_numbers(dataset, options));
    else
        return refuse_pair(options->classes_of, options->classes, options->path);
    dataset->classes = options->classes;
    dataset->n_classes = (int)options->classes->n;
    return DT_OK;
}

static dt_status relate(struct dt_dataset *dataset, const struct dt_dataset_options *options)
{
    if (!dt_dataset_has_names(dataset) && is_filled(options->class_map) && !options->images)
        DT_TRY(name_labels(dataset, options));
    if (is_filled(options->classes) && dataset->classes != options->classes)
        return meet_names(dataset, options);
    if (!is_filled(options->classes) && options->classes_of && !dataset->set &&
        dt_dataset_has_names(dataset))
        return meet_numbers(dataset, options);
    return DT_OK;
}

/* --- What is likely to be a mistake --- */

static dt_status check_case(const struct dt_names *names)
{
    uint64_t *keys;
    uint32_t *first;
    DT_TRY(DT_NEW(keys, names->n));
    for (size_t i = 0; i < names->n; i++)
        for (const char *c = dt_names_get(names, i); *c; c++)
            keys[i] = keys[i] * 0x9E3779B97F4A7C15 + (uint64_t)tolower((unsigned char)*c);
    const dt_status status = dt_find_repeated(&first, keys, names->n);
    for (size_t i = 0; first && i < names->n; i++)
        if (first[i] < i)
            dt_log(DT_LOG_NOTICE, "the classes %s and %s differ in case only",
                   dt_names_get(names, first[i]), dt_names_get(names, i));
    free(first);
    free(keys);
    return status;
}

/* Folders and names have at least one. */
static dt_status tell_empty(const struct dt_dataset *dataset,
                            const struct dt_dataset_options *options)
{
    char list[LIST_BYTES];
    struct dt_text text = dt_text_in(list, sizeof list);
    const int n = dataset->n_classes, offset = options->data->label_offset;
    int n_empty = 0, first = -1;
    bool *found;
    DT_TRY(DT_NEW(found, (size_t)n));
    for (uint32_t id = 0; id < dataset->n; id++)
        found[dt_dataset_label_of(dataset, id)] = true;
    for (int label = 0; label < n; label++) {
        if (found[label] && first < 0)
            first = label;
        if (!found[label] && ++n_empty <= LIST_NAMES)
            dt_text_add(&text, "%s%d", n_empty > 1 ? ", " : "", label + offset);
    }
    free(found);
    dt_text_add(&text, "%s", n_empty > LIST_NAMES ? ", ..." : "");
    if (first > 0)
        dt_text_add(&text,
                    "; no label is below %d: if labels begin there, set data.label_offset=%d",
                    first + offset, first + offset);
    if (n_empty > 0)
        dt_log(DT_LOG_NOTICE, "%s: %d of %d classes have no images: %s", options->path, n_empty, n,
               list);
    return DT_OK;
}

dt_status dt_dataset_map_classes(struct dt_dataset *dataset,
                                 const struct dt_dataset_options *options)
{
    DT_TRY(relate(dataset, options));
    const int wanted = options->num_classes, n = dataset->n_classes;
    const bool named = dt_dataset_has_names(dataset);
    if (wanted > 0 && named && n != wanted)
        DT_FAIL(DT_ERR_CONFIG,
                "%s has %d classes (the last is %s), but model.num_classes is %d; leave that key "
                "out to follow the data, or choose classes with data.class_map",
                options->path, n, dt_names_get(dataset->classes, (size_t)n - 1), wanted);
    if (wanted > n) /* labels without names may stand for fewer classes than there are */
        dataset->n_classes = wanted;
    if (options->part == DT_PART_VAL || dataset->kind->raw || dataset->set || options->images)
        return DT_OK;
    return named ? check_case(dataset->classes) : tell_empty(dataset, options);
}
