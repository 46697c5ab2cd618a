//! What is rolled out: methods × delays × seeds, and what makes one rollout differ from another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::EvalError;
use super::lag::Lag;
use crate::config;
use crate::realtime::policy::PolicyFacts;
use crate::robot::sim::Variant;

/// Results of another revision are not those of this one: raised whenever the same key would give other numbers.
const REVISION: u32 = 1;
/// Actions of a chunk that are executed unless asked otherwise.
const EXECUTE: usize = 16;

/// How chunks follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The arm waits for each chunk.
    Sync,
    /// Naive: the next chunk is computed meanwhile, for the state that the arm had at the launch.
    Async,
    /// The next chunk is computed meanwhile, for the state that the arm will have.
    Vlash,
    /// Real-time chunking: denoising is guided towards the old chunk (arXiv 2506.07339).
    Rtc,
    /// Training-time real-time chunking: the first actions are given (arXiv 2512.05964).
    RtcTrained,
}

impl Method {
    pub const ALL: [Method; 5] = [Method::Sync, Method::Async, Method::Vlash, Method::Rtc, Method::RtcTrained];

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Method::Sync => "sync",
            Method::Async => "async",
            Method::Vlash => "vlash",
            Method::Rtc => "rtc",
            Method::RtcTrained => "rtc-trained",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        let names = || Method::ALL.into_iter().map(Method::name);
        Method::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            match config::nearest(text, names()) {
                Some(near) => format!("there is no mode {text}; did you mean {near}?"),
                None => format!("there is no mode {text}; there are {}", names().collect::<Vec<_>>().join(", ")),
            }
        })
    }
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub variant: Variant,
    pub seeds: Vec<u64>,
    pub methods: Vec<Method>,
    pub lags: Vec<Lag>,
    /// Actions of a chunk that are executed; none: as many as leave room for every delay, 16 at most.
    pub execute: Option<usize>,
    /// Simulated seconds after which a rollout has failed.
    pub time_limit_s: f64,
}

/// A checked plan: every cell can be rolled out.
#[derive(Debug, Clone)]
pub struct Grid {
    pub variant: Variant,
    pub seeds: Vec<u64>,
    pub cells: Vec<Cell>,
    pub execute: usize,
    pub time_limit_s: f64,
    /// What was left out or is to be expected, a sentence each.
    pub notes: Vec<String>,
}

/// Rollouts that differ by their seed only.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    pub method: Method,
    pub lag: Lag,
}

/// Everything that decides a rollout.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Digest of the checkpoint.
    pub policy: String,
    pub variant: String,
    pub method: Method,
    pub delay: String,
    pub execute: usize,
    pub seed: u64,
    pub time_limit_ms: u64,
    /// Version of the program, and of what it computes.
    pub version: String,
}

impl Grid {
    /// Checks `wanted` against what a policy can do.
    ///
    /// # Errors
    /// No seeds; a delay that leaves no action to execute; a chunk that is longer than the policy's.
    pub fn new(wanted: Wanted, facts: &PolicyFacts) -> Result<Grid, EvalError> {
        if wanted.seeds.is_empty() || wanted.methods.is_empty() || wanted.lags.is_empty() {
            let problem = "there is nothing to roll out: seeds, modes and delays must not be empty";
            return Err(EvalError::setting(problem, "--seeds 0..49 --modes sync,vlash --delays 0,4,8"));
        }
        let horizon = facts.horizon;
        // Latencies may be longer than any chunk: there the asynchronous modes are left out, and a note says so.
        let delays = wanted.lags.iter().filter(|lag| lag.latency.is_none()).map(Lag::planned);
        let short = wanted.lags.iter().map(Lag::planned).filter(|&ticks| ticks < horizon);
        let largest = delays.clone().chain(short).max().unwrap_or(0).max(facts.trained_delay.min(horizon / 2));
        let execute = wanted.execute.unwrap_or(EXECUTE.min(horizon.saturating_sub(largest)));
        if execute == 0 || execute > horizon {
            let problem = format!(
                "--execute {execute}: a chunk of this policy has {horizon} actions, of which {largest} \
                                   are to be waited for"
            );
            let fits =
                format!("--execute N with 1 ≤ N ≤ {}, or smaller --delays", horizon.saturating_sub(largest).max(1));
            return Err(EvalError::setting(problem, fits));
        }
        let mut notes = Vec::new();
        let mut cells = Vec::new();
        for lag in &wanted.lags {
            for &method in &wanted.methods {
                if method == Method::RtcTrained && lag.machine().is_some() && facts.rtc_trained_delay == 0 {
                    let problem = "--modes rtc-trained: this policy was not trained to take given actions";
                    return Err(EvalError::setting(problem, "--modes rtc, or train with train.rtc_max_delay=8"));
                }
                match admit(method, lag, horizon, execute) {
                    Ok(()) => cells.push(Cell { method, lag: lag.clone() }),
                    Err(why) if lag.latency.is_some() => {
                        notes.push(format!("{method} at {}: left out, {why}", lag.label))
                    }
                    Err(why) => {
                        let problem = format!("--delays {} in mode {method}: {why}", lag.label);
                        let room = horizon.saturating_sub(execute).min(execute);
                        let hint = format!(
                            "delays up to {room} fit --execute {execute}; a smaller N leaves more room in \
                                            the chunk, but N must be at least the delay"
                        );
                        return Err(EvalError::setting(problem, hint));
                    }
                }
            }
        }
        if cells.is_empty() {
            return Err(EvalError::setting(notes.join("; "), "--modes sync, or a shorter --latency"));
        }
        notes.extend(beyond_training(&cells, facts));
        let Wanted { variant, seeds, time_limit_s, .. } = wanted;
        Ok(Grid { variant, seeds, cells, execute, time_limit_s, notes })
    }

    /// Whether rollouts run in real time, on the latency of the machine that they run on.
    pub fn is_real_time(&self) -> bool {
        self.machine().is_some()
    }

    /// The machine that is measured.
    pub fn machine(&self) -> Option<&str> {
        self.cells.iter().find_map(|cell| cell.lag.machine())
    }

    /// The rollouts' keys: for each cell all seeds.
    pub fn key(&self, policy: &str, cell: &Cell, seed: u64) -> Key {
        Key {
            policy: policy.into(),
            variant: variant_name(self.variant).into(),
            method: cell.method,
            delay: cell.lag.key(),
            execute: self.execute,
            seed,
            time_limit_ms: (self.time_limit_s * 1e3).round() as u64,
            version: format!("{}+{REVISION}", env!("CARGO_PKG_VERSION")),
        }
    }
}

/// Whether a method can hide a delay; the error says why not.
fn admit(method: Method, lag: &Lag, horizon: usize, execute: usize) -> Result<(), String> {
    let planned = lag.planned();
    if method == Method::Sync {
        return Ok(());
    }
    if planned > execute {
        return Err(format!(
            "an inference of {planned} ticks outlasts the {execute} actions that are executed meanwhile"
        ));
    }
    if planned > horizon.saturating_sub(execute) {
        return Err(format!(
            "chunks of {horizon} actions of which {execute} are executed leave {} for a delay of {planned}",
            horizon.saturating_sub(execute)
        ));
    }
    Ok(())
}

/// Delays that the policy has never seen (FF-23).
fn beyond_training(cells: &[Cell], facts: &PolicyFacts) -> Vec<String> {
    let longest = |method: Method| {
        cells.iter().filter(|cell| cell.method == method).map(|cell| cell.lag.planned()).max().unwrap_or(0)
    };
    let (told, given) = (longest(Method::Vlash), longest(Method::RtcTrained));
    let mut notes = Vec::new();
    if told > facts.trained_delay {
        notes.push(format!(
            "vlash at {told} ticks: this policy was trained for delays up to {} (train.delay.max); beyond, it is told states \
             that it has never seen beside such images",
            facts.trained_delay
        ));
    }
    if given > facts.rtc_trained_delay {
        notes.push(format!(
            "rtc-trained at {given} ticks: this policy was trained with up to {} given actions (train.rtc_max_delay)",
            facts.rtc_trained_delay
        ));
    }
    notes
}

/// As it is typed.
pub fn variant_name(variant: Variant) -> &'static str {
    match variant {
        Variant::Static => "static",
        Variant::Moving => "moving",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explain;

    fn facts(horizon: usize, trained_delay: usize) -> PolicyFacts {
        PolicyFacts {
            horizon,
            action_dim: 7,
            state_dim: 7,
            joints: None,
            cameras: vec!["front".into()],
            trained_delay,
            rtc_trained_delay: 0,
            action_range: None,
        }
    }

    fn wanted(methods: &[Method], lags: Vec<Lag>, execute: Option<usize>) -> Wanted {
        let methods = methods.to_vec();
        Wanted { variant: Variant::Static, seeds: vec![0, 1, 2], methods, lags, execute, time_limit_s: 20.0 }
    }

    fn delays(ticks: &[usize]) -> Vec<Lag> {
        ticks.iter().map(|&ticks| Lag::fixed(ticks)).collect()
    }

    #[test]
    fn an_unknown_mode_names_the_nearest() {
        assert_eq!("rtc-trained".parse(), Ok(Method::RtcTrained));
        assert!("vlahs".parse::<Method>().unwrap_err().contains("did you mean vlash?"));
        assert!("telepathy".parse::<Method>().unwrap_err().contains("there are sync, async, vlash"));
    }

    #[test]
    fn the_number_of_executed_actions_leaves_room_for_every_delay() {
        let execute = |horizon, delays_| {
            Grid::new(wanted(&[Method::Vlash], delays(delays_), None), &facts(horizon, 0)).map(|grid| grid.execute)
        };
        assert_eq!(execute(32, &[0, 1, 12]).unwrap(), 16);
        assert_eq!(execute(24, &[0, 12]).unwrap(), 12);
        let error = Grid::new(wanted(&[Method::Async], delays(&[12]), Some(24)), &facts(32, 8)).unwrap_err();
        assert!(error.to_string().contains("leave 8 for a delay of 12"), "{error}");
        assert!(error.hint().unwrap().contains("up to 8 fit --execute 24"));
        assert!(execute(16, &[12]).unwrap_err().to_string().contains("outlasts the 4 actions"));
    }

    #[test]
    fn a_latency_longer_than_a_chunk_leaves_sync_alone() {
        let lags = vec![Lag::parse("5444ms", 30.0).unwrap(), Lag::parse("184.5ms", 30.0).unwrap()];
        let grid = Grid::new(wanted(&[Method::Sync, Method::Vlash], lags, None), &facts(32, 8)).unwrap();
        let named: Vec<String> = grid.cells.iter().map(|cell| format!("{} {}", cell.method, cell.lag.label)).collect();
        assert_eq!(named, ["sync 5444ms", "sync 184.5ms", "vlash 184.5ms"]);
        assert_eq!(grid.execute, 16);
        assert!(grid.notes[0].contains("vlash at 5444ms: left out"));
    }

    #[test]
    fn delays_beyond_training_are_said() {
        let notes = |trained| {
            let wanted = wanted(&[Method::Sync, Method::Vlash], delays(&[0, 8, 12]), None);
            Grid::new(wanted, &facts(32, trained)).unwrap().notes
        };
        assert!(notes(8)[0].contains("vlash at 12 ticks: this policy was trained for delays up to 8"));
        assert!(notes(12).is_empty());
    }

    #[test]
    fn keys_differ_by_what_decides_a_rollout() {
        let grid = Grid::new(wanted(&Method::ALL, delays(&[0, 4]), None), &facts(32, 8)).unwrap();
        let mut keys: Vec<Key> = grid.cells.iter().flat_map(|c| [0, 1].map(|seed| grid.key("a", c, seed))).collect();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 20);
    }
}
