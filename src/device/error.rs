//! Why a device cannot be had.

use std::path::PathBuf;

use super::requirements::driver_release;
use super::search::{Library, OWN_VARIABLE, Search};
use super::visible::Twice;
use crate::error::{Explain, Kind};

/// Why a device cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("this build computes on the CPU only")]
    NotBuilt,
    #[error("a GPU is meant here ({sign}) and cannot be used")]
    Meant { sign: String, source: Box<DeviceError> },
    #[error("CUDA_VISIBLE_DEVICES={value:?} hides every GPU from this process")]
    Hidden { value: String },
    #[error(transparent)]
    Twice(#[from] Twice),
    #[error("no usable {library} was found\n{search}")]
    Library { library: Library, search: Search },
    #[error("the driver's library {} supports CUDA {}.{}, this build needs {}.{}", path.display(), found.0, found.1, needed.0, needed.1)]
    OldDriver { path: PathBuf, found: (u32, u32), needed: (u32, u32) },
    #[error("the driver's library {} has no {symbol}, which this program calls", path.display())]
    Lacks { path: PathBuf, symbol: &'static str },
    #[error("the NVIDIA driver is there and shows no GPU")]
    NoGpu,
    #[error("{call} failed in {}: {said}", path.display())]
    Refused { call: &'static str, path: PathBuf, said: String },
    #[error("there is no GPU {index}: this process sees {count}, numbered from 0")]
    NoSuchGpu { index: usize, count: usize },
    #[error("GPU {index} ({name}) has compute capability {}.{} and therefore no bf16, which training and inference here are built on; 8.0 is needed", found.0, found.1)]
    Capability { index: usize, name: String, found: (u32, u32) },
    #[error("none of the GPUs that this process sees can be used")]
    NoneServes,
    #[error("GPU {index} ({name}) could not be opened")]
    Open { index: usize, name: String, source: candle_core::Error },
}

impl Explain for DeviceError {
    fn kind(&self) -> Kind {
        match self {
            DeviceError::Meant { source, .. } => source.kind(),
            DeviceError::NoSuchGpu { .. } | DeviceError::Twice(_) => Kind::Input,
            _ => Kind::Environment,
        }
    }

    fn hint(&self) -> Option<String> {
        Some(match self {
            DeviceError::NotBuilt => {
                "build with GPU support (README, \"On a GPU\"): gpu/toolkit.sh && source target/cuda-12.4/env.sh && cargo build --release --features cuda; or compute here: runtime.device=cpu".into()
            }
            DeviceError::Meant { source, .. } => {
                let first = source.hint().map(|hint| format!("{hint}; ")).unwrap_or_default();
                format!("{first}or say that the CPU is meant: runtime.device=cpu")
            }
            DeviceError::Hidden { .. } => {
                "unset CUDA_VISIBLE_DEVICES, or ask the scheduler for a GPU (SLURM: --gres=gpu:1)".into()
            }
            DeviceError::Twice(_) => "name every GPU once, such as CUDA_VISIBLE_DEVICES=0".into(),
            DeviceError::Library { library: Library::Driver, .. } => format!(
                "run on a machine with an NVIDIA driver of release 550 or newer; in a container, pass it through (docker run --gpus all, singularity exec --nv); where it lies elsewhere, set {OWN_VARIABLE}=FOLDER"
            ),
            DeviceError::Library { library, .. } => {
                let (package, name) = match library {
                    Library::Curand => ("nvidia-curand-cu12", "cuRAND"),
                    _ => ("nvidia-cublas-cu12", "cuBLAS"),
                };
                format!(
                    "install {name} (it comes with the CUDA toolkit 12.4 or newer, with PyTorch, or: pip install {package}) and name its folder: {OWN_VARIABLE}=FOLDER"
                )
            }
            DeviceError::OldDriver { needed, .. } => match driver_release(*needed) {
                Some(release) => format!("ask for a machine with driver {release} or newer (nvidia-smi shows the driver's release)"),
                None => "ask for a machine with a newer driver, or build with CUDA 12.4 (gpu/toolkit.sh)".into(),
            },
            DeviceError::Lacks { .. } => "ask for a machine with a newer driver".into(),
            DeviceError::NoGpu => {
                "nvidia-smi -L lists the GPUs of the machine; a job or container sees those that it was given (SLURM: --gres=gpu:1, docker run --gpus all, singularity exec --nv)".into()
            }
            DeviceError::Refused { .. } => "nvidia-smi shows whether the driver works at all; if it does not, the machine needs its administrator".into(),
            DeviceError::NoSuchGpu { .. } => "runtime.device=cuda takes the first; vlash gpu lists them".into(),
            DeviceError::Capability { .. } => {
                "use an Ampere card or newer (A100, A10, RTX 30, L4, H100, Orin); T4 and V100 cannot serve".into()
            }
            DeviceError::NoneServes => "use an Ampere card or newer (A100, A10, RTX 30, L4, H100, Orin)".into(),
            DeviceError::Open { .. } => "nvidia-smi shows what else runs on it".into(),
        })
    }
}
