//! Where things live when the configuration does not say.

use std::env;
use std::path::PathBuf;

/// The directory for what can be computed again (statistics, decoded frames, generated data):
/// `$VLASH_CACHE`, else `$SCRATCH/.cache/vlash`, else `$XDG_CACHE_HOME/vlash`, else `~/.cache/vlash`,
/// else a folder in the system's temporary directory.
pub fn cache_dir() -> PathBuf {
    let variable = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("VLASH_CACHE")
        .or_else(|| variable("SCRATCH").map(|p| p.join(".cache/vlash")))
        .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("vlash")))
        .or_else(|| variable("HOME").map(|p| p.join(".cache/vlash")))
        .unwrap_or_else(|| env::temp_dir().join("vlash-cache"))
}
