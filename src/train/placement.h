/* Near which CPUs a rank with a GPU runs. With hwloc >= 2.0 only: without it nothing is bound. */
#ifndef DTRAIN_TRAIN_PLACEMENT_H
#define DTRAIN_TRAIN_PLACEMENT_H

#include <stdbool.h>
#include <stddef.h>

struct hwloc_bitmap_s;
struct hwloc_topology; /* loaded, with PCI devices */

/* Binds the calling thread, and so the threads it makes from now on, to those of its CPUs that are
 * in the NUMA node of the PCI device "0000:3b:00.0", and says so in what[bytes]. False, and nothing
 * happens, if it is bound within one node or to other nodes already, if the device or its node is
 * not known, and where there is one node only. Looks over the machine: takes tens of ms. */
bool dt_placement_near_gpu(const char *bus_id, char *what, size_t bytes);
/* The choice alone: cuts `cpus`, the allowed ones, to those near the device. False if that changes
 * nothing or leaves none; then `cpus` are as before. With DTRAIN_HAVE_HWLOC only. */
bool dt_placement_choose(struct hwloc_topology *topology, const char *bus_id,
                         struct hwloc_bitmap_s *cpus);

#endif
