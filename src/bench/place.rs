//! Where a measurement runs: the device, its precision and ceilings, and the host.

use std::time::Instant;

use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

use super::ceilings::Ceilings;
use super::error::BenchError;
use super::report::Memory;
use crate::config::train::{DeviceKind, Dtype, Preset};
use crate::device::{self, Gpu};
use crate::train::memory::peak_resident_bytes;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub device: DeviceKind,
    /// Of the transformers' weights; none: bf16 on a GPU, f32 on the CPU.
    pub dtype: Option<Dtype>,
}

/// An opened device, and since when.
pub struct Place {
    pub device: Device,
    pub dtype: Dtype,
    pub ceilings: Ceilings,
    pub started: Instant,
    /// Seconds until the device was open.
    pub open_s: f64,
    gpu: Option<Gpu>,
    notes: Vec<String>,
}

/// Who measured, where, when, by which command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Of this program.
    pub version: String,
    /// RFC 3339, UTC.
    pub date: String,
    /// Arguments, without the program's path.
    pub command: Vec<String>,
    /// `cpu`, or the GPU's name.
    pub device: String,
    /// Compute capability, major and minor.
    pub capability: Option<(u32, u32)>,
    /// CUDA version that the driver supports, major and minor.
    pub driver: Option<(u32, u32)>,
    /// The host's processor.
    pub cpu: String,
    pub threads: usize,
}

impl Place {
    /// Opens the device; its ceilings are measured here, in front of everything.
    pub fn open(wanted: Wanted, started: Instant) -> Result<Place, BenchError> {
        let opened = device::open(wanted.device)?;
        let default = if opened.gpu.is_some() { Dtype::Bfloat16 } else { Dtype::Float32 };
        let dtype = wanted.dtype.unwrap_or(default);
        if opened.gpu.is_none() && dtype == Dtype::Bfloat16 {
            let problem = "the CPU computes in float32, --dtype bfloat16 was asked for".to_string();
            return Err(BenchError::Setting { problem, hint: "--dtype float32" });
        }
        let open_s = started.elapsed().as_secs_f64();
        let ceilings = Ceilings::measure(&opened.device, tensor_dtype(dtype))?;
        device::memory::reset_peak(&opened.device);
        let mut notes: Vec<String> =
            opened.reason.map(|reason| format!("computed on the CPU: {reason}")).into_iter().collect();
        if opened.gpu.is_none() {
            notes.push("floors count the CPU's main memory: what stays in its caches can be faster".into());
        }
        Ok(Place { device: opened.device, dtype, ceilings, started, open_s, gpu: opened.gpu, notes })
    }

    /// Sizes when none were asked for: the full ones where a GPU is.
    pub fn preset(&self, asked: Option<Preset>) -> Preset {
        asked.unwrap_or(if self.gpu.is_some() { Preset::Full } else { Preset::Tiny })
    }

    /// Of tensors.
    pub fn tensor_dtype(&self) -> DType {
        tensor_dtype(self.dtype)
    }

    /// Why this place.
    pub fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }

    /// Memory used on the device, as its driver counts.
    pub fn used(&self) -> Option<u64> {
        device::memory::read(&self.device).map(|memory| memory.used)
    }

    /// Memory at the end of a measurement; `loaded`: what was used when the weights were there.
    pub fn memory(&self, loaded: Option<u64>) -> Memory {
        let now = device::memory::read(&self.device);
        Memory {
            device_loaded: loaded,
            device_used: now.map(|memory| memory.used),
            device_peak: now.map(|memory| memory.peak),
            device_total: now.map(|memory| memory.total),
            host_peak: peak_resident_bytes(),
        }
    }

    /// Now and here.
    pub fn origin(&self) -> Origin {
        let gpu = self.gpu.as_ref();
        Origin { capability: gpu.map(|gpu| gpu.capability), driver: gpu.map(|gpu| gpu.driver), ..host(self.name()) }
    }

    fn name(&self) -> String {
        self.gpu.as_ref().map_or("cpu".into(), |gpu| gpu.name.clone())
    }
}

/// The origin of a measurement that needs no device.
pub fn host(device: String) -> Origin {
    Origin {
        version: env!("CARGO_PKG_VERSION").into(),
        date: jiff::Timestamp::now().to_string(),
        command: std::env::args().skip(1).collect(),
        device,
        capability: None,
        driver: None,
        cpu: cpu(),
        threads: rayon::current_num_threads(),
    }
}

fn tensor_dtype(dtype: Dtype) -> DType {
    match dtype {
        Dtype::Bfloat16 => DType::BF16,
        Dtype::Float32 => DType::F32,
    }
}

/// The processor's name where the system tells it, else the architecture.
fn cpu() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':').map(|(_, name)| name));
    name.unwrap_or(std::env::consts::ARCH).trim().to_string()
}
