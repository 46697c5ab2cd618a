//! The bundled dataset: a hand that reaches for a disc on a table, seen from above.
//!
//! It is what `vlash train` learns from when no dataset is named. Nothing is downloaded: the recording is
//! computed ([`motion`], [`scene`]) and written as an ordinary LeRobot v3.0 dataset into the cache, once.
//!
//! * `observation.images.top`: 56 × 56 RGB, the only place where the target shows.
//! * `observation.state`: the hand's position `(x, y)` in metres.
//! * `action`: the commanded position of the next frame, same unit, so `action[t−1] ≈ state[t]`.
//! * 100 episodes of 20 to 30 frames at 30 fps, two task texts.
//!
//! The commanded path depends on hand and target only (not on elapsed time), so a chunk of actions can be
//! predicted from image and state; from the state alone it cannot, since start and target are independent.

mod motion;
mod scene;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::dataset::write::{DatasetSpec, DatasetWriter, Episode, FeatureSpec, NumericType, Value, WriteError};

/// Grows whenever the generator's output changes, so that no old copy in a cache is taken for the new one.
const VERSION: u32 = 1;

/// Frames per second.
pub const FPS: u32 = 30;
/// Number of episodes.
pub const EPISODES: usize = 100;
/// The camera's feature name.
pub const CAMERA: &str = "observation.images.top";

const SEED: u64 = 0;
const STATE: &str = "observation.state";
const ACTION: &str = "action";
const AXES: [&str; 2] = ["hand_x", "hand_y"];

/// The dataset's directory below `cache`, written first if it is absent or damaged.
///
/// `cache` is [`cache_dir`](crate::config::paths::cache_dir) but for tests. A copy is known to be whole by
/// the SHA-256 of every file, which takes milliseconds; processes that start at the same time wait for one
/// another or, where the file system has no locks, each write a copy of which one stays.
///
/// # Errors
/// [`WriteError`], if the cache cannot be written.
pub fn ensure(cache: &Path) -> Result<PathBuf, WriteError> {
    super::store::ensure(&cache.join("datasets").join(format!("reach-v{VERSION}")), |root| generate(root, EPISODES))
}

/// Writes `episodes` episodes to `root`, which must be absent. The same content on every machine.
///
/// # Errors
/// [`WriteError`].
pub fn generate(root: &Path, episodes: usize) -> Result<(), WriteError> {
    let features = vec![
        FeatureSpec::image(CAMERA, scene::SIZE, scene::SIZE),
        FeatureSpec::vector(STATE, NumericType::Float32, &AXES),
        FeatureSpec::vector(ACTION, NumericType::Float32, &AXES),
    ];
    let mut writer = DatasetWriter::create(root, DatasetSpec::new(FPS, Some("planar_reach"), features))?;
    let begun: Vec<_> = (0..episodes).map(|number| begin(&writer, number)).collect();
    let recorded = begun.into_par_iter().map(|(look, reach, episode)| record(&look, &reach, episode));
    for episode in recorded.collect::<Result<Vec<_>, _>>()? {
        writer.save(episode)?;
    }
    writer.finish().map(|_| ())
}

/// Draws what episode `number` will show.
fn begin(writer: &DatasetWriter, number: usize) -> (scene::Look, motion::Reach, Episode) {
    let mut random = crate::random::stream(SEED, "reach", &[number as u64]);
    let look = scene::Look::draw(&mut random);
    let reach = motion::Reach::draw(&mut random);
    let episode = writer.begin(look.task());
    (look, reach, episode)
}

fn record(look: &scene::Look, reach: &motion::Reach, mut episode: Episode) -> Result<Episode, WriteError> {
    for step in &reach.steps {
        let image = look.render(step.hand, reach.target);
        episode.push(&[
            Value::Image(&image),
            Value::F32(&step.hand.map(|v| v as f32)),
            Value::F32(&step.command.map(|v| v as f32)),
        ])?;
    }
    Ok(episode)
}
