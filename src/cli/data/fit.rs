//! How a dataset fits a policy: what `data check` and `data show` say beyond the dataset's own files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::cli::policy::place;
use crate::config::train::{LongPrompts, NormMode, NormalizationConfig, PolicyKind};
use crate::dataset::check::Facts;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::sample::Sample;
use crate::dataset::stats::Statistics;
use crate::dataset::{Dataset, Metadata, statistics};
use crate::error::{Explain, Failure};
use crate::policy::arch::Arch;
use crate::policy::checkpoint::{Checkpoint, CheckpointError};
use crate::policy::processor::cameras::match_cameras;
use crate::policy::processor::prompt::PromptForm;
use crate::policy::processor::prompt_check::{PromptRules, check_longest};
use crate::policy::processor::{ImageSpec, Processor, ProcessorError, ProcessorSpec, Tokenizer, prepare_statistics};

/// Tokens of a π₀.₅ prompt, when no policy says otherwise.
const PI05_TOKENS: usize = 200;

/// Which policy to look at the dataset for.
#[derive(clap::Args)]
pub struct PolicyArgs {
    /// The policy that is to be trained or run on it: its cameras, prompt, and statistics count
    #[arg(long, value_name = "CHECKPOINT")]
    policy: Option<PathBuf>,
    /// Directory with the tokenizer.json of the policy [default: the policy's own]
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
}

/// The opened policy, as far as one was named.
pub struct Fit {
    checkpoint: Option<Checkpoint>,
    tokenizer: Option<Tokenizer>,
}

impl PolicyArgs {
    pub fn open(&self) -> Result<Fit, Failure> {
        let open = |path: &PathBuf| Ok::<_, Failure>(Checkpoint::open(&place::checkpoint(path)?)?);
        let checkpoint = self.policy.as_ref().map(open).transpose()?;
        let tokenizer = match (&self.tokenizer, &checkpoint) {
            (Some(directory), _) => Some(Tokenizer::from_directory(directory)?),
            (None, Some(checkpoint)) => checkpoint.tokenizer()?,
            (None, None) => None,
        };
        Ok(Fit { checkpoint, tokenizer })
    }
}

impl Fit {
    /// Actions that are predicted at once: those of the policy, else LeRobot's 50.
    pub fn horizon(&self) -> usize {
        self.checkpoint.as_ref().map_or(50, |checkpoint| checkpoint.config.chunk_size)
    }

    /// FF-05 and FF-06: cameras and prompts of the dataset at `root`, of which `facts` are known. `empty_cameras`: how
    /// many of the policy's cameras may be missing.
    pub fn findings(&self, root: &Path, facts: &Facts, empty_cameras: usize) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(checkpoint) = &self.checkpoint {
            let offered: Vec<String> = facts.cameras.iter().map(|camera| camera.name.clone()).collect();
            match match_cameras(&checkpoint.config.cameras(), &offered, empty_cameras) {
                Ok(found) => findings.extend(found.findings),
                Err(error) => findings.push(refused("policy-cameras", &error)),
            }
            let widths = [
                ("state", facts.state, checkpoint.config.max_state_dim),
                ("action", facts.action, checkpoint.config.max_action_dim),
            ];
            for (what, found, most) in widths {
                findings.extend(found.filter(|&found| found > most).map(|found| too_wide(what, found, most)));
            }
        }
        findings.extend(self.prompts(root, facts));
        findings
    }

    fn prompts(&self, root: &Path, facts: &Facts) -> Option<Finding> {
        let Some(tokenizer) = &self.tokenizer else { return Some(self.unchecked_prompts(root)) };
        // Without these two the dataset has graver faults, which the check has found.
        let (state_dim, meta) = (facts.state?, Metadata::read(root).ok()?);
        let config = self.checkpoint.as_ref().map(|checkpoint| &checkpoint.config);
        let rules = PromptRules {
            form: self.checkpoint.as_ref().map_or(PromptForm::TaskAndState, form),
            limit: config.map_or(PI05_TOKENS, |config| config.tokenizer_max_length),
            state_dim,
        };
        Some(check_longest(rules, tokenizer, &meta.tasks).unwrap_or_else(|error| refused("prompt", &error)))
    }

    /// The built-in tokenizer is that of the tiny preset: its counts mean nothing for another policy.
    fn unchecked_prompts(&self, root: &Path) -> Finding {
        let option = if self.checkpoint.is_some() { "--tokenizer DIR" } else { "--policy CHECKPOINT" };
        Finding {
            severity: Severity::Note,
            code: "prompts-unchecked",
            message: "prompt lengths were not checked: they depend on the policy's tokenizer, which is not here".into(),
            fix: Some(format!("vlash data check {} {option}", root.display())),
        }
    }

    /// What the policy's processor makes of a sample. Without a policy that of the tiny preset, with the dataset's
    /// own statistics; when even those cannot be had, the reason.
    pub fn describe(&self, dataset: &Dataset, sample: &Sample) -> Result<Map<String, Value>, Failure> {
        let processor = match (&self.checkpoint, self.processor(dataset)) {
            (_, Ok(processor)) => processor,
            (Some(_), Err(error)) => return Err(error),
            (None, Err(error)) => return Ok(entries([("processor", json!(format!("none: {}", error.message())))])),
        };
        let observed = processor.observe(&[], &sample.state, &sample.task)?;
        let length = processor.prompt_length(&sample.task, &sample.state)?;
        let state = observed.state.get(..dataset.state_dim()).unwrap_or(&observed.state);
        Ok(entries([
            ("processor", json!(self.label())),
            ("prompt", json!(observed.prompt)),
            ("prompt_tokens", json!(length.tokens)),
            ("prompt_limit", json!(length.limit)),
            ("prompt_is_cut", json!(length.excess() > 0)),
            ("state_normalised", json!(state)),
        ]))
    }

    fn label(&self) -> String {
        let statistics = match self.checkpoint.as_ref().map(|checkpoint| &checkpoint.statistics) {
            Some(Some(_)) => "its statistics",
            _ => "the dataset's own statistics",
        };
        match (&self.checkpoint, &self.tokenizer) {
            (Some(checkpoint), _) => format!("of {}, {statistics}", checkpoint.directory.display()),
            (None, Some(_)) => format!("π₀.₅ with the tokenizer given, {statistics}"),
            (None, None) => format!("of the tiny preset (built-in tokenizer), {statistics}"),
        }
    }

    /// For observations without images: those are shown as they are stored.
    fn processor(&self, dataset: &Dataset) -> Result<Processor, Failure> {
        let spec = match &self.checkpoint {
            Some(checkpoint) => ProcessorSpec {
                cameras: Vec::new(),
                state_dim: dataset.state_dim(),
                action_dim: dataset.action_dim(),
                ..checkpoint.processor_spec(LongPrompts::CutTask, Vec::new())?
            },
            None => plain_spec(dataset, self.tokenizer.is_some()),
        };
        let tokenizer = match (&self.tokenizer, &self.checkpoint) {
            (Some(tokenizer), _) => tokenizer.clone(),
            (None, None) => Tokenizer::builtin()?,
            (None, Some(checkpoint)) => {
                let directory = checkpoint.directory.display().to_string();
                return Err(ProcessorError::NoTokenizer { directory }.into());
            }
        };
        let own = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.statistics.clone());
        let statistics = match own {
            Some(statistics) => statistics,
            None => of_dataset(dataset, &spec)?,
        };
        let build = Processor::new(spec, &statistics, tokenizer);
        Ok(build.map_err(|source| CheckpointError::Processor { source })?)
    }
}

/// The dataset's statistics as a training would use them.
fn of_dataset(dataset: &Dataset, spec: &ProcessorSpec) -> Result<Statistics, Failure> {
    let computed = statistics::of(dataset)?.statistics;
    let config = NormalizationConfig { state: spec.state_mode, action: spec.action_mode, min_range: 0.02 };
    Ok(prepare_statistics(&computed, &config, &BTreeMap::new())?.0)
}

/// π₀.₅'s rules: of the tiny preset, or with any vocabulary when a tokenizer was given.
fn plain_spec(dataset: &Dataset, foreign_tokenizer: bool) -> ProcessorSpec {
    let arch = Arch::tiny(64);
    let side = arch.vision.image;
    ProcessorSpec {
        kind: PolicyKind::Pi05,
        cameras: Vec::new(),
        empty_cameras: 0,
        rename: BTreeMap::new(),
        image: ImageSpec { height: side, width: side, resize: Default::default(), pad: Default::default() },
        state_mode: NormMode::Quantiles,
        action_mode: NormMode::Quantiles,
        state_dim: dataset.state_dim(),
        action_dim: dataset.action_dim(),
        max_state_dim: dataset.state_dim().max(arch.max_state_dim),
        max_action_dim: dataset.action_dim().max(arch.max_action_dim),
        chunk_size: arch.chunk_size,
        state_cond: false,
        tokenizer_max_length: PI05_TOKENS,
        long_prompts: LongPrompts::CutTask,
        vocab_size: if foreign_tokenizer { usize::MAX } else { arch.vocab_size },
        tasks: Vec::new(),
    }
}

fn form(checkpoint: &Checkpoint) -> PromptForm {
    match (checkpoint.config.kind, checkpoint.arch.state_cond) {
        (PolicyKind::Pi0, _) => PromptForm::Bare,
        (PolicyKind::Pi05, true) => PromptForm::Task,
        (PolicyKind::Pi05, false) => PromptForm::TaskAndState,
    }
}

fn refused(code: &'static str, error: &impl Explain) -> Finding {
    Finding { severity: Severity::Error, code, message: error.to_string(), fix: error.hint() }
}

fn too_wide(what: &str, found: usize, most: usize) -> Finding {
    Finding {
        severity: Severity::Error,
        code: "policy-dimensions",
        message: format!("the {what} has {found} dimensions, the policy takes {most} at most"),
        fix: None,
    }
}

fn entries<const N: usize>(list: [(&str, Value); N]) -> Map<String, Value> {
    list.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
