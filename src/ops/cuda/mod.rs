//! The operations on NVIDIA GPUs: kernels of our own beside candle's matrix products.
//!
//! Arithmetic is f32 whatever the elements are; elements are f32 or bf16. A forward pass reads storages (candle's
//! `cuda_fwd`), a backward pass tensors; both end in [`launch`]. Everything runs on the device's one stream, so that
//! order is program order, and sums run in an order that shapes alone decide: the same step gives the same bits.
#![allow(unsafe_code, reason = "kernel launches and uninitialised results, each with its reason")]

pub(super) mod attention;
pub(super) mod elementwise;
pub(super) mod embedding;
pub(super) mod linear;
pub(super) mod norms;
pub mod optimizer;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use candle_core::cuda_backend::cudarc::driver::{CudaFunction, CudaModule, DevicePtr, LaunchConfig, PushKernelArg};
use candle_core::cuda_backend::cudarc::nvrtc::Ptx;
use candle_core::cuda_backend::{CudaDType, CudaDevice, CudaStorageSlice, DeviceId, WrapErr};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, DType, Layout, Result, Shape, Storage, StorageRef, Tensor, bail,
};
use half::bf16;

/// `KERNELS`: the compiled modules by name, machine code for every capability served and PTX of the lowest.
mod compiled {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

/// Threads of a block that works on one row, as in `common.cuh`.
const ROW_THREADS: u32 = 256;
/// Columns and rows of a block that sums columns, as in `common.cuh`.
const COLUMNS: u32 = 32;
const COLUMN_ROWS: u32 = 16;

/// A contiguous array of elements on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    pub pointer: u64,
    pub dtype: DType,
    pub elements: usize,
}

impl View {
    /// The elements of a storage that `layout` covers without gaps.
    pub fn of(storage: &CudaStorage, layout: &Layout, op: &str) -> Result<Self> {
        let Some((start, end)) = layout.contiguous_offsets() else {
            bail!("{op}: the argument of shape {:?} is not contiguous", layout.shape())
        };
        let (base, dtype) = base(storage)?;
        let pointer = base + (start * dtype.size_in_bytes()) as u64;
        Ok(Self { pointer, dtype, elements: end - start })
    }

    /// Refuses other elements than those of `dtype`: a kernel reads all of its arguments as one type.
    pub fn typed(self, dtype: DType, op: &str) -> Result<Self> {
        if self.dtype != dtype {
            bail!("{op}: {dtype:?} is wanted, found {:?}", self.dtype)
        }
        Ok(self)
    }

    /// Refuses other elements than f32, for what is f32 always.
    pub fn f32(self, op: &str) -> Result<Self> {
        self.typed(DType::F32, op)
    }
}

/// Address and type of a storage's first element.
fn base(storage: &CudaStorage) -> Result<(u64, DType)> {
    let stream = storage.device.cuda_stream();
    // The guard that comes along would record an event for other streams; there is one, and events are off.
    Ok(match &storage.slice {
        CudaStorageSlice::F32(slice) => (slice.device_ptr(&stream).0, DType::F32),
        CudaStorageSlice::BF16(slice) => (slice.device_ptr(&stream).0, DType::BF16),
        CudaStorageSlice::U32(slice) => (slice.device_ptr(&stream).0, DType::U32),
        CudaStorageSlice::U8(slice) => (slice.device_ptr(&stream).0, DType::U8),
        CudaStorageSlice::F64(slice) => (slice.device_ptr(&stream).0, DType::F64),
        _ => bail!("no kernel of ours takes this element type"),
    })
}

/// A tensor's elements, held while kernels that read them are launched.
pub(super) struct Held<'a> {
    pub view: View,
    _storage: StorageRef<'a>,
}

/// Opens a contiguous tensor on the device for kernels.
pub(super) fn hold<'a>(tensor: &'a Tensor, op: &str) -> Result<Held<'a>> {
    let (storage, layout) = tensor.storage_and_layout();
    let view = match &*storage {
        Storage::Cuda(storage) => View::of(storage, layout, op)?,
        _ => bail!("{op}: the tensor of shape {:?} is not on the GPU", layout.shape()),
    };
    Ok(Held { view, _storage: storage })
}

/// New elements without a value: whoever asks writes every one of them before anyone reads.
pub(super) fn uninitialised(device: &CudaDevice, dtype: DType, elements: usize) -> Result<CudaStorage> {
    // CUDA refuses allocations of nothing.
    let elements = elements.max(1);
    // SAFETY: plain numbers of any bit pattern; the kernel that follows on the same stream writes all of them.
    Ok(unsafe {
        match dtype {
            DType::F32 => f32::wrap_cuda_slice(device.alloc::<f32>(elements)?, device.clone()),
            DType::BF16 => bf16::wrap_cuda_slice(device.alloc::<bf16>(elements)?, device.clone()),
            DType::F64 => f64::wrap_cuda_slice(device.alloc::<f64>(elements)?, device.clone()),
            other => bail!("no result of ours has elements of {other:?}"),
        }
    })
}

/// A new tensor beside `near` (on its device, outside of any graph), whose elements `fill` writes through the address.
pub(super) fn filled(
    near: &Tensor,
    dtype: DType,
    shape: impl Into<Shape>,
    fill: impl Fn(&CudaDevice, View) -> Result<()>,
) -> Result<Tensor> {
    near.apply_op1_no_bwd(&Filled { dtype, shape: shape.into(), fill })
}

struct Filled<F> {
    dtype: DType,
    shape: Shape,
    fill: F,
}

impl<F: Fn(&CudaDevice, View) -> Result<()>> CustomOp1 for Filled<F> {
    fn name(&self) -> &'static str {
        "filled"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        bail!("this operation runs on GPUs only")
    }

    fn cuda_fwd(&self, near: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        let out = output(&near.device, self.dtype, self.shape.elem_count(), |view| (self.fill)(&near.device, view))?;
        Ok((out, self.shape.clone()))
    }
}

/// A result of a forward pass that `fill` writes.
pub(super) fn output(
    device: &CudaDevice,
    dtype: DType,
    elements: usize,
    fill: impl FnOnce(View) -> Result<()>,
) -> Result<CudaStorage> {
    let storage = uninitialised(device, dtype, elements)?;
    let (pointer, dtype) = base(&storage)?;
    if elements > 0 {
        fill(View { pointer, dtype, elements })?;
    }
    Ok(storage)
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg {
    Pointer(u64),
    /// `size_t`.
    Size(u64),
    Int(i32),
    Word(u32),
    Float(f32),
}

impl From<View> for Arg {
    fn from(view: View) -> Self {
        Arg::Pointer(view.pointer)
    }
}

/// A C `int`: sizes of single axes and counts of rows, refused where they do not fit.
pub(super) fn int(value: usize) -> Result<Arg> {
    i32::try_from(value).map(Arg::Int).map_err(|_| {
        candle_core::Error::msg(format!("a kernel counts to {}, {value} was asked for: a smaller batch fits", i32::MAX))
    })
}

/// How many blocks of how many threads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    blocks: [u32; 2],
    threads: [u32; 2],
}

impl Grid {
    /// A block for each of `rows`.
    pub fn rows(rows: usize) -> Result<Self> {
        Ok(Self { blocks: [along_x(rows)?, 1], threads: [ROW_THREADS, 1] })
    }

    /// A thread for each of `n`.
    pub fn elements(n: usize) -> Result<Self> {
        Ok(Self { blocks: [along_x(n.div_ceil(ROW_THREADS as usize))?, 1], threads: [ROW_THREADS, 1] })
    }

    /// Blocks that sum `width` columns, `groups` times.
    pub fn columns(width: usize, groups: usize) -> Result<Self> {
        let blocks = [along_x(width.div_ceil(COLUMNS as usize))?, along_y(groups)?];
        Ok(Self { blocks, threads: [COLUMNS, COLUMN_ROWS] })
    }

    /// A thread for each of `width`, `groups` times.
    pub fn table(width: usize, groups: usize) -> Result<Self> {
        let blocks = [along_x(width.div_ceil(ROW_THREADS as usize))?, along_y(groups)?];
        Ok(Self { blocks, threads: [ROW_THREADS, 1] })
    }

    /// Exactly these many blocks of a row's threads.
    pub fn blocks(blocks: u32) -> Self {
        Self { blocks: [blocks, 1], threads: [ROW_THREADS, 1] }
    }
}

/// The first axis of a grid, which is long.
fn along_x(count: usize) -> Result<u32> {
    within(count, i32::MAX as u32)
}

/// The second axis of a grid, which is short.
fn along_y(count: usize) -> Result<u32> {
    within(count, u32::from(u16::MAX))
}

/// The limits are CUDA's, of every capability that is served.
fn within(count: usize, most: u32) -> Result<u32> {
    u32::try_from(count).ok().filter(|&count| count <= most).ok_or_else(|| {
        candle_core::Error::msg(format!("a launch takes {most} blocks, {count} were asked for: a smaller batch fits"))
    })
}

/// Launches the kernel `name` in its form for `dtype`; nothing where there is nothing to compute.
pub(super) fn launch(
    device: &CudaDevice,
    name: &'static str,
    dtype: DType,
    grid: Grid,
    arguments: &[Arg],
) -> Result<()> {
    // CUDA refuses a grid without a block.
    if grid.blocks.contains(&0) {
        return Ok(());
    }
    let function = function(device, name, dtype)?;
    let stream = device.cuda_stream();
    let mut builder = stream.launch_builder(&function);
    for argument in arguments {
        match argument {
            Arg::Pointer(value) | Arg::Size(value) => builder.arg(value),
            Arg::Int(value) => builder.arg(value),
            Arg::Word(value) => builder.arg(value),
            Arg::Float(value) => builder.arg(value),
        };
    }
    let config = LaunchConfig {
        grid_dim: (grid.blocks[0], grid.blocks[1], 1),
        block_dim: (grid.threads[0], grid.threads[1], 1),
        shared_mem_bytes: 0,
    };
    // SAFETY: the callers pass what the kernel's signature in `*.cuh` says, in views of the element type that it reads
    // ([`View::typed`]) and of the shapes that the operation compared before. The memory of a view is freed in the order
    // of the device's one stream (`device/cuda/driver.rs`), that is after the kernel.
    unsafe { builder.launch(config) }.w()?;
    Ok(())
}

/// Loaded functions by device: a custom operation has no place to keep them.
#[derive(Default)]
struct Loaded {
    modules: HashMap<DeviceId, Arc<CudaModule>>,
    functions: HashMap<(DeviceId, &'static str, DType), CudaFunction>,
}

fn function(device: &CudaDevice, name: &'static str, dtype: DType) -> Result<CudaFunction> {
    static LOADED: OnceLock<Mutex<Loaded>> = OnceLock::new();
    let loaded = LOADED.get_or_init(Mutex::default);
    let mut loaded = loaded.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (device.id(), name, dtype);
    if let Some(function) = loaded.functions.get(&key) {
        return Ok(function.clone());
    }
    let suffix = match dtype {
        DType::F32 => "f32",
        DType::BF16 => "bf16",
        other => bail!("{name}: f32 or bf16 is wanted, found {other:?}"),
    };
    let module = match loaded.modules.get(&device.id()) {
        Some(module) => module.clone(),
        None => {
            let module = load(device)?;
            loaded.modules.insert(device.id(), module.clone());
            module
        }
    };
    let function = module.load_function(&format!("{name}_{suffix}")).w()?;
    loaded.functions.insert(key, function.clone());
    Ok(function)
}

fn load(device: &CudaDevice) -> Result<Arc<CudaModule>> {
    let Some((_, image)) = compiled::KERNELS.iter().find(|(name, _)| *name == "kernels") else {
        bail!("this build holds no kernels")
    };
    device.cuda_stream().context().load_module(Ptx::from_binary(image.to_vec())).w()
}
