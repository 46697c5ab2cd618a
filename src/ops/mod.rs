//! Differentiable operations that candle lacks or does slowly: one file an operation, with its backward.
//!
//! Every operation here is a candle custom operation: it takes part in candle's autograd, and its backward is
//! written by hand. That matters twice. Several of candle's own fast forms (`rms_norm`, `layer_norm`,
//! `softmax_last_dim`, `rope`) have no backward and cut the graph without an error; and where a backward exists
//! it computes gradients of frozen weights that nobody reads. Here an argument that no trained variable stands
//! behind gets no gradient and costs nothing.
//!
//! The CPU code works in f32 on contiguous data, rows shared among rayon's threads, each output element written
//! by one thread in one order: results do not depend on the number of threads. On NVIDIA GPUs (feature `cuda`) the
//! same operations run the kernels of `ops/cuda` in f32 or bf16, with the same gradients.

pub mod ada_rms;
pub mod attention;
pub mod cotangent;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod dropout;
pub mod embedding;
pub mod gated_gelu;
pub mod gated_residual;
pub mod gelu;
pub mod layer_norm;
pub mod linear;
mod math;
mod matrix;
pub mod rms_norm;
pub mod rope;
mod values;

#[cfg(test)]
mod gradcheck;
