//! What `meta/` alone tells: cameras, sizes, tasks, lengths.

use std::collections::BTreeMap;

use super::collector::{Collector, finding};
use super::report::counted;
use crate::config::ranges;
use crate::dataset::cameras::{Camera, choose};
use crate::dataset::finding::Severity;
use crate::dataset::meta::{Episode, Feature, FeatureKind, Metadata};
use crate::dataset::reader::{self, ACTION, STATE, Selection};
use crate::dataset::window::padding_finding;

/// Widest state and action that the published base checkpoints take.
const WIDEST_VECTOR: usize = 32;

/// The feature that is `name` after the renames, if it can be trained on.
pub(super) fn vector<'a>(
    meta: &'a Metadata,
    name: &str,
    rename: &BTreeMap<String, String>,
    collector: &mut Collector,
) -> Option<&'a Feature> {
    let Some(feature) = reader::vector(meta, name, rename) else {
        let numeric = meta.info.features.iter().filter(|f| f.kind == FeatureKind::Numeric && !is_index(&f.name));
        let found: Vec<&str> = numeric.map(|f| f.name.as_str()).collect();
        let candidate = found.iter().find(|found| ![STATE, ACTION].contains(found));
        let fix = candidate.map(|first| format!("data.rename = {{ \"{first}\" = \"{name}\" }}"));
        let message = format!("there is no numeric feature {name}; found: {}", found.join(", "));
        collector.push(Severity::Error, "missing-feature", message, fix);
        return None;
    };
    let dimensions = feature.dimensions();
    if dimensions == 0 || dimensions > WIDEST_VECTOR {
        let key = if name == ACTION { "max_action_dim" } else { "max_state_dim" };
        let message = format!("{name} has {}, the policy takes 1 to {WIDEST_VECTOR}", counted(dimensions, "dimension"));
        let fix = format!("model.{key} = {dimensions}  # a base checkpoint of {WIDEST_VECTOR} no longer fits then");
        collector.push(Severity::Error, "dimensions", message, (dimensions > 0).then_some(fix));
    }
    Some(feature)
}

fn is_index(name: &str) -> bool {
    matches!(name, "timestamp" | "frame_index" | "episode_index" | "index" | "task_index")
}

/// The cameras that are read: those chosen, or all but depth maps.
pub(super) fn cameras(meta: &Metadata, selection: &Selection, collector: &mut Collector) -> Vec<Camera> {
    let mut findings = Vec::new();
    let cameras = choose(meta, selection.cameras.as_deref(), &selection.rename, &mut findings).or_else(|error| {
        findings.push(finding(&error));
        choose(meta, None, &BTreeMap::new(), &mut findings)
    });
    collector.extend(findings);
    let cameras = cameras.unwrap_or_default();
    if cameras.is_empty() {
        let message = "there is no colour camera; the policy would see nothing but the state".to_owned();
        collector.push(Severity::Warning, "no-camera", message, None);
    }
    cameras
}

/// Episodes against the chunk of actions: how much of the targets is padding (FF-04).
pub(super) fn windows(episodes: &[&Episode], horizon: usize, collector: &mut Collector) {
    let lengths: Vec<usize> = episodes.iter().map(|episode| episode.length).collect();
    collector.extend([padding_finding(&lengths, horizon, 0)]);
    let short: Vec<usize> = episodes.iter().filter(|e| e.length < horizon).map(|e| e.index).collect();
    if !short.is_empty() {
        let message = format!(
            "{} shorter than the chunk of {horizon}, so most of their targets are padding: {}",
            counted(short.len(), "episode"),
            ranges::list(&short)
        );
        collector.push(Severity::Note, "short-episodes", message, None);
    }
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
                    "episode {}, camera {}: from_timestamp {from:.4} to to_timestamp {to:.4} is {frames:.2} frames, the episode has {}; frames are counted from from_timestamp",
                    episode.index, span.camera, episode.length
                );
                collector.problem(Severity::Warning, "timestamp-drift", &[episode.index], message);
            }
        }
    }
}
