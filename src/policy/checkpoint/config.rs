//! `config.json` of a policy, in LeRobot's form.
//!
//! What this project reads is typed; the rest of LeRobot's fields and fields of others are kept as they are and
//! written back. Nothing of our own is written among them, since LeRobot's decoder refuses unknown keys: our switches
//! lie in a file beside it ([`Forge`]). The one exception is `tiny_dims`, the sizes of a network that is none of the
//! published ones, which no stock LeRobot could build anyway.

use std::collections::BTreeMap;
use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::error::CheckpointError;
use super::forge::Forge;
use crate::config::train::{Dtype, ModelConfig, NormMode, PolicyKind};
use crate::dataset::finding::{Finding, Severity};
use crate::policy::arch::{Arch, ArchError, TinyDims};
use crate::policy::processor::normalise::{mode_name, mode_named};
use crate::policy::processor::{ACTION, ProcessorSpec, STATE};

pub const CONFIG_FILE: &str = "config.json";

/// A policy's configuration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyConfig {
    #[serde(rename = "type")]
    pub kind: PolicyKind,
    pub input_features: Features,
    pub output_features: Features,
    pub paligemma_variant: String,
    pub action_expert_variant: String,
    pub dtype: Dtype,
    pub chunk_size: usize,
    pub n_action_steps: usize,
    pub max_state_dim: usize,
    pub max_action_dim: usize,
    pub num_inference_steps: usize,
    pub time_sampling_beta_alpha: f64,
    pub time_sampling_beta_beta: f64,
    pub time_sampling_scale: f64,
    pub time_sampling_offset: f64,
    pub min_period: f64,
    pub max_period: f64,
    pub use_relative_actions: bool,
    pub image_resolution: [usize; 2],
    pub empty_cameras: usize,
    pub tokenizer_max_length: usize,
    /// Feature type (`STATE`, `ACTION`, `VISUAL`) → mode in LeRobot's spelling.
    pub normalization_mapping: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tiny_dims: Option<TinyDims>,
    /// Read from here too: earlier versions wrote it into `config.json`.
    #[serde(default, skip_serializing)]
    pub vlash_forge: Forge,
    /// Everything else, in its order.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A feature's type (`STATE`, `VISUAL`, `ACTION`, `ENV`) and shape (images: `[3, height, width]`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Feature {
    #[serde(rename = "type")]
    pub kind: String,
    pub shape: Vec<usize>,
}

/// Features by name, in their order, which is the order of the cameras.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Features(pub Vec<(String, Feature)>);

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, feature) in &self.0 {
            map.serialize_entry(name, feature)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = Option::<Map<String, Value>>::deserialize(deserializer)?.unwrap_or_default();
        let feature = |(name, value)| {
            let feature =
                serde_json::from_value(value).map_err(|e| serde::de::Error::custom(format!("{name}: {e}")))?;
            Ok((name, feature))
        };
        map.into_iter().map(feature).collect::<Result<_, _>>().map(Features)
    }
}

impl Features {
    pub fn get(&self, name: &str) -> Option<&Feature> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, feature)| feature)
    }

    fn push(&mut self, name: &str, kind: &str, shape: &[usize]) {
        self.0.push((name.to_owned(), Feature { kind: kind.to_owned(), shape: shape.to_vec() }));
    }
}

/// LeRobot's defaults of every field, for π₀.₅; also the list of fields that are known.
const DEFAULTS: &str = include_str!("../assets/lerobot_pi05_config.json");

/// Fields of VLASH's own configurations. `state_cond` is read; fusing happens in memory only and is not our choice;
/// the sub-configurations repeat what the variants say.
const VLASH_FIELDS: [&str; 5] = ["state_cond", "fuse_qkv", "fuse_gate_up", "vlm_config", "action_expert_config"];

fn defaults(kind: PolicyKind) -> Map<String, Value> {
    // The file is part of the program, and a test reads it.
    let mut map: Map<String, Value> = serde_json::from_str(DEFAULTS).unwrap_or_default();
    if kind == PolicyKind::Pi0 {
        map.insert("type".into(), "pi0".into());
        map.insert("tokenizer_max_length".into(), 48.into());
        let modes = serde_json::json!({"VISUAL": "IDENTITY", "STATE": "MEAN_STD", "ACTION": "MEAN_STD"});
        map.insert("normalization_mapping".into(), modes);
    }
    map
}

impl PolicyConfig {
    /// From the text of a `config.json`. Absent fields have LeRobot's defaults; unknown ones are kept and reported.
    pub fn parse(path: &Path, text: &[u8]) -> Result<(PolicyConfig, Vec<Finding>), CheckpointError> {
        let problem = |problem: String| CheckpointError::Config { path: path.to_owned(), problem };
        let found: Map<String, Value> = serde_json::from_slice(text).map_err(|e| problem(e.to_string()))?;
        let kind = match found.get("type") {
            Some(Value::String(kind)) => PolicyKind::deserialize(Value::from(kind.as_str()))
                .map_err(|_| problem(format!("type is {kind:?}; this project knows pi05 and pi0")))?,
            _ => return Err(problem("it has no \"type\" (\"pi05\" or \"pi0\")".into())),
        };
        let mut map = defaults(kind);
        let mut unknown: Vec<String> = Vec::new();
        for (key, value) in found {
            let ours = ["tiny_dims", "vlash_forge"].contains(&key.as_str()) || VLASH_FIELDS.contains(&key.as_str());
            if !map.contains_key(&key) && !ours {
                unknown.push(key.clone());
            }
            map.insert(key, value);
        }
        if map.get("state_cond") == Some(&Value::Bool(true)) {
            let forge = map.entry("vlash_forge").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(forge) = forge {
                forge.insert("state_cond".into(), true.into());
            }
        }
        for field in VLASH_FIELDS {
            map.shift_remove(field);
        }
        let config: PolicyConfig = serde_path_to_error::deserialize(Value::Object(map))
            .map_err(|e| problem(format!("{}: {}", e.path(), e.inner())))?;
        config.check().map_err(problem)?;
        let findings = (!unknown.is_empty()).then(|| Finding {
            severity: Severity::Warning,
            code: "unknown-config-field",
            message: format!(
                "{}: fields that are not known here, kept as they are: {}",
                path.display(),
                unknown.join(", ")
            ),
            fix: None,
        });
        Ok((config, findings.into_iter().collect()))
    }

    /// What LeRobot's and VLASH's own validation refuse, and what this project does not compute.
    fn check(&self) -> Result<(), String> {
        if self.n_action_steps > self.chunk_size {
            return Err(format!("n_action_steps ({}) exceeds chunk_size ({})", self.n_action_steps, self.chunk_size));
        }
        if self.use_relative_actions {
            return Err("use_relative_actions is true; relative actions are not supported".into());
        }
        for field in ["use_visual_memory", "use_proprioceptive_memory"] {
            if self.rest.get(field) == Some(&Value::Bool(true)) {
                return Err(format!("{field} is true; policies with memory are not supported"));
            }
        }
        for mode in self.normalization_mapping.values() {
            if mode_named(mode).is_none() {
                return Err(format!("normalization_mapping has the unknown mode {mode:?}"));
            }
        }
        Ok(())
    }

    /// The configuration of a policy that is about to be trained.
    ///
    /// `base`: fields of others are taken over from it. `camera_shapes`: `[3, height, width]` by slot; a slot without
    /// one gets the vision tower's resolution. Names of actions and the delay of training-time RTC are the caller's to add.
    pub fn for_training(
        base: Option<&PolicyConfig>,
        model: &ModelConfig,
        arch: &Arch,
        spec: &ProcessorSpec,
        camera_shapes: &BTreeMap<String, [usize; 3]>,
        trained_delay: usize,
    ) -> PolicyConfig {
        let side = arch.vision.image;
        let mut input_features = Features::default();
        for camera in &spec.cameras {
            input_features.push(camera, "VISUAL", camera_shapes.get(camera).unwrap_or(&[3, side, side]));
        }
        input_features.push(STATE, "STATE", &[spec.state_dim]);
        let mut output_features = Features::default();
        output_features.push(ACTION, "ACTION", &[spec.action_dim]);
        let full = Arch::full_pi05();
        let named_sizes = arch.vision == full.vision && arch.vlm == full.vlm && arch.expert == full.expert;
        PolicyConfig {
            kind: arch.kind,
            input_features,
            output_features,
            paligemma_variant: VLM_VARIANT.into(),
            action_expert_variant: EXPERT_VARIANT.into(),
            dtype: model.dtype,
            chunk_size: arch.chunk_size,
            n_action_steps: model.n_action_steps.min(arch.chunk_size),
            max_state_dim: arch.max_state_dim,
            max_action_dim: arch.max_action_dim,
            num_inference_steps: model.num_inference_steps,
            time_sampling_beta_alpha: model.time_sampling_beta_alpha,
            time_sampling_beta_beta: model.time_sampling_beta_beta,
            time_sampling_scale: model.time_sampling_scale,
            time_sampling_offset: model.time_sampling_offset,
            min_period: arch.min_period,
            max_period: arch.max_period,
            use_relative_actions: false,
            image_resolution: [side, side],
            empty_cameras: base.map_or(0, |base| base.empty_cameras),
            tokenizer_max_length: spec.tokenizer_max_length,
            normalization_mapping: [
                ("VISUAL", NormMode::Identity),
                ("STATE", spec.state_mode),
                ("ACTION", spec.action_mode),
            ]
            .map(|(feature, mode)| (feature.to_owned(), mode_name(mode).to_owned()))
            .into(),
            tiny_dims: (!named_sizes || arch.vocab_size != full.vocab_size).then(|| TinyDims::of(arch)),
            vlash_forge: Forge {
                resize: spec.image.resize,
                pad: spec.image.pad,
                empty_cameras: spec.empty_cameras,
                state_cond: arch.state_cond,
                trained_delay,
                rtc_trained_delay: 0,
            },
            rest: base.map_or_else(|| uninterpreted(arch.kind), |base| base.rest.clone()),
        }
    }

    /// The sizes of the network.
    pub fn arch(&self) -> Result<Arch, ArchError> {
        let mut arch = Arch {
            kind: self.kind,
            chunk_size: self.chunk_size,
            max_state_dim: self.max_state_dim,
            max_action_dim: self.max_action_dim,
            state_cond: self.vlash_forge.state_cond,
            min_period: self.min_period,
            max_period: self.max_period,
            ..Arch::full_pi05()
        };
        let variant = |key, found: &String, known| {
            if found == known { Ok(()) } else { Err(ArchError::Variant { key, found: found.clone(), known }) }
        };
        variant("paligemma_variant", &self.paligemma_variant, VLM_VARIANT)?;
        variant("action_expert_variant", &self.action_expert_variant, EXPERT_VARIANT)?;
        if let Some(dims) = &self.tiny_dims {
            dims.apply(&mut arch)?;
        }
        arch.check()?;
        arch.check_resolution(self.image_resolution)?;
        Ok(arch)
    }

    /// Camera slots in order.
    pub fn cameras(&self) -> Vec<String> {
        self.input_features.0.iter().filter(|(_, f)| f.kind == "VISUAL").map(|(name, _)| name.clone()).collect()
    }

    /// Real dimensions of state and action, as far as the features say.
    pub fn state_dim(&self) -> Option<usize> {
        self.input_features.get(STATE).and_then(|feature| feature.shape.first().copied())
    }

    pub fn action_dim(&self) -> Option<usize> {
        self.output_features.get(ACTION).and_then(|feature| feature.shape.first().copied())
    }

    /// The normalisation mode of a feature type (`STATE`, `ACTION`).
    pub fn mode(&self, feature: &str) -> NormMode {
        self.normalization_mapping.get(feature).and_then(|name| mode_named(name)).unwrap_or(NormMode::Identity)
    }

    /// The text of `config.json`.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}

const VLM_VARIANT: &str = "gemma_2b";
const EXPERT_VARIANT: &str = "gemma_300m";

/// LeRobot's fields that this project does not read, at their defaults.
fn uninterpreted(kind: PolicyKind) -> Map<String, Value> {
    serde_json::from_value::<PolicyConfig>(Value::Object(defaults(kind))).map(|config| config.rest).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn fixture(name: &str) -> String {
        std::fs::read_to_string(std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures")).join(name))
            .unwrap()
    }

    fn parse(text: &str) -> Result<(PolicyConfig, Vec<Finding>), CheckpointError> {
        PolicyConfig::parse(Path::new("p/config.json"), text.as_bytes())
    }

    fn changed(change: impl FnOnce(&mut Map<String, Value>)) -> String {
        let mut map: Map<String, Value> =
            serde_json::from_str(&fixture("pi05-tiny/config_with_tiny_dims.json")).unwrap();
        change(&mut map);
        serde_json::to_string(&map).unwrap()
    }

    #[test]
    fn the_fixtures_configurations_give_their_networks() {
        let (config, findings) = parse(&fixture("pi05-tiny/config_with_tiny_dims.json")).unwrap();
        assert_eq!(findings, []);
        assert_eq!(config.arch().unwrap(), Arch::tiny(32));
        assert_eq!(config.cameras(), ["top", "wrist", "side"].map(|c| format!("observation.images.{c}")));
        assert_eq!((config.state_dim(), config.action_dim()), (Some(8), Some(7)));
        assert_eq!((config.mode("STATE"), config.mode("VISUAL")), (NormMode::Quantiles, NormMode::Identity));
        let (pi0, findings) = parse(&fixture("pi0-tiny/config_with_tiny_dims.json")).unwrap();
        assert_eq!(findings, []);
        assert_eq!(pi0.arch().unwrap(), Arch { kind: PolicyKind::Pi0, ..Arch::tiny(32) });
    }

    #[test]
    fn what_is_read_is_written_back_value_by_value() {
        let text = changed(|map| {
            map.insert("a_field_of_the_future".into(), serde_json::json!({"deep": [1, null]}));
        });
        let (config, findings) = parse(&text).unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.contains("a_field_of_the_future"));
        let written: Map<String, Value> = serde_json::from_str(&config.to_json().unwrap()).unwrap();
        let original: Map<String, Value> = serde_json::from_str(&text).unwrap();
        for (key, value) in &original {
            assert_eq!(written.get(key), Some(value), "{key}");
        }
        assert!(written.keys().all(|key| original.contains_key(key)), "nothing of ours is added");
        assert_eq!(parse(&config.to_json().unwrap()).unwrap().0, config);
    }

    #[test]
    fn an_empty_configuration_is_lerobots_default() {
        let (config, _) = parse(r#"{"type": "pi05"}"#).unwrap();
        assert_eq!(config.arch().unwrap(), Arch::full_pi05());
        assert_eq!((config.tokenizer_max_length, config.num_inference_steps), (200, 10));
        let (pi0, _) = parse(r#"{"type": "pi0"}"#).unwrap();
        assert_eq!((pi0.tokenizer_max_length, pi0.mode("ACTION")), (48, NormMode::MeanStd));
        // The fixture is what LeRobot writes: our list of its fields must be complete and nothing more.
        let (fixture, _) = parse(&fixture("pi05-tiny/config.json")).unwrap();
        assert!(fixture.rest.keys().eq(config.rest.keys()));
    }

    #[test]
    fn vlashs_switch_moves_among_ours() {
        let (config, findings) = parse(&changed(|map| {
            map.insert("state_cond".into(), true.into());
            map.insert("fuse_qkv".into(), false.into());
        }))
        .unwrap();
        assert_eq!(findings, []);
        assert!(config.arch().unwrap().state_cond);
        assert!(!config.rest.contains_key("state_cond") && !config.rest.contains_key("fuse_qkv"));
    }

    #[rstest]
    #[case::no_type("type", Value::Null, "no \"type\"")]
    #[case::other_policy("type", "act".into(), "\"act\"; this project knows pi05 and pi0")]
    #[case::too_many_steps("n_action_steps", 11.into(), "n_action_steps (11) exceeds chunk_size (10)")]
    #[case::memory("use_visual_memory", true.into(), "use_visual_memory")]
    #[case::relative("use_relative_actions", true.into(), "relative actions")]
    #[case::dtype("dtype", "int8".into(), "dtype: ")]
    #[case::text_for_number("chunk_size", "ten".into(), "chunk_size: ")]
    #[case::mode("normalization_mapping", serde_json::json!({"STATE": "Z"}), "unknown mode \"Z\"")]
    fn what_cannot_be_is_refused_with_its_field(#[case] key: &str, #[case] value: Value, #[case] says: &str) {
        let error = parse(&changed(|map| {
            map.insert(key.into(), value);
        }))
        .unwrap_err();
        assert!(error.to_string().contains(says) && error.to_string().contains("config.json"), "{error}");
    }

    #[test]
    fn sizes_that_make_no_network_are_refused() {
        let arch = |change: fn(&mut Map<String, Value>)| parse(&changed(change)).unwrap().0.arch();
        let error = arch(|map| drop(map.insert("action_expert_variant".into(), "gemma_2b".into()))).unwrap_err();
        assert!(matches!(error, ArchError::Variant { key: "action_expert_variant", .. }));
        let error = arch(|map| drop(map.insert("image_resolution".into(), serde_json::json!([224, 224])))).unwrap_err();
        assert!(matches!(error, ArchError::Resolution { side: 56, .. }));
        let error = arch(|map| drop(map.remove("tiny_dims"))).unwrap_err();
        assert!(matches!(error, ArchError::Resolution { side: 224, .. }), "{error}");
    }
}
