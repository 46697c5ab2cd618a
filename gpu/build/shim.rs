//! Stand-ins for NVIDIA's libraries: the binary links without them, and starts where they are missing.
//!
//! The crates below ask the linker for `-lcuda`, `-lcublas` and others. Empty archives of these names satisfy it, and
//! every function that the program uses is a trampoline instead: one jump through a slot of a table, which
//! `src/device/cuda/shim.rs` fills when a GPU is asked for. A function missing from the list is a link error.

use std::error::Error;
use std::path::Path;
use std::{env, fs};

const LIST: &str = "src/device/cuda-symbols.txt";
/// Whatever the crates below may pass to the linker as `-l…`.
const LIBRARIES: [&str; 7] = ["cuda", "cublas", "cublasLt", "cudart", "curand", "nccl", "nvrtc"];
/// The table of addresses in `src/device/cuda/shim.rs`.
const TABLE: &str = "VLASH_CUDA_SLOTS";

/// Writes the archives and `shim.rs` (the names, and the trampolines in assembly) into `out`.
pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={LIST}");
    println!("cargo::rustc-link-search=native={}", out.display());
    for library in LIBRARIES {
        fs::write(out.join(format!("lib{library}.a")), "!<arch>\n")?;
    }
    let text = fs::read_to_string(LIST).map_err(|error| format!("{LIST}: {error}"))?;
    let mut names: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    names.sort_unstable();
    names.dedup();
    let architecture = env::var("CARGO_CFG_TARGET_ARCH")?;
    let mut assembly = String::from(".text\n");
    for (index, name) in names.iter().enumerate() {
        let jump = trampoline(&architecture, index * 8)?;
        // Hidden: libraries that are opened later must never bind to these.
        assembly += &format!(
            ".p2align 4\n.globl {name}\n.hidden {name}\n.type {name}, %function\n{name}:\n{jump}.size {name}, .-{name}\n"
        );
    }
    let dialect = if architecture == "x86_64" { ", options(att_syntax)" } else { "" };
    let count = names.len();
    let source = format!(
        "/// The functions behind the slots, in the order of the slots.\n\
         pub const NAMES: [&str; {count}] = {names:?};\n\
         std::arch::global_asm!(r#\"\n{assembly}\"#{dialect});\n"
    );
    Ok(fs::write(out.join("shim.rs"), source)?)
}

/// A jump to the address in the table at `offset` bytes, with every argument register untouched.
fn trampoline(architecture: &str, offset: usize) -> Result<String, String> {
    match architecture {
        "x86_64" => Ok(format!("jmp *{TABLE}+{offset}(%rip)\n")),
        // x16 is the register that a call may lose on the way (IP0 of the procedure call standard).
        "aarch64" => Ok(format!("adrp x16, {TABLE}+{offset}\nldr x16, [x16, :lo12:{TABLE}+{offset}]\nbr x16\n")),
        other => Err(format!("--features cuda is written for x86_64 and aarch64, not {other}")),
    }
}
