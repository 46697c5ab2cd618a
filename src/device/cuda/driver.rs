//! What the driver tells: the GPUs, their memory, and why it cannot.

#![allow(unsafe_code, reason = "the driver's memory pool has no safe interface in cudarc")]

use std::sync::Arc;

use candle_core::cuda_backend::CudaError;
use candle_core::{CudaDevice, Device};
use cudarc::cublas::sys::cublasStatus_t;
use cudarc::curand::sys::curandStatus_t;
use cudarc::driver::sys::{CUdevice_attribute, CUmemPool_attribute, CUmemoryPool, CUresult};
use cudarc::driver::{CudaContext, DriverError, result};

use super::BUILT;
use super::libraries::{Driver, libraries};
use crate::device::memory::Memory;
use crate::device::requirements::{self, DRIVER_AT_LEAST};
use crate::device::search::Library;
use crate::device::visible::{self, Visible};
use crate::device::{DeviceError, Gpu};

/// The GPUs that this process sees, in the driver's order, whether or not they can be used.
///
/// # Errors
/// `CUDA_VISIBLE_DEVICES` hides them all or names one twice; no driver, one that is too old, or one that does not start.
pub fn gpus() -> Result<Vec<Gpu>, DeviceError> {
    let value = std::env::var_os(visible::VARIABLE).map(|value| value.to_string_lossy().into_owned());
    if visible::parse(value.as_deref())? == Visible::Nothing {
        return Err(DeviceError::Hidden { value: value.unwrap_or_default() });
    }
    let driver = ready()?;
    let told = |source| refused("cuDeviceGet", source);
    let count = result::device::get_count().map_err(told)?;
    let gpus: Vec<Gpu> =
        (0..count).map(|index| describe(index, driver.version)).collect::<Result<_, _>>().map_err(told)?;
    if gpus.is_empty() { Err(DeviceError::NoGpu) } else { Ok(gpus) }
}

/// The driver's library, found, new enough and started.
fn ready() -> Result<&'static Driver, DeviceError> {
    let libraries = libraries();
    let Some(driver) = &libraries.driver else { return Err(missing(Library::Driver)) };
    let needed = DRIVER_AT_LEAST.max(BUILT.toolkit);
    if driver.version < needed {
        return Err(DeviceError::OldDriver { path: driver.path.clone(), found: driver.version, needed });
    }
    if let Some(symbol) = driver.lacks.first() {
        return Err(DeviceError::Lacks { path: driver.path.clone(), symbol });
    }
    match result::init() {
        Ok(()) => Ok(driver),
        Err(DriverError(CUresult::CUDA_ERROR_NO_DEVICE)) => Err(DeviceError::NoGpu),
        Err(source) => Err(refused("cuInit", source)),
    }
}

fn missing(library: Library) -> DeviceError {
    DeviceError::Library { library, search: libraries().search.of(library) }
}

fn refused(call: &'static str, source: DriverError) -> DeviceError {
    let path = libraries().driver.as_ref().map(|driver| driver.path.clone()).unwrap_or_default();
    DeviceError::Refused { call, path, said: said(source) }
}

/// `CUDA_ERROR_UNKNOWN (unknown error)`
fn said(error: DriverError) -> String {
    let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
    text.map_or_else(|_| format!("{:?}", error.0), |text| format!("{:?} ({text})", error.0))
}

fn describe(index: i32, driver: (u32, u32)) -> Result<Gpu, DriverError> {
    let device = result::device::get(index)?;
    // SAFETY: a device that the driver has just given out.
    let (total, major, minor) = unsafe {
        (
            result::device::total_mem(device)?,
            result::device::get_attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            result::device::get_attribute(device, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        )
    };
    Ok(Gpu {
        index: usize::try_from(index).unwrap_or_default(),
        uuid: uuid(result::device::get_uuid(device)?.bytes.map(|byte| byte as u8)),
        name: result::device::get_name(device)?,
        capability: (major.unsigned_abs(), minor.unsigned_abs()),
        total_bytes: total as u64,
        driver,
    })
}

/// As `nvidia-smi` writes it, and as `CUDA_VISIBLE_DEVICES` takes it.
fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

/// Opens the GPU of this index among those that [`gpus`] lists.
///
/// One stream for everything, and no events between streams: candle's default stream is one a thread, which two
/// threads would use unsynchronised. The pool keeps what it once took, since every tensor is allocated anew in each
/// step and the driver would otherwise hand the memory back at every synchronisation.
pub fn open(index: usize) -> Result<(Device, Gpu), DeviceError> {
    let gpus = gpus()?;
    let count = gpus.len();
    let gpu = gpus.into_iter().nth(index).ok_or(DeviceError::NoSuchGpu { index, count })?;
    requirements::check(&gpu)?;
    let libraries = libraries();
    for (library, found) in [(Library::Cublas, &libraries.cublas), (Library::Curand, &libraries.curand)] {
        if found.is_none() {
            return Err(missing(library));
        }
    }
    let device = start(index).map_err(|source| DeviceError::Open { index, name: gpu.name.clone(), source })?;
    Ok((Device::Cuda(device), gpu))
}

fn start(index: usize) -> candle_core::Result<CudaDevice> {
    let device = CudaDevice::new_with_stream(index)?;
    // SAFETY: every tensor of this device is used on the one stream that was just made; nothing to order.
    unsafe { device.disable_event_tracking() };
    let context = context(&device);
    match pool(&context).and_then(|pool| set(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)) {
        // An integrated GPU may have no pools; cudarc then allocates without one.
        Ok(()) | Err(DriverError(CUresult::CUDA_ERROR_NOT_SUPPORTED)) => Ok(device),
        Err(source) => Err(CudaError::from(source).into()),
    }
}

fn context(device: &CudaDevice) -> Arc<CudaContext> {
    device.cuda_stream().context().clone()
}

/// The pool that tensors are allocated from: the default one of the device.
fn pool(context: &CudaContext) -> Result<CUmemoryPool, DriverError> {
    // SAFETY: the context's own device.
    unsafe { result::device::get_default_mem_pool(context.cu_device()) }
}

fn get(pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64, DriverError> {
    let mut value = 0u64;
    // SAFETY: a pool of an open device; the attributes asked for here are 64-bit numbers.
    unsafe { result::mem_pool::get_attribute(pool, attribute, (&raw mut value).cast()) }?;
    Ok(value)
}

fn set(pool: CUmemoryPool, attribute: CUmemPool_attribute, mut value: u64) -> Result<(), DriverError> {
    // SAFETY: a pool of an open device; the attributes set here are 64-bit numbers.
    unsafe { result::mem_pool::set_attribute(pool, attribute, (&raw mut value).cast()) }
}

/// [`crate::device::memory::read`] of a GPU.
pub fn memory(device: &CudaDevice) -> Result<Memory, DriverError> {
    let context = context(device);
    let pool = pool(&context)?;
    let (free, total) = context.mem_get_info()?;
    let (used, total) = (total.saturating_sub(free) as u64, total as u64);
    let now = get(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    let high = get(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)?;
    // The context, the kernels and cuBLAS's workspace lie beside the pool; they come early and stay.
    Ok(Memory { used, total, peak: used.saturating_sub(now) + high })
}

/// [`crate::device::memory::reset_peak`] of a GPU: the pool gives back what no tensor holds, and counts from there.
pub fn reset_peak(device: &CudaDevice) -> Result<(), DriverError> {
    let context = context(device);
    let pool = pool(&context)?;
    // What is freed, is freed in the order of the stream.
    device.cuda_stream().synchronize()?;
    // SAFETY: a pool of an open device; nothing in use is touched.
    unsafe { result::mem_pool::trim_to(pool, 0) }?;
    set(pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0)
}

/// Whether an error of candle's CUDA side is one of memory that ran out.
pub fn out_of_memory(error: &(dyn std::error::Error + 'static)) -> bool {
    let exhausted = |error: &DriverError| error.0 == CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    match error.downcast_ref::<CudaError>() {
        Some(CudaError::Cuda(error) | CudaError::Load { cuda: error, .. }) => exhausted(error),
        Some(CudaError::Cublas(error)) => error.0 == cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED,
        Some(CudaError::Curand(error)) => error.0 == curandStatus_t::CURAND_STATUS_ALLOCATION_FAILED,
        Some(_) => false,
        None => error.downcast_ref::<DriverError>().is_some_and(exhausted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_the_variable_takes_it() {
        let bytes: [u8; 16] = std::array::from_fn(|index| index as u8 * 17);
        assert_eq!(uuid(bytes), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn only_exhausted_memory_counts_as_out_of_memory() {
        let failed = |error: CudaError| crate::device::is_out_of_memory(&candle_core::Error::from(error));
        let cublas = |status| CudaError::from(cudarc::cublas::result::CublasError(status));
        assert!(failed(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY).into()));
        assert!(failed(cublas(cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED)));
        assert!(!failed(DriverError(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS).into()));
        assert!(!failed(cublas(cublasStatus_t::CUBLAS_STATUS_EXECUTION_FAILED)));
        assert!(!failed(CudaError::InternalError("out of memory")));
    }
}
