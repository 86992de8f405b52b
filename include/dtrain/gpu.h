/* Lists the GPUs for `dtrain doctor` and device.kind auto: queries CUDA without opening a device.
 */
#ifndef DTRAIN_GPU_H
#define DTRAIN_GPU_H

#include <stddef.h>

#include "dtrain/backend.h"

enum { DT_GPU_MAX = 16 };

struct dt_gpu_report {
    int n_devices;     /* visible to this process */
    char problem[256]; /* why none can be used, "" if there is one */
    char driver[32];   /* newest CUDA the driver can run, "13.0"; "" = no driver */
    struct {
        char name[64];
        int capability;                  /* 90 = 9.0 */
        size_t memory_bytes, free_bytes; /* free: 0 = unknown */
        char identity[DT_IDENTITY_MAX];  /* as in backend.h */
        char bus_id[24];                 /* PCI: "0000:3b:00.0" */
    } device[DT_GPU_MAX];                /* the first min(n_devices, DT_GPU_MAX) */
};

/* Never fails; free_bytes stays 0. */
void dt_gpu_probe(struct dt_gpu_report *out);
/* "13.0, cuDNN 9.14.0, cuBLAS 13.1.0": this build's CUDA and what was found of the others. */
void dt_gpu_libraries(char *out, size_t bytes);
/* Fills free_bytes where the driver's management library reports it. Makes no CUDA context, so it
 * takes no memory of the GPUs. */
void dt_gpu_probe_memory(struct dt_gpu_report *report);

#endif
