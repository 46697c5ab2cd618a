//! What to give up when memory runs out, in the order of what it costs, with the numbers of one run.

use serde::Serialize;

use super::memory::estimate;
use super::subject::{Subject, Target};
use crate::config::train::TrainConfig;

/// The rank that is offered when adapters are to become smaller.
const SMALL_RANK: usize = 8;

/// A step down; each holds all before it, too.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Rung {
    /// What it does and what it costs.
    pub what: String,
    /// The settings to type, `key=value`; empty: nothing can be typed yet.
    pub settings: Vec<String>,
    /// Whether a run that has begun can take it; else it needs a new run.
    pub resumes: bool,
    /// Memory after it; none: not built, so nothing is promised.
    pub bytes: Option<u64>,
}

/// All steps that change something for one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ladder {
    pub rungs: Vec<Rung>,
}

type Change = fn(&mut Subject) -> Option<(String, Vec<String>)>;

impl Ladder {
    /// The ladder of `subject`, whose `before` bytes are too many.
    pub fn of(subject: &Subject, target: Target, mut before: u64) -> Ladder {
        let changes: [Change; 6] = [single, recomputation, one_camera, separate, small_adapters, adapters];
        let mut below = subject.clone();
        let mut rungs = Vec::new();
        for change in changes {
            let mut next = below.clone();
            let Some((what, settings)) = change(&mut next) else { continue };
            // A step that contradicts another setting (adapters on parts that are frozen, say) is none.
            let Ok(estimate) = estimate(&next, target) else { continue };
            let bytes = estimate.memory.total();
            // Two micro-steps of one sample hold a second set of gradients: with every weight training that is more.
            if bytes >= before {
                continue;
            }
            let resumes = settings.iter().all(|setting| setting.starts_with("train."));
            rungs.push(Rung { what, settings, resumes, bytes: Some(bytes) });
            (below, before) = (next, bytes);
        }
        rungs.extend(absent());
        Ladder { rungs }
    }

    /// The first `rung` steps (counted from 1) as one line of settings.
    pub fn settings(&self, rung: usize) -> String {
        let typed = self.rungs.iter().take(rung).flat_map(|rung| rung.settings.iter().map(|text| quoted(text)));
        typed.collect::<Vec<_>>().join(" ")
    }

    /// The number of the first rung after which `available` bytes are enough.
    pub fn first_within(&self, available: u64) -> Option<usize> {
        self.rungs.iter().position(|rung| rung.bytes.is_some_and(|bytes| bytes <= available)).map(|index| index + 1)
    }
}

/// A setting as a shell takes it.
pub(super) fn quoted(setting: &str) -> String {
    if setting.contains(['[', '"', ' ']) { format!("'{setting}'") } else { setting.to_owned() }
}

fn single(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    let samples = subject.samples();
    let train = &mut subject.config.train;
    (train.batch_size > 1).then(|| {
        (train.batch_size, train.grad_accum) = (1, samples);
        let settings = vec!["train.batch_size=1".into(), format!("train.grad_accum={samples}")];
        (format!("one sample at a time, {samples} times: the same gradients, more time"), settings)
    })
}

fn recomputation(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    let train = &mut subject.config.train;
    (!std::mem::replace(&mut train.activation_checkpointing, true)).then(|| {
        let what = "recompute activations in the backward pass: the same gradients, about a third more time";
        (what.into(), vec!["train.activation_checkpointing=true".into()])
    })
}

fn one_camera(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    // A name that was made up cannot be typed.
    let choice = subject.cameras.len() > 1 && !subject.cameras_assumed;
    let first = subject.cameras.first().cloned().filter(|_| choice)?;
    let before = subject.cameras.len();
    // The key names cameras as the dataset does.
    let rename = &subject.config.data.rename;
    let feature = rename.iter().find(|(_, policy)| **policy == first).map_or(&first, |(feature, _)| feature);
    let setting = format!("data.cameras=[{feature:?}]");
    subject.cameras.truncate(1);
    Some((format!("one camera of {before}: the policy sees less"), vec![setting]))
}

fn separate(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    std::mem::replace(&mut subject.config.train.delay.shared, false).then(|| {
        ("one delay a sample instead of all over one observation".into(), vec!["train.delay.shared=false".into()])
    })
}

/// Smaller adapters, and none of the modulation beside them: entries that train the expert's AdaRMS go.
fn small_adapters(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    if !subject.config.adapter.enabled {
        return None;
    }
    let adapter = &mut subject.config.adapter;
    let mut settings = Vec::new();
    let mut what = Vec::new();
    if adapter.rank > SMALL_RANK {
        adapter.rank = SMALL_RANK;
        what.push(format!("adapters of rank {SMALL_RANK}"));
        settings.push(format!("adapter.rank={SMALL_RANK}"));
    }
    let modulates = |entry: &String| {
        let entry = entry.to_ascii_lowercase();
        ["input_layernorm.dense", "post_attention_layernorm.dense"].iter().any(|name| name.contains(&entry))
    };
    if adapter.also_train.iter().any(modulates) {
        adapter.also_train.retain(|entry| !modulates(entry));
        what.push("AdaRMS frozen".into());
        settings.push(format!("adapter.also_train={}", serde_json::json!(adapter.also_train)));
    }
    (!settings.is_empty()).then(|| (format!("{}: less can be learned", what.join(", ")), settings))
}

/// Full fine-tuning becomes adapters on every attention and MLP.
fn adapters(subject: &mut Subject) -> Option<(String, Vec<String>)> {
    let TrainConfig { adapter, .. } = &mut subject.config;
    (!std::mem::replace(&mut adapter.enabled, true)).then(|| {
        let what = format!("adapters of rank {} instead of every weight", adapter.rank);
        (what, vec!["adapter.enabled=true".into()])
    })
}

/// What later versions will offer.
fn absent() -> [Rung; 2] {
    [
        "4-bit base weights (QLoRA, adapter.quantize): this version does not have it",
        "more GPUs that share the weights: this version trains on one",
    ]
    .map(|what| Rung { what: what.into(), settings: Vec::new(), resumes: false, bytes: None })
}
