//! Where a recording lies while it runs: every finished episode whole, whatever happens to the process.
//!
//! Beside the dataset's place `OUT` stands `OUT.recording/` with `manifest.json` (the settings, and the seeds that were
//! tried and left out) and a file an episode. Each is written under a temporary name, synced and renamed, so a kill costs
//! the episodes that were being played and nothing else. At the end the episodes are joined in the order of their seeds
//! (compressed pictures are copied), the dataset appears by one rename, and `OUT.recording/` goes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::error::CollectError;
use super::settings::{Settings, differences};
use crate::dataset::write::{DatasetWriter, Episode, EpisodeForm, WriteError};
use crate::files::write_atomic;

/// Of the directory; others are refused.
const FORMAT: u32 = 1;
const MANIFEST: &str = "manifest.json";
const LOCK: &str = "lock";
const ENDING: &str = "episode";
/// Where the dataset grows while the episodes are joined.
const STAGING: &str = "dataset";
/// In the dataset's `meta/`: how it came about.
pub const ACCOUNT: &str = "collect.json";

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    settings: Value,
    /// By seed: how it ended.
    left_out: BTreeMap<u64, String>,
}

/// What is known of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    Kept,
    LeftOut,
}

/// A recording under way. Threads share it.
#[derive(Debug)]
pub struct Recorder {
    out: PathBuf,
    place: PathBuf,
    settings: Settings,
    form: EpisodeForm,
    state: Mutex<State>,
    /// Held by the operating system for as long as the process lives.
    _lock: Flock<File>,
}

#[derive(Debug)]
struct State {
    manifest: Manifest,
    /// Seed → its file.
    kept: BTreeMap<u64, PathBuf>,
}

/// What came of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    pub dataset: PathBuf,
    pub episodes: u64,
    pub frames: u64,
    /// First and last seed that are in it.
    pub seeds: (u64, u64),
    /// Seeds up to the last one that are not in it, and how each ended.
    pub left_out: BTreeMap<u64, String>,
}

impl Recorder {
    /// Begins the recording of the dataset `out`, or goes on with it.
    ///
    /// # Errors
    /// `out` exists; a recording with other settings is there, or one of another process; I/O.
    pub fn open(out: &Path, settings: Settings) -> Result<Recorder, CollectError> {
        // What nobody could join in the end is refused before anything is written.
        let form = EpisodeForm::new(&settings.spec())?;
        refuse_existing(out)?;
        let place = place(out);
        fs::create_dir_all(&place).map_err(CollectError::io("make", &place))?;
        let lock = lock(&place)?;
        let here = settings.to_json()?;
        let manifest = match read_manifest(&place)? {
            Some(manifest) => {
                let differences = differences(&manifest.settings, &here);
                if !differences.is_empty() {
                    return Err(CollectError::OtherSettings { place, differences });
                }
                manifest
            }
            None => {
                let manifest = Manifest { format: FORMAT, settings: here, left_out: BTreeMap::new() };
                write_manifest(&place, &manifest)?;
                manifest
            }
        };
        let kept = episodes(&place)?;
        let state = Mutex::new(State { manifest, kept });
        Ok(Recorder { out: out.to_owned(), place, settings, form, state, _lock: lock })
    }

    /// Opens a recording as it is, to join what it has.
    ///
    /// # Errors
    /// There is none, or as [`Recorder::open`].
    pub fn reopen(out: &Path) -> Result<Recorder, CollectError> {
        let place = place(out);
        let Some(manifest) = read_manifest(&place)? else {
            refuse_existing(out)?;
            return Err(CollectError::Nothing { place });
        };
        let settings = serde_json::from_value(manifest.settings)
            .map_err(|error| CollectError::Foreign { place: place.clone(), found: error.to_string() })?;
        Recorder::open(out, settings)
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The directory in which the episodes lie.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Where the dataset will be.
    pub fn out(&self) -> &Path {
        &self.out
    }

    /// What was recorded of `seed` before.
    pub fn known(&self, seed: u64) -> Option<Known> {
        let state = self.state();
        match (state.kept.contains_key(&seed), state.manifest.left_out.contains_key(&seed)) {
            (true, _) => Some(Known::Kept),
            (_, true) => Some(Known::LeftOut),
            _ => None,
        }
    }

    /// Number of episodes that lie there whole.
    pub fn kept(&self) -> u64 {
        self.state().kept.len() as u64
    }

    /// An empty episode to fill with frames.
    pub fn begin(&self, task: &str) -> Episode {
        self.form.begin(task)
    }

    /// Puts the finished episode of `seed` down; `ending` tells how it ended. It is durable when this returns.
    ///
    /// # Errors
    /// I/O.
    pub fn keep(&self, seed: u64, episode: Episode, ending: &str) -> Result<(), CollectError> {
        let file = self.place.join(format!("{seed:020}.{ENDING}"));
        write_atomic(&file, &episode.park(ending)?).map_err(CollectError::io("write", &file))?;
        self.state().kept.insert(seed, file);
        Ok(())
    }

    /// Remembers that `seed` is not recorded, so that it is not tried again.
    ///
    /// # Errors
    /// I/O.
    pub fn leave_out(&self, seed: u64, ending: &str) -> Result<(), CollectError> {
        let mut state = self.state();
        state.manifest.left_out.insert(seed, ending.to_owned());
        write_manifest(&self.place, &state.manifest)
    }

    /// Makes the dataset out of the first `most` episodes (none: of all) in the order of their seeds, and removes the
    /// recording.
    ///
    /// # Errors
    /// No episode, one that is damaged, or I/O; the recording stays as it is then.
    pub fn join(self, most: Option<u64>) -> Result<Joined, CollectError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let most = most.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
        let chosen: Vec<(u64, PathBuf)> = state.kept.into_iter().take(most).collect();
        let (Some((first, _)), Some((last, _))) = (chosen.first(), chosen.last()) else {
            return Err(CollectError::Nothing { place: self.place });
        };
        let seeds = (*first, *last);
        let mut writer = DatasetWriter::create_from(&self.out, self.place.join(STAGING), self.settings.spec())?;
        let (mut frames, mut accounts) = (0, Vec::new());
        for (seed, file) in &chosen {
            let bytes = fs::read(file).map_err(CollectError::io("read", file))?;
            let damaged = |found: WriteError| CollectError::Damaged { file: file.clone(), found };
            let (episode, ending) = writer.unpark(&bytes).map_err(damaged)?;
            accounts.push(json!({ "seed": seed, "ending": ending, "frames": episode.len() }));
            frames += episode.len() as u64;
            writer.save(episode)?;
        }
        let left_out: BTreeMap<u64, String> =
            state.manifest.left_out.into_iter().filter(|(seed, _)| *seed < seeds.1).collect();
        writer.attach(
            ACCOUNT,
            &json!({
                "command": self.settings.command(chosen.len() as u64),
                "settings": state.manifest.settings,
                "episodes": accounts,
                "left_out": left_out.iter().map(|(seed, ending)| json!({ "seed": seed, "ending": ending })).collect::<Vec<_>>(),
            }),
        )?;
        let dataset = writer.finish()?;
        fs::remove_dir_all(&self.place).map_err(CollectError::io("remove", &self.place))?;
        Ok(Joined { dataset, episodes: chosen.len() as u64, frames, seeds, left_out })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `OUT.recording`
fn place(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".recording");
    out.with_file_name(name)
}

/// A dataset that is there is not written over. A recording beside it that it was joined from is what a kill between the
/// two left, and goes.
fn refuse_existing(out: &Path) -> Result<(), CollectError> {
    let is_there = fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) || out.is_file();
    if !is_there {
        return Ok(());
    }
    let place = place(out);
    let account = fs::read(out.join("meta").join(ACCOUNT)).ok();
    let account = account.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    if let (Some(account), Ok(Some(manifest))) = (account, read_manifest(&place))
        && account.get("settings") == Some(&manifest.settings)
        && let Ok(_lock) = lock(&place)
    {
        fs::remove_dir_all(&place).map_err(CollectError::io("remove", &place))?;
    }
    Err(WriteError::Exists { path: out.to_owned() }.into())
}

fn lock(place: &Path) -> Result<Flock<File>, CollectError> {
    let path = place.join(LOCK);
    let file = File::options().create(true).append(true).open(&path).map_err(CollectError::io("open", &path))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| match error {
        Errno::EWOULDBLOCK => CollectError::Busy { place: place.to_owned() },
        error => CollectError::Io { action: "lock", path, source: error.into() },
    })
}

fn read_manifest(place: &Path) -> Result<Option<Manifest>, CollectError> {
    let path = place.join(MANIFEST);
    let foreign = |found: String| CollectError::Foreign { place: place.to_owned(), found };
    match fs::read(&path) {
        Ok(bytes) => {
            let manifest: Manifest =
                serde_json::from_slice(&bytes).map_err(|error| foreign(format!("{MANIFEST}: {error}")))?;
            if manifest.format == FORMAT {
                Ok(Some(manifest))
            } else {
                Err(foreign(format!("its format is {}, this program's {FORMAT}", manifest.format)))
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(CollectError::Io { action: "read", path, source }),
    }
}

fn write_manifest(place: &Path, manifest: &Manifest) -> Result<(), CollectError> {
    let path = place.join(MANIFEST);
    let text = serde_json::to_string_pretty(manifest)
        .map_err(|error| CollectError::Foreign { place: place.to_owned(), found: error.to_string() })?;
    write_atomic(&path, (text + "\n").as_bytes()).map_err(CollectError::io("write", &path))
}

/// The episodes that lie in `place`; what a kill left half is removed.
fn episodes(place: &Path) -> Result<BTreeMap<u64, PathBuf>, CollectError> {
    let mut kept = BTreeMap::new();
    for entry in fs::read_dir(place).map_err(CollectError::io("list", place))? {
        let path = entry.map_err(CollectError::io("list", place))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let seed = name.strip_suffix(ENDING).and_then(|stem| stem.strip_suffix('.')).map(str::parse);
        if let Some(Ok(seed)) = seed {
            kept.insert(seed, path);
        } else if name.starts_with(".tmp-") {
            fs::remove_file(&path).map_err(CollectError::io("remove", &path))?;
        } else if name == STAGING {
            fs::remove_dir_all(&path).map_err(CollectError::io("remove", &path))?;
        } else if name != MANIFEST && name != LOCK {
            return Err(CollectError::Foreign { place: place.to_owned(), found: format!("it holds {name}") });
        }
    }
    Ok(kept)
}
