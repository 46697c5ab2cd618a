//! Every constant of the planner that was measured or assumed rather than derived: one place to calibrate.

/// What cannot be derived from the sizes of the network.
#[derive(Debug, Clone, Copy)]
pub struct Calibration {
    /// Bytes of a process that has opened a GPU and used cuBLAS once: context, modules, workspace.
    pub runtime_bytes: u64,
    /// Bytes of a process that trains on a CPU, without tensors: code, threads, decoded frames.
    pub cpu_process_bytes: u64,
    /// What the driver's pool holds beyond what is in use at the peak: blocks of its own, of this size when a step moves
    /// half as much, and less when it moves less.
    pub pool_blocks: u64,
    /// Beside these the holes between the gradients of parameters, which pile up among activations that come and go:
    /// as a share of all gradients.
    pub pool_holes: f64,
    /// Probabilities that attention keeps for its backward pass, as a multiple of `[B, heads, S, K]` in the dtype
    /// that computes.
    pub attention_kept: f64,
    /// What attention's backward pass needs beside, as a multiple of the same: the gradient of the probabilities and
    /// copies of them in another order.
    pub attention_backward_scratch: f64,
    /// Share of a card's peak that matrix products reach, worst and best.
    pub flops_share: [f64; 2],
    /// Share of a card's bandwidth that elementwise kernels reach, worst and best.
    pub bandwidth_share: [f64; 2],
    /// Seconds between the starts of two small kernels, worst and best.
    pub launch_s: [f64; 2],
    /// On a CPU: operations a second and core, bytes a second and core.
    pub cpu_core: [f64; 2],
}

/// Sources, all measured with candle 0.11 on one H200: products of 968 rows reach 710–720 of 989 TFLOP/s; a kernel
/// follows the one before after 8–13 µs where the host is the limit (batch 1); candle's elementwise kernels run between a
/// third and two thirds of the bandwidth; a context with cuBLAS takes 0.61 GiB; the pool's figures are fitted to the
/// eight runs of `tests/plan_measured.rs`. The lower ends stand for small and unfused work.
pub const CALIBRATION: Calibration = Calibration {
    runtime_bytes: 650 << 20,
    cpu_process_bytes: 200 << 20,
    pool_blocks: 900 << 20,
    pool_holes: 0.80,
    attention_kept: 1.0,
    attention_backward_scratch: 2.0,
    flops_share: [0.45, 0.72],
    bandwidth_share: [0.35, 0.70],
    launch_s: [13e-6, 8e-6],
    cpu_core: [20e9, 4e9],
};
