// The optimizer's passes, f32 only.

// Partial sums of squares of x in f64: block b sums its own part, threads in a fixed order.
extern "C" __global__ void sum_of_squares_f32(const float* x, double* out, size_t n) {
    __shared__ double partial[ROW_THREADS];
    double sum = 0.0;
    for (size_t i = element(); i < n; i += (size_t)gridDim.x * blockDim.x) sum += (double)x[i] * (double)x[i];
    partial[threadIdx.x] = sum;
    __syncthreads();
    for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0];
}

// One AdamW update in place, the formula of train/adamw.rs (and torch.optim.AdamW) term by term. The compiler fuses a
// product and the sum behind it, which rounds once where the CPU rounds twice: a last bit apart.
extern "C" __global__ void adamw_f32(float* p, float* m, float* v, const float* g, size_t n, float coefficient,
                                     float keep, float beta2, float fresh1, float fresh2, float step, float correction,
                                     float eps) {
    size_t i = element();
    if (i >= n) return;
    float gradient = g[i] * coefficient;
    float first = m[i] + fresh1 * (gradient - m[i]);
    float second = v[i] * beta2 + fresh2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    p[i] = p[i] * keep + step * first / (sqrtf(second) / correction + eps);
}
