//! `meta/info.json`: what the dataset declares about itself.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::{Map, Value};

use super::feature::Feature;
use super::layout::{self, Layout};
use super::template::{Place, Placeholder, Template};
use crate::dataset::error::DatasetError;
use crate::dataset::files::read_text;
use crate::dataset::finding::{Finding, Severity};

/// The declarations of `info.json`, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Info {
    pub layout: Layout,
    pub robot_type: Option<String>,
    /// Frames per second, above 0.
    pub fps: u32,
    pub total_episodes: Option<usize>,
    pub total_frames: Option<usize>,
    pub total_tasks: Option<usize>,
    /// Episodes (v2.1) or files (v3.0) a chunk, above 0.
    pub chunks_size: usize,
    pub data_path: Template,
    /// Absent when there is no video feature.
    pub video_path: Option<Template>,
    /// Half-open episode ranges by split name.
    pub splits: BTreeMap<String, Range<usize>>,
    /// In the order of the file.
    pub features: Vec<Feature>,
}

const KNOWN_KEYS: [&str; 16] = [
    "codebase_version",
    "robot_type",
    "fps",
    "total_episodes",
    "total_frames",
    "total_tasks",
    "total_videos",
    "total_chunks",
    "chunks_size",
    "data_files_size_in_mb",
    "video_files_size_in_mb",
    "data_path",
    "video_path",
    "splits",
    "features",
    "tools",
];

impl Info {
    /// Reads `root/meta/info.json` and settles the layout by the files beside it.
    pub fn read(root: &Path, findings: &mut Vec<Finding>) -> Result<Info, DatasetError> {
        let path = root.join("meta/info.json");
        if !path.is_file() {
            let why = if root.is_dir() { "it has no meta/info.json" } else { "there is no such directory" };
            return Err(DatasetError::NotADataset { path: root.to_path_buf(), why: why.into() });
        }
        let value: Value = serde_json::from_str(&read_text(&path)?)
            .map_err(|error| DatasetError::metadata(&path, format!("not valid JSON: {error}")))?;
        let map = value.as_object().ok_or_else(|| DatasetError::metadata(&path, "not a JSON object"))?;
        let layout = layout::settle(root, map.get("codebase_version"), findings)?;
        Info::parse(map, layout, findings).map_err(|message| DatasetError::metadata(path, message))
    }

    fn parse(map: &Map<String, Value>, layout: Layout, findings: &mut Vec<Finding>) -> Result<Info, String> {
        warn_unknown_keys(map, findings);
        let features = features(map, findings)?;
        let chunks_size = optional_count(map, "chunks_size")?.unwrap_or(1000);
        if chunks_size == 0 {
            return Err("chunks_size is 0, expected at least 1".into());
        }
        let (allowed, required) = match layout {
            Layout::V21 => ([Placeholder::EpisodeChunk, Placeholder::EpisodeIndex], Placeholder::EpisodeIndex),
            Layout::V30 => ([Placeholder::ChunkIndex, Placeholder::FileIndex], Placeholder::FileIndex),
        };
        let template = |key: &str, video_key: bool| match map.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                Template::parse(text, &allowed, required, video_key).map(Some).map_err(|e| format!("{key}: {e}"))
            }
            Some(other) => Err(format!("{key} is {other}, expected a path template")),
        };
        let video_path = template("video_path", true)?;
        let has_videos = features.iter().any(|feature| feature.kind == super::FeatureKind::Video);
        if has_videos && video_path.is_none() {
            return Err("video_path is missing, but there are video features".into());
        }
        Ok(Info {
            layout,
            robot_type: map.get("robot_type").and_then(Value::as_str).map(str::to_owned),
            fps: fps(map)?,
            total_episodes: optional_count(map, "total_episodes")?,
            total_frames: optional_count(map, "total_frames")?,
            total_tasks: optional_count(map, "total_tasks")?,
            chunks_size,
            data_path: template("data_path", false)?.ok_or("data_path is missing")?,
            video_path,
            splits: splits(map, findings),
            features,
        })
    }

    /// The feature called `name`.
    pub fn feature(&self, name: &str) -> Option<&Feature> {
        self.features.iter().find(|feature| feature.name == name)
    }

    /// Where v2.1 keeps the files of `episode`.
    pub(super) fn episode_place(&self, episode: usize) -> Place {
        Place::Episode { chunk: episode / self.chunks_size, episode }
    }
}

/// A JSON number that is a size: not negative, integral (also when written `30.0`), and exactly representable.
pub(super) fn count(value: &Value) -> Option<usize> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(integer) = value.as_u64() {
        return usize::try_from(integer).ok();
    }
    let float = value.as_f64()?;
    ((0.0..=EXACT).contains(&float) && float.fract() == 0.0).then_some(float as usize)
}

fn optional_count(map: &Map<String, Value>, key: &str) -> Result<Option<usize>, String> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            count(value).map(Some).ok_or_else(|| format!("{key} is {value}, expected a whole number from 0"))
        }
    }
}

fn fps(map: &Map<String, Value>) -> Result<u32, String> {
    let value = map.get("fps").ok_or("fps is missing")?;
    count(value)
        .and_then(|fps| u32::try_from(fps).ok())
        .filter(|&fps| fps > 0)
        .ok_or_else(|| format!("fps is {value}, expected a whole number above 0"))
}

fn features(map: &Map<String, Value>, findings: &mut Vec<Finding>) -> Result<Vec<Feature>, String> {
    let declared = map.get("features").and_then(Value::as_object).ok_or("features is missing or not a table")?;
    let mut features = Vec::with_capacity(declared.len());
    for (name, value) in declared {
        let (feature, warning) = Feature::parse(name, value).map_err(|error| format!("features.{name}: {error}"))?;
        if let Some(warning) = warning {
            findings.push(Finding {
                severity: Severity::Warning,
                code: "names-count",
                message: format!("feature {name} {warning}"),
                fix: None,
            });
        }
        features.push(feature);
    }
    Ok(features)
}

fn splits(map: &Map<String, Value>, findings: &mut Vec<Finding>) -> BTreeMap<String, Range<usize>> {
    let mut splits = BTreeMap::new();
    for (name, value) in map.get("splits").and_then(Value::as_object).into_iter().flatten() {
        let range = value.as_str().and_then(|text| {
            let (start, end) = text.split_once(':')?;
            Some(start.trim().parse().ok()?..end.trim().parse().ok()?)
        });
        match range {
            Some(range) => drop(splits.insert(name.clone(), range)),
            None => findings.push(Finding {
                severity: Severity::Warning,
                code: "split-unreadable",
                message: format!("info.json: split {name} is {value}, expected \"0:N\"; it is ignored"),
                fix: None,
            }),
        }
    }
    splits
}

fn warn_unknown_keys(map: &Map<String, Value>, findings: &mut Vec<Finding>) {
    let unknown: Vec<&str> = map.keys().map(String::as_str).filter(|key| !KNOWN_KEYS.contains(key)).collect();
    if !unknown.is_empty() {
        findings.push(Finding {
            severity: Severity::Warning,
            code: "info-unknown-keys",
            message: format!("info.json has keys that are not understood and are ignored: {}", unknown.join(", ")),
            fix: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    fn v21() -> Value {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/datasets/v21/meta/info.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    fn parse(value: &Value, findings: &mut Vec<Finding>) -> Result<Info, String> {
        Info::parse(value.as_object().ok_or("not an object")?, Layout::V21, findings)
    }

    #[test]
    fn a_float_rate_is_accepted_when_integral_and_unknown_keys_warn_once() {
        let mut value = v21();
        value["fps"] = json!(30.0);
        value["colour"] = json!("blue");
        value["mood"] = json!(1);
        let mut findings = Vec::new();
        assert_eq!(parse(&value, &mut findings).unwrap().fps, 30);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.ends_with("colour, mood"));
    }

    #[rstest]
    #[case("fps", json!(0), "fps is 0")]
    #[case("fps", json!(29.97), "fps is 29.97")]
    #[case("fps", json!(-30), "fps is -30")]
    #[case("fps", json!(1e30), "fps is 1e")]
    #[case("fps", json!("30"), "fps is \"30\"")]
    #[case("total_frames", json!(-1), "total_frames is -1")]
    #[case("chunks_size", json!(0), "chunks_size is 0")]
    #[case("data_path", json!("data/{shard}.parquet"), "unknown placeholder {shard}")]
    #[case("video_path", json!(null), "video_path is missing")]
    #[case("features", json!([]), "features is missing")]
    fn refused(#[case] key: &str, #[case] wrong: Value, #[case] expected: &str) {
        let mut value = v21();
        value[key] = wrong;
        let error = parse(&value, &mut Vec::new()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z{}:0-9./_]{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::vec(("[a-z_]{1,6}", inner), 0..4)
                    .prop_map(|entries| Value::Object(entries.into_iter().collect())),
            ]
        })
    }

    /// Every place in a JSON document, as a pointer.
    fn pointers(value: &Value, at: String, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => map.iter().for_each(|(key, value)| pointers(value, format!("{at}/{key}"), out)),
            Value::Array(items) => items.iter().enumerate().for_each(|(i, v)| pointers(v, format!("{at}/{i}"), out)),
            _ => {}
        }
        out.push(at);
    }

    proptest! {
        #[test]
        fn mutated_documents_parse_or_are_refused(place in any::<prop::sample::Index>(), junk in any_json()) {
            let mut value = v21();
            let mut all = Vec::new();
            pointers(&value, String::new(), &mut all);
            *value.pointer_mut(&all[place.index(all.len())]).unwrap() = junk;
            if let Ok(info) = parse(&value, &mut Vec::new()) {
                prop_assert!(info.fps > 0 && info.chunks_size > 0);
                for feature in &info.features {
                    feature.dimension_name(feature.shape.len());
                }
            }
        }
    }
}
