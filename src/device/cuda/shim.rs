//! The table behind every CUDA function of the program (`gpu/build/shim.rs` writes the functions).
//!
//! Until [`fill`] has been there, each answers with its library's error for "not initialised", so that a call that
//! comes too early is an error like any other and no jump into nothing.

#![allow(unsafe_code, reason = "functions of libraries that are opened at run time")]

use std::ffi::c_void;
use std::sync::atomic::{AtomicPtr, Ordering};

include!(concat!(env!("OUT_DIR"), "/shim.rs"));

/// One address a function, in the order of [`NAMES`]; the trampolines jump through it.
///
/// In the module of the trampolines, so that the linker takes both or neither, and exported, so that it takes them.
#[unsafe(no_mangle)]
static VLASH_CUDA_SLOTS: [AtomicPtr<c_void>; NAMES.len()] = unfilled();

/// `CUDA_ERROR_NO_DEVICE`
extern "C" fn no_driver() -> i32 {
    100
}

/// `CUBLAS_STATUS_NOT_INITIALIZED`
extern "C" fn no_cublas() -> i32 {
    1
}

/// `CURAND_STATUS_NOT_INITIALIZED`
extern "C" fn no_curand() -> i32 {
    101
}

const fn unfilled() -> [AtomicPtr<c_void>; NAMES.len()] {
    let mut slots = [const { AtomicPtr::new(no_driver as *mut c_void) }; NAMES.len()];
    let mut index = 0;
    while index < NAMES.len() {
        if starts_with(NAMES[index], "cublas") {
            slots[index] = AtomicPtr::new(no_cublas as *mut c_void);
        } else if starts_with(NAMES[index], "curand") {
            slots[index] = AtomicPtr::new(no_curand as *mut c_void);
        }
        index += 1;
    }
    slots
}

const fn starts_with(name: &str, prefix: &str) -> bool {
    let (name, prefix) = (name.as_bytes(), prefix.as_bytes());
    let mut index = 0;
    while index < prefix.len() {
        if index >= name.len() || name[index] != prefix[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The functions that come from one library, by the prefix of their names: `cu` (the driver's), `cublas`, `curand`.
pub fn names(prefix: &str) -> impl Iterator<Item = &'static str> {
    // The driver's names go on with a capital: cuInit, not cublasCreate.
    let of = move |name: &&str| match name.strip_prefix(prefix) {
        Some(rest) => rest.starts_with(|c: char| c.is_ascii_uppercase()),
        None => false,
    };
    NAMES.into_iter().filter(of)
}

/// Directs the functions of [`names`]`(prefix)` to the addresses that `address` gives for them.
///
/// # Safety
/// Each address is that of the function of this name, in a library that stays open until the process ends.
pub unsafe fn fill(prefix: &str, address: impl Fn(&str) -> Option<*mut c_void>) {
    for name in names(prefix) {
        let slot = NAMES.iter().position(|n| *n == name).and_then(|index| VLASH_CUDA_SLOTS.get(index));
        if let (Some(slot), Some(address)) = (slot, address(name)) {
            slot.store(address, Ordering::Release);
        }
    }
}
