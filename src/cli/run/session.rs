//! Runs episodes in this process and leaves their report.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use super::settings;
use super::witness::{self, Ear};
use crate::cli::output::tell;
use crate::config::run::RunConfig;
use crate::error::{Explain, Failure, Kind};
use crate::files;
use crate::realtime::boxed;
use crate::realtime::control::{self, Core, End, Hooks, Progress, Rejected, RolloutSettings, RolloutSummary};
use crate::realtime::loaded::{LoadOptions, LoadedPolicy};
use crate::realtime::policy::ChunkPolicy;
use crate::realtime::report::{self, Episode, Report, Trace};
use crate::realtime::telemetry::{Record, Telemetry, TelemetrySettings};
use crate::robot::Robot;
use crate::robot::clock::Clock;
use crate::robot::sim::fault::Fault;
use crate::robot::sim::{Outcome, Setup, SimRobot, TASK, Variant};
use crate::track::run_dir::{RunDir, RunRecord};
use crate::track::steering;
use crate::track::telemetry::{Hello, Message, Steer, TELEMETRY_FILE};
use crate::train::signals::StopFlag;

/// Version of `run.json` and `report.json`.
const FORMAT: u32 = 1;

/// A rollout that did not end by itself.
#[derive(Debug, thiserror::Error)]
enum SessionError {
    #[error("the rollout ended: {0}")]
    Fault(String),
    #[error("signals cannot be caught")]
    Signals(#[source] io::Error),
    #[error("cannot read {}", path.display())]
    Telemetry { path: PathBuf, source: io::Error },
    #[error("telemetry.listen: cannot resolve {0}")]
    Address(String),
    #[error("cannot keep the rejected chunk in {}", path.display())]
    Rejects { path: PathBuf, source: io::Error },
}

impl Explain for SessionError {
    fn kind(&self) -> Kind {
        match self {
            SessionError::Address(_) => Kind::Input,
            _ => Kind::Environment,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            SessionError::Address(_) => Some("telemetry.listen=127.0.0.1:0".into()),
            _ => None,
        }
    }
}

/// Everything that has to be there before an arm moves.
struct Session<'a> {
    config: &'a RunConfig,
    policy: LoadedPolicy,
    faults: Vec<Fault>,
    task: Arc<str>,
    clock: Clock,
}

impl<'a> Session<'a> {
    fn prepare(config: &'a RunConfig) -> Result<Session<'a>, Failure> {
        let faults: Result<Vec<Fault>, _> = config.robot.faults.iter().map(|text| text.parse()).collect();
        let options = LoadOptions {
            device: config.policy.device,
            steps: config.policy.num_steps,
            cameras: config.policy.cameras.clone(),
        };
        let policy = match &config.policy.path {
            Some(path) => LoadedPolicy::open(path, &options)?,
            None => boxed::open(&options)?,
        };
        let task = config.task.as_deref().unwrap_or(TASK).into();
        Ok(Session { config, policy, faults: faults?, task, clock: Clock::monotonic() })
    }

    fn robot(&self, seed: u64) -> SimRobot {
        let variant =
            if self.config.robot.variant == Variant::Moving.name() { Variant::Moving } else { Variant::Static };
        SimRobot::new(&Setup { variant, seed }, &self.clock, &self.faults)
    }

    fn settings(&self, robot: &SimRobot, seed: u64) -> Result<RolloutSettings, Failure> {
        Ok(settings::rollout(self.config, self.policy.facts(), robot.features(), &self.task, seed)?)
    }

    /// Whether everything fits together, before anything is powered.
    fn fits(&self) -> Result<RolloutSettings, Failure> {
        let seed = self.config.robot.seed;
        let robot = self.robot(seed);
        let settings = self.settings(&robot, seed)?;
        Core::new(settings.control.clone(), self.policy.facts(), robot.features(), robot.limits())?;
        Ok(settings)
    }

    fn hello(&self, settings: &RolloutSettings) -> Hello {
        let robot = self.robot(self.config.robot.seed);
        let facts = self.policy.facts();
        Hello {
            robot: robot.features().robot_type.clone(),
            policy: policy_name(self.config),
            task: self.task.to_string(),
            fps: self.config.control.fps,
            joints: robot.features().joints.clone(),
            limits: robot.limits().position.clone(),
            cameras: robot.features().cameras.iter().map(|camera| camera.name.clone()).collect(),
            horizon: facts.horizon,
            execute: settings.control.schedule.execute,
            trained_delay: facts.trained_delay,
            pid: std::process::id(),
            host: crate::track::host(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }

    /// One episode; telemetry goes on over all of them.
    fn episode(
        &self,
        seed: u64,
        telemetry: &Telemetry,
        steer: &Receiver<Steer>,
    ) -> Result<(RolloutSummary, bool), Failure> {
        let mut robot = self.robot(seed);
        let settings = self.settings(&robot, seed)?;
        let judge = robot.judge();
        let mut words: (&str, Arc<str>) = ("", "".into());
        let mut progress = || {
            let (outcome, said) = judge.look();
            if words.0 != said {
                words = (said, said.into());
            }
            Progress { state: Some(Arc::clone(&words.1)), over: outcome != Outcome::Running }
        };
        let mut hooks = Hooks { progress: Some(&mut progress), view: None };
        let policy = Box::new(self.policy.fork());
        let summary = control::run(&mut robot, policy, &settings, &self.clock, Some(telemetry), steer, &mut hooks)?;
        let success = matches!(robot.judge().look().0, Outcome::Placed { .. });
        Ok((summary, success))
    }
}

/// What the policy is called.
pub fn policy_name(config: &RunConfig) -> String {
    config.policy.path.as_ref().map_or_else(|| "in the box".into(), |path| path.display().to_string())
}

/// Says what would be run.
pub fn check(config: &RunConfig) -> Result<String, Failure> {
    let session = Session::prepare(config)?;
    let settings = session.fits()?;
    let schedule = &settings.control.schedule;
    let facts = session.policy.facts();
    Ok(format!(
        "robot: simulated arm, {} task, seed {}\npolicy: {} on {}, {} denoising steps\ncontrol: mode {}, {:.0} Hz, {} of {} \
         actions executed a chunk, trained for delays of at most {} steps\ntask: {}\neverything that can be checked without \
         moving is fine\n",
        config.robot.variant,
        config.robot.seed,
        policy_name(config),
        session.policy.device(),
        session.policy.steps(),
        schedule.mode,
        schedule.fps,
        schedule.execute,
        facts.horizon,
        facts.trained_delay,
        session.task,
    ))
}

/// Runs all episodes and writes what they leave.
pub fn run(config: &RunConfig, directory: &Path, json: bool) -> Result<ExitCode, Failure> {
    let stop = StopFlag::install().map_err(SessionError::Signals)?;
    let session = Session::prepare(config)?;
    let settings = session.fits()?;
    let listen = address(&config.telemetry.listen)?;
    let run = open(config, directory)?;
    let (sender, steer) = channel();
    let hello = session.hello(&settings);
    let mut report = empty_report(&session, &settings, &hello);
    let telemetry = TelemetrySettings { run_dir: Some(run.path().into()), listen: Some(listen), hello };
    let telemetry = Telemetry::start(telemetry, sender.clone())?;
    let teller = witness::tell_rollout(telemetry.address(), json);
    let ear = Ear::open(run.path(), stop.clone(), sender);
    let ending = episodes(&session, &telemetry, &steer, &stop, run.path(), &mut report);
    drop(ear);
    let outcome = match &ending {
        Ok(end) => summary(&report, end),
        Err(failure) => failure.message(),
    };
    let written = Some(report::MARKDOWN.to_owned());
    telemetry.send(Record::Message(Message::Ended {
        time: session.clock.now().as_secs_f64(),
        outcome,
        report: written,
    }));
    drop(telemetry);
    let path = run.path().join(TELEMETRY_FILE);
    let trace = Trace::read(&path).map_err(|source| SessionError::Telemetry { path, source })?;
    let written = report::write(run.path(), &report, &trace)?;
    let _ = teller.join();
    tell(format_args!("report: {}", written.display()));
    match ending? {
        End::Fault(fault) => Err(SessionError::Fault(fault).into()),
        End::Stopped => Ok(ExitCode::from(Kind::Stopped.exit_code())),
        End::Done(_) | End::Duration => Ok(ExitCode::SUCCESS),
    }
}

/// The run directory, without what an earlier rollout in it left.
fn open(config: &RunConfig, directory: &Path) -> Result<RunDir, Failure> {
    let record = record(config);
    let run = RunDir::open(directory, &record)?;
    run.rewrite(&record)?;
    for order in steering::take(run.path()).into_iter().flatten() {
        tell(format_args!("note: passed over, from before this rollout: {}", order.steer.name()));
    }
    Ok(run)
}

/// One after the other until all are done, one fails, or somebody ends it.
fn episodes(
    session: &Session<'_>,
    telemetry: &Telemetry,
    steer: &Receiver<Steer>,
    stop: &StopFlag,
    directory: &Path,
    report: &mut Report,
) -> Result<End, Failure> {
    let config = session.config;
    let mut last = End::Duration;
    for number in 0..config.run.episodes {
        if stop.is_raised() {
            return Ok(End::Stopped);
        }
        let seed = config.robot.seed.wrapping_add(number);
        let (summary, success) = session.episode(seed, telemetry, steer)?;
        let RolloutSummary { end, metrics, notices, rejected, warm_up, .. } = summary;
        if let Some(rejected) = rejected {
            keep(directory, &rejected)?;
        }
        report.episodes.push(Episode {
            seed,
            end: end.to_string(),
            success: Some(success),
            warm_up_ms: warm_up.as_secs_f64() * 1e3,
            notices,
            metrics,
        });
        last = end;
        if matches!(last, End::Stopped | End::Fault(_)) {
            break;
        }
    }
    Ok(last)
}

fn summary(report: &Report, end: &End) -> String {
    match report.successes() {
        (0 | 1, _) => end.to_string(),
        (judged, succeeded) => format!("{succeeded} of {judged} episodes succeeded; the last: {end}"),
    }
}

fn empty_report(session: &Session<'_>, settings: &RolloutSettings, hello: &Hello) -> Report {
    Report {
        format: FORMAT,
        version: hello.version.clone(),
        robot: hello.robot.clone(),
        policy: hello.policy.clone(),
        task: hello.task.clone(),
        mode: settings.control.schedule.mode.to_string(),
        fps: hello.fps,
        horizon: hello.horizon,
        execute: hello.execute,
        trained_delay: session.policy.facts().trained_delay,
        episodes: Vec::new(),
    }
}

fn record(config: &RunConfig) -> RunRecord {
    RunRecord {
        format: FORMAT,
        name: config.run.name.clone(),
        created: crate::track::now(),
        version: env!("CARGO_PKG_VERSION").into(),
        host: crate::track::host(),
        command: std::env::args().collect(),
        // A structure of plain fields with text keys always has a JSON form.
        config: serde_json::to_value(config).unwrap_or_default(),
    }
}

fn address(listen: &str) -> Result<std::net::SocketAddr, SessionError> {
    use std::net::ToSocketAddrs;
    let found = listen.to_socket_addrs().ok().and_then(|mut found| found.next());
    found.ok_or_else(|| SessionError::Address(listen.to_owned()))
}

/// What the policy was asked and what it said, to be looked at later: `rejects/<chunk>/`.
fn keep(directory: &Path, rejected: &Rejected) -> Result<(), SessionError> {
    let place = directory.join("rejects").join(rejected.chunk.to_string());
    let written = || -> io::Result<()> {
        fs::create_dir_all(&place)?;
        // JSON has no NaN: as text every value survives.
        let values = |values: &[f32]| values.iter().map(f32::to_string).collect::<Vec<_>>();
        let told = serde_json::json!({
            "reason": rejected.reason,
            "task": &*rejected.request.task,
            "noise_seed": rejected.request.noise_seed,
            "state": values(&rejected.request.state),
            "actions": values(&rejected.actions),
        });
        files::write_atomic(&place.join("request.json"), told.to_string().as_bytes())?;
        for (number, frame) in rejected.request.images.iter().enumerate() {
            let mut image = format!("P6\n{} {}\n255\n", frame.image.width, frame.image.height).into_bytes();
            image.extend_from_slice(&frame.image.data);
            files::write_atomic(&place.join(format!("camera-{number}.ppm")), &image)?;
        }
        Ok(())
    };
    written().map_err(|source| SessionError::Rejects { path: place.clone(), source })
}
