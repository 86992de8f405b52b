/* Runs a rank near its GPU, so that batches are decoded into memory of the NUMA node the GPU copies
 * them from: memory belongs to the node of the thread that first touches it. */
#include "engine/devices.h"

#ifdef DTRAIN_HAVE_HWLOC
#include <hwloc.h>
#include <stdio.h>

bool dt_numa_choose(struct hwloc_topology *topology, const char *bus_id,
                    struct hwloc_bitmap_s *cpus)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(topology, bus_id);
    if (!device)
        return false;
    /* All CPUs of the nodes near the device; of all nodes if that is unknown. */
    const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, device);
    hwloc_bitmap_t near = hwloc_bitmap_alloc();
    bool is_cut = near && hwloc_cpuset_from_nodeset(topology, near, place->nodeset) == 0 &&
                  hwloc_bitmap_intersects(cpus, near) && !hwloc_bitmap_isincluded(cpus, near) &&
                  hwloc_bitmap_and(cpus, cpus, near) == 0;
    hwloc_bitmap_free(near);
    return is_cut;
}

static bool bind_thread(hwloc_topology_t topology, const char *bus_id, char *what, size_t bytes)
{
    char list[128];
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    bool is_bound = cpus && hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) == 0 &&
                    dt_numa_choose(topology, bus_id, cpus) &&
                    hwloc_set_cpubind(topology, cpus, HWLOC_CPUBIND_THREAD) == 0;
    if (is_bound) {
        hwloc_bitmap_list_snprintf(list, sizeof list, cpus);
        snprintf(what, bytes, "bound to CPUs %s near GPU %s", list, bus_id);
    }
    hwloc_bitmap_free(cpus);
    return is_bound;
}

bool dt_numa_near_gpu(const char *bus_id, char *what, size_t bytes)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return false;
    bool is_bound = hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PCI_DEVICE,
                                                   HWLOC_TYPE_FILTER_KEEP_ALL) == 0 &&
                    hwloc_topology_load(topology) == 0 &&
                    hwloc_topology_is_thissystem(topology) && /* otherwise binding has no effect */
                    bind_thread(topology, bus_id, what, bytes);
    hwloc_topology_destroy(topology);
    return is_bound;
}
#else
bool dt_numa_near_gpu(const char *bus_id, char *what, size_t bytes)
{
    (void)bus_id;
    (void)what;
    (void)bytes;
    return false;
}
#endif
