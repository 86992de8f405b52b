/* Input of a pass, copied concurrently with the work in progress.
 *
 * The host's bytes go to one of two blocks of device memory on the copy stream, and from there to
 * their tensors on the compute stream, once the tensors are free. end_feed waits for the first copy
 * only. The blocks alternate, so the host can be two passes ahead of the device.
 *
 * These are the only copies of a batch: workers resize images into the loader's pinned slots. The
 * second one lets a recorded step, whose addresses are fixed, read from both blocks. At 224x224 it
 * moves 0.3 MB per image, for 256 images 18 us at 4.3 TB/s, 0.05 % of a step at 7,000 images/s. */
#include "base/log.h"
#include "cuda/cuda_internal.h"

dt_status dt_cuda_upload(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    DT_TRY(
        DT_CUDA("upload", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyHostToDevice, dev->compute)));
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "an upload and earlier work"));
    return DT_OK;
}

/* A copy to unpinned memory blocks, so the earlier work is waited for first: with a deadline. */
dt_status dt_cuda_read(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "the work before a tensor is read"));
    DT_TRY(DT_CUDA("read", cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, dev->compute)));
    DT_TRY(dt_cuda_wait_stream(dev, dev->compute, "reading a tensor"));
    return DT_OK;
}

void dt_cuda_close_feed(struct dt_device *dev)
{
    for (int i = 0; i < DT_CUDA_FEED_SLOTS; i++) {
        if (dev->feed_memory[i] && !dev->hung)
            (void)cudaFree(dev->feed_memory[i]);
        dev->feed_memory[i] = NULL;
    }
    dev->feed_bytes = dev->feed_used = 0;
}

/* The plans of a device share the blocks, which only grow. */
dt_status dt_cuda_open_feed(struct dt_device *dev, size_t bytes)
{
    enum { MAX_FEEDS = 8 }; /* each of them is aligned */
    size_t wanted = dt_cuda_align(bytes) + MAX_FEEDS * DT_CUDA_ALIGN;
    if (wanted <= dev->feed_bytes)
        return DT_OK;
    DT_TRY(dt_cuda_sync(dev));
    dt_cuda_close_feed(dev);
    for (int i = 0; i < DT_CUDA_FEED_SLOTS; i++)
        DT_TRY(DT_CUDA("GPU memory for input", cudaMalloc((void **)&dev->feed_memory[i], wanted)));
    dev->feed_bytes = wanted;
    return DT_OK;
}

dt_status dt_cuda_feed(struct dt_device *dev, void *dst, const void *src, size_t bytes)
{
    const int slot = dev->feed_slot;
    if (dev->feed_bytes == 0)
        return dt_cuda_upload(dev, dst, src, bytes);
    if (dev->feed_used + bytes > dev->feed_bytes)
        DT_FAIL(DT_ERR_INTERNAL, "a pass feeds %zu bytes, more than the %zu requested",
                dev->feed_used + bytes, dev->feed_bytes);
    char *block = dev->feed_memory[slot] + dev->feed_used;
    if (dev->feed_used == 0)
        DT_TRY(DT_CUDA("input", cudaStreamWaitEvent(dev->copy, dev->taken[slot], 0)));
    dev->feed_used += dt_cuda_align(bytes);
    DT_TRY(DT_CUDA("input", cudaMemcpyAsync(block, src, bytes, cudaMemcpyHostToDevice, dev->copy)));
    DT_TRY(DT_CUDA("input", cudaEventRecord(dev->fed[slot], dev->copy)));
    DT_TRY(DT_CUDA("input", cudaStreamWaitEvent(dev->compute, dev->fed[slot], 0)));
    DT_TRY(DT_CUDA("input",
                   cudaMemcpyAsync(dst, block, bytes, cudaMemcpyDeviceToDevice, dev->compute)));
    return DT_CUDA("input", cudaEventRecord(dev->taken[slot], dev->compute));
}

dt_status dt_cuda_end_feed(struct dt_device *dev)
{
    if (dev->feed_used == 0)
        return DT_OK;
    DT_TRY(dt_cuda_wait(dev, dev->fed[dev->feed_slot], "copying input"));
    dev->feed_slot = (dev->feed_slot + 1) % DT_CUDA_FEED_SLOTS;
    dev->feed_used = 0;
    return DT_OK;
}

/* Everything works without pinning, but copies are slower and block. Warns only once. */
dt_status dt_cuda_pin(struct dt_device *dev, void *memory, size_t bytes)
{
    cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterDefault);
    if (code == cudaSuccess)
        return DT_OK;
    (void)cudaGetLastError();
    if (!dev->told_unpinned)
        dt_log(DT_LOG_WARNING,
               "cannot pin host memory for input (%s: %s): copies to the GPU will be slow",
               cudaGetErrorName(code), cudaGetErrorString(code));
    dev->told_unpinned = true;
    return DT_OK;
}

void dt_cuda_unpin(struct dt_device *dev, void *memory)
{
    if (!dev->hung && cudaHostUnregister(memory) != cudaSuccess)
        (void)cudaGetLastError(); /* it was not pinned; dt_cuda_pin has warned */
}
