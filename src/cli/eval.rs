//! `vlash eval`: the table of success and time against delay, and what belongs to it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cli::output::{print, tell};
use crate::config::ranges::{self, RangeError};
use crate::config::train::DeviceKind;
use crate::error::Failure;
use crate::eval::campaign::{self, Policies, Progress};
use crate::eval::grid::{Grid, Method, Wanted, variant_name};
use crate::eval::lag::Lag;
use crate::eval::ledger::Ledger;
use crate::eval::report::Report;
use crate::eval::source::Source;
use crate::eval::{EvalError, charts, table};
use crate::files::write_atomic;
use crate::robot::sim::Variant;

mod open_loop;
mod video;

/// Control ticks a second of the simulated arm.
const FPS: f64 = 30.0;
/// Simulated seconds of a rollout: several times what the task takes, also with the longest published latency.
const TIME_LIMIT: f64 = 30.0;
const TIME_LIMIT_LATENCY: f64 = 180.0;
const DELAYS: [u64; 6] = [0, 1, 2, 4, 8, 12];
/// Where waiting is plain to see.
const VIDEO_DELAY: u64 = 8;
/// How often progress is said.
const SAY: Duration = Duration::from_secs(10);

const EXAMPLES: &str = "\
Examples:
  vlash eval                                         the policy in the box, 50 seeds, sync, async, vlash
  vlash eval outputs/sim --seeds 5000..5199 --delays 0,8 --variant moving
  vlash eval outputs/delay --compare outputs/plain --modes sync,async,vlash,rtc --out outputs/eval-both
                                                     two checkpoints in one table; the same command continues
  vlash eval --latency 184.5ms,5444ms                a published setting: waiting at one, asynchronous at the other
  vlash eval --latency trace.json                    recorded latencies: [180.2, 191.7, …] in ms
  vlash eval --real-time --seeds 0..9                 the latency that this machine has, in real time
  vlash eval --video both.mp4 --seeds 3 --latency 184.5ms
                                                     sync and vlash side by side, as a film
  vlash eval outputs/sim --open-loop /data/pick --episodes 40:50
                                                     errors on recorded episodes, by joint and step

Modes: sync waits for each chunk; async computes the next one meanwhile, for the state at its launch; vlash for the state
that the arm will have; rtc guides denoising towards the old chunk; rtc-trained gives the first actions.
Writes DIR/rollouts.jsonl (a line a finished rollout; what is there is not done again), report.json, report.md, *.svg.";

/// Success and completion time of a policy against inference delay, by way of execution, on the simulated arm
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A policy, a checkpoint, or a run [default: the policy in the box]
    checkpoint: Option<PathBuf>,
    /// A second policy for the same table
    #[arg(long, value_name = "CHECKPOINT")]
    compare: Option<PathBuf>,
    /// Worlds: 0..49 (both ends included), 0:50, or a list
    #[arg(long, value_name = "A..B", default_value = "0..49")]
    seeds: Numbers,
    /// Ways of executing chunks: sync, async, vlash, rtc, rtc-trained [default: sync,async,vlash; sync,vlash with --video]
    #[arg(long, value_name = "MODES", value_delimiter = ',')]
    modes: Vec<Method>,
    /// Inference delays in control ticks of 1/30 s [default: 0,1,2,4,8,12; with --video 8]
    #[arg(long, value_name = "TICKS", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(0..=1000))]
    delays: Option<Vec<u64>>,
    /// Inference latencies instead: 184.5ms, 0.2s, or a JSON file of recorded milliseconds
    #[arg(long, value_name = "TIMES", value_delimiter = ',')]
    latency: Vec<String>,
    /// The latency of the policy on this machine instead: rollouts in real time, one after another
    #[arg(long)]
    real_time: bool,
    /// Only record the first seed at the last delay or latency, the modes side by side
    #[arg(long, value_name = "FILE.mp4")]
    video: Option<PathBuf>,
    /// Whether the platform with the ball stands or travels
    #[arg(long, value_name = "static|moving", default_value = "static", value_parser = variant)]
    variant: Variant,
    /// Actions of a chunk that are executed, n [default: up to 16, as many as leave room for the longest delay]
    #[arg(long, value_name = "N")]
    execute: Option<usize>,
    /// Denoising steps of a chunk [default: the checkpoint's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    steps: Option<u32>,
    /// Simulated seconds after which a rollout has failed [default: 30; 180 with --latency]
    #[arg(long, value_name = "S", value_parser = seconds)]
    time_limit: Option<f64>,
    /// Rollouts at a time [default: as many as the host has processors]
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Where everything is written
    #[arg(long, value_name = "DIR", default_value = "outputs/eval")]
    out: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    open_loop: open_loop::OpenLoopArgs,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    args.contradictions()?;
    if let Some(dataset) = args.open_loop.dataset() {
        return open_loop::run(&args, dataset);
    }
    match &args.video {
        Some(path) => video::run(&args, path),
        None => args.grid(),
    }
}

impl Args {
    /// # Errors
    /// Two things of which only one can be done.
    fn contradictions(&self) -> Result<(), EvalError> {
        let real = "--real-time measures the latency of this machine, one rollout after another";
        let film = "--video records rollouts of one policy on the virtual clock";
        let of_both = [
            (self.threads.is_some_and(|threads| threads > 1), "--threads runs rollouts beside each other"),
            (self.open_loop.dataset().is_some(), "--open-loop predicts on recordings"),
        ];
        let of_real = [
            (self.delays.is_some(), "--delays injects an inference delay"),
            (!self.latency.is_empty(), "--latency injects an inference latency"),
        ];
        let of_film = [
            (self.real_time, "--real-time measures a latency"),
            (self.compare.is_some(), "--compare rolls out a second policy"),
        ];
        let of_real = of_real.into_iter().chain(of_both);
        let of_film = of_film.into_iter().chain(of_both);
        let real = of_real.filter(|_| self.real_time).map(|(given, what)| (given, what, real));
        let film = of_film.filter(|_| self.video.is_some()).map(|(given, what)| (given, what, film));
        match real.chain(film).find(|(given, ..)| *given) {
            None => Ok(()),
            Some((_, what, against)) => Err(EvalError::Setting {
                problem: format!("{what}; {against}"),
                hint: "leave one of the two out".into(),
            }),
        }
    }

    /// Seeds × modes × delays.
    fn grid(&self) -> Result<ExitCode, Failure> {
        let sources = self.sources()?;
        let policies: Vec<&dyn Policies> = sources.iter().map(|source| source as &dyn Policies).collect();
        let machine = sources.first().filter(|_| self.real_time).map(|source| machine(source.device()));
        let mut grids = policies.iter().map(|policy| Grid::new(self.wanted(machine.as_deref())?, policy.facts()));
        let mut grid = grids.next().transpose()?.ok_or_else(|| EvalError::Report("no policy".into()))?;
        for other in grids {
            let other = other?;
            // The same n for all: the shorter chunk decides.
            if other.execute != grid.execute && self.execute.is_none() {
                let problem = "the two policies' chunks or delays differ, so that n would differ";
                let hint = format!("--execute {}", other.execute.min(grid.execute));
                return Err(EvalError::Setting { problem: problem.into(), hint }.into());
            }
            grid.notes.extend(other.notes.into_iter().map(|note| format!("policy B: {note}")));
        }
        grid.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
        let ledger = Ledger::open(&self.out)?;
        if ledger.unreadable > 0 {
            tell(format_args!("note: {} unreadable lines in rollouts.jsonl do not count", ledger.unreadable));
        }
        let begun = Instant::now();
        let last = Mutex::new(None);
        let rolled =
            campaign::run(&grid, &policies, Some(&ledger), self.threads(), &|progress| say(progress, begun, &last))?;
        let facets = policies.iter().map(|policy| policy.facet()).collect();
        let report = Report::new(&grid, facets, &rolled);
        self.show(&report)?;
        Ok(ExitCode::SUCCESS)
    }

    fn sources(&self) -> Result<Vec<Source>, Failure> {
        let device = if self.real_time { DeviceKind::Auto } else { DeviceKind::Cpu };
        let open = |path| Source::open(path, self.steps(), device);
        let first = open(self.checkpoint.as_deref())?;
        let second = self.compare.as_deref().map(|path| open(Some(path))).transpose()?;
        Ok([Some(first), second].into_iter().flatten().collect())
    }

    /// What is asked for; `machine` is the one to be measured.
    fn wanted(&self, machine: Option<&str>) -> Result<Wanted, EvalError> {
        let mut lags: Vec<Lag> = machine.map(Lag::measured).into_iter().collect();
        let delays = match &self.delays {
            Some(delays) => delays.as_slice(),
            None if self.latency.is_empty() && machine.is_none() && self.video.is_some() => &[VIDEO_DELAY],
            None if self.latency.is_empty() && machine.is_none() => &DELAYS,
            None => &[],
        };
        lags.extend(delays.iter().map(|&ticks| Lag::fixed(usize::try_from(ticks).unwrap_or(usize::MAX))));
        for latency in &self.latency {
            lags.push(Lag::parse(latency, FPS)?);
        }
        let default = if self.latency.is_empty() { TIME_LIMIT } else { TIME_LIMIT_LATENCY };
        Ok(Wanted {
            variant: self.variant,
            seeds: self.seeds.0.iter().map(|&seed| seed as u64).collect(),
            methods: match (self.modes.as_slice(), &self.video) {
                ([], Some(_)) => vec![Method::Sync, Method::Vlash],
                ([], None) => vec![Method::Sync, Method::Async, Method::Vlash],
                (modes, _) => modes.to_vec(),
            },
            lags,
            execute: self.execute,
            time_limit_s: self.time_limit.unwrap_or(default),
        })
    }

    fn steps(&self) -> Option<usize> {
        self.steps.map(|steps| steps as usize)
    }

    fn threads(&self) -> usize {
        let host = || std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.map_or_else(host, usize::from)
    }

    /// Writes the report's files and prints it.
    fn show(&self, report: &Report) -> Result<(), Failure> {
        let text = table::markdown(report);
        let json = pretty(report)?;
        let files = [
            ("report.json", json.clone()),
            ("report.md", text.clone()),
            ("success.svg", charts::success(report)),
            ("time.svg", charts::time(report)),
        ];
        save(&self.out, &files)?;
        Ok(print(if self.json { &json } else { &text })?)
    }
}

/// Name and device of the machine that is measured; `device` may be followed by the reason why it is that one.
fn machine(device: &str) -> String {
    let name = device.split_once(": ").map_or(device, |(name, _)| name);
    format!("{} ({name})", crate::track::host())
}

/// Writes files into `directory`, each whole.
fn save(directory: &Path, files: &[(&str, String)]) -> Result<(), EvalError> {
    let io = |action, path: &Path, source| EvalError::Io { action, path: path.into(), source };
    std::fs::create_dir_all(directory).map_err(|source| io("make", directory, source))?;
    files.iter().try_for_each(|(name, text)| {
        let path = directory.join(name);
        write_atomic(&path, text.as_bytes()).map_err(|source| io("write", &path, source))
    })
}

fn pretty(value: &impl Serialize) -> Result<String, EvalError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| EvalError::Report(error.to_string()))?;
    Ok(text + "\n")
}

/// Says how far it is: at the beginning, every few seconds, at the end.
fn say(progress: Progress, begun: Instant, last: &Mutex<Option<Instant>>) {
    let Progress { done, total, resumed } = progress;
    let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if done < total && last.is_some_and(|last| last.elapsed() < SAY) {
        return;
    }
    let first = last.replace(Instant::now()).is_none();
    let fresh = done.saturating_sub(resumed);
    let left = match fresh {
        0 => String::new(),
        fresh => format!(", {:.0} s left", begun.elapsed().as_secs_f64() / fresh as f64 * (total - done) as f64),
    };
    let known = if resumed > 0 && first { format!(", {resumed} of them from before") } else { String::new() };
    tell(format_args!("rollouts {done} of {total}{known}{left}"));
}

fn variant(text: &str) -> Result<Variant, String> {
    let all = [Variant::Static, Variant::Moving];
    let names = || all.into_iter().map(variant_name);
    all.into_iter().find(|variant| variant_name(*variant) == text).ok_or_else(|| {
        let near = crate::config::nearest(text, names()).map(|near| format!("; did you mean {near}?"));
        format!("there are {}{}", names().collect::<Vec<_>>().join(" and "), near.unwrap_or_default())
    })
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.trim_end_matches('s').parse::<f64>().ok().filter(|s| (0.1..=3600.0).contains(s));
    seconds.ok_or_else(|| "seconds between 0.1 and 3600".into())
}

/// Numbers and ranges.
#[derive(Debug, Clone)]
struct Numbers(Vec<usize>);

impl FromStr for Numbers {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Numbers, RangeError> {
        ranges::parse(text).map(Numbers)
    }
}
