//! One run from its configuration to its last checkpoint.

use std::path::{Path, PathBuf};

use super::adamw::{AdamW, Settings};
use super::checkpoint::TRAINING_STATE;
use super::checkpoint::state::{self, TrainerState};
use super::checkpoint::store::{Saved, Store};
use super::compute::Compute;
use super::disk;
use super::error::TrainError;
use super::feed::Feed;
use super::meter::Meter;
use super::out_of_memory::Doing;
use super::prepare::model::OWN_BASE;
use super::prepare::{self, Session};
use super::resume::{self, Decision};
use super::schedule::Schedule;
use super::signals::StopFlag;
use super::trainer::{Ending, Trainer};
use super::validate::Validator;
use crate::config::train::TrainConfig;
use crate::dataset::finding::Severity;
use crate::dataset::loader::LoaderOptions;
use crate::dataset::order::Order;
use crate::files;
use crate::track::event::{Body, Level, Outcome, ValidationMetrics};
use crate::track::recorder::{Listener, Recorder};
use crate::track::run_dir::{CHECKPOINTS, LOGS, RunDir, RunDirError, RunRecord};
use crate::track::status::{State, Status};

/// Batches that are prepared ahead for each loader thread.
const PREFETCH: usize = 2;

/// What was asked for.
pub struct Request<'a> {
    pub config: &'a TrainConfig,
    /// What reading the configuration found worth saying.
    pub notes: Vec<String>,
    /// The command line, for the record.
    pub command: Vec<String>,
    /// Continue although the configuration differs in ways that change the numbers.
    pub accept_changes: bool,
    /// Try a run that the planner says does not fit.
    pub ignore_plan: bool,
    pub compute: Box<dyn Compute>,
    pub listener: Box<dyn Listener>,
}

/// How it ended.
#[derive(Debug)]
pub struct Report {
    pub ending: Ending,
    pub run: PathBuf,
    /// The newest complete checkpoint.
    pub checkpoint: Option<Saved>,
    /// Held-out losses before the first step of this process and after its last.
    pub before: Option<ValidationMetrics>,
    pub after: Option<ValidationMetrics>,
}

/// Checks everything that can be checked without training.
pub fn check(config: &TrainConfig, accept_changes: bool, ignore_plan: bool) -> Result<Session, TrainError> {
    resume::decide(&resume::directory(config), config, accept_changes)?;
    prepare::session(config, ignore_plan)
}

/// Trains, or continues to train, what `request` describes.
pub fn run(request: Request<'_>) -> Result<Report, TrainError> {
    let stop = StopFlag::install().map_err(|source| TrainError::Io {
        action: "install signal handlers for",
        path: PathBuf::new(),
        source,
    })?;
    let config = request.config;
    let path = resume::directory(config);
    let decision = resume::decide(&path, config, request.accept_changes)?;
    if let Decision::Finished { last } = decision {
        return Ok(Report {
            ending: Ending::AlreadyDone,
            run: path,
            checkpoint: Some(last),
            before: None,
            after: None,
        });
    }
    let session = prepare::session(config, request.ignore_plan)?;
    let record = record(&request)?;
    let directory = RunDir::open(&path, &record)?;
    directory.create(&[CHECKPOINTS, LOGS])?;
    let store = Store::new(directory.checkpoints());
    probe_disk(config, &session, &directory)?;
    keep_own_base(&session, directory.path(), matches!(decision, Decision::Start { .. }))?;
    let mut optimizer = optimizer(config, &session)?;
    let state = restore(&decision, config, &mut optimizer)?;
    let status = status(config, &state, &decision);
    let mut recorder = Recorder::open(&path, status, request.listener).map_err(|source| TrainError::Io {
        action: "write events below",
        path: path.clone(),
        source,
    })?;
    let words = "a second signal: left at once; steps since the last checkpoint are lost";
    match recorder.last_words(words) {
        Ok(say) => stop.before_leaving(say),
        Err(error) => recorder.notice(Level::Warn, format!("a second signal will leave no trace: {error}")),
    }
    announce(&mut recorder, &request.notes, &session, &decision, &state, config);
    if !decision.changes().is_empty() {
        directory.rewrite(&record)?;
    }
    let result =
        train(config, &session, request.compute, optimizer, state, &directory, &store, stop, &decision, &mut recorder);
    conclude(recorder, result)
}

/// Whether the checkpoints of the run will fit, before anything is written.
fn probe_disk(config: &TrainConfig, session: &Session, directory: &RunDir) -> Result<(), TrainError> {
    if !config.checkpoint.enabled {
        return Ok(());
    }
    // One more than are kept: the new one is written before the oldest goes.
    let copies = if config.checkpoint.keep_last == 0 { 2 } else { config.checkpoint.keep_last as u64 + 1 };
    let needed = session.model.checkpoint_bytes() * copies;
    disk::probe(&directory.checkpoints(), needed).map_err(|source| TrainError::Disk {
        path: directory.checkpoints(),
        needed,
        source,
    })
}

/// An adapter is worth nothing without its base: a run that drew its base at random writes it beside its checkpoints.
/// Called while the policy still holds its first weights. At the `start` of a run, one that an earlier try left is
/// replaced: it may be of another seed or size.
fn keep_own_base(session: &Session, run: &Path, start: bool) -> Result<(), TrainError> {
    let place = run.join(OWN_BASE);
    let io_error = |source| TrainError::Io { action: "write the random base", path: place.clone(), source };
    if start && place.exists() {
        std::fs::remove_dir_all(&place).map_err(io_error)?;
    }
    let model = &session.model;
    if !model.random_base || model.exporter.adapter.is_none() || place.exists() {
        return Ok(());
    }
    let temporary = files::temporary_beside(&place);
    model.exporter.write_base(&model.policy, &temporary)?;
    std::fs::rename(&temporary, &place).map_err(io_error)
}

fn record(request: &Request<'_>) -> Result<RunRecord, TrainError> {
    Ok(RunRecord {
        format: 1,
        name: request.config.run.name.clone(),
        created: crate::track::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        host: crate::track::host(),
        command: request.command.clone(),
        config: resume::to_value(request.config)?,
    })
}

fn optimizer(config: &TrainConfig, session: &Session) -> Result<AdamW, TrainError> {
    let parameters = session.model.policy.trained().iter().map(|t| (t.name.clone(), t.var.clone()));
    Ok(AdamW::new(parameters, Settings::from(&config.optim))?)
}

fn restore(decision: &Decision, config: &TrainConfig, optimizer: &mut AdamW) -> Result<TrainerState, TrainError> {
    let steps = config.train.steps as u64;
    match decision {
        Decision::Continue { from, changes, .. } => {
            let mut state = state::restore(&from.path.join(TRAINING_STATE), optimizer)?;
            // The schedule follows a new number of steps only when asked: by a change of the schedule itself.
            if changes.iter().any(|change| change.key.starts_with("schedule.")) {
                state.schedule_steps = steps;
            }
            Ok(state)
        }
        Decision::Start { .. } | Decision::Finished { .. } => {
            Ok(TrainerState { format: 1, step: 0, samples: 0, schedule_multiplier: 1.0, schedule_steps: steps })
        }
    }
}

/// FF-15: says when the learning rate does not stretch or shrink with the number of steps.
fn schedule_note(config: &TrainConfig, state: &TrainerState) -> Option<String> {
    let fitted = |steps: usize| Schedule::new(&config.schedule, config.optim.lr, steps).fitted();
    let begun = state.schedule_steps as usize;
    let steps = config.train.steps;
    (fitted(begun) != fitted(steps)).then(|| {
        format!(
            "the learning rate keeps the schedule of {begun} steps that the run began with; to fit it to {steps}: \
             schedule.decay_steps={steps} --accept-changes"
        )
    })
}

fn status(config: &TrainConfig, state: &TrainerState, decision: &Decision) -> Status {
    let now = crate::track::now();
    Status {
        state: State::Starting,
        name: config.run.name.clone(),
        step: state.step,
        steps: config.train.steps as u64,
        heartbeat: now,
        started: now,
        pid: std::process::id(),
        host: crate::track::host(),
        loss: None,
        lr: None,
        samples_per_s: None,
        eta_s: None,
        checkpoint: match decision {
            Decision::Continue { from, .. } => Some(format!("checkpoints/{}", name_of(&from.path))),
            _ => None,
        },
        doing: Some("preparing".into()),
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The first events: who runs what, from which weights, and what a person should know before it costs time.
fn announce(
    recorder: &mut Recorder,
    notes: &[String],
    session: &Session,
    decision: &Decision,
    state: &TrainerState,
    config: &TrainConfig,
) {
    let resumed_from = match decision {
        Decision::Continue { from, .. } => Some(format!("checkpoints/{}", name_of(&from.path))),
        _ => None,
    };
    recorder.emit(Body::Started {
        step: state.step,
        steps: config.train.steps as u64,
        pid: std::process::id(),
        host: crate::track::host(),
        version: env!("CARGO_PKG_VERSION").into(),
        resumed_from,
    });
    for note in notes {
        recorder.notice(Level::Info, note.clone());
    }
    if let Decision::Continue { damaged, .. } = decision {
        for line in damaged {
            recorder.notice(Level::Warn, format!("{line}; continuing from the one before"));
        }
    }
    for change in decision.changes() {
        recorder.notice(Level::Info, format!("configuration changed: {change}"));
    }
    if let Some(note) = schedule_note(config, state) {
        recorder.notice(Level::Info, note);
    }
    for finding in session.data.findings.iter().chain(&session.model.findings) {
        let level = if finding.severity == Severity::Note { Level::Info } else { Level::Warn };
        let fix = finding.fix.as_ref().map_or(String::new(), |fix| format!(" (fix: {fix})"));
        recorder.notice(level, format!("{}{fix}", finding.message));
    }
    recorder.emit(Body::Weights {
        account: session.model.account.clone(),
        parameters: session.model.parameters,
        trained: session.model.trained,
    });
}

/// Puts the loop together and runs it.
#[expect(clippy::too_many_arguments, reason = "the one place where everything of a run meets")]
fn train(
    config: &TrainConfig,
    session: &Session,
    compute: Box<dyn Compute>,
    optimizer: AdamW,
    state: TrainerState,
    directory: &RunDir,
    store: &Store,
    stop: StopFlag,
    decision: &Decision,
    recorder: &mut Recorder,
) -> Result<Report, TrainError> {
    let model = &session.model;
    let seed = config.run.seed;
    let order = Order::shuffled(seed, session.data.train.len());
    let start = order.cursor(state.samples);
    let epoch_len = session.data.train.len();
    let options = LoaderOptions {
        batch_size: config.train.batch_size,
        workers: config.data.workers,
        prefetch: PREFETCH * config.data.workers.max(1),
        window: session.data.window,
        delays: prepare::delays(config),
        start,
        notice: recorder.waiting(),
    };
    let feed = Feed::new(
        session.data.train.clone(),
        order,
        options,
        model.processor.clone(),
        config.data.augment.clone(),
        seed,
        model.device.clone(),
    )?;
    let validator = match &session.data.held_out {
        Some(held_out) if config.validation.batches > 0 => {
            Some(Validator::new(held_out, &session.data.window, &model.processor, config)?)
        }
        _ => None,
    };
    let mut schedule = Schedule::new(&config.schedule, config.optim.lr, state.schedule_steps as usize);
    schedule.set_multiplier(state.schedule_multiplier);
    let mut trainer = Trainer {
        config,
        policy: &model.policy,
        plan: &session.plan,
        compute,
        doing: Doing::Validation,
        exporter: &model.exporter,
        optimizer,
        schedule,
        time_sampling: prepare::time_sampling(config),
        feed,
        validator,
        store: store.clone(),
        run: directory.path(),
        dataset: &session.data.root,
        stop,
        state,
        epoch_len,
        meter: Meter::default(),
        last_saved: match decision {
            Decision::Continue { from, .. } => Some(from.clone()),
            _ => None,
        },
        stop_requested: false,
        paused: false,
        checked: false,
        first_validation: None,
        last_validation: None,
    };
    let ending = trainer.run(recorder)?;
    if !directory.is_intact() {
        let checkpoint = trainer.last_saved.map(|saved| saved.path).filter(|path| path.exists());
        return Err(RunDirError::Vanished { path: directory.path().into(), checkpoint }.into());
    }
    Ok(Report {
        ending,
        run: directory.path().into(),
        checkpoint: trainer.last_saved,
        before: trainer.first_validation,
        // One from before the last step says nothing about how the run ended.
        after: trainer.last_validation.filter(|validation| validation.step == trainer.state.step),
    })
}

/// The last event and status, whatever happened.
fn conclude(mut recorder: Recorder, result: Result<Report, TrainError>) -> Result<Report, TrainError> {
    let status = recorder.status();
    let (step, checkpoint) = (status.step, status.checkpoint);
    match result {
        Ok(report) => {
            let (state, outcome) = match &report.ending {
                Ending::Finished | Ending::AlreadyDone => (State::Finished, Outcome::Finished),
                Ending::Stopped { .. } => (State::Stopped, Outcome::Stopped),
            };
            let detail = match &report.ending {
                Ending::Stopped { reason } => reason.clone(),
                _ => String::new(),
            };
            recorder.emit(Body::Ended { step, outcome, detail, checkpoint });
            recorder.finish(state);
            Ok(report)
        }
        Err(error) => {
            recorder.emit(Body::Ended { step, outcome: Outcome::Failed, detail: error.to_string(), checkpoint });
            recorder.finish(State::Failed);
            Err(error)
        }
    }
}
