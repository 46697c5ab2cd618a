//! Every constant of the planner that was measured or assumed rather than derived: one place to calibrate.

/// What cannot be derived from the sizes of the network.
#[derive(Debug, Clone, Copy)]
pub struct Calibration {
    /// Bytes of a process that has opened a GPU and used cuBLAS once: context, modules, workspace.
    pub runtime_bytes: u64,
    /// Bytes of a process that trains on a CPU, without tensors: code, threads, decoded frames.
    pub cpu_process_bytes: u64,
    /// What the driver's pool holds beyond what is in use at the peak, as a share of what comes and goes in a step.
    pub pool_share: f64,
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

/// Sources: products of 968 rows reach 710–720 of 989 TFLOP/s on an H200, a kernel's launch costs 7.3 µs, and candle's
/// elementwise kernels run between a third and two thirds of the bandwidth (all measured with candle 0.11 on one H200);
/// a context with cuBLAS takes 0.5–0.8 GiB. The lower ends stand for small and unfused work.
pub const CALIBRATION: Calibration = Calibration {
    runtime_bytes: 650 << 20,
    cpu_process_bytes: 200 << 20,
    pool_share: 0.06,
    attention_kept: 1.0,
    attention_backward_scratch: 2.0,
    flops_share: [0.45, 0.72],
    bandwidth_share: [0.35, 0.70],
    launch_s: [9e-6, 7.3e-6],
    cpu_core: [20e9, 4e9],
};
