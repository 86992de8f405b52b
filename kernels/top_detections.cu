// The best detections of a level for every image: selection of the largest keys by radix, in
// integers, so that nothing depends on the order of the threads. A key is the score, relative to
// min_score, and below it the place counted from the end; no two are equal. Each pass counts the
// next BITS bits of the keys that may still be the last one wanted. When the keys above and among
// those fit into a list, the remaining passes end at once, one more collects the list, and one
// block sorts it. With few equal scores that is one pass of counting.
//
// Bytes moved: the logits in every pass of counting, and once to collect; of the deltas and of the
// results only the rows of the list.
#include "kernels/device.cuh"

enum {
    BITS = 11,
    BINS = 1 << BITS,
    MAX_PASSES = 6, // keys have at most 30 + 31 bits
    LIST = 2048,
    SORT_THREADS = 1024,
    EACH = BINS / DT_BLOCK_THREADS, // bins per thread
};

typedef unsigned long long key_type;

// All keys >= low: `above` of them beyond the values that are counted now; the others are not yet.
struct found {
    key_type low;
    unsigned above;
    bool enough; // those >= low fit into the list, or are all there are
};

struct image {
    unsigned histogram[MAX_PASSES][BINS];
    struct found found[MAX_PASSES + 1];
    unsigned n;
    key_type list[LIST];
};

// The layout of the keys. Pass p counts bits shift(p) .. shift(p - 1) - 1.
struct keys {
    float low, min_score;
    unsigned base; // bits of min_score
    unsigned scores, channels, cp;
    int place_bits, bits;
};

static __host__ __device__ inline int shift_of(const struct keys &k, int pass)
{
    const int shift = k.bits - BITS * (pass + 1);
    return shift > 0 ? shift : 0;
}

static int bits_of(unsigned largest)
{
    int n = 0;
    while (largest >> n)
        n++;
    return n;
}

static struct keys keys_of(const struct dt_top_level *level)
{
    struct keys k = {};
    const float one = 1;
    unsigned limit;
    memcpy(&k.base, &level->min_score, sizeof k.base);
    memcpy(&limit, &one, sizeof limit);
    k.low = dt_box_logit_below(level->min_score);
    k.min_score = level->min_score;
    k.channels = level->channels;
    k.cp = level->cp;
    k.scores = level->place.height * level->place.width * level->channels;
    k.place_bits = bits_of(k.scores - 1);
    k.bits = bits_of(limit - k.base) + k.place_bits;
    return k;
}

// Calls use(key) for the thread's share of an image.
template <typename T, typename F>
static __device__ inline void each_key(const T *logits, const struct keys &k, F use)
{
    const unsigned n_packs = k.scores / k.channels * (k.cp / DT_CHANNEL_PACK);
    logits += (size_t)blockIdx.y * n_packs * DT_CHANNEL_PACK;
    for (unsigned g = blockIdx.x * blockDim.x + threadIdx.x; g < n_packs;
         g += gridDim.x * blockDim.x) {
        float v[DT_CHANNEL_PACK];
        dt_load8(v, logits + (size_t)g * DT_CHANNEL_PACK);
        for (int i = 0; i < DT_CHANNEL_PACK; i++) {
            const unsigned channel = g % (k.cp / DT_CHANNEL_PACK) * DT_CHANNEL_PACK + i;
            if (!(v[i] >= k.low) || channel >= k.channels)
                continue;
            const float score = dt_box_score(v[i]);
            const unsigned number = g / (k.cp / DT_CHANNEL_PACK) * k.channels + channel;
            if (score > k.min_score)
                use((key_type)(__float_as_uint(score) - k.base) << k.place_bits |
                    (k.scores - 1 - number));
        }
    }
}

// The sum of v over this thread and those after it.
static __device__ inline unsigned sum_from(unsigned v)
{
    __shared__ unsigned sum[DT_BLOCK_THREADS];
    const unsigned t = threadIdx.x;
    sum[t] = v;
    for (unsigned step = 1; step < DT_BLOCK_THREADS; step *= 2) {
        __syncthreads();
        const unsigned other = t + step < DT_BLOCK_THREADS ? sum[t + step] : 0;
        __syncthreads();
        sum[t] += other;
    }
    return sum[t];
}

// Finds what the counts of the pass before `pass` say. All blocks of an image find the same; one
// keeps it for the next pass.
static __device__ struct found look(struct image *image, const struct keys &k, int pass,
                                    unsigned keep)
{
    __shared__ struct found now;
    if (pass == 0)
        return {0, 0, false};
    const struct found before = image->found[pass - 1];
    const unsigned *bin = image->histogram[pass - 1] + threadIdx.x * EACH;
    unsigned sum = 0;
    for (int i = 0; i < EACH; i++)
        sum += bin[i];
    const unsigned above = before.above + sum_from(sum) - sum;
    if (threadIdx.x == 0)
        now = {before.low, before.above, true}; // if there are fewer than `keep`
    __syncthreads();
    if (!before.enough && above < keep && above + sum >= keep) {
        unsigned n = above;
        int i = EACH - 1;
        for (; n + bin[i] < keep; i--)
            n += bin[i];
        const key_type digit = threadIdx.x * EACH + i;
        now = {before.low + (digit << shift_of(k, pass - 1)), n, n + bin[i] <= LIST};
    }
    __syncthreads();
    if (blockIdx.x == 0 && threadIdx.x == 0)
        image->found[pass] = now;
    return now;
}

template <typename T>
static __global__ void count_kernel(struct image *images, const T *logits, struct keys k, int pass,
                                    unsigned keep)
{
    __shared__ unsigned histogram[BINS];
    struct image *image = images + blockIdx.y;
    const struct found found = look(image, k, pass, keep);
    if (found.enough)
        return;
    for (int i = threadIdx.x; i < BINS; i += DT_BLOCK_THREADS)
        histogram[i] = 0;
    __syncthreads();
    const int shift = shift_of(k, pass), before = pass > 0 ? shift_of(k, pass - 1) : k.bits;
    each_key(logits, k, [=](key_type key) {
        if (key >= found.low && (key - found.low) >> before == 0)
            atomicAdd(&histogram[(key - found.low) >> shift], 1u);
    });
    __syncthreads();
    for (int i = threadIdx.x; i < BINS; i += DT_BLOCK_THREADS)
        if (histogram[i] > 0)
            atomicAdd(&image->histogram[pass][i], histogram[i]);
}

template <typename T>
static __global__ void collect_kernel(struct image *images, const T *logits, struct keys k,
                                      int passes, unsigned keep)
{
    struct image *image = images + blockIdx.y;
    const struct found found = look(image, k, passes, keep);
    each_key(logits, k, [=](key_type key) {
        if (key >= found.low)
            image->list[atomicAdd(&image->n, 1u)] = key;
    });
}

// key[0 .. size), a power of two, by falling value: bitonic.
static __device__ inline void sort(key_type *key, unsigned size)
{
    for (unsigned run = 2; run <= size; run *= 2)
        for (unsigned step = run / 2; step > 0; step /= 2) {
            for (unsigned i = threadIdx.x; i < size / 2; i += SORT_THREADS) {
                const unsigned a = 2 * i - (i & (step - 1)), b = a + step;
                const key_type x = key[a], y = key[b];
                if ((x < y) == ((a & run) == 0))
                    key[a] = y, key[b] = x;
            }
            __syncthreads();
        }
}

// Row i of an image; zeros behind the last one.
template <typename T>
static __device__ inline void write_row(float *row, key_type key, const T *deltas,
                                        const int32_t *size, const struct dt_top_level &level,
                                        const struct keys &k)
{
    const unsigned place = (unsigned)(key & (((key_type)1 << k.place_bits) - 1));
    const unsigned number = k.scores - 1 - place, classes = k.channels / DT_CELL_ANCHORS;
    const unsigned i = number / classes;
    float anchor[4], delta[4];
    deltas += (size_t)(i / DT_CELL_ANCHORS) * level.delta_cp + i % DT_CELL_ANCHORS * 4;
    for (int j = 0; j < 4; j++)
        delta[j] = (float)deltas[j];
    dt_level_anchor(anchor, &level.place, (int)i);
    dt_box_decode(row, delta, anchor, size);
    row[4] = __uint_as_float((unsigned)(key >> k.place_bits) + k.base);
    row[5] = (float)(number % classes);
}

template <typename T>
static __global__ void write_kernel(float *rows, int32_t *n_rows, const struct image *images,
                                    const T *deltas, const int32_t *sizes,
                                    struct dt_top_level level, struct keys k)
{
    __shared__ key_type key[LIST];
    const unsigned image = blockIdx.x, n_list = images[image].n;
    unsigned size = 1;
    while (size < n_list)
        size *= 2;
    for (unsigned i = threadIdx.x; i < size; i += SORT_THREADS)
        key[i] = i < n_list ? images[image].list[i] : 0;
    __syncthreads();
    sort(key, size);
    const unsigned n = n_list < level.keep ? n_list : level.keep;
    if (threadIdx.x == 0)
        n_rows[image] = (int32_t)n;
    deltas += (size_t)image * level.place.height * level.place.width * level.delta_cp;
    for (unsigned i = threadIdx.x; i < level.keep; i += SORT_THREADS) {
        float row[6] = {};
        if (i < n)
            write_row(row, key[i], deltas, sizes + 2 * image, level, k);
        for (int j = 0; j < 6; j++)
            rows[((size_t)image * level.keep + i) * 6 + j] = row[j];
    }
}

size_t dt_top_scratch_bytes(int n)
{
    return (size_t)n * sizeof(struct image);
}

template <typename T>
static cudaError_t top_detections(cudaStream_t stream, float *rows, int32_t *n_rows,
                                  const T *logits, const T *deltas, const int32_t *sizes,
                                  struct image *images, const struct dt_top_level &level)
{
    const struct keys k = keys_of(&level);
    const int passes = (k.bits + BITS - 1) / BITS;
    const struct dt_geometry all = dt_flat_geometry(k.scores / k.channels * (size_t)k.cp);
    const unsigned limit = (DT_MAX_BLOCKS + level.n - 1) / level.n;
    const struct dt_geometry some = {all.grid_x < limit ? all.grid_x : limit, (unsigned)level.n,
                                     DT_BLOCK_THREADS, 1};
    const struct dt_geometry one_each = {(unsigned)level.n, 1, SORT_THREADS, 1};
    cudaError_t error = cudaMemsetAsync(images, 0, dt_top_scratch_bytes(level.n), stream);
    for (int pass = 0; pass < passes && error == cudaSuccess; pass++)
        error = dt_launch(count_kernel<T>, some, stream, images, logits, k, pass, level.keep);
    if (error == cudaSuccess)
        error = dt_launch(collect_kernel<T>, some, stream, images, logits, k, passes, level.keep);
    if (error != cudaSuccess)
        return error;
    return dt_launch(write_kernel<T>, one_each, stream, rows, n_rows, images, deltas, sizes, level,
                     k);
}

cudaError_t dt_kernel_top_detections(cudaStream_t stream, enum dt_dtype type, float *rows,
                                     int32_t *n_rows, const void *logits, const void *deltas,
                                     const int32_t *sizes, void *scratch,
                                     const struct dt_top_level *level)
{
    return DT_BY_TYPE(type, (top_detections(stream, rows, n_rows, static_cast<const T *>(logits),
                                            static_cast<const T *>(deltas), sizes,
                                            static_cast<struct image *>(scratch), *level)));
}
