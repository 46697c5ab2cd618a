//! What a build with `--features cuda` needs beyond rustc: stand-ins for NVIDIA's libraries at link time, and the
//! compiled kernels of `src/ops/cuda`. A build without the feature does nothing here.

use std::env;
use std::error::Error;
use std::path::PathBuf;

#[path = "gpu/build/cxx.rs"]
mod cxx;
#[path = "gpu/build/kernels.rs"]
mod kernels;
#[path = "gpu/build/shim.rs"]
mod shim;

fn main() -> Result<(), Box<dyn Error>> {
    for file in ["build.rs", "gpu/build"] {
        println!("cargo::rerun-if-changed={file}");
    }
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    shim::write(&out)?;
    cxx::write(&out)?;
    kernels::write(&out)
}
