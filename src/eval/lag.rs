//! How long an inference takes on the virtual clock.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::error::EvalError;
use super::stats;
use crate::random;

/// Longer than this is a wrong unit.
const LONGEST: Duration = Duration::from_secs(600);
/// A trace is recorded latencies, not a log.
const LARGEST_TRACE: u64 = 64 << 20;

/// Latencies of the inferences of a rollout, in control ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Lag {
    /// As it is written in tables and keys: `8`, `184.5ms`, `trace.json#1f2e3d4c`.
    pub label: String,
    /// One an inference, going round; at least one.
    ticks: Vec<usize>,
    /// In seconds, where it was given so.
    pub latency: Option<f64>,
    /// The machine that is measured, where the latency is not known before.
    machine: Option<String>,
}

impl Lag {
    /// Always `ticks`.
    pub fn fixed(ticks: usize) -> Lag {
        Lag { label: ticks.to_string(), ticks: vec![ticks], latency: None, machine: None }
    }

    /// As long as inference takes on `machine`: such rollouts run in real time.
    pub fn measured(machine: &str) -> Lag {
        Lag { label: "measured".into(), ticks: Vec::new(), latency: None, machine: Some(machine.into()) }
    }

    /// The machine that is measured; none: the latency is injected.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// What tells rollouts of this lag from others: what one machine takes says nothing of another.
    pub fn key(&self) -> String {
        self.machine.as_ref().map_or_else(|| self.label.clone(), |machine| format!("{} on {machine}", self.label))
    }

    /// Always `latency`: a chunk is usable at the first tick that has not begun before.
    pub fn latency(latency: Duration, fps: f64) -> Lag {
        let milliseconds = latency.as_secs_f64() * 1e3;
        let label = format!("{}ms", (milliseconds * 1e3).round() / 1e3);
        let seconds = latency.as_secs_f64();
        Lag { label, ticks: vec![ticks(seconds, fps)], latency: Some(seconds), machine: None }
    }

    /// `184.5ms`, `0.2s` (a number alone is milliseconds), or a file with recorded latencies: a JSON array of
    /// milliseconds, or an object with such an array under `latencies_ms`.
    ///
    /// # Errors
    /// What is neither.
    pub fn parse(text: &str, fps: f64) -> Result<Lag, EvalError> {
        if let Some(latency) = duration(text) {
            return Ok(Lag::latency(latency, fps));
        }
        let path = Path::new(text);
        if !path.is_file() {
            let problem = format!("--latency {text}: neither a time of at most {} s nor a file", LONGEST.as_secs());
            return Err(EvalError::setting(
                problem,
                "--latency 184.5ms, or --latency trace.json with [180.2, 191.7, …]",
            ));
        }
        let read = || {
            let length = fs::metadata(path)?.len();
            if length > LARGEST_TRACE {
                return Err(std::io::Error::other(format!("{length} bytes are too many for recorded latencies")));
            }
            fs::read(path)
        };
        let bytes = read().map_err(|source| EvalError::io("read", path, source))?;
        Lag::trace(path, &bytes, fps)
    }

    fn trace(path: &Path, bytes: &[u8], fps: f64) -> Result<Lag, EvalError> {
        let wrong = |found: String| {
            let problem = format!("--latency {}: {found}", path.display());
            EvalError::setting(problem, "write a JSON array of milliseconds: [180.2, 191.7, 184.5]")
        };
        let value: Value = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
        let list = value.get("latencies_ms").unwrap_or(&value);
        let list = list.as_array().ok_or_else(|| wrong("neither an array nor an object with latencies_ms".into()))?;
        let seconds: Vec<f64> = list.iter().filter_map(Value::as_f64).map(|milliseconds| milliseconds / 1e3).collect();
        if seconds.is_empty() || seconds.len() < list.len() {
            return Err(wrong(format!("{} of its {} entries are numbers", seconds.len(), list.len())));
        }
        if let Some(outside) = seconds.iter().find(|&&s| !(0.0..=LONGEST.as_secs_f64()).contains(&s)) {
            return Err(wrong(format!("{} ms is no latency", outside * 1e3)));
        }
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        let digest: String = Sha256::digest(bytes).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Lag {
            label: format!("{name}#{digest}"),
            ticks: seconds.iter().map(|&s| ticks(s, fps)).collect(),
            latency: stats::mean(&seconds),
            machine: None,
        })
    }

    /// Ticks that inference `number` of the rollout of `seed` takes. Rollouts enter a trace at places of their own.
    pub fn of(&self, seed: u64, number: usize) -> usize {
        let length = self.ticks.len().max(1);
        let first = match length {
            1 => 0,
            _ => (rand::RngCore::next_u64(&mut random::stream(seed, "eval-latency", &[])) % length as u64) as usize,
        };
        self.ticks.get((first + number) % length).copied().unwrap_or(0)
    }

    /// What the scheduler plans with: the 95th percentile, as its estimate from measured latencies would be. 0 where the
    /// latency is not known before.
    pub fn planned(&self) -> usize {
        stats::quantile(&self.as_f64(), 0.95).map_or(0, |ticks| ticks.ceil() as usize)
    }

    /// Mean, in ticks; 0 where the latency is not known before.
    pub fn mean(&self) -> f64 {
        stats::mean(&self.as_f64()).unwrap_or(0.0)
    }

    fn as_f64(&self) -> Vec<f64> {
        self.ticks.iter().map(|&ticks| ticks as f64).collect()
    }
}

/// Whole ticks that cover `seconds`; a hair above a whole number, as rounding leaves it, does not take another.
fn ticks(seconds: f64, fps: f64) -> usize {
    (seconds * fps - 1e-6).ceil().max(0.0) as usize
}

fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 1e-3),
        (None, Some(number)) => (number, 1.0),
        (None, None) => (text, 1e-3),
    };
    let seconds = number.trim().parse::<f64>().ok()? * unit;
    Duration::try_from_secs_f64(seconds).ok().filter(|latency| *latency <= LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Explain;

    #[test]
    fn latencies_become_ticks_that_cover_them() {
        let ticks = |text| Lag::parse(text, 30.0).unwrap().of(0, 0);
        assert_eq!(["184.5ms", "5444ms", "0.2s", "33.333", "0ms", "100 ms"].map(ticks), [6, 164, 6, 1, 0, 3]);
        assert_eq!(Lag::parse("5444ms", 30.0).unwrap().label, "5444ms");
    }

    #[test]
    fn a_trace_goes_round_and_is_entered_by_seed() {
        let lag = Lag::trace(Path::new("a/t.json"), br#"{"latencies_ms": [10, 50, 90, 130]}"#, 30.0).unwrap();
        assert!(lag.label.starts_with("t.json#"));
        let round: Vec<usize> = (0..8).map(|number| lag.of(3, number)).collect();
        assert_eq!(round[..4], round[4..]);
        let mut sorted = round[..4].to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, [1, 2, 3, 4]);
        assert!((0..20).any(|seed| lag.of(seed, 0) != lag.of(3, 0)));
        assert_eq!((lag.planned(), lag.mean()), (4, 2.5));
    }

    #[test]
    fn what_is_measured_belongs_to_its_machine() {
        let [a, b] = ["orin", "laptop"].map(Lag::measured);
        assert_eq!((a.label.as_str(), a.key().as_str(), a.machine()), ("measured", "measured on orin", Some("orin")));
        assert!(a.key() != b.key() && Lag::fixed(4).key() == "4");
    }

    #[test]
    fn what_is_no_latency_is_named() {
        let message = |bytes: &[u8]| Lag::trace(Path::new("t.json"), bytes, 30.0).unwrap_err().to_string();
        assert!(message(br#"[1, "x"]"#).contains("1 of its 2 entries"));
        assert!(message(b"[]").contains("0 of its 0"));
        assert!(message(b"[-4]").contains("-4 ms is no latency"));
        assert!(message(b"{}").contains("latencies_ms"));
        for text in ["-3ms", "nan", "fast", "1e9s"] {
            assert!(Lag::parse(text, 30.0).unwrap_err().hint().unwrap().contains("184.5ms"), "{text}");
        }
    }
}
