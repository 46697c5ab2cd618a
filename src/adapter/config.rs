//! `adapter_config.json`: PEFT's description of an adapter.
//!
//! Written with the fields of PEFT 0.21; read from any version. What decides the numbers is interpreted, a switch
//! that would change them in a way we do not compute is refused, and everything else is kept and written back.

use std::path::Path;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::error::AdapterError;
use super::plan::LoraSpec;
use super::select::{Plan, in_memory, scale};
use super::targets::Targets;
use crate::config::train::{AdapterConfig, PolicyKind};
use crate::files::write_atomic;

/// The configuration's file in an adapter's directory.
pub const CONFIG_FILE: &str = "adapter_config.json";

/// Every field of PEFT 0.21 with its default.
const DEFAULTS: &str = include_str!("peft_defaults.json");

/// Fields that change what an adapter computes when they are anything but null, false or empty.
const REFUSED: [&str; 13] = [
    "use_dora",
    "lora_bias",
    "fan_in_fan_out",
    "use_qalora",
    "use_bdlora",
    "alora_invocation_tokens",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "layer_replication",
    "target_parameters",
    "trainable_token_indices",
    "megatron_config",
];

/// Initialisations that leave the base weights as they are; the others (PiSSA, OLoRA, CorDA, LoftQ, LoRA-GA) subtract
/// from them, so that the adapter belongs to weights that no checkpoint holds.
const HARMLESS_INITS: [&str; 4] = ["gaussian", "eva", "orthogonal", "mica"];

/// A PEFT LoRA configuration.
#[derive(Debug, Clone)]
pub struct PeftConfig {
    rank: usize,
    alpha: f64,
    dropout: f64,
    rslora: bool,
    rank_pattern: Vec<(Regex, f64)>,
    alpha_pattern: Vec<(Regex, f64)>,
    /// The whole file, interpreted fields included.
    fields: Map<String, Value>,
}

impl PeftConfig {
    /// The configuration of an adapter trained by `plan`, for LeRobot's policy of `kind`.
    ///
    /// `targets` is what was asked; it is written as it was when PEFT would select the same modules from it, and as
    /// the list of whole names when freezing or another rule of ours left some out.
    pub fn for_plan(
        config: &AdapterConfig,
        plan: &Plan,
        modules: &[String],
        kind: PolicyKind,
        base: Option<(&str, Option<&str>)>,
    ) -> Result<Self, AdapterError> {
        let mut fields = parse_object(DEFAULTS.as_bytes(), Path::new("peft_defaults.json"))?;
        let saved: Vec<String> = plan.saved_modules().map(in_memory).collect();
        let (class, library) = match kind {
            PolicyKind::Pi05 => ("PI05Policy", "lerobot.policies.pi05.modeling_pi05"),
            PolicyKind::Pi0 => ("PI0Policy", "lerobot.policies.pi0.modeling_pi0"),
        };
        let set = [
            ("r", json!(config.rank)),
            ("lora_alpha", number(config.alpha)),
            ("lora_dropout", json!(config.dropout)),
            ("use_rslora", json!(config.rslora)),
            ("target_modules", target_modules(&config.targets, plan, modules)?),
            ("modules_to_save", if saved.is_empty() { Value::Null } else { json!(saved) }),
            ("base_model_name_or_path", json!(base.map(|(name, _)| name))),
            ("revision", json!(base.and_then(|(_, revision)| revision))),
            ("auto_mapping", json!({ "base_model_class": class, "parent_library": library })),
        ];
        fields.extend(set.map(|(key, value)| (key.to_string(), value)));
        Self::interpret(fields, Path::new(CONFIG_FILE))
    }

    /// Reads the configuration in an adapter's directory.
    pub fn read(directory: &Path) -> Result<Self, AdapterError> {
        let path = directory.join(CONFIG_FILE);
        let bytes = std::fs::read(&path).map_err(|source| AdapterError::Read { path: path.clone(), source })?;
        Self::parse(&bytes, &path)
    }

    /// Interprets the content of an `adapter_config.json`; `path` is for messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self, AdapterError> {
        Self::interpret(parse_object(bytes, path)?, path)
    }

    /// Writes the configuration into an adapter's directory.
    pub fn write(&self, directory: &Path) -> Result<(), AdapterError> {
        let path = directory.join(CONFIG_FILE);
        let text = serde_json::to_vec_pretty(&self.fields)
            .map_err(|source| AdapterError::Write { path: path.clone(), source: source.into() })?;
        write_atomic(&path, &text).map_err(|source| AdapterError::Write { path, source })
    }

    /// The adapter of the linear with the canonical name `module`, by the patterns first, then by the defaults.
    pub fn spec(&self, module: &str) -> LoraSpec {
        let name = in_memory(module);
        let by_pattern = |pattern: &[(Regex, f64)]| pattern.iter().find(|(r, _)| r.is_match(&name)).map(|(_, v)| *v);
        let rank = by_pattern(&self.rank_pattern).map_or(self.rank, |rank| rank as usize);
        let alpha = by_pattern(&self.alpha_pattern).unwrap_or(self.alpha);
        LoraSpec { rank, scale: scale(alpha, rank, self.rslora), dropout: self.dropout }
    }

    /// Any field of the file.
    pub fn field(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// The base that the adapter names.
    pub fn base_model(&self) -> Option<&str> {
        self.field("base_model_name_or_path").and_then(Value::as_str)
    }

    fn interpret(fields: Map<String, Value>, path: &Path) -> Result<Self, AdapterError> {
        refuse_unsupported(&fields, path)?;
        let fields_of = Fields { fields: &fields, path };
        let rank = fields_of.number("r", 8.0)?;
        let alpha = fields_of.number("lora_alpha", 8.0)?;
        let dropout = fields_of.number("lora_dropout", 0.0)?;
        let rank_pattern = fields_of.pattern("rank_pattern")?;
        let alpha_pattern = fields_of.pattern("alpha_pattern")?;
        for &rank in rank_pattern.iter().map(|(_, rank)| rank).chain([&rank]) {
            // Ranks above a million are no adapters, and this keeps the conversion exact.
            if rank.fract() != 0.0 || !(1.0..=1e6).contains(&rank) {
                return Err(fields_of.wrong("r", "a whole number of at least 1"));
            }
        }
        let rslora = match fields.get("use_rslora") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(rslora)) => *rslora,
            Some(_) => return Err(fields_of.wrong("use_rslora", "true or false")),
        };
        Ok(Self { rank: rank as usize, alpha, dropout, rslora, rank_pattern, alpha_pattern, fields })
    }
}

/// Typed access to the file's fields.
struct Fields<'a> {
    fields: &'a Map<String, Value>,
    path: &'a Path,
}

impl Fields<'_> {
    fn number(&self, key: &str, default: f64) -> Result<f64, AdapterError> {
        match self.fields.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => value.as_f64().ok_or_else(|| self.wrong(key, "a number")),
        }
    }

    /// `rank_pattern` or `alpha_pattern`: regular expressions at the end of a module's name, first match first
    /// (PEFT's `get_pattern_key`).
    fn pattern(&self, key: &str) -> Result<Vec<(Regex, f64)>, AdapterError> {
        let entries = match self.fields.get(key) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Object(entries)) => entries,
            Some(_) => return Err(self.wrong(key, "an object of numbers")),
        };
        let entry = |(text, value): (&String, &Value)| {
            let regex = Regex::new(&format!(r"\A(?:.*\.)?(?:{text})\z"))
                .map_err(|_| self.wrong(key, "an object whose keys are regular expressions"))?;
            let value = value.as_f64().ok_or_else(|| self.wrong(key, "an object of numbers"))?;
            Ok((regex, value))
        };
        entries.iter().map(entry).collect()
    }

    fn wrong(&self, key: &str, expected: &str) -> AdapterError {
        let found = self.fields.get(key).map(Value::to_string).unwrap_or_default();
        let problem = format!("{key} is {found}, expected {expected}");
        AdapterError::Config { path: self.path.to_path_buf(), problem }
    }
}

fn parse_object(bytes: &[u8], path: &Path) -> Result<Map<String, Value>, AdapterError> {
    let problem = |problem: String| AdapterError::Config { path: path.to_path_buf(), problem };
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(problem("it is not a JSON object".to_string())),
        Err(error) => Err(problem(error.to_string())),
    }
}

fn refuse_unsupported(fields: &Map<String, Value>, path: &Path) -> Result<(), AdapterError> {
    let refuse = |feature: String| Err(AdapterError::Unsupported { path: path.to_path_buf(), feature });
    match fields.get("peft_type").and_then(Value::as_str) {
        Some("LORA") => (),
        other => return refuse(format!("peft_type {}", other.unwrap_or("(none)"))),
    }
    if let Some(key) = REFUSED.iter().find(|key| fields.get(**key).is_some_and(is_set)) {
        return refuse((*key).to_string());
    }
    match fields.get("bias") {
        None | Some(Value::Null) => (),
        Some(Value::String(bias)) if bias == "none" => (),
        Some(bias) => return refuse(format!("bias {bias}")),
    }
    match fields.get("init_lora_weights") {
        None | Some(Value::Null | Value::Bool(_)) => Ok(()),
        Some(Value::String(init)) if HARMLESS_INITS.contains(&init.as_str()) => Ok(()),
        Some(init) => refuse(format!("init_lora_weights {init}, which changes the base weights")),
    }
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
        _ => true,
    }
}

/// PEFT writes whole alphas as integers.
fn number(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 { json!(value as i64) } else { json!(value) }
}

fn target_modules(entries: &[String], plan: &Plan, modules: &[String]) -> Result<Value, AdapterError> {
    let asked = Targets::from_config(entries)?;
    let same = asked.select(modules)?.into_iter().eq(plan.adapted());
    Ok(match asked {
        Targets::Names(names) if same => json!(names),
        Targets::Pattern(pattern) if same => json!(pattern.text()),
        // `all-linear` is never written: in LeRobot's policy it would take in the unused output heads as well.
        _ => json!(plan.adapted().map(in_memory).collect::<Vec<_>>()),
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
