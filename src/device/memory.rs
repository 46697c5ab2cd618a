//! What a device's memory holds, as its driver counts it.

use candle_core::Device;

/// Bytes on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Of the whole device, by whoever.
    pub used: u64,
    pub total: u64,
    /// The most that this process has held since the last [`reset_peak`], context and libraries included.
    pub peak: u64,
}

/// None on the CPU.
pub fn read(device: &Device) -> Option<Memory> {
    let _ = device;
    None
}

/// Starts a new measurement of [`Memory::peak`]; nothing on the CPU.
pub fn reset_peak(device: &Device) {
    let _ = device;
}
