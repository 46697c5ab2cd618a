//! Datasets that come with the program: nothing is downloaded, they are computed into the cache on first use.

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::demonstration::{TIME_LIMIT, astray, demonstrate};
use super::settings::{Images, Settings, Worlds};
use crate::dataset::write::{DatasetWriter, Episode, WriteError};
use crate::dataset::{reach, store};
use crate::robot::sim::render::Camera;
use crate::robot::sim::{IMAGE_SIZE, TASK, World};

/// A dataset that needs no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bundled {
    /// Demonstrations of the simulated arm: what `vlash train` learns from when no dataset is named.
    Tabletop,
    /// A hand that reaches for a disc, seen from above: learned within a minute.
    Reach,
}

/// Grows whenever the simulation, the expert or the encoder changes what is recorded, so that no old copy in a cache is
/// taken for the new one.
const VERSION: u32 = 1;
/// Demonstrations of the tabletop. Their seeds are far from those of evaluations.
const EPISODES: usize = 100;
const FIRST_SEED: u64 = 900_000;

impl Bundled {
    /// Every one with its name, which stands in `data.repo`.
    pub const ALL: [(&str, Bundled); 2] = [("bundled/tabletop", Bundled::Tabletop), ("bundled/reach", Bundled::Reach)];

    /// The one that `data.repo` and `data.root` mean; none: they name a dataset of the user's.
    pub fn named(repo: Option<&str>, has_root: bool) -> Option<Bundled> {
        match repo {
            Some(repo) => Bundled::ALL.iter().find(|(name, _)| *name == repo).map(|(_, bundled)| *bundled),
            None => (!has_root).then_some(Bundled::Tabletop),
        }
    }

    /// The features of its cameras.
    pub fn cameras(self) -> Vec<String> {
        match self {
            Bundled::Tabletop => {
                Camera::ALL.iter().map(|camera| format!("observation.images.{}", camera.name())).collect()
            }
            Bundled::Reach => vec![reach::CAMERA.to_owned()],
        }
    }

    /// Its directory below `cache`, written first if it is absent or damaged: half a minute on two cores for the tabletop.
    ///
    /// # Errors
    /// [`WriteError`], if the cache cannot be written.
    pub fn ensure(self, cache: &Path) -> Result<PathBuf, WriteError> {
        match self {
            Bundled::Tabletop => {
                let root = cache.join("datasets").join(format!("tabletop-v{VERSION}"));
                store::ensure(&root, |root| record(root, EPISODES))
            }
            Bundled::Reach => reach::ensure(cache),
        }
    }
}

/// Writes the first `episodes` demonstrations that succeed to `root`: static and moving by turns, most of them begun astray.
fn record(root: &Path, episodes: usize) -> Result<(), WriteError> {
    let settings = Settings {
        source: "expert".into(),
        policy: None,
        seed: FIRST_SEED,
        variant: Worlds::Mixed,
        noise: 1.5,
        lead: None,
        images: Images::H264,
        size: IMAGE_SIZE,
        time_limit_s: TIME_LIMIT,
        keep_failures: false,
        version: env!("CARGO_PKG_VERSION").into(),
    };
    let mut writer = DatasetWriter::create(root, settings.spec())?;
    let (mut kept, mut seed) = (0, settings.seed);
    while kept < episodes {
        let begun: Vec<(u64, Episode)> =
            (seed..).take(episodes - kept).map(|seed| (seed, writer.begin(TASK))).collect();
        seed += begun.len() as u64;
        let played = begun.into_par_iter().map(|(seed, episode)| one(&settings, seed, episode));
        for episode in played.collect::<Result<Vec<_>, _>>()?.into_iter().flatten() {
            writer.save(episode)?;
            kept += 1;
        }
    }
    writer.finish().map(|_| ())
}

/// The episode of a seed, unless it fails.
fn one(settings: &Settings, seed: u64, mut episode: Episode) -> Result<Option<Episode>, WriteError> {
    let mut world = World::new(&settings.variant.setup(seed));
    astray(&mut world, seed, settings.noise);
    let played = demonstrate(&mut world, settings.time_limit_s);
    if !played.success {
        return Ok(None);
    }
    played.record(settings.size, &mut episode)?;
    Ok(Some(episode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Metadata;

    #[test]
    fn what_is_named_is_meant() {
        assert_eq!(Bundled::named(None, false), Some(Bundled::Tabletop));
        assert_eq!(Bundled::named(Some("bundled/reach"), false), Some(Bundled::Reach));
        assert_eq!(Bundled::named(Some("bundled/tabletop"), true), Some(Bundled::Tabletop));
        assert_eq!((Bundled::named(None, true), Bundled::named(Some("me/pick"), false)), (None, None));
    }

    #[test]
    fn demonstrations_are_whole_and_the_same_again() {
        let cache = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| cache.path().join(name));
        record(&a, 2).unwrap();
        record(&b, 2).unwrap();
        let metadata = Metadata::read(&a).unwrap();
        assert_eq!((metadata.episodes.len(), metadata.cameras().count()), (2, 2));
        let names: Vec<_> = metadata.cameras().map(|camera| camera.name.clone()).collect();
        assert_eq!(names, Bundled::Tabletop.cameras());
        let table = "data/chunk-000/file-000.parquet";
        assert!(std::fs::read(a.join(table)).unwrap() == std::fs::read(b.join(table)).unwrap());
    }
}
