//! `policy_preprocessor.json` and `policy_postprocessor.json`: LeRobot's processing steps of a policy.
//!
//! A step may name a state file; its name depends on the step's place in the pipeline, so it is followed, never
//! guessed.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::PolicyConfig;
use super::error::CheckpointError;
use super::statistics::read_state_file;
use crate::config::train::PolicyKind;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::stats::Statistics;

/// From observations to what the network takes.
pub const PREPROCESSOR: &str = "policy_preprocessor.json";
/// From the network's actions to the robot's units.
pub const POSTPROCESSOR: &str = "policy_postprocessor.json";

/// The tokenizer that LeRobot asks the Hub for. Ours lies beside the checkpoint.
const TOKENIZER: &str = "google/paligemma-3b-pt-224";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pipeline {
    name: String,
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Step {
    #[serde(alias = "class")]
    registry_name: String,
    #[serde(default)]
    config: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state_file: Option<String>,
}

/// What the two pipelines of a checkpoint say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pipelines {
    /// Camera or feature name of the data → the policy's.
    pub rename: BTreeMap<String, String>,
    /// LeRobot's spelling of the modes, by feature type; wins over `config.json`.
    pub norm_map: Option<BTreeMap<String, String>>,
    pub eps: Option<f64>,
    /// None in a base model.
    pub statistics: Option<Statistics>,
    pub tokenizer_name: Option<String>,
    pub tokenizer_max_length: Option<usize>,
    /// Steps in order, by name.
    pub steps: Vec<String>,
    pub findings: Vec<Finding>,
}

/// Reads the pipelines of `directory`; none when it has no preprocessor.
pub fn read(directory: &Path) -> Result<Option<Pipelines>, CheckpointError> {
    let Some(before) = load(&directory.join(PREPROCESSOR))? else { return Ok(None) };
    let mut found = Pipelines::default();
    for step in &before.steps {
        found.take(step, directory, PREPROCESSOR)?;
    }
    if let Some(after) = load(&directory.join(POSTPROCESSOR))? {
        let mut back = Pipelines::default();
        for step in &after.steps {
            back.take(step, directory, POSTPROCESSOR)?;
        }
        found.compare(&back, directory);
        found.findings.append(&mut back.findings);
    }
    Ok(Some(found))
}

fn load(path: &Path) -> Result<Option<Pipeline>, CheckpointError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(CheckpointError::Read { path: path.to_owned(), source }),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|e| CheckpointError::Json { path: path.to_owned(), problem: e.to_string() })
}

impl Pipelines {
    fn take(&mut self, step: &Step, directory: &Path, file: &str) -> Result<(), CheckpointError> {
        let path = directory.join(file);
        let problem = |problem: String| CheckpointError::Pipeline { path: path.clone(), problem };
        let field = |name: &str| step.config.get(name).cloned().unwrap_or(Value::Null);
        self.steps.push(step.registry_name.clone());
        match step.registry_name.as_str() {
            "rename_observations_processor" => {
                self.rename = from(field("rename_map")).map_err(|e| problem(format!("rename_map: {e}")))?;
            }
            "normalizer_processor" | "unnormalizer_processor" => {
                self.norm_map = from(field("norm_map")).map_err(|e| problem(format!("norm_map: {e}")))?;
                self.eps = field("eps").as_f64();
                if let Some(state) = &step.state_file {
                    // A name, not a path: a checkpoint must not reach outside of its directory.
                    if Path::new(state).file_name().is_none_or(|name| name != state.as_str()) {
                        return Err(problem(format!("state_file {state:?} is no file name")));
                    }
                    self.statistics = Some(read_state_file(&directory.join(state))?).filter(|s| !s.is_empty());
                }
            }
            "tokenizer_processor" => {
                self.tokenizer_name = field("tokenizer_name").as_str().map(str::to_owned);
                self.tokenizer_max_length = field("max_length").as_u64().and_then(|n| usize::try_from(n).ok());
            }
            "relative_actions_processor" | "absolute_actions_processor" if field("enabled") == Value::Bool(true) => {
                return Err(problem(format!("{} is enabled; relative actions are not supported", step.registry_name)));
            }
            "relative_actions_processor"
            | "absolute_actions_processor"
            | "to_batch_processor"
            | "device_processor"
            | "pi0_new_line_processor"
            | "pi05_prepare_state_tokenizer_processor_step" => {}
            other => self.findings.push(Finding {
                severity: Severity::Warning,
                code: "unknown-processor-step",
                message: format!("{}: the step {other:?} is not known here and is not applied", path.display()),
                fix: None,
            }),
        }
        Ok(())
    }

    /// Forward and backward must agree on the action, else training and deployment differ.
    fn compare(&mut self, back: &Pipelines, directory: &Path) {
        let action =
            |p: &Pipelines| p.statistics.as_ref().and_then(|s| s.get(crate::policy::processor::ACTION).cloned());
        let mode = |p: &Pipelines| p.norm_map.as_ref().and_then(|map| map.get("ACTION").cloned());
        if (action(back).is_some() && action(back) != action(self))
            || (mode(back).is_some() && mode(back) != mode(self))
        {
            self.findings.push(Finding {
                severity: Severity::Warning,
                code: "processors-differ",
                message: format!(
                    "{}: {PREPROCESSOR} and {POSTPROCESSOR} disagree on the action's normalisation; the former is used",
                    directory.display()
                ),
                fix: None,
            });
        }
    }
}

/// `null` counts as absent.
fn from<T: Default + serde::de::DeserializeOwned>(value: Value) -> Result<T, serde_json::Error> {
    if value.is_null() { Ok(T::default()) } else { serde_json::from_value(value) }
}

/// A pipeline to be written: its file, text, and the state file it names.
pub struct Written {
    pub file: &'static str,
    pub json: String,
    pub state_file: String,
}

/// The two pipelines of a policy as LeRobot ≥ 0.4 writes them.
pub fn write(config: &PolicyConfig, rename: &BTreeMap<String, String>) -> Result<[Written; 2], serde_json::Error> {
    let features = |list: Vec<&super::config::Features>| -> Result<Value, serde_json::Error> {
        let mut map = Map::new();
        for (name, feature) in list.iter().flat_map(|features| &features.0) {
            map.insert(name.clone(), serde_json::to_value(feature)?);
        }
        Ok(Value::Object(map))
    };
    let all = features(vec![&config.input_features, &config.output_features])?;
    let outputs = features(vec![&config.output_features])?;
    let normaliser = |name: &str, features: Value| {
        (name.to_owned(), json!({"eps": 1e-8, "features": features, "norm_map": config.normalization_mapping}))
    };
    let plain = |name: &str, config: Value| (name.to_owned(), config);
    let device = || {
        let device = config.rest.get("device").filter(|d| d.is_string()).cloned().unwrap_or_else(|| "cpu".into());
        plain("device_processor", json!({"device": device, "float_dtype": null}))
    };
    let tokenizer = plain(
        "tokenizer_processor",
        json!({
            "max_length": config.tokenizer_max_length, "task_key": "task", "padding_side": "right",
            "padding": "max_length", "truncation": true, "tokenizer_name": TOKENIZER,
        }),
    );
    let mut before = vec![
        plain("rename_observations_processor", json!({"rename_map": rename})),
        plain("to_batch_processor", json!({})),
    ];
    let relative = plain(
        "relative_actions_processor",
        json!({"enabled": false, "exclude_joints": ["gripper"], "action_names": null}),
    );
    match config.kind {
        PolicyKind::Pi05 => {
            before.extend([relative, normaliser("normalizer_processor", all)]);
            // Also with `state_cond`, whose prompt LeRobot does not know: it has no such network either.
            before.push(plain("pi05_prepare_state_tokenizer_processor_step", json!({})));
            before.extend([tokenizer, device()]);
        }
        PolicyKind::Pi0 => {
            before.push(plain("pi0_new_line_processor", json!({})));
            before.extend([tokenizer, device(), relative, normaliser("normalizer_processor", all)]);
        }
    }
    let after = vec![
        normaliser("unnormalizer_processor", outputs),
        plain("absolute_actions_processor", json!({"enabled": false})),
        device(),
    ];
    Ok([
        pipeline(PREPROCESSOR, "policy_preprocessor", before)?,
        pipeline(POSTPROCESSOR, "policy_postprocessor", after)?,
    ])
}

/// The state file is named after the normalising step and its place.
fn pipeline(file: &'static str, name: &str, steps: Vec<(String, Value)>) -> Result<Written, serde_json::Error> {
    let mut state_file = String::new();
    let steps = steps
        .into_iter()
        .enumerate()
        .map(|(at, (registry_name, config))| {
            let mut step = Step { config: from(config)?, registry_name, state_file: None };
            if step.registry_name.ends_with("normalizer_processor") {
                state_file = format!("{name}_step_{at}_{}.safetensors", step.registry_name);
                step.state_file = Some(state_file.clone());
            }
            Ok(step)
        })
        .collect::<Result<_, serde_json::Error>>()?;
    let json = serde_json::to_string_pretty(&Pipeline { name: name.to_owned(), steps })?;
    Ok(Written { file, json, state_file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/preprocessing")).join(name)
    }

    #[test]
    fn lerobots_pipelines_are_read_by_their_state_files() {
        let pi05 = read(&fixture("processors-pi05")).unwrap().unwrap();
        assert_eq!(pi05.findings, []);
        assert_eq!(pi05.norm_map.as_ref().unwrap()["STATE"], "QUANTILES");
        assert_eq!((pi05.eps, pi05.tokenizer_max_length), (Some(1e-8), Some(200)));
        let statistics = pi05.statistics.unwrap();
        assert_eq!(statistics["action"].count, 143);
        assert_eq!(statistics["observation.state"].q01.as_ref().unwrap().len(), 8);
        assert_eq!(statistics["observation.state"].std[3], 0.0);
        // π₀'s normalizer stands at another place and so has another file.
        let pi0 = read(&fixture("processors-pi0")).unwrap().unwrap();
        assert_eq!(pi0.norm_map.unwrap()["ACTION"], "MEAN_STD");
        assert_eq!(pi0.statistics.unwrap(), statistics);
        assert_eq!(read(Path::new("/nowhere")).unwrap(), None);
    }

    #[test]
    fn ours_are_lerobots_step_by_step() {
        for (folder, config) in [
            ("processors-pi05", "pi05-tiny/config_with_tiny_dims.json"),
            ("processors-pi0", "pi0-tiny/config_with_tiny_dims.json"),
        ] {
            let path = fixture("..").join(config);
            let (mut config, _) = PolicyConfig::parse(&path, &std::fs::read(&path).unwrap()).unwrap();
            config.tokenizer_max_length = 200;
            for written in write(&config, &BTreeMap::new()).unwrap() {
                let ours: Value = serde_json::from_str(&written.json).unwrap();
                let theirs: Value =
                    serde_json::from_slice(&std::fs::read(fixture(folder).join(written.file)).unwrap()).unwrap();
                assert_eq!(ours, theirs, "{folder}/{}", written.file);
                assert!(fixture(folder).join(&written.state_file).exists());
            }
        }
    }

    #[test]
    fn a_pipeline_that_reaches_outside_or_changes_the_policy_is_refused_or_reported() {
        let read_with = |step: Value| {
            let directory = tempfile::tempdir().unwrap();
            let text = json!({"name": "p", "steps": [step]}).to_string();
            std::fs::write(directory.path().join(PREPROCESSOR), text).unwrap();
            read(directory.path())
        };
        let outside = json!({"registry_name": "normalizer_processor", "state_file": "../secret.safetensors"});
        assert!(read_with(outside).unwrap_err().to_string().contains("is no file name"));
        let absent = json!({"registry_name": "normalizer_processor", "state_file": "gone.safetensors"});
        assert!(read_with(absent).unwrap_err().to_string().contains("gone.safetensors"));
        let relative = json!({"registry_name": "relative_actions_processor", "config": {"enabled": true}});
        assert!(read_with(relative).unwrap_err().to_string().contains("relative actions"));
        let unknown = read_with(json!({"registry_name": "my_filter"})).unwrap().unwrap();
        assert_eq!(unknown.findings[0].code, "unknown-processor-step");
        let base =
            read_with(json!({"registry_name": "normalizer_processor", "config": {"features": {}}})).unwrap().unwrap();
        assert_eq!(base.statistics, None);
    }
}
