//! The project's own kernels: every `src/ops/cuda/*.cu`, compiled to one fat binary each and carried in the program.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

const SOURCES: &str = "src/ops/cuda";
/// Compute capabilities that get machine code: A100; RTX 30, A10, A40; Orin; RTX 40, L4, L40; H100, H200.
const CAPABILITIES: [(u32, u32); 5] = [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0)];

/// Compiles what is there into `out`, and writes `kernels.rs` (the fat binaries) and `served.rs` (what they serve).
pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
    for variable in ["NVCC", "CUDA_HOME", "VLASH_NVCC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let nvcc = nvcc()?;
    let sources = sources()?;
    let mut entries = String::new();
    for source in &sources {
        compile(source, out, &nvcc)?;
        let stem = stem(source)?;
        entries +=
            &format!("    ({stem:?}, &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{stem}.fatbin\"))).0),\n");
    }
    let aligned = "/// The driver reads fat binaries in words; `include_bytes` alone promises an alignment of 1.\n\
         #[repr(C, align(16))]\n\
         struct Aligned<B: ?Sized>(B);\n\n";
    let kernels = format!(
        "{}/// The fat binaries by the name of their source file: machine code of every capability served, and PTX of the\n\
         /// lowest for newer cards.\n\
         pub static KERNELS: &[(&str, &[u8])] = &[\n{entries}];\n",
        if sources.is_empty() { "" } else { aligned }
    );
    fs::write(out.join("kernels.rs"), kernels)?;
    let served = format!(
        "/// Compute capabilities with machine code in this build.\n\
         pub const CAPABILITIES: &[(u32, u32)] = &{CAPABILITIES:?};\n\
         /// CUDA version of the compiler, major and minor: a driver reads the PTX of its own version and of older ones.\n\
         pub const TOOLKIT: (u32, u32) = {:?};\n",
        version(&nvcc)?
    );
    Ok(fs::write(out.join("served.rs"), served)?)
}

/// From `Cuda compilation tools, release 12.4, V12.4.131`.
fn version(nvcc: &Path) -> Result<(u32, u32), String> {
    let output =
        Command::new(nvcc).arg("--version").output().map_err(|error| format!("{}: {error}", nvcc.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = text.split("release ").nth(1).and_then(|rest| rest.split(',').next());
    let (major, minor) = release.and_then(|release| release.split_once('.')).unzip();
    let number = |digits: Option<&str>| digits.and_then(|digits| digits.trim().parse().ok());
    match (number(major), number(minor)) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(format!("{} --version does not name its release: {text}", nvcc.display())),
    }
}

/// The CUDA sources in order of their names; an absent folder holds none.
fn sources() -> Result<Vec<PathBuf>, Box<dyn Error>> {
    // Cargo looks at every file below a folder, headers (`*.cuh`) included.
    println!("cargo::rerun-if-changed={SOURCES}");
    if !Path::new(SOURCES).is_dir() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(SOURCES)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cu") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn stem(source: &Path) -> Result<&str, String> {
    source.file_stem().and_then(|stem| stem.to_str()).ok_or_else(|| format!("{}: not a file name", source.display()))
}

/// IEEE arithmetic: no fast math, so that a kernel computes what its CPU counterpart does but for the last bit (products
/// are fused with sums). The compiler works on as many capabilities at a time as cargo grants jobs.
fn compile(source: &Path, out: &Path, nvcc: &Path) -> Result<(), String> {
    let target = out.join(format!("{}.fatbin", stem(source)?));
    let mut command = Command::new(nvcc);
    let jobs = env::var("NUM_JOBS").unwrap_or_else(|_| "1".into());
    command.args(["-fatbin", "-O3", "-std=c++17", "--threads", &jobs]);
    for (index, (major, minor)) in CAPABILITIES.iter().enumerate() {
        let number = format!("{major}{minor}");
        let code = if index == 0 { format!("[sm_{number},compute_{number}]") } else { format!("sm_{number}") };
        command.args(["-gencode", &format!("arch=compute_{number},code={code}")]);
    }
    command.arg("-o").arg(&target).arg(source);
    let output = command.output().map_err(|error| format!("{}: {error}", nvcc.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    Err(format!("{} does not compile ({command:?}):\n{said}", source.display()))
}

/// `$NVCC`, else the first on PATH, else the one of `$CUDA_HOME`.
fn nvcc() -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("NVCC") {
        let named = PathBuf::from(named);
        return if named.is_file() {
            Ok(named)
        } else {
            Err(missing(&format!("NVCC names {}, which is no file", named.display())))
        };
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let home = env::var_os("CUDA_HOME").map(|home| PathBuf::from(home).join("bin"));
    let found = env::split_paths(&path).chain(home).map(|folder| folder.join("nvcc")).find(|file| file.is_file());
    found.ok_or_else(|| missing("nvcc is neither on PATH nor in $CUDA_HOME/bin"))
}

fn missing(what: &str) -> String {
    format!(
        "the kernels in {SOURCES} need NVIDIA's compiler, and {what}. Lay it out without root, then build again:\n    \
         gpu/toolkit.sh && source target/cuda-12.4/env.sh"
    )
}
