//! Results of all tests of a process: a line each while they run, a table and a file at the end.

use std::path::Path;
use std::sync::Mutex;

use serde::Serialize;

use crate::parity::record::{Deviation, Number, Record};

/// One test that ran.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    pub test: String,
    /// None: it passed.
    pub failure: Option<String>,
    pub seconds: f64,
    #[serde(flatten)]
    pub record: Record,
}

impl Entry {
    /// What used up most of its tolerance, or the measured numbers, in one line.
    pub fn summary(&self) -> String {
        let numbers = self.record.numbers.iter().map(number);
        let worst = self.record.worst().map(deviation);
        worst.into_iter().chain(numbers).collect::<Vec<_>>().join(", ")
    }
}

fn deviation(deviation: &Deviation) -> String {
    let at = if deviation.at.is_empty() { String::new() } else { format!(" ({})", deviation.at) };
    format!("{}{at} {:.2e} of {:.1e}", deviation.what, deviation.worst, deviation.tolerance)
}

fn number(number: &Number) -> String {
    let value = if number.value.fract() == 0.0 { format!("{}", number.value) } else { format!("{:.4}", number.value) };
    format!("{} {value} {}", number.what, number.unit).trim_end().to_owned()
}

/// Collects the entries.
#[derive(Debug, Default)]
pub struct Report(Mutex<Vec<Entry>>);

impl Report {
    pub fn add(&self, entry: Entry) {
        self.entries().push(entry);
    }

    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        // A test that panicked did so outside of the lock.
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Every kind of deviation of every test, as rows of a Markdown table; nothing when nothing ran.
    pub fn table(&self, site: &str) -> String {
        let entries = self.entries();
        if entries.is_empty() {
            return String::new();
        }
        let mut lines =
            vec![format!("on {site}:"), "| test | what | worst | allowed |".into(), "|---|---|---|---|".into()];
        for entry in entries.iter() {
            for Deviation { what, worst, tolerance, .. } in &entry.record.deviations {
                lines.push(format!("| {} | {what} | {worst:.2e} | {tolerance:.1e} |", entry.test));
            }
            lines.extend(entry.record.numbers.iter().map(|n| format!("| {} | {} | | |", entry.test, number(n))));
            // The first line: a backtrace may follow.
            let failure = entry.failure.as_deref().and_then(|failure| failure.lines().next());
            lines.extend(failure.map(|failure| format!("| {} | FAILED: {failure} | | |", entry.test)));
        }
        lines.join("\n")
    }

    /// Writes everything as JSON. A number that is not finite becomes null.
    pub fn write(&self, path: &Path, site: &str) -> std::io::Result<()> {
        let value = serde_json::json!({ "device": site, "tests": &*self.entries() });
        std::fs::write(path, format!("{value:#}\n"))
    }
}
