//! What `meta/` alone tells: cameras, sizes, tasks, lengths.

use super::Options;
use super::collector::Collector;
use super::report::{Camera, counted};
use crate::dataset::finding::Severity;
use crate::dataset::meta::{Episode, Feature, FeatureKind, Metadata};
use crate::dataset::window::padding_share;

/// Widest state and action that the published base checkpoints take.
const WIDEST_VECTOR: usize = 32;

/// Padding above this share of all action steps wastes much of each batch (FF-04).
const MUCH_PADDING: f64 = 0.40;

/// The feature called `name`, if it can be trained on.
pub(super) fn vector<'a>(meta: &'a Metadata, name: &str, collector: &mut Collector) -> Option<&'a Feature> {
    let Some(feature) = meta.info.feature(name).filter(|feature| feature.kind == FeatureKind::Numeric) else {
        let numeric = meta.info.features.iter().filter(|f| f.kind == FeatureKind::Numeric && !is_index(&f.name));
        let found: Vec<&str> = numeric.map(|f| f.name.as_str()).collect();
        let fix = found.first().map(|first| format!("data.rename = {{ \"{first}\" = \"{name}\" }}"));
        let message = format!("there is no numeric feature {name}; found: {}", found.join(", "));
        collector.push(Severity::Error, "missing-feature", message, fix);
        return None;
    };
    let dimensions = feature.dimensions();
    if dimensions == 0 || dimensions > WIDEST_VECTOR {
        let key = if name == super::ACTION { "max_action_dim" } else { "max_state_dim" };
        let message = format!("{name} has {}, the policy takes 1 to {WIDEST_VECTOR}", counted(dimensions, "dimension"));
        let fix = format!("model.{key} = {dimensions}  # a base checkpoint of {WIDEST_VECTOR} no longer fits then");
        collector.push(Severity::Error, "dimensions", message, (dimensions > 0).then_some(fix));
    }
    Some(feature)
}

fn is_index(name: &str) -> bool {
    matches!(name, "timestamp" | "frame_index" | "episode_index" | "index" | "task_index")
}

/// Lists the cameras; depth maps are not for a policy that takes colours.
pub(super) fn cameras(meta: &Metadata, collector: &mut Collector) -> Vec<Camera> {
    let cameras: Vec<Camera> = meta
        .cameras()
        .filter_map(|feature| {
            let image = feature.image?;
            Some(Camera {
                name: feature.name.clone(),
                height: image.height,
                width: image.width,
                video: feature.kind == FeatureKind::Video,
                depth: feature.is_depth,
            })
        })
        .collect();
    let usable: Vec<String> = cameras.iter().filter(|c| !c.depth).map(|c| format!("{:?}", c.name)).collect();
    for camera in cameras.iter().filter(|camera| camera.depth) {
        collector.push(
            Severity::Note,
            "depth-camera",
            format!("{} is a depth map; π₀.₅ takes colours, so it is left out", camera.name),
            Some(format!("data.cameras = [{}]", usable.join(", "))),
        );
    }
    if usable.is_empty() {
        let message = "there is no colour camera; the policy would see nothing but the state".to_owned();
        collector.push(Severity::Warning, "no-camera", message, None);
    }
    cameras
}

/// Episodes against the chunk of actions: how much of the targets is padding. Returns the share.
pub(super) fn windows(episodes: &[&Episode], options: &Options, collector: &mut Collector) -> f64 {
    let horizon = options.horizon;
    let lengths: Vec<usize> = episodes.iter().map(|episode| episode.length).collect();
    let share = padding_share(&lengths, horizon, 0);
    let short = lengths.iter().filter(|&&length| length < horizon).count();
    let (Some(shortest), Some(longest)) = (lengths.iter().min(), lengths.iter().max()) else { return share };
    if short == 0 && share <= MUCH_PADDING {
        return share;
    }
    let shorter = match short {
        0 => String::new(),
        _ => format!("; {} shorter than the chunk", counted(short, "episode")),
    };
    let message = format!(
        "chunk {horizon} against episodes of {shortest}..{longest} frames: {:.1} % of action steps are padding and carry no loss{shorter}",
        share * 100.0
    );
    let much = share > MUCH_PADDING;
    let severity = if much { Severity::Warning } else { Severity::Note };
    // The largest chunk of which at most the tolerated share is padding: the share is nearly proportional to it.
    let fix = much.then(|| format!("model.chunk_size = {}", fitting_horizon(&lengths, horizon)));
    collector.push(severity, "padding", message, fix);
    share
}

/// The largest horizon up to `horizon` with tolerable padding.
fn fitting_horizon(lengths: &[usize], horizon: usize) -> usize {
    let mut fits = 1..horizon.max(2);
    while fits.end - fits.start > 1 {
        let middle = fits.start + (fits.end - fits.start) / 2;
        if padding_share(lengths, middle, 0) <= MUCH_PADDING { fits.start = middle } else { fits.end = middle }
    }
    fits.start
}

/// v3.0: the declared stretch of each video has as many frames as the episode; errors add up along a file.
pub(super) fn video_drift(meta: &Metadata, episodes: &[&Episode], collector: &mut Collector) {
    let fps = f64::from(meta.info.fps);
    for episode in episodes {
        for span in &episode.videos {
            let (Some(from), Some(to)) = (span.from_timestamp, span.to_timestamp) else { continue };
            let frames = (to - from) * fps;
            if (frames - episode.length as f64).abs() > 0.5 {
                let message = format!(
                    "episode {}, camera {}: from_timestamp {from} to to_timestamp {to} is {frames:.2} frames, the episode has {}; frames are counted from from_timestamp",
                    episode.index, span.camera, episode.length
                );
                collector.problem(Severity::Warning, "timestamp-drift", &[episode.index], message);
            }
        }
    }
}
