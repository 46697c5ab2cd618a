//! `vlash collect`: record demonstrations of the simulated task.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use serde_json::json;

use super::output::{print, tell};
use crate::collect::demonstration::{ExpertPlayer, Player, TIME_LIMIT};
use crate::collect::recorder::{Joined, Recorder};
use crate::collect::settings::{Images, LeadSettings, PolicySettings, Settings, Worlds};
use crate::collect::{CollectError, campaign};
use crate::config::train::DeviceKind;
use crate::error::Failure;
use crate::eval::campaign::Policies;
use crate::eval::grid::Method;
use crate::eval::source::Source;
use crate::robot::sim::IMAGE_SIZE;
use crate::train::signals::StopFlag;
use policy::PolicyPlayer;
use progress::Bar;

mod policy;
mod progress;

/// Simulated seconds of a policy's episode, as `vlash eval` has them.
const POLICY_TIME_LIMIT: f64 = 30.0;
const EXPERT: &str = "expert";
const BOX: &str = "box";

const EXAMPLES: &str = "\
Examples:
  vlash collect --out demos --episodes 100                      the expert's, undisturbed
  vlash collect --out demos --episodes 1000 --noise 1.5 --variant mixed
                                                                what a policy learns to come back from
  vlash collect --out demos --episodes 1000 --noise 1.5 --variant mixed --lead outputs/sim
                                                                and from where this policy errs (DAgger)
  vlash collect --out demos --source outputs/sim --keep-failures
                                                                what a policy does, and where it fails
  vlash collect --out demos --finish                            a dataset of what an interrupted recording has
  vlash data check demos
  vlash train configs/train/sim.toml data.repo=demos

While it records, finished episodes lie in OUT.recording; after Ctrl-C, a crash or a kill the same command goes on, and the
dataset is the one of a recording that was never interrupted. It appears under its name when it is whole, and
OUT/meta/collect.json tells the settings and what became of every seed. Failed episodes are left out.";

/// Record demonstrations of the simulated task as a LeRobot dataset
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Where the dataset goes
    #[arg(long)]
    out: PathBuf,
    /// Make the dataset out of what an interrupted recording has, with its settings
    #[arg(long, conflicts_with_all = [
        "episodes", "seed", "source", "variant", "noise", "lead", "images", "size", "time_limit", "mode", "delay",
        "keep_failures", "threads",
    ])]
    finish: bool,
    /// How many episodes; may change when a recording goes on
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    episodes: u64,
    /// Seed of the first episode
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(..1 << 62))]
    seed: u64,
    /// Who plays: expert, box (the policy in the box), or the path of a checkpoint
    #[arg(long, value_name = "expert|box|PATH", default_value = EXPERT)]
    source: String,
    /// Whether the platform with the ball stands or travels; mixed: it travels in odd seeds
    #[arg(long, value_name = "static|moving|mixed", default_value = "static", value_parser = worlds)]
    variant: Worlds,
    /// How far the arm is led astray before the expert's recording begins, 0 to 3 [default: 0, from the beginning]
    #[arg(long, value_name = "LEVEL", value_parser = noise)]
    noise: Option<f32>,
    /// A policy (box, or the path of a checkpoint) that leads the arm before the expert's recording of every other pair of
    /// seeds begins: demonstrations of how to go on from where it errs
    #[arg(long, value_name = "box|PATH")]
    lead: Option<String>,
    /// How pictures are stored: h264 (videos) or png (lossless, about five times as large)
    #[arg(long, value_name = "h264|png", default_value = "h264", value_parser = images)]
    images: Images,
    /// Pixels of a picture's side
    #[arg(long, value_name = "PIXELS", default_value_t = IMAGE_SIZE as u16, value_parser = clap::value_parser!(u16).range(16..=1080))]
    size: u16,
    /// Simulated seconds after which an episode has failed [default: 12; 30 with a policy]
    #[arg(long, value_name = "S", value_parser = super::eval::seconds)]
    time_limit: Option<f64>,
    /// How a policy's chunks follow one another: sync, async, vlash, rtc, rtc-trained [default: sync]
    #[arg(long, value_name = "MODE")]
    mode: Option<Method>,
    /// Control ticks that a policy's inference takes [default: 0]
    #[arg(long, value_name = "TICKS", value_parser = clap::value_parser!(u16).range(0..=1000))]
    delay: Option<u16>,
    /// Record failed episodes, too; OUT/meta/collect.json tells which they are
    #[arg(long)]
    keep_failures: bool,
    /// Episodes at a time [default: as many as the host has processors]; the dataset does not depend on it
    #[arg(long, value_name = "T", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print what came of it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    if args.finish {
        let recorder = Recorder::reopen(&args.out)?;
        let resumed = recorder.kept();
        return report(&args, recorder.join(None)?, resumed, begun);
    }
    let (settings, player) = args.source()?;
    let stop = StopFlag::install().map_err(CollectError::Signals)?;
    let recorder = Recorder::open(&args.out, settings)?;
    let resumed = recorder.kept();
    if resumed > 0 {
        tell(format_args!("going on with the {resumed} episodes in {}", recorder.place().display()));
    }
    let bar = Bar::new(args.episodes);
    let threads = args.threads.map_or_else(host_threads, usize::from);
    let recorded =
        campaign::run(&recorder, player.as_ref(), args.episodes, threads, &|| stop.is_raised(), &|done| bar.say(done));
    bar.end();
    if !recorded? {
        let (kept, place) = (recorder.kept(), recorder.place().to_owned());
        let (episodes, out) = (args.episodes, args.out.clone());
        return Err(CollectError::Stopped { signal: stop.name(), kept, episodes, place, out }.into());
    }
    report(&args, recorder.join(Some(args.episodes))?, resumed.min(args.episodes), begun)
}

impl Args {
    /// What is to be recorded, and who plays it.
    fn source(&self) -> Result<(Settings, Box<dyn Player>), Failure> {
        let mut settings = Settings {
            source: self.source.clone(),
            policy: None,
            seed: self.seed,
            variant: self.variant,
            noise: self.noise.unwrap_or(0.0),
            lead: None,
            images: self.images,
            size: self.size.into(),
            time_limit_s: self.time_limit.unwrap_or(TIME_LIMIT),
            keep_failures: self.keep_failures,
            version: env!("CARGO_PKG_VERSION").into(),
        };
        if self.source == EXPERT {
            if self.mode.is_some() || self.delay.is_some() {
                return Err(setting("--mode and --delay: the expert plays without chunks", "--source box").into());
            }
            let mut player = ExpertPlayer { noise: settings.noise, leader: None, time_limit_s: settings.time_limit_s };
            if let Some(lead) = &self.lead {
                let source = Source::open(checkpoint("--lead", lead)?, None, DeviceKind::Cpu)?;
                settings.lead = Some(LeadSettings { source: lead.clone(), digest: source.facet().digest });
                player.leader = Some(Box::new(move || Ok(source.fork(0)?)));
            }
            return Ok((settings, Box::new(player)));
        }
        if self.noise.is_some() || self.lead.is_some() {
            let problem = "--noise and --lead: only the expert knows how to come back";
            return Err(setting(problem, "--source expert").into());
        }
        let checkpoint = checkpoint("--source", &self.source)?;
        settings.time_limit_s = self.time_limit.unwrap_or(POLICY_TIME_LIMIT);
        let (mode, delay) = (self.mode.unwrap_or(Method::Sync), self.delay.unwrap_or(0).into());
        let player = PolicyPlayer::open(checkpoint, mode, delay, settings.time_limit_s)?;
        settings.policy =
            Some(PolicySettings { digest: player.source().facet().digest, mode: mode.name().into(), delay });
        Ok((settings, Box::new(player)))
    }
}

/// The directory that `named` means; none: the policy in the box.
fn checkpoint<'a>(option: &str, named: &'a str) -> Result<Option<&'a Path>, CollectError> {
    let path = Some(Path::new(named)).filter(|_| named != BOX);
    match path.filter(|path| !path.exists()) {
        Some(path) => {
            let expert = if option == "--source" { "neither expert nor box nor" } else { "neither box nor" };
            let problem = format!("{option} {}: {expert} a checkpoint that exists", path.display());
            Err(setting(problem, &format!("{option} box, or {option} outputs/RUN")))
        }
        None => Ok(path),
    }
}

fn setting(problem: impl Into<String>, hint: &str) -> CollectError {
    CollectError::Setting { problem: problem.into(), hint: hint.into() }
}

fn host_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Says what came of it.
fn report(args: &Args, joined: Joined, resumed: u64, begun: Instant) -> Result<ExitCode, Failure> {
    let Joined { dataset, episodes, frames, seeds: (first, last), left_out } = joined;
    if args.json {
        let left_out: Vec<_> =
            left_out.iter().map(|(seed, ending)| json!({ "seed": seed, "ending": ending })).collect();
        let summary = json!({
            "dataset": dataset,
            "episodes": episodes,
            "frames": frames,
            "seeds": [first, last],
            "left_out": left_out,
            "resumed": resumed,
            "seconds": begun.elapsed().as_secs_f64(),
        });
        print(&format!("{summary:#}\n"))?;
    } else {
        tell(format_args!(
            "{}: {episodes} episodes of {frames} frames, seeds {first}..{last}, {} failed ones left out, {:.0} s",
            dataset.display(),
            left_out.len(),
            begun.elapsed().as_secs_f64()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn worlds(text: &str) -> Result<Worlds, String> {
    choose(text, &Worlds::ALL)
}

fn images(text: &str) -> Result<Images, String> {
    choose(text, &Images::ALL)
}

/// The value of a word.
fn choose<T: Copy>(text: &str, all: &[(&'static str, T)]) -> Result<T, String> {
    let words = || all.iter().map(|(word, _)| *word);
    all.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let near = crate::config::nearest(text, words()).map(|near| format!("; did you mean {near}?"));
        format!("there are {}{}", words().collect::<Vec<_>>().join(", "), near.unwrap_or_default())
    })
}

fn noise(text: &str) -> Result<f32, String> {
    text.parse()
        .ok()
        .filter(|level| (0.0..=3.0).contains(level))
        .ok_or_else(|| "a level is a number from 0 to 3".into())
}
