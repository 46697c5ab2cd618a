// Normalisations over the last axis. One block a row forwards and for the input's gradient; weights and modulations
// are f32, statistics are f32. Parameter gradients sum columns, in an order that the row count alone decides.

#ifndef NORMS_ONCE
#define NORMS_ONCE
template <typename E> __device__ float reciprocal_rms(const E* x, int width, float eps) {
    float squares = 0.0f;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float v = load(x, j);
        squares += v * v;
    }
    return 1.0f / sqrtf(block_sum(squares) / width + eps);
}

template <typename E> __device__ float2 mean_and_reciprocal(const E* x, int width, float eps) {
    float sum = 0.0f;
    for (int j = threadIdx.x; j < width; j += blockDim.x) sum += load(x, j);
    float mean = block_sum(sum) / width;
    float squares = 0.0f;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float d = load(x, j) - mean;
        squares += d * d;
    }
    return make_float2(mean, 1.0f / sqrtf(block_sum(squares) / width + eps));
}
#endif

KERNEL(rms_norm)(const T* x, const float* weight, T* y, int width, float eps) {
    size_t at = (size_t)blockIdx.x * width;
    float r = reciprocal_rms(x + at, width, eps);
    for (int j = threadIdx.x; j < width; j += blockDim.x) store(y, at + j, load(x, at + j) * r * (1.0f + weight[j]));
}

// `scale` is the weight (one row for all, `each` = all rows) or the first third of a modulation row of 3·width.
KERNEL(rms_norm_dx)(const T* x, const float* scale, const T* g, T* dx, int width, int each, int stride, float eps) {
    size_t at = (size_t)blockIdx.x * width;
    const float* s = scale + (size_t)(blockIdx.x / each) * stride;
    float r = reciprocal_rms(x + at, width, eps);
    float along = 0.0f;
    for (int j = threadIdx.x; j < width; j += blockDim.x) along += load(g, at + j) * (1.0f + s[j]) * load(x, at + j);
    along = block_sum(along) * r * r / width;
    for (int j = threadIdx.x; j < width; j += blockDim.x)
        store(dx, at + j, r * (load(g, at + j) * (1.0f + s[j]) - load(x, at + j) * along));
}

KERNEL(ada_rms)(const T* x, const float* modulation, T* y, int width, int each, float eps) {
    size_t at = (size_t)blockIdx.x * width;
    const float* m = modulation + (size_t)(blockIdx.x / each) * 3 * width;
    float r = reciprocal_rms(x + at, width, eps);
    for (int j = threadIdx.x; j < width; j += blockDim.x)
        store(y, at + j, load(x, at + j) * r * (1.0f + m[j]) + m[width + j]);
}

// The statistics of every row, for the column sums below: [rows] of reciprocal, or [rows][2] of mean and reciprocal.
KERNEL(rms_statistics)(const T* x, float* out, int width, float eps) {
    float r = reciprocal_rms(x + (size_t)blockIdx.x * width, width, eps);
    if (threadIdx.x == 0) out[blockIdx.x] = r;
}

KERNEL(layer_statistics)(const T* x, float2* out, int width, float eps) {
    float2 s = mean_and_reciprocal(x + (size_t)blockIdx.x * width, width, eps);
    if (threadIdx.x == 0) out[blockIdx.x] = s;
}

// d weight[j] = Σ_rows g·x·r.
KERNEL(rms_norm_dw)(const T* x, const T* g, const float* r, float* dw, int rows, int width) {
    int j = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (j < width)
        for (int row = threadIdx.y; row < rows; row += COLUMN_ROWS) {
            size_t at = (size_t)row * width + j;
            sum += load(g, at) * load(x, at) * r[row];
        }
    sum = column_sum_of(sum);
    if (threadIdx.y == 0 && j < width) dw[j] = sum;
}

// d modulation of condition blockIdx.y: scale gets Σ g·x·r, shift Σ g, gate nothing.
KERNEL(ada_rms_dm)(const T* x, const T* g, const float* r, float* dm, int each, int width) {
    int j = blockIdx.x * COLUMNS + threadIdx.x;
    float scale = 0.0f, shift = 0.0f;
    if (j < width)
        for (int i = threadIdx.y; i < each; i += COLUMN_ROWS) {
            int row = blockIdx.y * each + i;
            size_t at = (size_t)row * width + j;
            float v = load(g, at);
            scale += v * load(x, at) * r[row];
            shift += v;
        }
    scale = column_sum_of(scale);
    shift = column_sum_of(shift);
    if (threadIdx.y == 0 && j < width) {
        float* out = dm + (size_t)blockIdx.y * 3 * width;
        out[j] = scale;
        out[width + j] = shift;
        out[2 * width + j] = 0.0f;
    }
}

KERNEL(layer_norm)(const T* x, const float* weight, const float* bias, T* y, int width, float eps) {
    size_t at = (size_t)blockIdx.x * width;
    float2 s = mean_and_reciprocal(x + at, width, eps);
    for (int j = threadIdx.x; j < width; j += blockDim.x)
        store(y, at + j, (load(x, at + j) - s.x) * s.y * weight[j] + bias[j]);
}

KERNEL(layer_norm_dx)(const T* x, const float* weight, const T* g, T* dx, int width, float eps) {
    size_t at = (size_t)blockIdx.x * width;
    float2 s = mean_and_reciprocal(x + at, width, eps);
    float sum = 0.0f, along = 0.0f;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float weighted = load(g, at + j) * weight[j];
        sum += weighted;
        along += weighted * (load(x, at + j) - s.x) * s.y;
    }
    sum = block_sum(sum) / width;
    along = block_sum(along) / width;
    for (int j = threadIdx.x; j < width; j += blockDim.x) {
        float normal = (load(x, at + j) - s.x) * s.y;
        store(dx, at + j, s.y * (load(g, at + j) * weight[j] - sum - normal * along));
    }
}

KERNEL(layer_norm_dw)(const T* x, const T* g, const float2* s, float* dw, int rows, int width) {
    int j = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (j < width)
        for (int row = threadIdx.y; row < rows; row += COLUMN_ROWS) {
            size_t at = (size_t)row * width + j;
            sum += load(g, at) * (load(x, at) - s[row].x) * s[row].y;
        }
    sum = column_sum_of(sum);
    if (threadIdx.y == 0 && j < width) dw[j] = sum;
}

// out[j] = Σ_rows g, in f32.
KERNEL(sum_rows)(const T* g, float* out, int rows, int width) {
    int j = blockIdx.x * COLUMNS + threadIdx.x;
    float sum = 0.0f;
    if (j < width)
        for (int row = threadIdx.y; row < rows; row += COLUMN_ROWS) sum += load(g, (size_t)row * width + j);
    sum = column_sum_of(sum);
    if (threadIdx.y == 0 && j < width) out[j] = sum;
}
