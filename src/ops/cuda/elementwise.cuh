// One thread an element (or a pair of elements).

#ifndef ELEMENTWISE_ONCE
#define ELEMENTWISE_ONCE
// GELU in its tanh approximation, and its derivative: x·σ(2u) with u = √(2/π)(x + 0.044715x³).
__device__ __forceinline__ float2 gelu_and_slope(float x) {
    const float twice_root = 1.5957692f, cubic = 0.044715f;
    float square = x * x;
    float sigmoid = 1.0f / (1.0f + expf(-(twice_root * x) * (1.0f + cubic * square)));
    float slope = twice_root * (1.0f + 3.0f * cubic * square);
    return make_float2(x * sigmoid, sigmoid + x * sigmoid * (1.0f - sigmoid) * slope);
}

// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011); as in ops/dropout.rs.
__device__ __forceinline__ uint4 philox(uint32_t key0, uint32_t key1, uint64_t counter) {
    uint4 c = make_uint4((uint32_t)counter, (uint32_t)(counter >> 32), 0u, 0u);
    for (int round = 0; round < 10; round++) {
        uint32_t high0 = __umulhi(0xD2511F53u, c.x), low0 = 0xD2511F53u * c.x;
        uint32_t high1 = __umulhi(0xCD9E8D57u, c.z), low1 = 0xCD9E8D57u * c.z;
        c = make_uint4(high1 ^ c.y ^ key0, low1, high0 ^ c.w ^ key1, low0);
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return c;
}
#endif

KERNEL(gelu)(const T* x, T* y, size_t n) {
    size_t i = element();
    if (i < n) store(y, i, gelu_and_slope(load(x, i)).x);
}

KERNEL(gelu_dx)(const T* x, const T* g, T* dx, size_t n) {
    size_t i = element();
    if (i < n) store(dx, i, gelu_and_slope(load(x, i)).y * load(g, i));
}

KERNEL(gated_gelu)(const T* gate, const T* up, T* y, size_t n) {
    size_t i = element();
    if (i < n) store(y, i, gelu_and_slope(load(gate, i)).x * load(up, i));
}

KERNEL(gated_gelu_dgate)(const T* gate, const T* up, const T* g, T* out, size_t n) {
    size_t i = element();
    if (i < n) store(out, i, load(g, i) * load(up, i) * gelu_and_slope(load(gate, i)).y);
}

KERNEL(gated_gelu_dup)(const T* gate, const T* g, T* out, size_t n) {
    size_t i = element();
    if (i < n) store(out, i, load(g, i) * gelu_and_slope(load(gate, i)).x);
}

// x + gate·branch; the gate is the last third of the modulation row that `each` rows share.
KERNEL(gated_residual)(const T* x, const T* branch, const float* modulation, T* y, size_t n, int width, int each) {
    size_t i = element();
    if (i >= n) return;
    size_t row = i / width;
    float gate = modulation[(row / each * 3 + 2) * width + i % width];
    store(y, i, load(x, i) + gate * load(branch, i));
}

KERNEL(gated_residual_dbranch)(const float* modulation, const T* g, T* out, size_t n, int width, int each) {
    size_t i = element();
    if (i >= n) return;
    size_t row = i / width;
    store(out, i, modulation[(row / each * 3 + 2) * width + i % width] * load(g, i));
}

// d modulation of condition blockIdx.y: nothing but the gate, Σ g·branch.
KERNEL(gated_residual_dm)(const T* branch, const T* g, float* dm, int each, int width) {
    int j = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (j < width)
        for (int i = threadIdx.y; i < each; i += COLUMN_ROWS) {
            size_t at = (size_t)(blockIdx.y * each + i) * width + j;
            sum += load(g, at) * load(branch, at);
        }
    sum = column_sum_of(sum);
    if (threadIdx.y == 0 && j < width) {
        float* out = dm + (size_t)blockIdx.y * 3 * width;
        out[j] = 0.0f;
        out[width + j] = 0.0f;
        out[2 * width + j] = sum;
    }
}

// Rotates pairs (j, j + half) of every head by the token's angles, or back (sign −1). One thread a pair.
KERNEL(rope)(const T* x, const float* cos, const float* sin, T* y, size_t pairs, int width, int half, float sign) {
    size_t i = element();
    if (i >= pairs) return;
    size_t token = i / (width / 2);
    int within = (int)(i % (width / 2)), head = within / half, j = within % half;
    size_t at = token * width + (size_t)head * 2 * half + j;
    float c = cos[token * half + j], s = sign * sin[token * half + j];
    float a = load(x, at), b = load(x, at + half);
    store(y, at, a * c - b * s);
    store(y, at + half, b * c + a * s);
}

// Element i takes word i mod 4 of block i div 4; dropped below `threshold`.
KERNEL(dropout)(const T* x, T* y, size_t n, uint32_t key0, uint32_t key1, uint32_t threshold, float scale) {
    size_t block = element();
    if (block * 4 >= n) return;
    uint4 words = philox(key0, key1, block);
    uint32_t word[4] = {words.x, words.y, words.z, words.w};
    for (int k = 0; k < 4 && block * 4 + k < n; k++) {
        size_t i = block * 4 + k;
        store(y, i, word[k] < threshold ? 0.0f : load(x, i) * scale);
    }
}

// y += bias for every row; y was just computed and belongs to nobody else.
KERNEL(add_bias)(T* y, const T* bias, size_t n, int width) {
    size_t i = element();
    if (i < n) store(y, i, load(y, i) + load(bias, i % width));
}

KERNEL(embedding)(const T* weight, const uint32_t* tokens, T* out, size_t n, int width, float scale) {
    size_t i = element();
    if (i < n) store(out, i, load(weight, (size_t)tokens[i / width] * width + i % width) * scale);
}

// Adds the gradients of all places of one token, in order, to its row (which was zero). Block y is a distinct token.
KERNEL(embedding_dw)(const T* g, const uint32_t* tokens, const uint32_t* starts, const uint32_t* places, T* out,
                     int width, float scale) {
    int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= width) return;
    float sum = 0.0f;
    for (uint32_t k = starts[blockIdx.y]; k < starts[blockIdx.y + 1]; k++)
        sum += load(g, (size_t)places[k] * width + j) * scale;
    store(out, (size_t)tokens[blockIdx.y] * width + j, sum);
}
