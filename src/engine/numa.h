/* Binds a rank to the CPUs near its GPU. Requires hwloc >= 2.0; without it nothing is bound. */
#ifndef DTRAIN_ENGINE_NUMA_H
#define DTRAIN_ENGINE_NUMA_H

#include <stdbool.h>
#include <stddef.h>

struct hwloc_bitmap_s;
struct hwloc_topology; /* loaded, with PCI devices */

/* Binds the calling thread, and so all threads it creates later, to those of its CPUs that are in
 * the NUMA node of the PCI device "0000:3b:00.0", and describes that in what[bytes]. Does nothing
 * and returns false if the thread is already bound within one node or to other nodes, if the device
 * or its node is unknown, or if the machine has only one node. Discovers the topology: takes tens
 * of ms. */
bool dt_numa_near_gpu(const char *bus_id, char *what, size_t bytes);
/* The choice alone: reduces `cpus`, the allowed ones, to those near the device. Returns false and
 * leaves `cpus` unchanged if that would remove none or all. Only with DTRAIN_HAVE_HWLOC. */
bool dt_numa_choose(struct hwloc_topology *topology, const char *bus_id,
                    struct hwloc_bitmap_s *cpus);

#endif
