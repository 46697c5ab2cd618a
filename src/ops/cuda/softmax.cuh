// Softmax of masked logits, one block a row.
//
// Rows are [batch][rows_each]; the mask row of row r is its sample's (`per_query` = 0) or that of its query
// ((r mod rows_each) / divide) mod queries: heads may lie inside or outside of the queries. A masked logit is a large
// finite negative number: a row without a key averages over all of them, as in the reference.

KERNEL(softmax)(const T* logits, const u8* mask, T* out, int keys, float scale, int rows_each, int per_query, int divide,
                int queries) {
    const float masked = -2.3819763e38f;
    size_t at = (size_t)blockIdx.x * keys;
    const u8* allowed = nullptr;
    if (mask) {
        size_t sample = blockIdx.x / rows_each, query = ((blockIdx.x % rows_each) / divide) % queries;
        allowed = mask + (per_query ? sample * queries + query : sample) * keys;
    }
    float highest = masked * 1.4f;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float v = allowed && !allowed[j] ? masked : load(logits, at + j) * scale;
        highest = fmaxf(highest, v);
    }
    highest = block_max(highest);
    float sum = 0.0f;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float v = (allowed && !allowed[j] ? masked : load(logits, at + j) * scale) - highest;
        sum += v < -80.0f ? 0.0f : expf(v);
    }
    float inverse = 1.0f / block_sum(sum);
    for (int j = threadIdx.x; j < keys; j += blockDim.x) {
        float v = (allowed && !allowed[j] ? masked : load(logits, at + j) * scale) - highest;
        store(out, at + j, v < -80.0f ? 0.0f : expf(v) * inverse);
    }
}

// d logits = p·(g − Σ g·p)·scale. A masked logit has p = 0 and so no gradient (but in a row without a key, which
// nobody reads).
KERNEL(softmax_dx)(const T* p, const T* g, T* out, int keys, float scale) {
    size_t at = (size_t)blockIdx.x * keys;
    float along = 0.0f;
    for (int j = threadIdx.x; j < keys; j += blockDim.x) along += load(p, at + j) * load(g, at + j);
    along = block_sum(along);
    for (int j = threadIdx.x; j < keys; j += blockDim.x)
        store(out, at + j, load(p, at + j) * (load(g, at + j) - along) * scale);
}
