//! What differs between the configuration a run began with and the one it is asked to continue with.

use serde_json::Value;

/// One key that differs.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub key: String,
    pub old: Value,
    pub new: Value,
    pub weight: Weight,
}

/// What a change does to a run that continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// How it is run or reported; the numbers stay the same.
    Harmless,
    /// The numbers differ from a run without the interruption: only on request.
    Deviating,
    /// The saved state does not fit the new configuration.
    Breaking,
}

/// Keys that change nothing about the numbers of training. `train.steps` is among them: the schedule stays fitted to
/// the steps that the run began with.
const HARMLESS: [&str; 11] = [
    "data.workers",
    "data.frame_cache",
    "data.decoder",
    "run.",
    "runtime.",
    "train.steps",
    "train.activation_checkpointing",
    "checkpoint.",
    "validation.every",
    "validation.batches",
    "log.",
];

/// Keys that decide the shape or meaning of what is saved.
const BREAKING: [&str; 5] = ["model.", "adapter.", "normalization.", "data.cameras", "data.rename"];

/// Keys below `model.` that only say where the same things are found or how samples are drawn at inference.
const MOVABLE: [&str; 4] = ["model.base", "model.tokenizer", "model.allow_new", "model.num_inference_steps"];

fn weight(key: &str) -> Weight {
    let under =
        |table: &[&str]| table.iter().any(|entry| key == *entry || (key.starts_with(entry) && entry.ends_with('.')));
    if key == "run.seed" {
        Weight::Deviating
    } else if under(&HARMLESS) {
        Weight::Harmless
    } else if under(&MOVABLE) {
        Weight::Deviating
    } else if under(&BREAKING) {
        Weight::Breaking
    } else {
        Weight::Deviating
    }
}

/// All keys whose values differ, in the order of the new configuration.
pub fn changes(old: &Value, new: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", old, new, &mut found);
    // Without a base the weights were drawn from the seed: another seed is another policy under the same adapters.
    if new.pointer("/model/base").is_none_or(Value::is_null) {
        found.iter_mut().filter(|change| change.key == "run.seed").for_each(|change| change.weight = Weight::Breaking);
    }
    found
}

fn compare(path: &str, old: &Value, new: &Value, found: &mut Vec<Change>) {
    let join = |key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    if let (Value::Object(old), Value::Object(new)) = (old, new)
        && path != "data.rename"
    {
        for (key, value) in new {
            compare(&join(key), old.get(key).unwrap_or(&Value::Null), value, found);
        }
        for (key, value) in old.iter().filter(|(key, _)| !new.contains_key(*key)) {
            compare(&join(key), value, &Value::Null, found);
        }
    } else if old != new {
        found.push(Change { key: path.into(), old: old.clone(), new: new.clone(), weight: weight(path) });
    }
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} → {}", self.key, self.old, self.new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_difference_is_found_and_weighed() {
        let old = json!({"model": {"chunk_size": 50, "base": "a"}, "train": {"steps": 10, "batch_size": 2}, "run": {"seed": 1, "name": "x"},
            "data": {"workers": 1, "rename": {"a": "b"}}, "gone": 1});
        let new = json!({"model": {"chunk_size": 10, "base": "b"}, "train": {"steps": 20, "batch_size": 4}, "run": {"seed": 2, "name": "y"},
            "data": {"workers": 4, "rename": {}}});
        let by_key: Vec<(String, Weight)> = changes(&old, &new).into_iter().map(|c| (c.key, c.weight)).collect();
        let expected = [
            ("model.chunk_size", Weight::Breaking),
            ("model.base", Weight::Deviating),
            ("train.steps", Weight::Harmless),
            ("train.batch_size", Weight::Deviating),
            ("run.seed", Weight::Deviating),
            ("run.name", Weight::Harmless),
            ("data.workers", Weight::Harmless),
            ("data.rename", Weight::Breaking),
            ("gone", Weight::Deviating),
        ];
        assert_eq!(by_key, expected.map(|(k, w)| (k.to_string(), w)));
        assert!(changes(&old, &old).is_empty());
        let drawn = changes(&json!({"run": {"seed": 1}}), &json!({"run": {"seed": 2}, "model": {"base": null}}));
        assert!(drawn.iter().any(|change| change.key == "run.seed" && change.weight == Weight::Breaking), "{drawn:?}");
    }
}
