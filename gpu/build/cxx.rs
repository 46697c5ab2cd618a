//! The C++ runtime inside the binary: the H.264 decoder is C++, and a GPU host may have an older runtime or none.
//!
//! The decoder's crate asks for `-lstdc++`. A linker script of that name, found first, answers with the compiler's
//! static library. Where there is none the shared one is linked as usual.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Writes the linker script into `out`, which is searched for libraries already.
pub fn write(out: &Path) -> Result<(), Box<dyn Error>> {
    for variable in ["CXX", "TARGET_CXX"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let Some(library) = static_library() else { return Ok(()) };
    Ok(fs::write(out.join("libstdc++.so"), format!("INPUT({})\n", library.display()))?)
}

/// Where the target's C++ compiler has `libstdc++.a`.
fn static_library() -> Option<PathBuf> {
    let target = env::var("TARGET").ok()?;
    let native = env::var("HOST").ok()? == target;
    let named = |variable: String| env::var(variable).ok();
    let compiler = named(format!("CXX_{}", target.replace('-', "_")))
        .or_else(|| named("TARGET_CXX".into()))
        .or_else(|| named("CXX".into()).filter(|_| native))
        .unwrap_or_else(|| if native { "c++".into() } else { format!("{}-g++", target.replace("-unknown", "")) });
    let output = Command::new(compiler).arg("-print-file-name=libstdc++.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    // A compiler that has none answers with the bare name.
    path.is_absolute().then_some(path).filter(|path| path.is_file())
}
