//! The devices that tensors live on: which are there, opening one, and what it holds.
//!
//! A GPU is opened through libraries that are looked for at run time, so the same binary starts where there are none.
//! Whoever asks for a GPU gets one or an error that names what was missing where; only `auto` may choose the CPU, and
//! says why. Where a GPU is evidently meant, `auto` does not fall back either.

#[cfg(feature = "cuda")]
mod cuda;
mod error;
pub mod memory;
pub mod requirements;
pub mod search;
pub mod visible;

use candle_core::Device;
use serde::Serialize;

pub use error::DeviceError;

use crate::config::train::DeviceKind;

/// A GPU as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// Among the devices visible to this process.
    pub index: usize,
    /// `GPU-…`, as `CUDA_VISIBLE_DEVICES` takes it.
    pub uuid: String,
    pub name: String,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    pub total_bytes: u64,
    /// CUDA version that the driver supports, major and minor.
    pub driver: (u32, u32),
}

impl std::fmt::Display for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (major, minor) = self.capability;
        let gib = self.total_bytes as f64 / f64::from(1 << 30);
        write!(f, "GPU {}: {} ({gib:.1} GiB, compute capability {major}.{minor})", self.index, self.name)
    }
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

/// `GPU 0: NVIDIA H200 (…), GPU-8f2c…` or `CPU: …`.
impl std::fmt::Display for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.gpu, &self.reason) {
            (Some(gpu), _) => write!(f, "{gpu}, {}", gpu.uuid),
            (None, Some(reason)) => write!(f, "CPU: {reason}"),
            (None, None) => f.write_str("CPU"),
        }
    }
}

/// Opens the device that a configuration asks for.
///
/// # Errors
/// A GPU was asked for by name, or is evidently meant, and cannot be had.
pub fn open(kind: DeviceKind) -> Result<Opened, DeviceError> {
    let cpu = |reason| Ok(Opened { device: Device::Cpu, gpu: None, reason });
    match kind {
        DeviceKind::Cpu => cpu(None),
        DeviceKind::Cuda(index) => open_gpu(index),
        DeviceKind::Auto => match (open_gpu(0), meant()) {
            (Ok(opened), _) => Ok(opened),
            (Err(error @ (DeviceError::NotBuilt | DeviceError::Hidden { .. })), _) => cpu(Some(error.to_string())),
            (Err(error), Some(sign)) => Err(DeviceError::Meant { sign, source: Box::new(error) }),
            (Err(_), None) => cpu(Some("no NVIDIA GPU here (`vlash gpu` says where was looked)".into())),
        },
    }
}

#[cfg(feature = "cuda")]
fn open_gpu(index: usize) -> Result<Opened, DeviceError> {
    let (device, gpu) = cuda::open(index)?;
    Ok(Opened { device, gpu: Some(gpu), reason: None })
}

#[cfg(not(feature = "cuda"))]
fn open_gpu(_index: usize) -> Result<Opened, DeviceError> {
    Err(DeviceError::NotBuilt)
}

/// What shows that this machine or job means a GPU, if anything does.
fn meant() -> Option<String> {
    if let Some(value) = std::env::var(visible::VARIABLE).ok().filter(|value| visible::names_any(value)) {
        return Some(format!("{}={value}", visible::VARIABLE));
    }
    // Data centre and desktop cards; the GPU of a Jetson, under its two drivers.
    let files = (0..16).map(|index| format!("/dev/nvidia{index}"));
    let mut files = files.chain(["/dev/nvhost-gpu".into(), "/dev/nvgpu/igpu0".into()]);
    files.find(|file| std::path::Path::new(file).exists()).map(|file| format!("{file} is there"))
}

/// What `vlash gpu` tells.
#[derive(Debug)]
pub struct Survey {
    /// Every GPU that this process sees, with what speaks against it.
    pub gpus: Vec<(Gpu, Option<DeviceError>)>,
    /// Why nothing can be computed on any of them.
    pub problem: Option<DeviceError>,
    /// Where the libraries were looked for.
    pub search: search::Search,
    /// None: for the CPU alone.
    pub built: Option<requirements::Built>,
}

/// Looks at everything that computing on a GPU needs, and opens none.
#[cfg(feature = "cuda")]
pub fn survey() -> Survey {
    use search::Library;
    let libraries = cuda::libraries();
    let search = libraries.search.clone();
    let built = Some(cuda::BUILT);
    let gpus = match cuda::gpus() {
        Ok(gpus) => gpus,
        Err(problem) => return Survey { gpus: Vec::new(), problem: Some(problem), search, built },
    };
    let gpus: Vec<_> =
        gpus.into_iter().map(|gpu| (requirements::check(&gpu).err(), gpu)).map(|(e, g)| (g, e)).collect();
    let missing = [(Library::Cublas, &libraries.cublas), (Library::Curand, &libraries.curand)]
        .into_iter()
        .find(|(_, found)| found.is_none())
        .map(|(library, _)| DeviceError::Library { library, search: search.of(library) });
    let unusable = || gpus.iter().all(|(_, problem)| problem.is_some()).then_some(DeviceError::NoneServes);
    let problem = missing.or_else(unusable);
    Survey { gpus, problem, search, built }
}

/// Looks at everything that computing on a GPU needs, and opens none.
#[cfg(not(feature = "cuda"))]
pub fn survey() -> Survey {
    Survey { gpus: Vec::new(), problem: Some(DeviceError::NotBuilt), search: search::Search::default(), built: None }
}

/// Whether a tensor operation failed since the device's memory was exhausted.
pub fn is_out_of_memory(error: &candle_core::Error) -> bool {
    use candle_core::Error;
    match error {
        Error::Context { inner, .. } | Error::WithPath { inner, .. } | Error::WithBacktrace { inner, .. } => {
            is_out_of_memory(inner)
        }
        #[cfg(feature = "cuda")]
        Error::Cuda(error) => cuda::out_of_memory(error.as_ref()),
        // What is left of a driver's error where only its text was passed on.
        Error::Wrapped(text) => names_exhausted_memory(&text.to_string()),
        Error::WrappedContext { wrapped, .. } => names_exhausted_memory(&wrapped.to_string()),
        Error::Msg(text) => names_exhausted_memory(text),
        _ => false,
    }
}

fn names_exhausted_memory(text: &str) -> bool {
    ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"].iter().any(|name| text.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhausted_memory_is_recognised_through_context_and_in_text() {
        let exhausted = || candle_core::Error::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")".into());
        assert!(is_out_of_memory(&exhausted()));
        assert!(is_out_of_memory(&exhausted().context("layer 3").bt()));
        assert!(!is_out_of_memory(&candle_core::Error::Msg("out of memory of old times".into())));
    }

    #[test]
    fn the_cpu_is_always_there_and_needs_no_reason() {
        let opened = open(DeviceKind::Cpu).unwrap();
        assert!(opened.device.is_cpu() && opened.gpu.is_none() && opened.reason.is_none());
        assert_eq!(opened.to_string(), "CPU");
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_build_without_cuda_refuses_a_gpu_and_takes_the_cpu_with_a_reason() {
        assert!(matches!(open(DeviceKind::Cuda(0)), Err(DeviceError::NotBuilt)));
        assert!(open(DeviceKind::Auto).unwrap().reason.unwrap().contains("CPU only"));
    }
}
