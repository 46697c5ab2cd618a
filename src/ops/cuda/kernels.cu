// Every kernel of this project, compiled by build.rs into one module. Kernels over elements are written once over `T`
// and read twice: for f32 and for bf16 (arithmetic is f32 in both).
#include "common.cuh"

#define T float
#define KERNEL(name) extern "C" __global__ void name##_f32
#include "elementwise.cuh"
#include "norms.cuh"
#include "softmax.cuh"
#undef T
#undef KERNEL

#define T bf16
#define KERNEL(name) extern "C" __global__ void name##_bf16
#include "elementwise.cuh"
#include "norms.cuh"
#include "softmax.cuh"
#undef T
#undef KERNEL

#include "optimizer.cuh"
