//! The project's own kernels: every `src/ops/cuda/*.cu`, compiled to one fat binary each and carried in the program.

use std::collections::VecDeque;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::{env, fs, thread};

const SOURCES: &str = "src/ops/cuda";
/// Compute capabilities that get machine code: A100; RTX 30, A10, A40; Orin; RTX 40, L4, L40; H100, H200.
const CAPABILITIES: [(u32, u32); 5] = [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0)];

/// Compiles what is there into `out`, and writes `kernels.rs`: the fat binaries and what they are for.
pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
    for variable in ["NVCC", "CUDA_HOME", "VLASH_NVCC"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let sources = sources()?;
    if !sources.is_empty() {
        compile(&sources, out, &nvcc()?)?;
    }
    let mut entries = String::new();
    for source in &sources {
        let stem = stem(source)?;
        entries +=
            &format!("    ({stem:?}, &Aligned(*include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{stem}.fatbin\"))).0),\n");
    }
    let text = format!(
        "/// The loader reads fat binaries in words of 8 bytes; `include_bytes` alone promises an alignment of 1.\n\
         #[repr(C, align(16))]\n\
         struct Aligned<B: ?Sized>(B);\n\n\
         /// The fat binaries by the name of their source file: machine code of every entry of [`CAPABILITIES`], and PTX\n\
         /// of the lowest for cards that are newer than all of them.\n\
         pub static KERNELS: &[(&str, &[u8])] = &[\n{entries}];\n\n\
         /// Compute capabilities with machine code in [`KERNELS`].\n\
         pub const CAPABILITIES: &[(u32, u32)] = &{CAPABILITIES:?};\n"
    );
    Ok(fs::write(out.join("kernels.rs"), text)?)
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

/// As many compilers at a time as cargo grants jobs.
fn compile(sources: &[PathBuf], out: &Path, nvcc: &Path) -> Result<(), Box<dyn Error>> {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1).clamp(1, sources.len());
    let waiting = Mutex::new(sources.iter().collect::<VecDeque<_>>());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    let failed: Vec<String> = thread::scope(|scope| {
        let worker = || {
            let mut failed = Vec::new();
            while let Some(source) = next() {
                failed.extend(compile_one(source, out, nvcc).err());
            }
            failed
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|_| vec!["a compiler thread died".into()]))
            .collect()
    });
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n").into()) }
}

/// IEEE arithmetic: no fast math, so that a kernel computes what its CPU counterpart does.
fn compile_one(source: &Path, out: &Path, nvcc: &Path) -> Result<(), String> {
    let target = out.join(format!("{}.fatbin", stem(source)?));
    let mut command = Command::new(nvcc);
    command.args(["-fatbin", "-O3", "-std=c++17"]);
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
