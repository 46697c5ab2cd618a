//! The policy of a run: sizes, processor, weights, and what of them trains.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::{DType, Device};

use super::data::Data;
use super::identity;
use crate::adapter::base::BaseIdentity;
use crate::adapter::config::PeftConfig;
use crate::adapter::select::{Plan, plan_for};
use crate::config::train::{Dtype, Preset, TrainConfig};
use crate::dataset::Dataset;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::stats::Statistics;
use crate::device::Opened;
use crate::policy::arch::Arch;
use crate::policy::checkpoint::{Checkpoint, PolicyConfig};
use crate::policy::parameters::{linears, parameters};
use crate::policy::processor::cameras::match_cameras;
use crate::policy::processor::statistics::{check_modes, prepare_statistics};
use crate::policy::processor::{ACTION, ImageSpec, Processor, ProcessorSpec, STATE, Tokenizer, prompt_check};
use crate::policy::weights::WeightSource;
use crate::policy::{Policy, RandomInit};
use crate::train::error::TrainError;
use crate::train::export::{AdapterExport, Exporter};
use crate::train::resume;

/// Name of the base in adapters of a run that began with random weights; a folder of the run directory.
pub const OWN_BASE: &str = "base";

/// The policy, ready to train.
pub struct Model {
    pub policy: Policy,
    pub processor: Arc<Processor>,
    pub exporter: Exporter,
    pub device: Device,
    /// What became of the stored weights, in one sentence.
    pub account: String,
    pub parameters: u64,
    pub trained: u64,
    /// What a person should know, none of it an error.
    pub findings: Vec<Finding>,
    /// The weights were drawn at random: adapters need them beside the run.
    pub random_base: bool,
}

impl Model {
    /// About how large a checkpoint becomes.
    pub fn checkpoint_bytes(&self) -> u64 {
        let stored: u64 =
            self.policy.parameters().map(|(_, t)| (t.elem_count() * t.dtype().size_in_bytes()) as u64).sum();
        // Masters and two moments, all f32; the files beside them are small.
        stored + 12 * self.trained + (1 << 20)
    }
}

/// Builds what `config` asks for, to fit `data`, on the device that was opened for it.
pub fn build(config: &TrainConfig, data: &Data, opened: Opened) -> Result<Model, TrainError> {
    let base = config.model.base.as_deref().map(Checkpoint::open).transpose()?;
    let mut findings = base.iter().flat_map(|base| base.findings.iter().cloned()).collect::<Vec<_>>();
    refuse(&findings)?;
    let arch = Arch::for_training(&config.model, base.as_ref().map(|base| &base.arch))?;
    let (statistics, widened) =
        prepare_statistics(&data.statistics, &config.normalization, &dimension_names(&data.train))?;
    findings.extend(widened);
    findings.extend(check_modes(&config.normalization, !config.model.state_cond));
    let processor = processor(config, base.as_ref(), &arch, data, &statistics, &mut findings)?;
    findings.extend(prompts(&processor, data, &statistics)?);
    let mut policy_config = PolicyConfig::for_training(
        base.as_ref().map(|base| &base.config),
        &config.model,
        &arch,
        processor.spec(),
        &camera_shapes(&data.train),
        config.train.delay.max,
    );
    policy_config.vlash_forge.rtc_trained_delay = config.train.rtc_max_delay;
    if let Some(names) = &data.train.action_feature().names {
        policy_config.rest.insert("action_feature_names".into(), names.clone().into());
    }

    let fresh = RandomInit { seed: config.run.seed };
    let random_base = base.is_none();
    let (source, account): (Box<dyn WeightSource>, String) = match base {
        Some(base) => {
            let weights = base.weights(&arch, &config.model.allow_new, Box::new(fresh))?;
            let account = weights.account().to_string();
            (Box::new(weights), account)
        }
        None => (
            Box::new(fresh),
            "random: model.base is not set, so nothing is fine-tuned; the policy learns from zero".into(),
        ),
    };
    let names: Vec<String> = parameters(&arch).into_iter().map(|parameter| parameter.name).collect();
    let modules = linears(&arch);
    let plan = plan_for(&config.adapter, &config.model.freeze, config.run.seed, &modules, &names)?;
    let dtype = frozen_dtype(config, &opened, &mut findings);
    let device = opened.device;
    let policy = Policy::build(&arch, source.as_ref(), &plan, &device, dtype)?;
    let adapter = adapter(config, &plan, &modules, source.as_ref(), &arch)?;
    let count = |tensors: &mut dyn Iterator<Item = usize>| tensors.sum::<usize>() as u64;
    let trained = count(&mut policy.trained().iter().map(|t| t.var.elem_count()));
    let factors = count(&mut policy.adapter_factors().map(|(_, t)| t.elem_count()));
    let exporter = Exporter {
        config: policy_config,
        statistics,
        rename: config.data.rename.clone(),
        processor: processor.clone(),
        train_config: resume::to_value(config)?,
        adapter,
    };
    let parameters = count(&mut policy.parameters().map(|(_, t)| t.elem_count())) + factors;
    Ok(Model { policy, processor, exporter, device, account, parameters, trained, findings, random_base })
}

/// The processor that [`build`] would give the policy of `config`; no weights are read.
pub fn processor_for(config: &TrainConfig, data: &Data) -> Result<Arc<Processor>, TrainError> {
    let base = config.model.base.as_deref().map(Checkpoint::open).transpose()?;
    let (statistics, _) = prepare_statistics(&data.statistics, &config.normalization, &dimension_names(&data.train))?;
    let arch = Arch::for_training(&config.model, base.as_ref().map(|base| &base.arch))?;
    processor(config, base.as_ref(), &arch, data, &statistics, &mut Vec::new())
}

fn refuse(findings: &[Finding]) -> Result<(), TrainError> {
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return Err(TrainError::Findings(findings.to_vec()));
    }
    Ok(())
}

fn dimension_names(dataset: &Dataset) -> BTreeMap<String, Vec<String>> {
    let features = [(STATE, dataset.state_feature()), (ACTION, Some(dataset.action_feature()))];
    features
        .into_iter()
        .filter_map(|(name, feature)| Some((name, feature?)))
        .map(|(name, feature)| (name.into(), (0..feature.dimensions()).map(|i| feature.dimension_name(i)).collect()))
        .collect()
}

/// `[3, height, width]` by camera.
fn camera_shapes(dataset: &Dataset) -> BTreeMap<String, [usize; 3]> {
    dataset.cameras().iter().map(|camera| (camera.name.clone(), [3, camera.shape.height, camera.shape.width])).collect()
}

fn processor(
    config: &TrainConfig,
    base: Option<&Checkpoint>,
    arch: &Arch,
    data: &Data,
    statistics: &Statistics,
    findings: &mut Vec<Finding>,
) -> Result<Arc<Processor>, TrainError> {
    let offered: Vec<String> = data.train.cameras().iter().map(|camera| camera.name.clone()).collect();
    // A base that names its cameras was trained on them in that order; one that names none takes the dataset's.
    let slots =
        base.map(|base| base.config.cameras()).filter(|slots| !slots.is_empty()).unwrap_or_else(|| offered.clone());
    findings.extend(match_cameras(&slots, &offered, config.model.empty_cameras)?.findings);
    let (resize, pad) = base.map_or_else(Default::default, |base| {
        let forge = &base.config.vlash_forge;
        (forge.resize, forge.pad)
    });
    let spec = ProcessorSpec {
        kind: arch.kind,
        cameras: slots,
        empty_cameras: config.model.empty_cameras,
        rename: config.data.rename.clone(),
        image: ImageSpec { height: arch.vision.image, width: arch.vision.image, resize, pad },
        state_mode: config.normalization.state,
        action_mode: config.normalization.action,
        state_dim: data.train.state_dim(),
        action_dim: data.train.action_dim(),
        max_state_dim: arch.max_state_dim,
        max_action_dim: arch.max_action_dim,
        chunk_size: arch.chunk_size,
        state_cond: arch.state_cond,
        tokenizer_max_length: config.model.tokenizer_max_length,
        long_prompts: config.data.long_prompts,
        vocab_size: arch.vocab_size,
        tasks: tasks(&data.train),
    };
    Ok(Arc::new(Processor::new(spec, statistics, tokenizer(config, base, findings)?)?))
}

fn tasks(dataset: &Dataset) -> Vec<String> {
    dataset.meta().tasks.iter().map(|(_, text)| text.to_string()).collect()
}

/// `model.tokenizer`, else the base's, else the built-in one of the small presets.
fn tokenizer(
    config: &TrainConfig,
    base: Option<&Checkpoint>,
    findings: &mut Vec<Finding>,
) -> Result<Tokenizer, TrainError> {
    if let Some(directory) = &config.model.tokenizer {
        return Ok(Tokenizer::from_directory(directory)?);
    }
    let beside = base.map(Checkpoint::tokenizer).transpose()?.flatten();
    match (beside, config.model.preset) {
        (Some(tokenizer), _) => Ok(tokenizer),
        (None, Preset::Small | Preset::Tiny) => {
            findings.extend(config.model.base.as_ref().map(|base| Finding {
                severity: Severity::Warning,
                code: "built-in-tokenizer",
                message: format!(
                    "{} has no tokenizer.json: prompts are written with the built-in tokenizer, which the base may not have been trained with",
                    base.display()
                ),
                fix: Some("model.tokenizer = \"DIRECTORY\", where its tokenizer.json is".into()),
            }));
            Ok(Tokenizer::builtin()?)
        }
        (None, Preset::Full) => Err(TrainError::NoTokenizer),
    }
}

/// FF-06: prompts that do not fit, with the longest state that the statistics allow.
fn prompts(processor: &Processor, data: &Data, statistics: &Statistics) -> Result<Option<Finding>, TrainError> {
    let longest: Vec<f32> =
        statistics.get(STATE).map(|s| s.max.iter().map(|&x| x as f32).collect()).unwrap_or_default();
    let finding = prompt_check::check(processor, &data.train.meta().tasks, &longest)?;
    match finding {
        Some(finding) if finding.severity == Severity::Error => Err(TrainError::Findings(vec![finding])),
        other => Ok(other),
    }
}

/// The type of the frozen weights on the device that computes; says which device that is.
fn frozen_dtype(config: &TrainConfig, opened: &Opened, findings: &mut Vec<Finding>) -> DType {
    let mut note = |code, message| {
        findings.push(Finding { severity: Severity::Note, code, message, fix: None });
    };
    if opened.gpu.is_some() || opened.reason.is_some() {
        note("device", format!("computing on {opened}"));
    }
    match config.model.dtype {
        Dtype::Bfloat16 if opened.gpu.is_some() => DType::BF16,
        Dtype::Bfloat16 => {
            note("cpu-f32", "the CPU computes in f32, whatever model.dtype says".into());
            DType::F32
        }
        Dtype::Float32 => DType::F32,
    }
}

fn adapter(
    config: &TrainConfig,
    plan: &Plan,
    modules: &[String],
    source: &dyn WeightSource,
    arch: &Arch,
) -> Result<Option<AdapterExport>, TrainError> {
    if !config.adapter.enabled {
        return Ok(None);
    }
    let name = match &config.model.base {
        Some(base) => base.display().to_string(),
        None => own_base(&resume::directory(config)),
    };
    let peft = PeftConfig::for_plan(&config.adapter, plan, modules, arch.kind, Some((&name, None)))?;
    let base = BaseIdentity { name, revision: None, sha256: identity::digest(source, arch)? };
    Ok(Some(AdapterExport { peft, base }))
}

fn own_base(run: &Path) -> String {
    run.join(OWN_BASE).display().to_string()
}
