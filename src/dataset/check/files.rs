//! Which of the declared files are here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::collector::Collector;
use super::report::counted;
use crate::config::ranges;
use crate::dataset::cameras::Camera;
use crate::dataset::files::is_lfs_pointer;
use crate::dataset::finding::Severity;
use crate::dataset::meta::{Episode, Metadata};

/// Reports absent files and Git-LFS pointers, and returns the episodes all of whose files can be opened.
///
/// A download of some episodes is told as one thing, with the selection that works.
pub(super) fn check<'a>(
    meta: &Metadata,
    selected: &[&'a Episode],
    cameras: &[Camera],
    collector: &mut Collector,
) -> Vec<&'a Episode> {
    let mut states: BTreeMap<PathBuf, State> = BTreeMap::new();
    let mut present = Vec::new();
    let mut absent: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    let mut pointers: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    for &episode in selected {
        let mut whole = true;
        for path in paths(meta, episode, cameras) {
            let state = *states.entry(path.clone()).or_insert_with(|| State::of(&meta.root.join(&path)));
            let faulty = match state {
                State::Here => continue,
                State::Absent => &mut absent,
                State::Pointer => &mut pointers,
            };
            whole = false;
            faulty.entry(path).or_default().push(episode.index);
        }
        if whole {
            present.push(episode);
        }
    }
    for (path, episodes) in pointers {
        let message = format!("{} is a Git-LFS pointer, not the file itself", path.display());
        let fix = Some("git lfs pull  # in the dataset's directory, or download it again".to_owned());
        collector.problem_with_fix(Severity::Error, "lfs-pointer", &episodes, message, fix);
    }
    report_absent(selected, &absent, collector);
    present
}

fn report_absent(selected: &[&Episode], absent: &BTreeMap<PathBuf, Vec<usize>>, collector: &mut Collector) {
    let lacking: BTreeSet<usize> = absent.values().flatten().copied().collect();
    let here: Vec<usize> = selected.iter().map(|e| e.index).filter(|e| !lacking.contains(e)).collect();
    // Most are missing: somebody downloaded a part on purpose.
    if lacking.len() > here.len() && !here.is_empty() {
        let first = absent.keys().next().map(|path| path.display().to_string()).unwrap_or_default();
        let lacking: Vec<usize> = lacking.into_iter().collect();
        let message = format!(
            "{} are absent (first: {first}): only the episodes {} of {} are here",
            counted(absent.len(), "file"),
            ranges::list(&here),
            selected.len()
        );
        collector.problem(Severity::Error, "partial-download", &lacking, message);
        return;
    }
    for (path, episodes) in absent {
        let message = match episodes.as_slice() {
            [episode] => format!("{} is missing (episode {episode})", path.display()),
            many => format!("{} is missing (episodes {})", path.display(), ranges::list(many)),
        };
        collector.problem(Severity::Error, "missing-file", episodes, message);
    }
}

/// The files that hold `episode`, below the root.
fn paths(meta: &Metadata, episode: &Episode, cameras: &[Camera]) -> Vec<PathBuf> {
    let videos = cameras.iter().filter_map(|camera| meta.video_path(episode, &camera.feature));
    std::iter::once(meta.data_path(episode)).chain(videos).collect()
}

#[derive(Debug, Clone, Copy)]
enum State {
    Here,
    Absent,
    Pointer,
}

impl State {
    fn of(path: &std::path::Path) -> State {
        match is_lfs_pointer(path) {
            Ok(true) => State::Pointer,
            // Unreadable for another reason: whoever opens it says why.
            Ok(false) => State::Here,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => State::Absent,
            Err(_) => State::Here,
        }
    }
}
