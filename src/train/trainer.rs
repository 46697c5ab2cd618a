//! The loop over optimizer steps, and what can interrupt it between two of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::adamw::AdamW;
use super::checkpoint::state::{self, TrainerState};
use super::checkpoint::store::{Saved, Store};
use super::checkpoint::{PRETRAINED_MODEL, TRAINING_STATE};
use super::clip;
use super::compute::Compute;
use super::error::TrainError;
use super::export::Exporter;
use super::feed::{Fed, Feed};
use super::first_step;
use super::memory;
use super::meter::{ByDelay, Meter, StepCost};
use super::out_of_memory::{Doing, OutOfMemory, exhausted};
use super::schedule::Schedule;
use super::signals::StopFlag;
use super::validate::Validator;
use crate::config::train::TrainConfig;
use crate::device;
use crate::plan::Report;
use crate::policy::batch::Draw;
use crate::policy::flow::{self, TimeSampling};
use crate::policy::{Policy, StepOptions};
use crate::random;
use crate::track::control::{self, Command, Request};
use crate::track::event::{Body, GpuMemory, Level, StepMetrics, ValidationMetrics};
use crate::track::recorder::Recorder;
use crate::track::status::State;

/// How often a paused trainer looks into its inbox.
const PAUSE_POLL: Duration = Duration::from_millis(200);
/// How long the end of a run waits between two tries to write its last checkpoint.
const FINAL_RETRY: Duration = Duration::from_secs(10);

/// How a run ended without an error.
#[derive(Debug, Clone, PartialEq)]
pub enum Ending {
    Finished,
    /// All steps had been done by an earlier process; nothing was trained.
    AlreadyDone,
    /// On request or by a signal, with a checkpoint: resumable.
    Stopped {
        reason: String,
    },
}

/// Everything that a step needs.
pub struct Trainer<'a> {
    pub config: &'a TrainConfig,
    pub policy: &'a Policy,
    /// What the run was expected to need.
    pub plan: &'a Report,
    pub compute: Box<dyn Compute>,
    /// What an error is an error of.
    pub doing: Doing,
    pub exporter: &'a Exporter,
    pub optimizer: AdamW,
    pub schedule: Schedule,
    pub time_sampling: TimeSampling,
    pub feed: Feed,
    pub validator: Option<Validator>,
    pub store: Store,
    pub run: &'a Path,
    /// Root of the dataset, for messages.
    pub dataset: &'a Path,
    pub stop: StopFlag,
    pub state: TrainerState,
    /// Frames of an epoch.
    pub epoch_len: usize,
    pub meter: Meter,
    /// The newest complete checkpoint, and the step it holds.
    pub last_saved: Option<Saved>,
    pub stop_requested: bool,
    pub paused: bool,
    /// The gradient check ran in this process.
    pub checked: bool,
    /// Held-out losses before the first step of this process and the newest ones.
    pub first_validation: Option<ValidationMetrics>,
    pub last_validation: Option<ValidationMetrics>,
}

impl Trainer<'_> {
    /// Trains until the configured step, a stop, or an error. A device without memory leaves a run that can go on.
    pub fn run(&mut self, recorder: &mut Recorder) -> Result<Ending, TrainError> {
        // What the failed step had made is gone when its error is here: graph, gradients, batch.
        self.train(recorder).map_err(|error| match exhausted(error) {
            Ok(source) => self.out_of_memory(recorder, source),
            Err(error) => error,
        })
    }

    fn train(&mut self, recorder: &mut Recorder) -> Result<Ending, TrainError> {
        let steps = self.config.train.steps as u64;
        self.validate(recorder)?;
        recorder.update(|status| (status.state, status.doing) = (State::Running, None));
        while self.state.step < steps {
            self.serve(recorder)?;
            if let Some(reason) = self.stop_reason() {
                return self.stop(recorder, reason);
            }
            self.step(recorder)?;
            self.report(recorder);
            if self.due(self.config.validation.every) && self.state.step < steps {
                self.validate(recorder)?;
            }
            if self.config.checkpoint.enabled && self.due(self.config.checkpoint.every) && self.state.step < steps {
                self.save(recorder);
            }
        }
        self.validate(recorder)?;
        self.save_at_last(recorder)?;
        Ok(Ending::Finished)
    }

    fn due(&self, every: usize) -> bool {
        every > 0 && self.state.step.is_multiple_of(every as u64)
    }

    /// One optimizer step: G micro-steps, clipping, update.
    fn step(&mut self, recorder: &mut Recorder) -> Result<(), TrainError> {
        let mut cost = StepCost { by_delay: ByDelay::up_to(self.config.train.delay.max), ..StepCost::default() };
        let mut indices = Vec::new();
        self.doing = Doing::Gradients;
        let gradients = self.accumulate(&mut cost, &mut indices)?;
        let begun = Instant::now();
        if !cost.loss.is_finite() {
            return Err(self.non_finite(recorder, cost.loss, indices));
        }
        if !self.checked {
            first_step::check(&self.policy.first_gradients(), &gradients)?;
            self.checked = true;
        }
        let clip = match clip::clip(&gradients, self.config.optim.grad_clip_norm) {
            Ok(clip) => clip,
            Err(error) => {
                let checkpoint = self.save_before_failing(recorder);
                recorder.notice(
                    Level::Error,
                    format!(
                        "step {}: {error}; dataset frames {indices:?}; state saved: {checkpoint:?}",
                        self.state.step + 1
                    ),
                );
                return Err(error.into());
            }
        };
        self.doing = Doing::Update;
        self.optimizer.step(&gradients, self.schedule.lr(self.state.step), clip.coefficient)?;
        cost.optimizer_s = begun.elapsed().as_secs_f64();
        cost.grad_norm = clip.norm;
        self.state.step += 1;
        self.state.samples += cost.samples;
        self.meter.add(&cost);
        Ok(())
    }

    fn accumulate(
        &mut self,
        cost: &mut StepCost,
        indices: &mut Vec<usize>,
    ) -> Result<BTreeMap<String, Tensor>, TrainError> {
        let micro_steps = self.config.train.grad_accum;
        let scale = 1.0 / micro_steps as f64;
        let mut total: BTreeMap<String, Tensor> = BTreeMap::new();
        for micro in 0..micro_steps as u64 {
            let begun = Instant::now();
            let fed = self.feed.next_batch()?;
            cost.data_s += begun.elapsed().as_secs_f64();
            let draw = self.draw(&fed, micro)?;
            let options = StepOptions {
                parity: self.config.loss.parity,
                recompute: self.config.train.activation_checkpointing,
                dropout_key: self.dropout_key(micro),
                loss_scale: scale,
            };
            let output = self.compute.gradients(self.policy, &fed.batch, &fed.targets, &draw, &options)?;
            cost.loss += output.loss * scale;
            cost.loss_valid += output.loss_valid * scale;
            cost.forward_s += output.forward_s;
            cost.backward_s += output.backward_s;
            cost.samples += fed.indices.len() as u64;
            cost.chunks += fed.delays.len() as u64;
            cost.by_delay.add(&fed.delays, &output.rows);
            indices.extend(fed.indices);
            add(&mut total, output.gradients)?;
        }
        Ok(total)
    }

    fn draw(&self, fed: &Fed, micro: u64) -> candle_core::Result<Draw> {
        let shape: [usize; 3] = fed.targets.actions.dims3()?.into();
        let (seed, at) = (self.config.run.seed, [self.state.step, micro]);
        let draw = flow::draw(seed, at, shape, &self.time_sampling, fed.targets.actions.device())?;
        flow::give_prefix(draw, seed, at, self.config.train.rtc_max_delay)
    }

    fn dropout_key(&self, micro: u64) -> Option<u64> {
        use rand::RngCore;
        let wanted = self.config.adapter.enabled && self.config.adapter.dropout > 0.0;
        wanted.then(|| random::stream(self.config.run.seed, "dropout", &[self.state.step, micro]).next_u64())
    }

    fn non_finite(&mut self, recorder: &mut Recorder, loss: f64, indices: Vec<usize>) -> TrainError {
        let checkpoint = self.save_before_failing(recorder);
        let dataset = self.dataset.to_path_buf();
        TrainError::NonFinite { step: self.state.step + 1, loss, indices, dataset, checkpoint }
    }

    /// The weights are still those before the failing step: worth keeping, if they are not saved yet.
    fn save_before_failing(&mut self, recorder: &mut Recorder) -> Option<String> {
        if self.state.step > 0 && self.config.checkpoint.enabled {
            self.save(recorder);
        }
        self.last_saved.as_ref().map(|saved| saved.path.display().to_string())
    }

    fn out_of_memory(&mut self, recorder: &mut Recorder, source: candle_core::Error) -> TrainError {
        let device = device::memory::read(self.policy.device()).map(|memory| (memory.used, memory.total));
        // After a failed update the masters belong to no step.
        let checkpoint = match self.doing {
            Doing::Update => self.last_saved.as_ref().map(|saved| saved.path.display().to_string()),
            Doing::Gradients | Doing::Validation => self.save_before_failing(recorder),
        };
        let whole = self.last_saved.as_ref().is_some_and(|saved| saved.step == self.state.step);
        TrainError::OutOfMemory(Box::new(OutOfMemory {
            step: self.state.step + 1,
            rank: 0,
            ranks: 1,
            batch: self.config.train.batch_size,
            doing: self.doing,
            device,
            checkpoint,
            whole,
            plan: self.plan.clone(),
            source,
        }))
    }

    fn report(&mut self, recorder: &mut Recorder) {
        let step = self.state.step;
        let every = self.config.log.every.max(1) as u64;
        let last = step == self.config.train.steps as u64;
        let first = step == 1;
        recorder.update(|status| status.step = step);
        if !(step.is_multiple_of(every) || last || first) {
            return;
        }
        if let Some(means) = self.meter.take() {
            let metrics = StepMetrics {
                step,
                lr: self.schedule.lr(step - 1),
                epoch: self.state.samples as f64 / self.epoch_len.max(1) as f64,
                samples: self.state.samples,
                memory_bytes: memory::peak_resident_bytes(),
                gpu_memory: device::memory::read(self.policy.device()).map(|memory| GpuMemory {
                    used: memory.used,
                    peak: memory.peak,
                    total: memory.total,
                }),
                ..means
            };
            let left = self.config.train.steps as u64 - step;
            recorder.update(|status| {
                status.loss = Some(metrics.loss);
                status.lr = Some(metrics.lr);
                status.samples_per_s = Some(metrics.samples_per_s);
                status.eta_s = Some(left as f64 * metrics.step_s);
            });
            recorder.emit(Body::Step(metrics));
        }
    }

    fn validate(&mut self, recorder: &mut Recorder) -> Result<Option<ValidationMetrics>, TrainError> {
        let Some(validator) = &self.validator else { return Ok(None) };
        let begun = Instant::now();
        self.doing = Doing::Validation;
        recorder.update(|status| status.doing = Some("validating".into()));
        let metrics = validator.measure(self.policy, self.state.step)?;
        recorder.emit(Body::Validation(metrics.clone()));
        self.first_validation.get_or_insert_with(|| metrics.clone());
        self.last_validation = Some(metrics.clone());
        recorder.update(|status| status.doing = None);
        self.meter.exclude(begun.elapsed());
        Ok(Some(metrics))
    }

    /// Carries out what lies in the inbox; holds here while paused.
    fn serve(&mut self, recorder: &mut Recorder) -> Result<(), TrainError> {
        let begun = Instant::now();
        let mut held = false;
        loop {
            for request in control::take(self.run) {
                match request {
                    Ok(request) => self.obey(recorder, request)?,
                    Err(reason) => recorder.notice(Level::Warn, reason),
                }
            }
            if !self.paused || self.stop_reason().is_some() {
                break;
            }
            held = true;
            recorder.update(|status| status.state = State::Paused);
            std::thread::sleep(PAUSE_POLL);
        }
        if held {
            self.meter.exclude(begun.elapsed());
            recorder.update(|status| status.state = State::Running);
        }
        Ok(())
    }

    fn obey(&mut self, recorder: &mut Recorder, request: Request) -> Result<(), TrainError> {
        let (id, step, command) = (request.id, self.state.step, request.command.name().to_string());
        recorder.emit(Body::CommandSeen { id: id.clone(), command: command.clone(), step });
        let answer = match request.command {
            Command::Pause => {
                self.paused = true;
                Ok("holding; memory and devices stay allocated".into())
            }
            Command::Resume => {
                self.paused = false;
                Ok("going on".into())
            }
            Command::Checkpoint => self
                .save(recorder)
                .map(|saved| saved.path.display().to_string())
                .ok_or("the checkpoint could not be written".into()),
            Command::Stop => {
                self.stop_requested = true;
                Ok("saving, then leaving".into())
            }
            Command::SetLearningRate { lr } if lr.is_finite() && lr > 0.0 => {
                self.schedule.rescale(step, lr);
                self.state.schedule_multiplier = self.schedule.multiplier();
                Ok(format!("lr {lr:.3e} from step {} on (schedule × {:.4})", step + 1, self.schedule.multiplier()))
            }
            Command::SetLearningRate { lr } => Err(format!("{lr} is not a positive learning rate")),
            Command::Evaluate => match self.validate(recorder)? {
                Some(metrics) => Ok(format!("loss {:.4}", metrics.loss)),
                None => Err("this run has no held-out episodes (validation.fraction, validation.episodes)".into()),
            },
        };
        recorder.emit(match answer {
            Ok(detail) => Body::CommandDone { id, command, step, detail },
            Err(reason) => Body::CommandRefused { id, command, step, reason },
        });
        Ok(())
    }

    fn stop_reason(&self) -> Option<String> {
        if self.stop.is_raised() {
            Some(self.stop.name().to_string())
        } else {
            self.stop_requested.then(|| "stop requested".to_string())
        }
    }

    fn stop(&mut self, recorder: &mut Recorder, reason: String) -> Result<Ending, TrainError> {
        recorder.update(|status| status.state = State::Stopping);
        recorder.notice(Level::Info, format!("{reason}: step {} finished, saving", self.state.step));
        self.save_at_last(recorder)?;
        Ok(Ending::Stopped { reason })
    }

    /// Writes a checkpoint of the present step, unless it is there already. A failure is reported and training goes on.
    fn save(&mut self, recorder: &mut Recorder) -> Option<Saved> {
        if let Some(saved) = self.last_saved.as_ref().filter(|saved| saved.step == self.state.step) {
            return Some(saved.clone());
        }
        let begun = Instant::now();
        recorder.update(|status| status.doing = Some("writing a checkpoint".into()));
        let result = self.write();
        recorder.update(|status| status.doing = None);
        self.meter.exclude(begun.elapsed());
        match result {
            Ok(saved) => {
                self.announce(recorder, &saved, begun.elapsed());
                self.last_saved = Some(saved.clone());
                if let Err(error) = self.store.prune(&self.config.checkpoint) {
                    recorder.notice(Level::Warn, format!("an old checkpoint could not be removed: {error}"));
                }
                Some(saved)
            }
            Err(reason) => {
                recorder.emit(Body::CheckpointFailed {
                    step: self.state.step,
                    reason,
                    last_good: self.last_saved.as_ref().map(|saved| saved.path.display().to_string()),
                    next_step: self.next_save(),
                });
                None
            }
        }
    }

    fn next_save(&self) -> u64 {
        let every = self.config.checkpoint.every as u64;
        let steps = self.config.train.steps as u64;
        self.state.step.checked_div(every).map_or(steps, |done| ((done + 1) * every).min(steps))
    }

    fn write(&self) -> Result<Saved, String> {
        let width = self.config.train.steps.to_string().len().max(6);
        let fill = |directory: &Path| {
            let (model, training) = (directory.join(PRETRAINED_MODEL), directory.join(TRAINING_STATE));
            std::fs::create_dir(&model)?;
            std::fs::create_dir(&training)?;
            self.exporter
                .write(self.policy, &model)
                .and_then(|()| state::write(&training, &self.state, &self.optimizer))
                .map_err(|error| std::io::Error::other(crate::error::Failure::from(error).message()))
        };
        self.store.save(self.state.step, width, fill).map_err(|error| error.to_string())
    }

    fn announce(&self, recorder: &mut Recorder, saved: &Saved, took: Duration) {
        let path = saved.path.strip_prefix(self.run).unwrap_or(&saved.path).display().to_string();
        recorder.update(|status| status.checkpoint = Some(path.clone()));
        recorder.emit(Body::Checkpoint { step: saved.step, path, bytes: saved.bytes, seconds: took.as_secs_f64() });
    }

    /// The last checkpoint of a run is not given up for a full disk or a file system that is away for a while: tries again
    /// until it can be written, or a signal says otherwise. The cause is an event of [`Self::save`] each time.
    fn save_at_last(&mut self, recorder: &mut Recorder) -> Result<(), TrainError> {
        if !self.config.checkpoint.enabled {
            recorder.notice(Level::Warn, "checkpoint.enabled is false: nothing of this run is saved");
            return Ok(());
        }
        while self.save(recorder).is_none() {
            if self.stop.is_raised() {
                let source = std::io::Error::other("the last checkpoint could not be written before the stop");
                return Err(TrainError::Io { action: "write a checkpoint below", path: self.run.into(), source });
            }
            recorder.notice(
                Level::Error,
                format!(
                    "the last checkpoint waits until it can be written below {}: next try in {} s; Ctrl-C gives it up",
                    self.run.display(),
                    FINAL_RETRY.as_secs()
                ),
            );
            std::thread::sleep(FINAL_RETRY);
        }
        Ok(())
    }
}

/// Adds the gradients of another micro-step.
pub(crate) fn add(
    total: &mut BTreeMap<String, Tensor>,
    gradients: BTreeMap<String, Tensor>,
) -> candle_core::Result<()> {
    for (name, gradient) in gradients {
        let sum = match total.get(&name) {
            Some(so_far) => (so_far + gradient)?,
            None => gradient,
        };
        total.insert(name, sum);
    }
    Ok(())
}
