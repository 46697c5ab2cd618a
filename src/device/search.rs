//! Where CUDA's libraries may lie, in order, and an account of having looked there.
//!
//! `libcuda` belongs to the kernel driver and is always the host's; containers, clusters and distributions put it in
//! places of their own. cuBLAS and cuRAND come with the toolkit, with JetPack, or with a Python environment. Nothing
//! here opens a library: [`find`] is given what does.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Folders (separated by `:`) to look into before any other.
pub const OWN_VARIABLE: &str = "VLASH_CUDA_LIBRARIES";

/// A library that is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// The driver's own; never ours to bring.
    Driver,
    Cublas,
    Curand,
}

impl Library {
    /// File names with the CUDA release (major) that they belong to, the preferred one first.
    pub fn names(self) -> &'static [(&'static str, Option<u32>)] {
        match self {
            Library::Driver => &[("libcuda.so.1", None)],
            Library::Cublas => &[("libcublas.so.13", Some(13)), ("libcublas.so.12", Some(12))],
            // One name in both releases.
            Library::Curand => &[("libcurand.so.10", None)],
        }
    }
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Driver => "libcuda.so.1",
            Library::Cublas => "libcublas.so.13 or libcublas.so.12",
            Library::Curand => "libcurand.so.10",
        })
    }
}

/// What a search depends on besides the library. A value of its own so that tests search a folder of their making.
pub struct Surroundings<'a> {
    /// `/`, or what stands for it.
    pub root: &'a Path,
    /// Environment variables.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
}

/// Somewhere to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Why here: a variable, or who installs there.
    pub origin: &'static str,
    /// None: the loader's own search, by name alone.
    pub folder: Option<PathBuf>,
    /// The CUDA release (major) that the folder belongs to, where its name tells.
    pub release: Option<u32>,
}

impl Place {
    fn new(origin: &'static str, folder: PathBuf) -> Place {
        let text = folder.to_string_lossy();
        let release = if text.contains("/cu13/") || text.contains("/cuda-13") {
            Some(13)
        } else if text.contains("/cuda-12") {
            Some(12)
        } else {
            None
        };
        Place { origin, release, folder: Some(folder) }
    }
}

/// What came of one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome", content = "detail")]
pub enum Outcome {
    Absent,
    /// Something is there that is not wanted, and why.
    Refused(String),
    /// The file that was opened.
    Opened(PathBuf),
}

/// One line of the account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Look {
    pub library: Library,
    pub origin: &'static str,
    pub folder: Option<PathBuf>,
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The account of a search: every place in order, and what was found there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Search(pub Vec<Look>);

impl Search {
    /// The file that was opened for `library`.
    pub fn opened(&self, library: Library) -> Option<&Path> {
        self.0.iter().find_map(|look| match &look.outcome {
            Outcome::Opened(path) if look.library == library => Some(path.as_path()),
            _ => None,
        })
    }

    /// The part about one library.
    pub fn of(&self, library: Library) -> Search {
        Search(self.0.iter().filter(|look| look.library == library).cloned().collect())
    }
}

impl fmt::Display for Search {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut library = None;
        for (index, look) in self.0.iter().enumerate() {
            if library != Some(look.library) {
                library = Some(look.library);
                let break_before = if index == 0 { "" } else { "\n" };
                write!(f, "{break_before}looked for {}:", look.library)?;
            }
            match &look.folder {
                Some(folder) => write!(f, "\n  {} ({}): ", folder.display(), look.origin)?,
                None => write!(f, "\n  {}: ", look.origin)?,
            }
            match &look.outcome {
                Outcome::Absent => f.write_str("not there")?,
                Outcome::Refused(why) => f.write_str(why)?,
                Outcome::Opened(path) => write!(f, "opened {}", path.display())?,
            }
        }
        Ok(())
    }
}

/// The places for `library`, in order, each folder once.
pub fn places(library: Library, around: &Surroundings<'_>) -> Vec<Place> {
    let mut places = listed(OWN_VARIABLE, around);
    places.extend(listed("LD_LIBRARY_PATH", around));
    places.push(Place { origin: "the loader's own search", folder: None, release: None });
    let below =
        |(folder, origin): &(&str, &'static str)| Place::new(origin, around.root.join(folder.trim_start_matches('/')));
    match library {
        Library::Driver => places.extend(DRIVER.iter().map(below)),
        Library::Cublas | Library::Curand => {
            places.extend(TOOLKIT.iter().map(below));
            places.extend(versioned(around.root));
            places.extend(python(around));
        }
    }
    let mut seen = Vec::new();
    places.retain(|place| {
        let new = !seen.contains(&place.folder);
        seen.push(place.folder.clone());
        new
    });
    places
}

/// Where hosts keep the driver's library when the loader does not know.
const DRIVER: [(&str, &str); 9] = [
    ("/usr/local/nvidia/lib64", "Kubernetes' device plug-ins"),
    ("/usr/lib/x86_64-linux-gnu", "Debian, Ubuntu"),
    ("/usr/lib/aarch64-linux-gnu", "Debian, Ubuntu"),
    ("/usr/lib64", "Red Hat, SUSE"),
    ("/run/opengl-driver/lib", "NixOS"),
    ("/.singularity.d/libs", "Singularity, Apptainer with --nv"),
    ("/usr/lib/aarch64-linux-gnu/nvidia", "JetPack 6"),
    ("/usr/lib/aarch64-linux-gnu/tegra", "JetPack 5"),
    ("/usr/lib/wsl/lib", "Windows"),
];

/// Where the toolkit and JetPack install.
const TOOLKIT: [(&str, &str); 4] = [
    ("/usr/local/cuda/lib64", "the CUDA toolkit"),
    ("/usr/local/cuda/targets/x86_64-linux/lib", "the CUDA toolkit"),
    ("/usr/local/cuda/targets/sbsa-linux/lib", "the CUDA toolkit"),
    ("/usr/local/cuda/targets/aarch64-linux/lib", "JetPack"),
];

/// The folders that a variable lists.
fn listed(variable: &'static str, around: &Surroundings<'_>) -> Vec<Place> {
    let value = (around.variable)(variable).unwrap_or_default();
    let folders = std::env::split_paths(&value).filter(|folder| !folder.as_os_str().is_empty());
    // Absolute, so that what is found is opened by its whole path.
    folders.filter_map(|folder| std::path::absolute(folder).ok()).map(|folder| Place::new(variable, folder)).collect()
}

/// `/usr/local/cuda-13.0/lib64` and its like, the newest release first.
fn versioned(root: &Path) -> Vec<Place> {
    let version = |path: &Path| -> Option<(u32, u32)> {
        let (major, minor) = path.file_name()?.to_str()?.strip_prefix("cuda-")?.split_once('.').unzip();
        let major = major.map_or_else(|| path.file_name()?.to_str()?.strip_prefix("cuda-"), Some)?.parse().ok()?;
        Some((major, minor.and_then(|minor| minor.parse().ok()).unwrap_or(0)))
    };
    let mut found: Vec<_> = children(&root.join("usr/local"))
        .into_iter()
        .filter_map(|path| Some((version(&path)?, path)))
        .filter(|((major, _), _)| (12..=13).contains(major))
        .collect();
    found.sort_by(|a, b| b.cmp(a));
    found.into_iter().map(|(_, path)| Place::new("the CUDA toolkit", path.join("lib64"))).collect()
}

/// The libraries that PyTorch's wheels bring, in the environment that is active or whose `python3` comes first.
fn python(around: &Surroundings<'_>) -> Vec<Place> {
    let named = |variable: &'static str| Some((variable, PathBuf::from((around.variable)(variable)?)));
    let on_path = || {
        let path = (around.variable)("PATH")?;
        let folder = std::env::split_paths(&path).find(|folder| folder.join("python3").exists())?;
        Some(("python3 on PATH", folder.parent()?.to_owned()))
    };
    let prefixes = [named("VIRTUAL_ENV"), named("CONDA_PREFIX"), on_path()];
    let mut places = Vec::new();
    for (origin, prefix) in prefixes.into_iter().flatten().filter(|(_, prefix)| !prefix.as_os_str().is_empty()) {
        if origin == "CONDA_PREFIX" {
            places.push(Place::new(origin, prefix.join("lib")));
        }
        for version in children(&prefix.join("lib")) {
            let is_python = version.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("python3."));
            if !is_python {
                continue;
            }
            let packages = version.join("site-packages/nvidia");
            let folders = ["cu13/lib", "cublas/lib", "curand/lib"].map(|folder| packages.join(folder));
            places.extend(folders.into_iter().filter(|f| f.is_dir()).map(|folder| Place::new(origin, folder)));
        }
    }
    places
}

/// What lies in a folder, sorted; nothing where it cannot be read.
fn children(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.sort();
    found
}

/// The library and the file that it came from; else why not.
pub type Answer<T> = Result<(T, PathBuf), Outcome>;

/// Looks into `places` in order until `open` takes what it is given, and writes down each look in `search`.
///
/// `open` gets a path, or a bare name for the loader's own search, and answers `Err(Absent)` when the loader knows
/// none. Stub libraries (for linking only) are never tried. `driver`: the CUDA release that the driver supports;
/// libraries of a newer one would fail in the first call.
pub fn find<T>(
    library: Library,
    places: &[Place],
    driver: Option<u32>,
    search: &mut Search,
    open: &mut dyn FnMut(&Path) -> Answer<T>,
) -> Option<T> {
    for place in places {
        let mut outcome = Outcome::Absent;
        for (name, release) in library.names() {
            let path = place.folder.as_ref().map_or_else(|| PathBuf::from(name), |folder| folder.join(name));
            if place.folder.is_some() && !path.exists() {
                continue;
            }
            let release = release.or(place.release);
            let answer = match (release, driver) {
                _ if is_stub(&path) => Err(Outcome::Refused("a stub for linking, without a driver behind it".into())),
                (Some(release), Some(driver)) if release > driver => {
                    // By name alone nothing is known to be there.
                    if place.folder.is_none() {
                        continue;
                    }
                    Err(Outcome::Refused(format!("for CUDA {release}; the driver supports CUDA {driver}")))
                }
                _ => open(&path),
            };
            match answer {
                Ok((opened, file)) => {
                    search.0.push(look(library, place, Outcome::Opened(file)));
                    return Some(opened);
                }
                Err(Outcome::Absent) => {}
                Err(refused) => outcome = refused,
            }
        }
        search.0.push(look(library, place, outcome));
    }
    None
}

fn look(library: Library, place: &Place, outcome: Outcome) -> Look {
    Look { library, origin: place.origin, folder: place.folder.clone(), outcome }
}

/// Toolkits keep libraries without code in folders called `stubs`.
pub fn is_stub(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.components().any(|part| part.as_os_str() == "stubs"))
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
