//! Where the tests run.

use candle_core::Device;
use vlash_forge::config::train::DeviceKind;
use vlash_forge::device;
use vlash_forge::error::Explain;

/// `cpu` makes a dry run on the CPU, for whoever works on these tests without a GPU.
const VARIABLE: &str = "VLASH_GPU_TESTS_DEVICE";

/// An opened device.
#[derive(Debug, Clone)]
pub struct Site {
    pub device: Device,
    /// In words.
    pub name: String,
}

impl Site {
    /// The GPU, or the CPU on request; otherwise why there is neither.
    pub fn open() -> Result<Site, String> {
        match std::env::var(VARIABLE).as_deref() {
            Ok("cpu") => Ok(Site { device: Device::Cpu, name: "the CPU (a dry run)".into() }),
            Ok("cuda") | Err(_) => Site::gpu(),
            Ok(other) => Err(format!("{VARIABLE} is {other:?}: cpu and cuda are known")),
        }
    }

    fn gpu() -> Result<Site, String> {
        let opened = device::open(DeviceKind::Cuda(0)).map_err(|error| {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            format!("{error}{hint}")
        })?;
        let Some(gpu) = opened.gpu else { return Err("the opened device is not a GPU".into()) };
        let (driver, revision) = gpu.driver;
        let name = format!("{gpu}, CUDA {driver}.{revision}");
        Ok(Site { device: opened.device, name })
    }
}
