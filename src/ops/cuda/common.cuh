// What every kernel uses: elements as f32 whatever their type, and sums over a block.
#pragma once
#include <cuda_bf16.h>
#include <stdint.h>

typedef __nv_bfloat16 bf16;
typedef unsigned char u8;

__device__ __forceinline__ float load(const float* p, size_t i) { return p[i]; }
__device__ __forceinline__ float load(const bf16* p, size_t i) { return __bfloat162float(p[i]); }
__device__ __forceinline__ void store(float* p, size_t i, float v) { p[i] = v; }
__device__ __forceinline__ void store(bf16* p, size_t i, float v) { p[i] = __float2bfloat16(v); }

// Threads of a block that works on one row. block_sum and block_max rely on it.
#define ROW_THREADS 256

// The sum over a block of ROW_THREADS, the same in every thread; always added in the same order.
__device__ __forceinline__ float block_sum(float value) {
    __shared__ float partial[ROW_THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (int i = 0; i < ROW_THREADS / 32; i++) sum += partial[i];
    return sum;
}

__device__ __forceinline__ float block_max(float value) {
    __shared__ float partial[ROW_THREADS / 32];
    for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float highest = partial[0];
    for (int i = 1; i < ROW_THREADS / 32; i++) highest = fmaxf(highest, partial[i]);
    return highest;
}

// Index of this thread's element among `n`, or past them.
__device__ __forceinline__ size_t element() { return (size_t)blockIdx.x * blockDim.x + threadIdx.x; }

// Threads of a block that sums columns: COLUMNS neighbours side by side, COLUMN_ROWS rows at a time.
#define COLUMNS 32
#define COLUMN_ROWS 16

// The sum over the COLUMN_ROWS threads of this thread's column, valid in those of the first row.
__device__ __forceinline__ float column_sum_of(float value) {
    __shared__ float partial[COLUMN_ROWS][COLUMNS + 1];
    __syncthreads();
    partial[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    float sum = 0.0f;
    if (threadIdx.y == 0)
        for (int i = 0; i < COLUMN_ROWS; i++) sum += partial[i][threadIdx.x];
    return sum;
}
