//! What a device's memory holds, as its driver counts it.

use candle_core::Device;

/// Bytes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of the whole device, by whoever.
    pub used: u64,
    pub total: u64,
    /// The most that tensors have held of the device since the last [`reset_peak`], with the allocator's own slack,
    /// plus everything on it that is no tensor: context, kernels, cuBLAS's workspace. What other processes hold
    /// counts too, since the driver does not tell them apart.
    pub peak: u64,
}

/// None on the CPU, and where the driver does not answer.
pub fn read(device: &Device) -> Option<Memory> {
    match device {
        #[cfg(feature = "cuda")]
        Device::Cuda(device) => super::cuda::memory(device).ok(),
        _ => None,
    }
}

/// Starts a new measurement of [`Memory::peak`]: waits for the device and returns unused memory to it, so that what
/// follows counts alone. Nothing on the CPU.
pub fn reset_peak(device: &Device) {
    #[cfg(feature = "cuda")]
    if let Device::Cuda(device) = device {
        // A driver that does not answer leaves the old peak, which is larger and never wrong by being too small.
        let _ = super::cuda::reset_peak(device);
    }
    #[cfg(not(feature = "cuda"))]
    let _ = device;
}
