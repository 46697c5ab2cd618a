//! What a person without the terminal interface sees: a progress bar on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::event::{Body, Event, Level, Outcome, StepMetrics, ValidationMetrics};
use super::recorder::Listener;
use super::status::Status;

/// How events are shown on standard error.
pub enum Console {
    /// A bar that redraws in place, with notices above it.
    Bar(ProgressBar),
    /// One line an event.
    Lines,
    /// One JSON object an event, on standard output.
    Json,
}

impl Console {
    /// A bar on a terminal, lines without one, JSON when asked for.
    pub fn new(json: bool) -> Console {
        if json { Console::Json } else { bar().map_or(Console::Lines, Console::Bar) }
    }
}

/// A bar on standard error, whose length is still to be set; none where it is no terminal that redraws.
pub fn bar() -> Option<ProgressBar> {
    let plain = std::env::var_os("CI").is_some() || std::env::var_os("TERM").is_some_and(|t| t == "dumb");
    if plain || !std::io::stderr().is_terminal() {
        return None;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(4));
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len}  {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    Some(bar)
}

impl Listener for Console {
    fn event(&mut self, event: &Event, status: &Status) {
        match self {
            Console::Json => {
                if let Ok(text) = serde_json::to_string(event) {
                    // A reader that went away is no reason to stop training.
                    let _ = writeln!(std::io::stdout(), "{text}");
                }
            }
            Console::Lines => {
                if let Some(text) = line(&event.body) {
                    let _ = writeln!(std::io::stderr(), "{} {text}", clock(event.time));
                }
            }
            Console::Bar(bar) => {
                if let Body::Step(step) = &event.body {
                    bar.set_length(status.steps);
                    bar.set_position(step.step);
                    let eta = status.eta_s.map_or_else(|| "-".into(), duration);
                    bar.set_message(format!(
                        "loss {:.4}  lr {:.2e}  {:.1} samples/s  ETA {eta}",
                        step.loss, step.lr, step.samples_per_s
                    ));
                } else if let Some(text) = line(&event.body) {
                    bar.println(text);
                    if matches!(event.body, Body::Ended { .. }) {
                        bar.finish_and_clear();
                    }
                }
            }
        }
    }
}

/// An event as one line of text; none for what only programs read.
pub fn line(body: &Body) -> Option<String> {
    Some(match body {
        Body::Started { step: 0, steps, host, pid, .. } => format!("training {steps} steps on {host} (process {pid})"),
        Body::Started { step, steps, resumed_from, .. } => {
            format!("resuming at step {step} of {steps} from {}", resumed_from.as_deref().unwrap_or("a checkpoint"))
        }
        Body::Weights { account, parameters, trained } => {
            format!("weights: {account}; {} of {} parameters train", count(*trained), count(*parameters))
        }
        Body::Step(metrics) => step_line(metrics),
        Body::Validation(metrics) => validation_line(metrics),
        Body::Checkpoint { step, path, bytes, seconds } => {
            format!(
                "checkpoint at step {step}: {path} ({:.1} MiB in {seconds:.1} s)",
                *bytes as f64 / (1024.0 * 1024.0)
            )
        }
        Body::CheckpointFailed { step, reason, last_good, next_step } => format!(
            "ERROR checkpoint at step {step} not written: {reason}. Last good: {}. Training goes on; next attempt at step {next_step}",
            last_good.as_deref().unwrap_or("none")
        ),
        Body::CommandSeen { .. } => return None,
        Body::CommandDone { command, step, detail, .. } => format!("{command} at step {step}: {detail}"),
        Body::CommandRefused { command, reason, .. } => format!("WARN {command} refused: {reason}"),
        Body::Notice { level, text } => match level {
            Level::Info => text.clone(),
            Level::Warn => format!("WARN {text}"),
            Level::Error => format!("ERROR {text}"),
        },
        Body::Ended { step, outcome, detail, checkpoint } => {
            let word = match outcome {
                Outcome::Finished => "finished",
                Outcome::Stopped => "stopped, resumable,",
                Outcome::Failed => "FAILED",
            };
            let at = checkpoint.as_ref().map_or(String::new(), |path| format!("; last checkpoint {path}"));
            let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
            format!("{word} at step {step}{detail}{at}")
        }
    })
}

fn step_line(m: &StepMetrics) -> String {
    let chunks = m.chunks_per_s.map_or(String::new(), |rate| format!(" {rate:.1} chunks/s"));
    let gib = |bytes: u64| bytes as f64 / f64::from(1u32 << 30);
    let gpu =
        m.gpu_memory.map_or(String::new(), |gpu| format!(", GPU {:.1} of {:.0} GiB", gib(gpu.peak), gib(gpu.total)));
    format!(
        "step {} loss {:.4} valid {:.4} gnorm {:.3} lr {:.3e} epoch {:.2} {:.1} samples/s{chunks} {:.0} ms/step (data {:.0} forward {:.0} backward {:.0} optimizer {:.0}){gpu}{}",
        m.step,
        m.loss,
        m.loss_valid,
        m.grad_norm,
        m.lr,
        m.epoch,
        m.samples_per_s,
        m.step_s * 1e3,
        m.data_s * 1e3,
        m.forward_s * 1e3,
        m.backward_s * 1e3,
        m.optimizer_s * 1e3,
        by_delay(&m.loss_by_delay)
    )
}

/// `, by delay 0..2: 0.4100 - 0.3900`; nothing without delays.
fn by_delay(losses: &[Option<f64>]) -> String {
    if losses.is_empty() {
        return String::new();
    }
    let each: Vec<String> = losses.iter().map(|l| l.map_or_else(|| "-".into(), |l| format!("{l:.4}"))).collect();
    format!(", by delay 0..{}: {}", losses.len() - 1, each.join(" "))
}

fn validation_line(m: &ValidationMetrics) -> String {
    let ratio = |value: f64, to: f64| if to > 0.0 { format!(" ({:.2}×)", value / to) } else { String::new() };
    let mut text = format!(
        "validation at step {}: loss {:.4}, zero velocity {:.4}{}",
        m.step,
        m.loss,
        m.zero_velocity,
        ratio(m.loss, m.zero_velocity)
    );
    if let Some(shuffled) = m.shuffled {
        text.push_str(&format!(", shuffled observations {shuffled:.4}{}", ratio(shuffled, m.loss)));
    }
    text.push_str(&by_delay(&m.loss_by_delay));
    text
}

/// Wall-clock time of day, UTC.
pub fn clock(time: f64) -> String {
    match jiff::Timestamp::from_millisecond((time * 1e3) as i64) {
        Ok(stamp) => stamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => "-".into(),
    }
}

/// A duration as people read it: `1h 23m`, `4m 05s`, `12s`.
pub fn duration(seconds: f64) -> String {
    let total = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default().as_secs();
    let (hours, minutes, seconds) = (total / 3600, total / 60 % 60, total % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m {seconds:02}s"),
        _ => format!("{hours}h {minutes:02}m"),
    }
}

/// A count with thousands separated: `3 353 433 872`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::event::GpuMemory;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(3_353_433_872), "3 353 433 872");
        assert_eq!(count(12), "12");
        assert_eq!(duration(4980.0), "1h 23m");
        assert_eq!(duration(245.4), "4m 05s");
        assert_eq!(clock(0.0), "1970-01-01T00:00:00Z");
    }

    #[test]
    fn a_validation_line_shows_both_ratios() {
        let metrics =
            ValidationMetrics { step: 5, loss: 0.2, zero_velocity: 1.0, shuffled: Some(0.5), ..Default::default() };
        assert_eq!(
            line(&Body::Validation(metrics)).unwrap(),
            "validation at step 5: loss 0.2000, zero velocity 1.0000 (0.20×), shuffled observations 0.5000 (2.50×)"
        );
    }

    #[test]
    fn a_step_of_several_chunks_a_sample_shows_both_rates_and_every_delay() {
        let metrics = StepMetrics {
            samples_per_s: 10.0,
            chunks_per_s: Some(30.0),
            gpu_memory: Some(GpuMemory { used: 0, peak: 10 << 30, total: 80 << 30 }),
            loss_by_delay: vec![Some(0.41), None, Some(0.39)],
            ..Default::default()
        };
        let text = line(&Body::Step(metrics)).unwrap();
        assert!(text.contains(" 10.0 samples/s 30.0 chunks/s "), "{text}");
        assert!(text.contains("), GPU 10.0 of 80 GiB"), "{text}");
        assert!(text.ends_with(", by delay 0..2: 0.4100 - 0.3900"), "{text}");
        let plain = line(&Body::Step(StepMetrics::default())).unwrap();
        assert!(!plain.contains("chunks/s") && plain.ends_with(')'), "{plain}");
    }
}
