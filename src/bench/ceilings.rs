//! The two ceilings of a device, measured: a large copy and a large matrix product.
//!
//! Datasheets name rates that nothing reaches. What the same machine does in the same minute is the honest ceiling.

use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use serde::{Deserialize, Serialize};

use super::error::BenchError;
use super::inputs;
use super::stats::Summary;
use crate::ops::linear::linear;
use crate::plan::cost::Peak;

/// Rates that a device reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes read plus bytes written, by a copy within the device.
    pub copy_bytes_per_s: f64,
    /// By a product of two square matrices of random numbers.
    pub matmul_flops_per_s: f64,
    /// Of the product.
    pub dtype: String,
}

/// What is copied (bytes), the side of the matrices, runs of each.
struct Sizes {
    copy: usize,
    side: usize,
    runs: usize,
}

const GPU: Sizes = Sizes { copy: 1 << 30, side: 8192, runs: 10 };
const CPU: Sizes = Sizes { copy: 64 << 20, side: 1024, runs: 5 };
/// Runs that are left out.
const WARMUP: usize = 3;

impl Ceilings {
    /// Measures both in `dtype`.
    pub fn measure(device: &Device, dtype: DType) -> Result<Ceilings, BenchError> {
        let sizes = if device.is_cpu() { CPU } else { GPU };
        let rate = |work: f64, times: &[f64]| work / Summary::of(times).p50.max(f64::MIN_POSITIVE);
        Ok(Ceilings {
            copy_bytes_per_s: rate(2.0 * sizes.copy as f64, &copies(device, &sizes)?),
            matmul_flops_per_s: rate(2.0 * (sizes.side as f64).powi(3), &products(device, dtype, &sizes)?),
            dtype: format!("{dtype:?}").to_lowercase(),
        })
    }

    /// As the cost model takes them.
    pub fn peak(&self) -> Peak {
        Peak { flops_per_s: self.matmul_flops_per_s, bytes_per_s: self.copy_bytes_per_s }
    }
}

fn copies(device: &Device, sizes: &Sizes) -> Result<Vec<f64>, BenchError> {
    let source = inputs::uniform(0, "bench/copy", &[sizes.copy / 4], DType::F32, device)?;
    repeat(device, WARMUP, sizes.runs, || {
        source.copy()?;
        Ok(())
    })
}

fn products(device: &Device, dtype: DType, sizes: &Sizes) -> Result<Vec<f64>, BenchError> {
    let square = |what: &str| -> Result<Tensor, BenchError> {
        inputs::uniform(0, what, &[sizes.side, sizes.side], dtype, device)
    };
    let (a, b) = (square("bench/a")?, square("bench/b")?);
    repeat(device, WARMUP, sizes.runs, || {
        linear(&a, &b, None)?;
        Ok(())
    })
}

/// Seconds of `runs` calls, after `warmup` that do not count; the device has finished at both ends of each.
pub fn repeat(
    device: &Device,
    warmup: usize,
    runs: usize,
    mut call: impl FnMut() -> Result<(), BenchError>,
) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(runs);
    for run in 0..warmup + runs {
        device.synchronize()?;
        let started = Instant::now();
        call()?;
        device.synchronize()?;
        if run >= warmup {
            times.push(started.elapsed().as_secs_f64());
        }
    }
    Ok(times)
}
