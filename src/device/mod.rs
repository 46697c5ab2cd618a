//! The devices that tensors live on: which are there, opening one, and what it holds.
//!
//! A GPU is opened through libraries that are looked for at run time, so the same binary starts where there are none.
//! Whoever asks for a GPU gets one or an error that names what was missing where; only `auto` may choose the CPU, and
//! says why.

#[cfg(feature = "cuda")]
mod cuda;
pub mod memory;

use candle_core::Device;

use crate::config::train::DeviceKind;

/// A GPU as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Among the devices visible to this process.
    pub index: usize,
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub total_bytes: u64,
    /// CUDA version that the driver supports, major and minor.
    pub driver: (u32, u32),
}

/// An opened device.
#[derive(Debug, Clone)]
pub struct Opened {
    pub device: Device,
    /// None: the CPU.
    pub gpu: Option<Gpu>,
    /// Why `auto` chose the CPU, in one sentence.
    pub reason: Option<String>,
}

/// Why a device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("this build computes on the CPU only")]
    NotBuilt,
}

impl crate::error::Explain for DeviceError {
    fn kind(&self) -> crate::error::Kind {
        crate::error::Kind::Environment
    }

    fn hint(&self) -> Option<String> {
        match self {
            DeviceError::NotBuilt => Some("build with --features cuda, or set runtime.device = \"cpu\"".into()),
        }
    }
}

/// Opens the device that a configuration asks for.
pub fn open(kind: DeviceKind) -> Result<Opened, DeviceError> {
    let cpu = |reason| Opened { device: Device::Cpu, gpu: None, reason };
    match kind {
        DeviceKind::Cpu => Ok(cpu(None)),
        DeviceKind::Auto => Ok(cpu(Some("this build computes on the CPU only".into()))),
        DeviceKind::Cuda => Err(DeviceError::NotBuilt),
    }
}

/// Whether a tensor operation failed since the device's memory was exhausted.
pub fn is_out_of_memory(error: &candle_core::Error) -> bool {
    let text = format!("{error:?}");
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "out of memory"].iter().any(|sign| text.contains(sign))
}
