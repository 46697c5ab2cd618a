//! The `checkpoints/` folder: writing, finding and removing whole checkpoints.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::manifest::{self, Manifest};
use crate::config::train::CheckpointConfig;
use crate::files;

/// Relative symbolic link to the newest complete checkpoint.
pub const LAST: &str = "last";
/// Prefix of a checkpoint that is being written.
const TEMPORARY: &str = ".tmp-";

/// A complete checkpoint (its manifest is there; [`Manifest::verify`] tells whether its files still are).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Saved {
    pub step: u64,
    pub path: PathBuf,
    pub bytes: u64,
}

/// The folder `checkpoints/` of one run.
#[derive(Debug, Clone)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The folder need not exist yet.
    pub fn new(directory: PathBuf) -> Store {
        Store { directory }
    }

    /// Writes a checkpoint: `fill` puts its files into a temporary directory, which then gets its manifest, its name
    /// and the link `last`. A failure removes what was written and leaves the others as they were.
    ///
    /// `width` is the least number of digits of the name.
    pub fn save(&self, step: u64, width: usize, fill: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Saved> {
        self.remove_incomplete()?;
        let name = format!("{step:0width$}");
        let path = self.directory.join(&name);
        let temporary = self.directory.join(format!("{TEMPORARY}{name}-{}", std::process::id()));
        let written = (|| {
            fs::create_dir_all(&temporary)?;
            fill(&temporary)?;
            let manifest = Manifest::seal(&temporary, step)?;
            sync_tree(&temporary)?;
            replace_directory(&temporary, &path)?;
            files::sync_directory(&self.directory)?;
            Ok(manifest)
        })();
        match written {
            Ok(manifest) => {
                self.point_last_at(&name)?;
                Ok(Saved { step, path, bytes: manifest.bytes() })
            }
            Err(error) => {
                let _ = fs::remove_dir_all(&temporary);
                Err(error)
            }
        }
    }

    /// All complete checkpoints, oldest first.
    pub fn list(&self) -> io::Result<Vec<Saved>> {
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // The link `last` is not a number, so it is not counted twice.
            if name.parse::<u64>().is_ok()
                && let Ok(manifest) = Manifest::read(&path)
            {
                found.push(Saved { step: manifest.step, path, bytes: manifest.bytes() });
            }
        }
        found.sort_by_key(|saved| saved.step);
        Ok(found)
    }

    /// The newest checkpoint whose files are what was written, and a line for each newer one that is damaged.
    pub fn newest_sound(&self) -> io::Result<(Option<Saved>, Vec<String>)> {
        let mut damaged = Vec::new();
        for saved in self.list()?.into_iter().rev() {
            match Manifest::read(&saved.path).map_err(|e| e.to_string()).and_then(|m| m.verify(&saved.path)) {
                Ok(()) => return Ok((Some(saved), damaged)),
                Err(reason) => damaged.push(format!("{} is damaged: {reason}", saved.path.display())),
            }
        }
        Ok((None, damaged))
    }

    /// Removes checkpoints that the keep policy gives up, never the newest. Returns what went.
    pub fn prune(&self, config: &CheckpointConfig) -> io::Result<Vec<Saved>> {
        let all = self.list()?;
        let mut removed = Vec::new();
        for index in superfluous(&all.iter().map(|s| s.step).collect::<Vec<_>>(), config) {
            // The manifest goes first: a removal that is cut short leaves something incomplete, not something damaged.
            fs::remove_file(all[index].path.join(manifest::FILE))?;
            fs::remove_dir_all(&all[index].path)?;
            removed.push(all[index].clone());
        }
        Ok(removed)
    }

    fn remove_incomplete(&self) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let numbered = name.parse::<u64>().is_ok() && !path.join(manifest::FILE).exists();
            if (name.starts_with(TEMPORARY) || numbered) && path.is_dir() {
                fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }

    fn point_last_at(&self, name: &str) -> io::Result<()> {
        let temporary = self.directory.join(format!("{TEMPORARY}{LAST}-{}", std::process::id()));
        let _ = fs::remove_file(&temporary);
        match std::os::unix::fs::symlink(name, &temporary) {
            Ok(()) => fs::rename(&temporary, self.directory.join(LAST)),
            // A file system without links: readers fall back to the greatest complete step.
            Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Indices into `steps` (ascending) of the checkpoints that may go.
fn superfluous(steps: &[u64], config: &CheckpointConfig) -> Vec<usize> {
    if config.keep_last == 0 {
        return Vec::new();
    }
    let keep_every = config.keep_every as u64;
    (0..steps.len().saturating_sub(config.keep_last.max(1)))
        .filter(|&i| keep_every == 0 || !steps[i].is_multiple_of(keep_every))
        .collect()
}

fn replace_directory(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        // The same step saved again (on request, then at the end): the complete one stays until the new one is ready.
        let aside = files::temporary_beside(to);
        fs::rename(to, &aside)?;
        if let Err(error) = fs::rename(from, to) {
            fs::rename(&aside, to)?;
            return Err(error);
        }
        return fs::remove_dir_all(aside);
    }
    fs::rename(from, to)
}

fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_tree(&path)?;
        }
    }
    files::sync_directory(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &'static str) -> impl FnOnce(&Path) -> io::Result<()> {
        move |path| {
            fs::create_dir(path.join("training_state"))?;
            fs::write(path.join("training_state/a.bin"), text)
        }
    }

    fn policy(keep_last: usize, keep_every: usize) -> CheckpointConfig {
        CheckpointConfig { enabled: true, every: 1, keep_last, keep_every }
    }

    #[test]
    fn a_failed_save_leaves_the_previous_one_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().into());
        store.save(10, 6, fill("ten")).unwrap();
        let error = store.save(20, 6, |path| {
            fs::write(path.join("half"), "x")?;
            Err(io::Error::other("disk full"))
        });
        assert_eq!(error.unwrap_err().to_string(), "disk full");
        assert_eq!(store.list().unwrap().iter().map(|s| s.step).collect::<Vec<_>>(), [10]);
        assert_eq!(fs::read_link(dir.path().join(LAST)).unwrap(), Path::new("000010"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }

    #[test]
    fn what_a_kill_left_behind_is_not_offered_and_goes_at_the_next_save() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().into());
        store.save(10, 6, fill("ten")).unwrap();
        fs::create_dir_all(dir.path().join(".tmp-000020-1/training_state")).unwrap();
        fs::create_dir_all(dir.path().join("000030/training_state")).unwrap();
        assert_eq!(store.newest_sound().unwrap().0.unwrap().step, 10);
        store.save(40, 6, fill("forty")).unwrap();
        let mut names: Vec<String> =
            fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        assert_eq!(names, ["000010", "000040", "last"]);
    }

    #[test]
    fn a_damaged_newest_falls_back_loudly() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().into());
        store.save(10, 6, fill("ten")).unwrap();
        store.save(20, 6, fill("twenty")).unwrap();
        fs::write(dir.path().join("000020/training_state/a.bin"), "twentX").unwrap();
        let (saved, damaged) = store.newest_sound().unwrap();
        assert_eq!(saved.unwrap().step, 10);
        assert!(damaged[0].contains("000020") && damaged[0].contains("hash differs"), "{damaged:?}");
        fs::write(dir.path().join("000010/training_state/a.bin"), "te").unwrap();
        let (saved, damaged) = store.newest_sound().unwrap();
        assert!(saved.is_none());
        assert!(damaged[1].contains("has 2 bytes, 3 were written"), "{damaged:?}");
    }

    #[test]
    fn saving_a_step_again_replaces_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path().into());
        store.save(10, 6, fill("ten")).unwrap();
        store.save(10, 6, fill("again")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("last/training_state/a.bin")).unwrap(), "again");
        assert_eq!(store.list().unwrap().len(), 1);
    }

    #[test]
    fn the_keep_policy_keeps_the_newest_and_the_multiples() {
        let steps: Vec<u64> = (1..=10).map(|i| i * 100).collect();
        assert_eq!(superfluous(&steps, &policy(2, 500)), [0, 1, 2, 3, 5, 6, 7]);
        assert!(superfluous(&steps, &policy(0, 0)).is_empty());
        assert_eq!(superfluous(&steps[..1], &policy(1, 0)), [0usize; 0]);
    }
}
