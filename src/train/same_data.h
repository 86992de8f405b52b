/* Whether all machines have the same data. Collective. */
#ifndef DTRAIN_TRAIN_SAME_DATA_H
#define DTRAIN_TRAIN_SAME_DATA_H

#include "data/digest.h"
#include "dtrain/comm.h"
#include "train/engine.h"

/* One rank of each machine reads what data.check asks for; does nothing on one machine.
 * DT_ERR_DISAGREE on all ranks, with both hosts and the first file that differs. */
dt_status dt_same_data_check(struct dt_sets *sets);
/* The same for the names and sizes of files, of every rank. */
dt_status dt_same_data_check_names(struct dt_sets *sets);
/* Compares one set, which all ranks have open; the ranks that do not read count as equal. `key` is
 * data.train or data.val. DT_OK if no difference is found; rank 0 reads. */
dt_status dt_same_data_compare(struct dt_comm *comm, const struct dt_dataset *set, const char *key,
                               enum dt_digest kind, bool reads);

#endif
