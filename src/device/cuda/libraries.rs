//! Opens CUDA's libraries and directs the functions of the program to them; once a process.

#![allow(unsafe_code, reason = "libraries are opened, and their functions called, at run time")]

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use super::shim;
use crate::device::search::{Library, Outcome, Search, Surroundings, find, is_stub, places};

/// `CUDA_ERROR_STUB_LIBRARY`
const STUB: c_int = 34;
/// `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH` and `CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE`: a library of another driver
/// release than the kernel's, as forward-compatibility packages put into containers.
const OTHER_RELEASE: [c_int; 2] = [803, 804];

/// What became of the search for the libraries.
#[derive(Debug)]
pub struct Libraries {
    pub driver: Option<Driver>,
    pub cublas: Option<PathBuf>,
    pub curand: Option<PathBuf>,
    /// Every place that was looked into.
    pub search: Search,
}

/// The driver's library.
#[derive(Debug)]
pub struct Driver {
    pub path: PathBuf,
    /// CUDA version that it supports, major and minor.
    pub version: (u32, u32),
    /// Functions that this program calls and this library does not have.
    pub lacks: Vec<&'static str>,
}

/// Searches and opens at the first call; the same answer ever after.
pub fn libraries() -> &'static Libraries {
    static LIBRARIES: OnceLock<Libraries> = OnceLock::new();
    LIBRARIES.get_or_init(load)
}

fn load() -> Libraries {
    let around = Surroundings { root: Path::new("/"), variable: &|name| std::env::var_os(name) };
    let mut search = Search::default();
    let driver = find(Library::Driver, &places(Library::Driver, &around), None, &mut search, &mut open_driver);
    let release = driver.as_ref().map(|driver| driver.version.0);
    let mut toolkit = |library, prefix: &'static str| {
        let mut open = |path: &Path| open_toolkit(path, prefix).map(|path| (path.clone(), path));
        find(library, &places(library, &around), release, &mut search, &mut open)
    };
    let cublas = toolkit(Library::Cublas, "cublas");
    let curand = toolkit(Library::Curand, "curand");
    Libraries { driver, cublas, curand, search }
}

/// Opens what may be the driver's library, and starts the driver. Stubs and libraries of another driver release only
/// show when they are asked to start.
fn open_driver(path: &Path) -> Result<(Driver, PathBuf), Outcome> {
    let handle = Handle::open(path)?;
    let lacking = |name: &str| Outcome::Refused(format!("has no {name}: not NVIDIA's driver library"));
    let init = handle.symbol("cuInit").ok_or_else(|| lacking("cuInit"))?;
    let get_version = handle.symbol("cuDriverGetVersion").ok_or_else(|| lacking("cuDriverGetVersion"))?;
    let path = handle.file(init).unwrap_or_else(|| path.to_owned());
    if is_stub(&path) {
        return Err(Outcome::Refused(format!("{}: a stub for linking, without a driver behind it", path.display())));
    }
    // SAFETY: the signatures of cuda.h: `CUresult cuInit(unsigned)` and `CUresult cuDriverGetVersion(int *)`.
    let (started, number) = unsafe {
        let init = mem::transmute::<*mut c_void, unsafe extern "C" fn(u32) -> c_int>(init.as_ptr());
        let get_version =
            mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(get_version.as_ptr());
        let mut number: c_int = 0;
        let started = init(0);
        get_version(&mut number);
        (started, number)
    };
    if started == STUB {
        return Err(Outcome::Refused("a stub for linking, without a driver behind it (cuInit: error 34)".into()));
    }
    if OTHER_RELEASE.contains(&started) {
        let why = format!("does not fit the driver that runs in the kernel (cuInit: error {started})");
        return Err(Outcome::Refused(why));
    }
    let number = u32::try_from(number).unwrap_or(0);
    let lacks = handle.keep("cu");
    Ok((Driver { path: path.clone(), version: (number / 1000, number % 1000 / 10), lacks }, path))
}

/// Opens a library of the toolkit; one that lacks a function of `prefix` is another release, and refused.
fn open_toolkit(path: &Path, prefix: &str) -> Result<PathBuf, Outcome> {
    open_companion(path);
    let handle = Handle::open(path)?;
    if let Some(name) = shim::names(prefix).find(|name| handle.symbol(name).is_none()) {
        return Err(Outcome::Refused(format!("has no {name}, which this program calls")));
    }
    let any = shim::names(prefix).find_map(|name| handle.symbol(name));
    let path = any.and_then(|address| handle.file(address)).unwrap_or_else(|| path.to_owned());
    handle.keep(prefix);
    Ok(path)
}

/// cuBLAS needs the cuBLASLt that lies beside it. Opened first, by its whole path, it is there when the loader looks
/// for its name; elsewhere the loader might find another release, or none.
fn open_companion(path: &Path) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let (Some(release), Some(folder)) = (name.strip_prefix("libcublas.so."), path.parent()) {
        let companion = folder.join(format!("libcublasLt.so.{release}"));
        if companion.is_absolute() && companion.exists() {
            // What is wrong with it, if anything, the loader says about libcublas.
            if let Ok(handle) = Handle::open(&companion) {
                mem::forget(handle);
            }
        }
    }
}

/// An open library, closed again unless it is kept.
struct Handle(NonNull<c_void>);

impl Handle {
    /// A bare name is looked for by the loader itself; `Absent` when it finds nothing.
    fn open(path: &Path) -> Result<Handle, Outcome> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| Outcome::Absent)?;
        // SAFETY: a terminated string. Opening runs the library's initialisers: these are the libraries that a user
        // of the GPU asks for, found where the host or the user keeps them.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        match NonNull::new(handle) {
            Some(handle) => Ok(Handle(handle)),
            None if path.components().count() == 1 => {
                let said = said();
                // The loader's words for "nowhere"; a library that is there and broken is told.
                let nowhere = format!("{}: cannot open shared object file: No such file or directory", path.display());
                Err(if said == nowhere { Outcome::Absent } else { Outcome::Refused(said) })
            }
            None => Err(Outcome::Refused(format!("cannot be opened: {}", said()))),
        }
    }

    fn symbol(&self, name: &str) -> Option<NonNull<c_void>> {
        let name = CString::new(name).ok()?;
        // SAFETY: an open library and a terminated string.
        NonNull::new(unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) })
    }

    /// The file that an address of this library came from.
    fn file(&self, address: NonNull<c_void>) -> Option<PathBuf> {
        // SAFETY: `Dl_info` holds pointers and is valid when zero; dladdr fills it when it answers other than 0, and
        // its name lives as long as the library, which is open.
        let name = unsafe {
            let mut info: libc::Dl_info = mem::zeroed();
            let found = libc::dladdr(address.as_ptr(), &mut info) != 0 && !info.dli_fname.is_null();
            found.then(|| CStr::from_ptr(info.dli_fname).to_bytes().to_vec())
        }?;
        Some(PathBuf::from(std::ffi::OsString::from(String::from_utf8(name).ok()?)))
    }

    /// Directs the program's functions of this prefix here, keeps the library open for good, and returns those that
    /// it does not have.
    fn keep(self, prefix: &str) -> Vec<&'static str> {
        // SAFETY: addresses of these names in a library that is never closed: its handle is forgotten below.
        unsafe { shim::fill(prefix, |name| self.symbol(name).map(NonNull::as_ptr)) };
        let lacks = shim::names(prefix).filter(|name| self.symbol(name).is_none()).collect();
        mem::forget(self);
        lacks
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: opened by `open`, and nothing of it is in use: `keep` is the only way to use it, and never drops.
        unsafe { libc::dlclose(self.0.as_ptr()) };
    }
}

/// The loader's last complaint.
fn said() -> String {
    // SAFETY: dlerror returns null or a string that is valid until the thread's next call of this family.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() { "for no stated reason".into() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
    }
}
