//! What a resolved configuration must fulfil as a whole. Pure; what needs files or tensors is checked elsewhere.

use super::train::{NormMode, OptimPreset, PolicyKind, Preset, ScheduleKind, TrainConfig};

/// Something wrong, with the keys that it is about, the first of which is where it is shown.
pub(crate) struct Finding {
    pub keys: Vec<&'static str>,
    pub message: String,
}

/// A key's name in the vocabulary of the file at hand.
pub(crate) type Name<'a> = &'a dyn Fn(&str) -> &'static str;

/// All findings at once.
pub(crate) fn check(config: &TrainConfig, name: Name<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    model(config, name, &mut findings);
    data(config, name, &mut findings);
    recipe(config, name, &mut findings);
    sizes(config, name, &mut findings);
    not_built(config, name, &mut findings);
    findings
}

fn find(findings: &mut Vec<Finding>, wrong: bool, keys: &[&'static str], message: impl FnOnce() -> String) {
    if wrong {
        findings.push(Finding { keys: keys.to_vec(), message: message() });
    }
}

fn model(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    let model = &config.model;
    let (n, chunk) = (model.n_action_steps, model.chunk_size);
    find(findings, n > chunk, &["model.n_action_steps", "model.chunk_size"], || {
        format!("{}: {n} is more than {} = {chunk}", name("model.n_action_steps"), name("model.chunk_size"))
    });
    let side = match model.preset {
        Preset::Full => 224,
        Preset::Small => 112,
        Preset::Tiny => 56,
    };
    let [height, width] = model.image_resolution;
    find(findings, [height, width] != [side, side], &["model.image_resolution", "model.preset"], || {
        let resolution = name("model.image_resolution");
        format!("{resolution}: the vision tower of this size sees [{side}, {side}], not [{height}, {width}]")
    });
    let (min, max) = (model.min_period, model.max_period);
    find(findings, min >= max, &["model.min_period", "model.max_period"], || {
        format!("{}: {min:?} must be below {} = {max:?}", name("model.min_period"), name("model.max_period"))
    });
    let end = model.time_sampling_scale + model.time_sampling_offset;
    find(findings, end > 1.0 + 1e-9, &["model.time_sampling_scale", "model.time_sampling_offset"], || {
        let (scale, offset) = (name("model.time_sampling_scale"), name("model.time_sampling_offset"));
        format!("{scale}: {scale} + {offset} = {end:?} reaches beyond the flow's end at 1")
    });
}

fn data(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    let data = &config.data;
    let nameless = data.repo.is_none() && config.model.preset == Preset::Full;
    find(findings, nameless, &["data.repo"], || {
        let repo = name("data.repo");
        format!(
            "{repo} is not set: the full-size policy needs a dataset (the bundled one is for the presets small and tiny); add {repo}=/path/to/dataset"
        )
    });
    let cameras = data.cameras.as_deref();
    find(findings, cameras.is_some_and(<[_]>::is_empty), &["data.cameras"], || {
        format!("{}: an empty list selects no camera; leave the key out for all", name("data.cameras"))
    });
    for (from, to) in &data.rename {
        let twice = data.rename.iter().any(|(other, target)| other < from && target == to);
        find(findings, twice, &["data.rename"], || {
            format!("{}: two features are renamed to {to}", name("data.rename"))
        });
    }
    let held = config.validation.episodes.as_deref().unwrap_or_default();
    let foreign = data.episodes.as_ref().and_then(|chosen| held.iter().find(|episode| !chosen.contains(episode)));
    find(findings, foreign.is_some(), &["validation.episodes", "data.episodes"], || {
        let episode = foreign.copied().unwrap_or_default();
        format!("{}: episode {episode} is not among {}", name("validation.episodes"), name("data.episodes"))
    });
    let all_held = data.episodes.as_ref().is_some_and(|chosen| chosen.iter().all(|episode| held.contains(episode)));
    find(findings, all_held, &["validation.episodes", "data.episodes"], || {
        format!("{}: every episode is held out, none is left to train on", name("validation.episodes"))
    });
}

fn recipe(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    let (schedule, steps) = (&config.schedule, config.train.steps);
    // A cosine that is longer than the run shrinks with its warm-up; only what remains can be too long.
    let shrinks = schedule.kind == ScheduleKind::CosineDecayWithWarmup && steps < schedule.decay_steps;
    let warms_up = schedule.kind != ScheduleKind::Constant && !shrinks;
    let warmup = schedule.warmup_steps;
    find(findings, warms_up && warmup > steps, &["schedule.warmup_steps", "train.steps"], || {
        format!(
            "{}: {warmup} steps of warm-up in a run of {} = {steps}",
            name("schedule.warmup_steps"),
            name("train.steps")
        )
    });
    let cosine = schedule.kind == ScheduleKind::CosineDecayWithWarmup;
    let decay = schedule.decay_steps;
    find(findings, cosine && warmup > decay, &["schedule.warmup_steps", "schedule.decay_steps"], || {
        let (warmup_steps, decay_steps) = (name("schedule.warmup_steps"), name("schedule.decay_steps"));
        format!("{warmup_steps}: {warmup} is more than {decay_steps} = {decay}, which counts the warm-up")
    });
    let adapter = &config.adapter;
    let idle = adapter.enabled && adapter.targets.is_empty() && adapter.also_train.is_empty();
    find(findings, idle, &["adapter.targets", "adapter.enabled"], || {
        format!(
            "{}: with no target and nothing in {} nothing trains",
            name("adapter.targets"),
            name("adapter.also_train")
        )
    });
    let blank = adapter.also_train.iter().chain(&adapter.targets).any(|part| part.trim().is_empty());
    find(findings, blank, &["adapter.also_train", "adapter.targets"], || {
        format!("{}: a blank name would match every parameter", name("adapter.also_train"))
    });
    shared_observation(config, name, findings);
    let (given, chunk) = (config.train.rtc_max_delay, config.model.chunk_size);
    find(findings, given >= chunk, &["train.rtc_max_delay", "model.chunk_size"], || {
        let (rtc, size) = (name("train.rtc_max_delay"), name("model.chunk_size"));
        format!("{rtc}: with {given} actions given, nothing of a chunk of {size} = {chunk} is left to predict")
    });
    let hub = &config.hub;
    find(findings, hub.push && hub.repo.is_none(), &["hub.push", "hub.repo"], || {
        format!("{}: uploading needs {}=owner/name", name("hub.push"), name("hub.repo"))
    });
}

/// Slips of the keyboard that would ask for more memory than there is anywhere: the most that a key may say lies far
/// above what anyone trains with.
fn sizes(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    let (train, rank) = (&config.train, config.adapter.rank);
    let mut most = |keys: &[&'static str], value: usize, most: usize| {
        find(findings, value > most, keys, || {
            let names: Vec<&str> = keys.iter().map(|key| name(key)).collect();
            format!("{}: {value} is absurdly large, {most} is the most", names.join(" × "))
        });
    };
    let samples = train.batch_size.saturating_mul(train.grad_accum);
    most(&["train.batch_size", "train.grad_accum"], samples, 1 << 20);
    most(&["train.delay.max"], train.delay.max, 1 << 10);
    most(&["model.tokenizer_max_length"], config.model.tokenizer_max_length, 1 << 13);
    if config.adapter.enabled {
        most(&["adapter.rank"], rank, 1 << 12);
    }
}

/// What training all delays over one prefix rests on.
fn shared_observation(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    if !config.train.delay.shared {
        return;
    }
    let shared = name("train.delay.shared");
    find(findings, config.train.delay.max == 0, &["train.delay.shared", "train.delay.max"], || {
        let max = name("train.delay.max");
        format!("{shared}: there is one delay only, {max} = 0; add {max}=8, or set it to false")
    });
    // π₀ carries the state in the suffix.
    let in_prompt = config.model.kind == PolicyKind::Pi05 && !config.model.state_cond;
    find(findings, in_prompt, &["train.delay.shared", "model.state_cond"], || {
        format!(
            "{shared}: the state is part of the prompt, so that every delay has a prefix of its own; add {}=true, or set it to false",
            name("model.state_cond")
        )
    });
}

/// What the configuration can say and this version cannot do. Whoever builds a part removes its line.
fn not_built(config: &TrainConfig, name: Name<'_>, findings: &mut Vec<Finding>) {
    let mut later = |wrong: bool, key: &'static str, says: &str| {
        find(findings, wrong, &[key], || format!("{}: {says}", name(key)));
    };
    later(config.model.kind == PolicyKind::Pi0, "model.kind", "π₀ comes with a later version; pi05 trains today");
    later(
        config.adapter.quantize.is_some(),
        "adapter.quantize",
        "4-bit base weights (QLoRA) come with a later version; leave it out and train LoRA on the full-precision base",
    );
    later(
        config.hub.push,
        "hub.push",
        "the upload comes with a later version; set it to false and upload the checkpoint's pretrained_model/ yourself",
    );
}

/// Settings that mean nothing beside others: the keys to look for, and why.
pub(crate) fn idle(config: &TrainConfig) -> Vec<(&'static [&'static str], &'static str)> {
    let mut idle: Vec<(&'static [&'static str], &'static str)> = Vec::new();
    match config.schedule.kind {
        ScheduleKind::CosineDecayWithWarmup => {}
        ScheduleKind::ConstantWithWarmup => {
            let keys = &["schedule.decay_steps", "schedule.peak_lr", "schedule.decay_lr"];
            idle.push((keys, "the schedule does not decay"));
        }
        ScheduleKind::Constant => idle.push((
            &["schedule.warmup_steps", "schedule.decay_steps", "schedule.peak_lr", "schedule.decay_lr"],
            "the schedule is constant",
        )),
    }
    if !config.adapter.enabled {
        let keys = &["adapter.rank", "adapter.alpha", "adapter.dropout", "adapter.targets", "adapter.also_train"];
        idle.push((keys, "adapters are switched off"));
    }
    if config.train.delay.max == 0 {
        idle.push((&["train.delay.ground_truth"], "the delay augmentation is switched off"));
    }
    if config.validation.episodes.is_some() {
        idle.push((&["validation.fraction"], "the held-out episodes are listed"));
    }
    idle
}

/// Values that are allowed and rarely meant: the key, and what will happen.
pub(crate) fn odd(config: &TrainConfig, name: Name<'_>) -> Vec<(&'static str, String)> {
    let mut odd = Vec::new();
    if config.schedule.kind != ScheduleKind::CosineDecayWithWarmup {
        return odd;
    }
    let (lr, peak, end) = (config.optim.lr, config.schedule.peak_lr, config.schedule.decay_lr);
    let (lr_name, peak_name, end_name) = (name("optim.lr"), name("schedule.peak_lr"), name("schedule.decay_lr"));
    if lr != peak {
        let says = format!(
            "{peak_name} = {peak:?} differs from {lr_name} = {lr:?}: as in LeRobot the learning rate rises to \
             {lr_name} and falls to {lr_name} · {end_name} / {peak_name}"
        );
        odd.push(("schedule.peak_lr", says));
    }
    if end > peak {
        let says = format!("{end_name} = {end:?} is above {peak_name} = {peak:?}: the learning rate rises to the end");
        odd.push(("schedule.decay_lr", says));
    }
    odd
}

/// What holds although nobody said so, where a predecessor's user may expect otherwise; by the key that is silent.
pub(crate) fn silent(config: &TrainConfig) -> Vec<(&'static str, &'static str)> {
    let mut silent = Vec::new();
    if config.normalization.state == NormMode::MeanStd && config.normalization.action == NormMode::MeanStd {
        let says = "states and actions are scaled by MEAN_STD, as VLASH does (LeRobot's π₀.₅ and our TOML: QUANTILES)";
        silent.push(("normalization.state", says));
    }
    if config.optim.preset == OptimPreset::None {
        let says = "gradients are clipped as under the predecessors' backend: at 1.0 (DeepSpeed, the default), at 10 with TRAIN_BACKEND=fsdp";
        silent.push(("optim.grad_clip_norm", says));
    }
    silent.push(("hub.push", "nothing is uploaded (LeRobot's default is to push)"));
    silent
}
