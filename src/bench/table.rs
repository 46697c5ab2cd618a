//! A list of works, each measured by a process of its own, so that no memory of one weighs on the next.
//!
//! What fails, with exhausted memory for instance, is a row that says so. The table is written anew after every work: a
//! machine that is taken away leaves what was measured until then.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::error::BenchError;
use super::render;
use super::report::{Measure, Report, SCHEMA};
use crate::files::write_atomic;

/// How often a running work is looked at.
const POLL: Duration = Duration::from_millis(50);
/// Lines of a failed work's messages that the table keeps.
const LINES: usize = 3;

/// One row: a name and the arguments of `vlash bench` that measure it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    pub name: &'static str,
    pub title: &'static str,
    pub arguments: &'static [&'static str],
    /// The measured parts that the table shows, a row each.
    pub parts: &'static [&'static str],
}

/// The works of the table, in the order of measuring.
pub const WORKS: &[Work] = &[
    Work {
        name: "infer-2",
        title: "inference, batch 1, 10 steps, 200 prompt tokens, 2 cameras",
        arguments: &["infer", "--cameras", "2"],
        parts: &["call"],
    },
    Work { name: "infer-3", title: "the same, 3 cameras", arguments: &["infer", "--cameras", "3"], parts: &["call"] },
    Work {
        name: "lora-1",
        title: "LoRA r 16 with the predecessors' extra modules, 2 cameras, batch 1",
        arguments: &["train", "--lora-extras", "--batch", "1"],
        parts: &["step"],
    },
    Work {
        name: "lora-16",
        title: "the same, batch 16",
        arguments: &["train", "--lora-extras", "--batch", "16"],
        parts: &["step"],
    },
    Work {
        name: "lora-16-recompute",
        title: "the same, batch 16, recomputation",
        arguments: &["train", "--lora-extras", "--batch", "16", "--recompute"],
        parts: &["step"],
    },
    Work {
        name: "lora-floor",
        title: "LoRA r 16 alone, 3 cameras, batch 1, recomputation",
        arguments: &["train", "--lora", "16", "--cameras", "3", "--batch", "1", "--recompute"],
        parts: &["step"],
    },
    Work {
        name: "lora-floor-extras",
        title: "LoRA r 16 with extra modules, 3 cameras, batch 1, recomputation",
        arguments: &["train", "--lora-extras", "--cameras", "3", "--batch", "1", "--recompute"],
        parts: &["step"],
    },
    Work {
        name: "shared-4x9",
        title: "shared observation, LoRA r 16 with extra modules, 2 cameras, 4 frames × 9 delays",
        arguments: &["train", "--lora-extras", "--batch", "4", "--shared", "8"],
        parts: &["shared: step", "drawn: step"],
    },
    Work {
        name: "full-8-recompute",
        title: "full fine-tuning, 2 cameras, batch 8, recomputation",
        arguments: &["train", "--full", "--batch", "8", "--recompute"],
        parts: &["step"],
    },
    Work {
        name: "full-8",
        title: "full fine-tuning, 2 cameras, batch 8",
        arguments: &["train", "--full", "--batch", "8"],
        parts: &["step"],
    },
];

/// What to run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Names of works; empty: all.
    pub only: Vec<String>,
    /// No work runs beyond this.
    pub budget: Option<Duration>,
    /// Where everything is written.
    pub out: PathBuf,
    /// Calls or steps of each work instead of its own number.
    pub runs: Option<usize>,
    /// Passed on to every work: device, precision, preset.
    pub passed: Vec<String>,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub schema: u32,
    pub rows: Vec<Row>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub name: String,
    pub title: String,
    /// As it can be pasted.
    pub command: String,
    /// Seconds that the whole process took, weights included.
    pub took_s: f64,
    pub outcome: Outcome,
}

/// What became of a work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    Measured(Box<Report>),
    /// With the last lines that it said.
    Failed(String),
    /// The budget was spent.
    Skipped,
}

/// Runs the works one after the other; `say` is told what happens.
pub fn run(settings: &Settings, say: &mut dyn FnMut(String)) -> Result<Table, BenchError> {
    let works = chosen(&settings.only)?;
    let out = &settings.out;
    fs::create_dir_all(out).map_err(|source| io("create", out, source))?;
    let program = std::env::current_exe().map_err(|source| io("find", Path::new("vlash"), source))?;
    let begun = Instant::now();
    let mut table = Table { schema: SCHEMA, rows: Vec::new() };
    for work in works {
        let left = settings.budget.map(|budget| budget.saturating_sub(begun.elapsed()));
        say(format!("{}: {}", work.name, work.title));
        let row = measure(&program, work, settings, left)?;
        say(format!("  {} ({:.0} s)", brief(work, &row.outcome), row.took_s));
        table.rows.push(row);
        write(&table, out)?;
    }
    Ok(table)
}

fn chosen(only: &[String]) -> Result<Vec<&'static Work>, BenchError> {
    if let Some(unknown) = only.iter().find(|name| WORKS.iter().all(|work| work.name != name.as_str())) {
        let names: Vec<&str> = WORKS.iter().map(|work| work.name).collect();
        let problem = format!("--only: there is no work {unknown:?}; there are {}", names.join(", "));
        return Err(BenchError::Setting { problem, hint: "vlash bench table --only infer-2,lora-1" });
    }
    Ok(WORKS.iter().filter(|work| only.is_empty() || only.iter().any(|name| name == work.name)).collect())
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> BenchError {
    BenchError::Io { action, path: path.into(), source }
}

/// Runs one work in a process of its own; its output and messages stay beside the table.
fn measure(program: &Path, work: &Work, settings: &Settings, left: Option<Duration>) -> Result<Row, BenchError> {
    let arguments = arguments(work, settings);
    let command = format!("vlash bench {}", arguments.join(" "));
    let row = |took_s, outcome| Row {
        name: work.name.into(),
        title: work.title.into(),
        command: command.clone(),
        took_s,
        outcome,
    };
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(row(0.0, Outcome::Skipped));
    }
    let create = |extension: &str| {
        let path = settings.out.join(format!("{}.{extension}", work.name));
        File::create(&path).map(|file| (path.clone(), file)).map_err(|source| io("write", &path, source))
    };
    let ((output, stdout), (messages, stderr)) = (create("json")?, create("log")?);
    let begun = Instant::now();
    let mut child = Command::new(program)
        .arg("bench")
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(|source| io("start", program, source))?;
    let status = loop {
        match child.try_wait().map_err(|source| io("wait for", program, source))? {
            Some(status) => break Some(status),
            None if left.is_some_and(|left| begun.elapsed() > left) => {
                let _ = child.kill();
                let _ = child.wait();
                break None;
            }
            None => std::thread::sleep(POLL),
        }
    };
    Ok(row(begun.elapsed().as_secs_f64(), outcome(status, &output, &messages)))
}

fn arguments(work: &Work, settings: &Settings) -> Vec<String> {
    let runs = if work.arguments.first() == Some(&"infer") { "--calls" } else { "--steps" };
    let runs = settings.runs.map(|count| [runs.to_string(), count.to_string()]);
    let own = work.arguments.iter().map(|argument| (*argument).to_string());
    own.chain(settings.passed.iter().cloned()).chain(runs.into_iter().flatten()).chain(["--json".into()]).collect()
}

/// `status`: none when the work was stopped.
fn outcome(status: Option<ExitStatus>, output: &Path, messages: &Path) -> Outcome {
    let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
    let Some(status) = status else { return Outcome::Failed("stopped: the budget was spent".into()) };
    if status.success() {
        match serde_json::from_str(&read(output)) {
            Ok(report) => return Outcome::Measured(Box::new(report)),
            Err(error) => return Outcome::Failed(format!("its report cannot be read: {error}")),
        }
    }
    let said = read(messages);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LINES)..).unwrap_or_default();
    Outcome::Failed(if last.is_empty() { status.to_string() } else { last.join(" ") })
}

fn write(table: &Table, out: &Path) -> Result<(), BenchError> {
    let json = serde_json::to_string_pretty(table).unwrap_or_default();
    for (name, text) in [("table.json", json), ("table.md", markdown(table))] {
        let path = out.join(name);
        write_atomic(&path, text.as_bytes()).map_err(|source| io("write", &path, source))?;
    }
    Ok(())
}

fn part<'r>(report: &'r Report, name: &str) -> Option<&'r Measure> {
    report.measures.iter().find(|measure| measure.name == name)
}

fn brief(work: &Work, outcome: &Outcome) -> String {
    match outcome {
        Outcome::Measured(report) => {
            let times = work.parts.iter().filter_map(|name| part(report, name));
            times
                .map(|part| format!("{} {} ms", part.name, render::number(part.seconds.p50 * 1e3)))
                .collect::<Vec<_>>()
                .join(", ")
        }
        Outcome::Failed(why) => format!("failed: {why}"),
        Outcome::Skipped => "skipped: the budget is spent".into(),
    }
}

/// The table for a document: one row a work, then the command of each.
pub fn markdown(table: &Table) -> String {
    let measured_at = |row: &Row| match &row.outcome {
        Outcome::Measured(report) => Some(render::origin(report)),
        _ => None,
    };
    let mut text = table.rows.iter().find_map(measured_at).map_or(String::new(), |origin| format!("{origin}\n\n"));
    text.push_str("| work | p50 ms | p99 ms | floor ms | p50 / floor | samples/s | peak | start to end s |\n");
    text.push_str("|---|---|---|---|---|---|---|---|\n");
    for row in &table.rows {
        text.push_str(&cells(row));
    }
    text.push('\n');
    for row in &table.rows {
        text.push_str(&format!("- {}: `{}`\n", row.name, row.command));
    }
    text
}

/// The rows of one work.
fn cells(row: &Row) -> String {
    let Some(work) = WORKS.iter().find(|work| work.name == row.name) else { return String::new() };
    let Outcome::Measured(report) = &row.outcome else {
        let says = brief(work, &row.outcome).replace('|', "/");
        return format!("| {} | {says} | | | | | | {:.0} |\n", row.title, row.took_s);
    };
    work.parts.iter().filter_map(|name| part(report, name)).map(|part| measured(row, report, part)).collect()
}

fn measured(row: &Row, report: &Report, part: &Measure) -> String {
    let milli = |seconds: f64| render::number(seconds * 1e3);
    let floor = part.floor_s.filter(|floor| *floor > 0.0);
    // "shared: step" has its rate under "shared: samples_per_s".
    let which = part.name.rsplit_once(": ").map_or(String::new(), |(which, _)| format!("{which}: "));
    let samples = ["samples_per_s", "chunks_per_s"].iter().find_map(|name| report.rates.get(&format!("{which}{name}")));
    let memory = report.memory.device_peak.unwrap_or(report.memory.host_peak) as f64;
    let peak = report.rates.get(&format!("{which}device_peak_bytes")).copied().unwrap_or(memory);
    format!(
        "| {}{} | {} | {} | {} | {} | {} | {:.2} GiB | {:.0} |\n",
        row.title,
        if which.is_empty() { String::new() } else { format!(" ({})", which.trim_end_matches(": ")) },
        milli(part.seconds.p50),
        milli(part.seconds.p99),
        floor.map_or("–".into(), milli),
        floor.map_or("–".into(), |floor| render::number(part.seconds.p50 / floor)),
        samples.map_or("–".into(), |rate| render::number(*rate)),
        peak / f64::from(1u32 << 30),
        row.took_s
    )
}
