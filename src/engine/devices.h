/* Choice of the device of a run: the only place that knows what this build supports. */
#ifndef DTRAIN_ENGINE_DEVICES_H
#define DTRAIN_ENGINE_DEVICES_H

#include "dtrain/backend.h"
#include "dtrain/comm.h"
#include "dtrain/config.h"
#include "dtrain/gpu.h"

struct dt_device_choice {
    const struct dt_backend *backend;
    enum dt_plane plane;         /* of the gradients */
    enum dt_precision precision; /* not auto */
    const char *fallback; /* why device.kind auto chose the CPU in a build with CUDA, else NULL */
};

bool dt_devices_has_cuda(void); /* this build */
/* The GPUs that this process can use, or why it has none (including a build without CUDA). Probes
 * once and keeps the result. */
const struct dt_gpu_report *dt_devices_gpus(void);
/* As dt_gpu_libraries; "none" without CUDA. */
void dt_devices_libraries(char *out, size_t bytes);
/* The same with free_bytes, as they are now. */
void dt_devices_gpus_free(struct dt_gpu_report *out);

/* The device for one process of `n_ranks`, from what this process alone knows: DT_ERR_DEVICE or
 * DT_ERR_CONFIG with a message if it is not available or does not support the precision or
 * comm.backend. Probes GPUs only if device.kind is not cpu. Local. */
dt_status dt_devices_choose(struct dt_device_choice *out, const struct dt_config *config,
                            int n_ranks);
/* The same for all ranks of `comm`, which get the same kind of device: DT_ERR_DISAGREE if only some
 * have a GPU. Collective; all ranks return the same status. */
dt_status dt_devices_agree(struct dt_device_choice *out, struct dt_comm *comm,
                           const struct dt_config *config);
/* DT_ERR_CONFIG if the ranks cannot train together as comm.mode, train.sync_every and
 * comm.grad_dtype say; other commands may read the configuration of such a run. Local. */
dt_status dt_devices_check_training(const struct dt_backend *backend,
                                    const struct dt_config *config, int n_ranks);
/* DT_ERR_CONFIG if another rank has opened the same GPU and config.device.allow_shared_gpu is
 * false. Collective; the status is local. */
dt_status dt_devices_check_shared(struct dt_comm *comm, const struct dt_backend *backend,
                                  struct dt_device *device, const struct dt_config *config);
/* PCI address of the opened GPU, "0000:3b:00.0"; "" if it is not among the GPUs of
 * dt_devices_gpus. */
const char *dt_devices_bus_id(const struct dt_backend *backend, struct dt_device *device);
/* The device options that a configuration with the precision of the choice sets; the rest is zero.
 */
struct dt_device_options dt_devices_options(const struct dt_config *config, int threads);
/* Writes the folder that caches algorithm choices to out[DT_PATH_MAX]: device.cache_dir, or
 * "dtrain" in the user's cache directory; "" if neither exists. */
void dt_devices_cache_dir(char *out, const struct dt_config *config);

/* numa.c: binds a rank to the CPUs near its GPU. Requires hwloc >= 2.0; without it nothing is
 * bound. */
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
