//! What a GPU and its driver must be, compared before the first kernel runs.

use serde::Serialize;

use super::{DeviceError, Gpu};

/// Lowest CUDA version of a driver, major and minor: 12.4 came with driver 550 (and JetPack 6.1).
pub const DRIVER_AT_LEAST: (u32, u32) = (12, 4);

/// Lowest compute capability, major and minor: bf16, in which the policies are trained, begins with 8.0. Newer ones
/// than the kernels were compiled for translate the PTX of the lowest when it is loaded.
pub const CAPABILITY_AT_LEAST: (u32, u32) = (8, 0);

/// Whether kernels of this build run on `gpu`.
pub fn check(gpu: &Gpu) -> Result<(), DeviceError> {
    if gpu.capability < CAPABILITY_AT_LEAST {
        return Err(DeviceError::Capability { index: gpu.index, name: gpu.name.clone(), found: gpu.capability });
    }
    Ok(())
}

/// What this build was compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Built {
    /// CUDA version of the compiler, major and minor; the driver must support it.
    pub toolkit: (u32, u32),
    /// Compute capabilities with machine code.
    pub capabilities: &'static [(u32, u32)],
}

impl Built {
    /// Whether a card runs machine code of this build: that of its own generation and of no later step. Others
    /// translate PTX when they load it, seconds at the first start (the driver keeps the result).
    pub fn has_machine_code(&self, capability: (u32, u32)) -> bool {
        self.capabilities.iter().any(|built| built.0 == capability.0 && built.1 <= capability.1)
    }
}

/// The driver release that first supported a CUDA version, as people know it; of versions from
/// [`DRIVER_AT_LEAST`] on.
pub fn driver_release((major, minor): (u32, u32)) -> Option<u32> {
    // CUDA's release notes, table "CUDA Toolkit and Minimum Required Driver Version".
    match (major, minor) {
        (12, 4) => Some(550),
        (12, 5) => Some(555),
        (12, 6) => Some(560),
        (12, 8) => Some(570),
        (12, 9) => Some(575),
        (13, 0) => Some(580),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(name: &str, capability: (u32, u32)) -> Gpu {
        let (index, uuid, total_bytes, driver) = (0, String::new(), 16 << 30, (12, 4));
        Gpu { index, uuid, name: name.into(), capability, total_bytes, driver }
    }

    #[test]
    fn machine_code_serves_later_steps_of_its_generation_and_no_other() {
        let built = Built { toolkit: (12, 4), capabilities: &[(8, 0), (8, 6), (9, 0)] };
        let served =
            [((8, 0), true), ((8, 7), true), ((8, 9), true), ((9, 0), true), ((10, 0), false), ((12, 0), false)];
        for (capability, machine_code) in served {
            assert_eq!(built.has_machine_code(capability), machine_code, "{capability:?}");
        }
        assert!(!Built { toolkit: (12, 4), capabilities: &[(8, 6)] }.has_machine_code((8, 0)));
    }

    #[test]
    fn cards_without_bf16_are_refused_with_the_reason_and_all_others_serve() {
        for (name, capability) in [("Tesla T4", (7, 5)), ("Tesla V100-SXM2-16GB", (7, 0))] {
            let message = check(&gpu(name, capability)).unwrap_err().to_string();
            assert!(message.contains("bf16") && message.contains(name), "{message}");
        }
        for capability in [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (11, 0), (12, 0)] {
            check(&gpu("some card", capability)).unwrap();
        }
    }
}
