// Memory: device memory has guards at both ends, is initialised to 0xA5 bytes, and cannot be
// accessed by the program except from work in a stream; copies check their arguments.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "runtime.h"

namespace emu
{

namespace
{

constexpr size_t alignment = 256;
constexpr unsigned char fresh = 0xA5, guard = 0x5C;
// Larger blocks are not filled: a test may allocate what a real GPU has, if it never touches it.
constexpr size_t filled_bytes = size_t{1} << 30;

struct allocation {
    char *pages; // between two pages that are never accessible
    size_t page_bytes;
    char *data; // ends at most `alignment` bytes before the pages end
    size_t bytes;
    int device;
    bool open; // accessible
};

struct pinned {
    size_t bytes;
    void *own; // of cudaHostAlloc
};

// By address; never destroyed.
std::map<const char *, allocation> &allocations()
{
    static auto one = new std::map<const char *, allocation>;
    return *one;
}

std::map<const char *, pinned> &pins()
{
    static auto one = new std::map<const char *, pinned>;
    return *one;
}

size_t used[64];
int n_access;

const allocation *find(const void *ptr)
{
    auto p = static_cast<const char *>(ptr);
    auto after = allocations().upper_bound(p);
    if (after == allocations().begin())
        return nullptr;
    const allocation &a = (--after)->second;
    return p < a.data + a.bytes ? &a : nullptr;
}

bool is_pinned(const void *ptr, size_t bytes, const char *what)
{
    auto p = static_cast<const char *>(ptr);
    for (const auto &[begin, pin] : pins()) {
        if (p + bytes <= begin || p >= begin + pin.bytes)
            continue;
        if (p < begin || p + bytes > begin + pin.bytes)
            emu_fail("%s: host memory %p .. +%zu is only partly pinned", what, ptr, bytes);
        return true;
    }
    return false;
}

void protect(allocation &a, bool open)
{
    if (a.open == open)
        return;
    if (mprotect(a.pages, a.page_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        emu_fail("mprotect failed");
    a.open = open;
}

bool all_are(const char *begin, const char *end, unsigned char value)
{
    for (; begin < end; begin++)
        if (static_cast<unsigned char>(*begin) != value)
            return false;
    return true;
}

void check_guards(const allocation &a, const char *what)
{
    const char *end = a.pages + a.page_bytes;
    const char *begin = a.data - a.pages > 256 ? a.data - 256 : a.pages;
    if (!all_are(begin, a.data, guard) || !all_are(a.data + a.bytes, end, guard))
        emu_fail("%s wrote outside the allocation %p of %zu bytes", what,
                 static_cast<void *>(a.data), a.bytes);
}

} // namespace

device_access::device_access()
{
    if (n_access++ == 0)
        for (auto &[_, a] : allocations())
            protect(a, true);
}

device_access::~device_access()
{
    if (--n_access == 0 && random_below(64) == 0)
        for (auto &[_, a] : allocations())
            protect(a, false);
}

void check_guards(const std::string &what)
{
    for (const auto &[_, a] : allocations())
        check_guards(a, what.c_str());
}

namespace
{

// The arguments of a copy: checked when it is enqueued, executed later.
struct copy {
    void *dst;
    const void *src;
    size_t bytes;
    bool to_device, from_device;
};

copy check_copy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind, const char *what)
{
    copy c{dst, src, bytes, emu_is_device(dst), emu_is_device(src)};
    bool fits =
        kind == cudaMemcpyDefault ||
        kind == (c.to_device     ? c.from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                 : c.from_device ? cudaMemcpyDeviceToHost
                                 : cudaMemcpyHostToHost);
    if (!fits)
        emu_fail("%s: kind %d, but dst %p is %s memory and src %p is %s memory", what, kind, dst,
                 c.to_device ? "device" : "host", src, c.from_device ? "device" : "host");
    if (!c.to_device && !c.from_device)
        emu_fail("%s: copies from host to host are not emulated", what);
    if (c.to_device)
        emu_check_device(dst, bytes, what);
    if (c.from_device)
        emu_check_device(src, bytes, what);
    auto d = static_cast<const char *>(dst), s = static_cast<const char *>(src);
    if (d < s + bytes && s < d + bytes)
        emu_fail("%s: source %p and destination %p overlap", what, src, dst);
    return c;
}

const void *host_side(const copy &c)
{
    return !c.to_device ? c.dst : !c.from_device ? c.src : nullptr;
}

std::vector<const void *> device_sides(const copy &c)
{
    std::vector<const void *> sides;
    if (c.to_device)
        sides.push_back(c.dst);
    if (c.from_device)
        sides.push_back(c.src);
    return sides;
}

void add_copy(cudaStream_t stream, const copy &c, bool pinned)
{
    emu_enqueue(
        stream,
        [c, pinned] {
            if (pinned && host_side(c) && !is_pinned(host_side(c), c.bytes, "a copy"))
                emu_fail("host memory %p was unpinned or freed before the copy that uses it",
                         host_side(c));
            if (c.to_device)
                emu_check_device(c.dst, c.bytes, "a copy");
            if (c.from_device)
                emu_check_device(c.src, c.bytes, "a copy");
            memcpy(c.dst, c.src, c.bytes);
        },
        "a copy", device_sides(c));
}

// The source is read now, as into the driver's staging buffer.
void add_staged_copy(cudaStream_t stream, const copy &c)
{
    auto stage = std::make_shared<std::vector<char>>(static_cast<const char *>(c.src),
                                                     static_cast<const char *>(c.src) + c.bytes);
    emu_enqueue(
        stream,
        [c, stage] {
            emu_check_device(c.dst, c.bytes, "a copy");
            memcpy(c.dst, stage->data(), c.bytes);
        },
        "a copy", device_sides(c));
}

// Unpins the block at ptr and returns it; nullptr if it was not pinned, or not in this way.
void *unpin(void *ptr, bool own)
{
    auto found = pins().find(static_cast<const char *>(ptr));
    if (found == pins().end() || (found->second.own != nullptr) != own)
        return nullptr;
    void *out = own ? found->second.own : ptr;
    pins().erase(found);
    return out;
}

} // namespace

} // namespace emu

using namespace emu;

bool emu_is_device(const void *ptr)
{
    auto lock = emu_lock();
    return find(ptr) != nullptr;
}

void emu_check_device(const void *ptr, size_t bytes, const char *what)
{
    if (bytes == 0)
        return;
    auto lock = emu_lock();
    const allocation *a = find(ptr);
    if (!a)
        emu_fail("%s: %p is not device memory", what, ptr);
    size_t left = static_cast<size_t>(a->data + a->bytes - static_cast<const char *>(ptr));
    if (bytes > left)
        emu_fail("%s: %zu bytes at %p, but its allocation ends after %zu", what, bytes, ptr, left);
    int device = working_device() >= 0 ? working_device() : emu_current_device();
    if (a->device != device)
        emu_fail("%s: %p is memory of device %d, not of device %d", what, ptr, a->device, device);
}

extern "C" {

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    int device = emu_current_device();
    if (bytes > device_memory() - used[device])
        return error(cudaErrorMemoryAllocation);
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    size_t page_bytes = (rounded + page - 1) / page * page;
    void *memory = mmap(nullptr, page_bytes + 2 * page, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return error(cudaErrorMemoryAllocation);
    allocation a{static_cast<char *>(memory) + page, page_bytes, nullptr, bytes, device, false};
    a.data = a.pages + page_bytes - rounded;
    protect(a, true);
    memset(a.pages, guard, static_cast<size_t>(a.data - a.pages));
    memset(a.data, fresh, bytes < filled_bytes ? bytes : 0);
    memset(a.data + bytes, guard, rounded - bytes);
    protect(a, false);
    allocations()[a.data] = a;
    used[device] += bytes;
    *out = a.data;
    return cudaSuccess;
}

// Waits for all work of the device.
cudaError_t cudaFree(void *ptr)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    if (!ptr)
        return cudaSuccess;
    auto found = allocations().find(static_cast<const char *>(ptr));
    if (found == allocations().end())
        emu_fail("cudaFree: %p is not the beginning of an allocation", ptr);
    wait_for_all(found->second.device);
    allocation a = found->second;
    used[a.device] -= a.bytes;
    allocations().erase(found);
    auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    munmap(a.pages - page, a.page_bytes + 2 * page);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    *total = device_memory();
    *free_bytes = *total - used[emu_current_device()];
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    *out = nullptr;
    if (bytes == 0)
        return cudaSuccess;
    if (posix_memalign(out, 4096, bytes) != 0)
        return error(cudaErrorMemoryAllocation);
    memset(*out, fresh, bytes);
    pins()[static_cast<char *>(*out)] = {bytes, *out};
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaHostAlloc(out, bytes, 0);
}

cudaError_t cudaFreeHost(void *ptr)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    if (!ptr)
        return cudaSuccess;
    void *own = unpin(ptr, true);
    if (!own)
        emu_fail("cudaFreeHost: %p is not from cudaHostAlloc", ptr);
    free(own);
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    if (!ptr || bytes == 0)
        return error(cudaErrorInvalidValue);
    auto p = static_cast<const char *>(ptr);
    for (const auto &[begin, pin] : pins())
        if (p < begin + pin.bytes && begin < p + bytes)
            return error(cudaErrorHostMemoryAlreadyRegistered);
    pins()[p] = {bytes, nullptr};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *ptr)
{
    auto lock = emu_lock();
    EMU_TRY(need_device());
    EMU_TRY(forbid_capture());
    return unpin(ptr, false) ? cudaSuccess : error(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(handle, "cudaMemcpyAsync");
    EMU_TRY(forbid_implicit(stream));
    if (bytes == 0)
        return cudaSuccess;
    copy c = check_copy(dst, src, bytes, kind, "cudaMemcpyAsync");
    const void *host = host_side(c);
    bool pinned = host && is_pinned(host, bytes, "cudaMemcpyAsync");
    if (host && !pinned && stream->capture)
        emu_fail("cudaMemcpyAsync: pageable host memory %p in a capture would be accessed at each "
                 "launch of the graph",
                 host);
    if (host && !pinned && c.to_device) {
        add_staged_copy(handle, c);
        return cudaSuccess;
    }
    add_copy(handle, c, pinned);
    if (host && !pinned)
        wait_for(stream->last);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, cudaMemcpyKind kind)
{
    auto lock = emu_lock();
    cudaStream_t stream = stream_of(nullptr, "cudaMemcpy");
    EMU_TRY(forbid_implicit(stream));
    EMU_TRY(forbid_capture());
    if (bytes == 0)
        return cudaSuccess;
    copy c = check_copy(dst, src, bytes, kind, "cudaMemcpy");
    if (c.to_device && c.from_device) {
        add_copy(stream, c, false); // no one waits
    } else if (c.to_device && !is_pinned(src, bytes, "cudaMemcpy")) {
        cudaStreamSynchronize(nullptr); // waits before staging, not after
        add_staged_copy(nullptr, c);
    } else {
        add_copy(nullptr, c, is_pinned(host_side(c), bytes, "cudaMemcpy"));
        wait_for(stream->last);
    }
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *dst, int value, size_t bytes, cudaStream_t handle)
{
    auto lock = emu_lock();
    EMU_TRY(forbid_implicit(stream_of(handle, "cudaMemsetAsync")));
    emu_check_device(dst, bytes, "cudaMemsetAsync");
    emu_enqueue(handle,
                [=] {
                    emu_check_device(dst, bytes, "cudaMemsetAsync");
                    memset(dst, value, bytes);
                },
                "cudaMemsetAsync", {dst});
    return cudaSuccess;
}

// Does not wait, although its name lacks Async.
cudaError_t cudaMemset(void *dst, int value, size_t bytes)
{
    auto lock = emu_lock();
    EMU_TRY(forbid_capture());
    return cudaMemsetAsync(dst, value, bytes, nullptr);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *out, const void *ptr)
{
    auto lock = emu_lock();
    const allocation *a = find(ptr);
    *out = {};
    out->device = a ? a->device : emu_current_device();
    bool host = !a && is_pinned(ptr, 1, "cudaPointerGetAttributes");
    out->type = a ? cudaMemoryTypeDevice : host ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    out->devicePointer = a || host ? const_cast<void *>(ptr) : nullptr;
    out->hostPointer = host ? const_cast<void *>(ptr) : nullptr;
    return cudaSuccess;
}

} // extern "C"
