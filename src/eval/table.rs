//! A report as text: a Markdown table that is readable as it stands.

use super::report::{CellReport, Report};
use crate::realtime::metrics::Distribution;

/// The whole report.
pub fn markdown(report: &Report) -> String {
    let mut text = heading(report);
    text.push_str(&table(report));
    text.push_str(&published(report));
    text.push_str(&measured(report));
    for note in &report.notes {
        text.push_str(&format!("\nNote: {note}.\n"));
    }
    text.push_str(LEGEND);
    text
}

const LEGEND: &str = "
Δ, × best: success (points) and completion time against the same policy's sync at delay 0. × sync: how much faster than
sync at the same delay, over seeds that both solve; beside it (n + delay) / n. jump: largest joint's step at chunk
boundaries; state: state told − measured when the chunk began (mrad). held, miss: ticks without an action and late
inferences, a rollout.
";

fn heading(report: &Report) -> String {
    let mut text = format!(
        "{} task, seeds {}, n = {} actions a chunk, {} clock, time limit {} s\n",
        report.variant, report.seeds, report.execute, report.clock, report.time_limit_s
    );
    for (index, policy) in report.policies.iter().enumerate() {
        text.push_str(&format!(
            "policy {}: {} ({}), H = {}, trained for delays up to {}, given actions up to {}\n",
            letter(index),
            policy.name,
            policy.digest.get(..12).unwrap_or(&policy.digest),
            policy.horizon,
            policy.trained_delay,
            policy.rtc_trained_delay
        ));
    }
    text.push('\n');
    text
}

/// `A`, `B`, …
pub(super) fn letter(index: usize) -> char {
    char::from(b'A' + u8::try_from(index % 26).unwrap_or(0))
}

const COLUMNS: [&str; 14] = [
    "policy",
    "mode",
    "delay",
    "success",
    "95 %",
    "Δ",
    "time s",
    "median",
    "× best",
    "× sync",
    "jerk",
    "jump",
    "state",
    "held / miss",
];

fn table(report: &Report) -> String {
    let rows: Vec<[String; 14]> = report.cells.iter().map(cells).collect();
    let width = |column: usize| {
        let of = |text: &str| text.chars().count();
        let header = COLUMNS.get(column).map_or(0, |text| of(text));
        rows.iter().filter_map(|row| row.get(column)).map(|text| of(text)).max().unwrap_or(0).max(header)
    };
    let widths: [usize; 14] = std::array::from_fn(width);
    let line = |row: &[String; 14]| {
        let padded = row.iter().zip(widths).enumerate().map(|(column, (text, width))| {
            // Words left, numbers right.
            if column < 2 { format!(" {text:<width$} |") } else { format!(" {text:>width$} |") }
        });
        format!("|{}\n", padded.collect::<String>())
    };
    let mut text = line(&COLUMNS.map(String::from));
    let rule = widths.iter().enumerate().map(|(column, width)| {
        let dashes = "-".repeat(width + 1);
        if column < 2 { format!(":{dashes}|") } else { format!("{dashes}:|") }
    });
    text.push_str(&format!("|{}\n", rule.collect::<String>()));
    rows.iter().for_each(|row| text.push_str(&line(row)));
    text
}

fn cells(cell: &CellReport) -> [String; 14] {
    let some = |value: Option<f64>, digits: usize| value.map_or("–".into(), |value| format!("{value:.digits$}"));
    let milli = |value: Option<f64>| some(value.map(|value| value * 1e3), 1);
    let success = &cell.success;
    [
        letter(cell.policy).to_string(),
        cell.method.to_string(),
        cell.delay.clone(),
        format!("{}/{}", success.successes, success.trials),
        format!("{:.1}–{:.1}", 100.0 * success.low, 100.0 * success.high),
        cell.points_vs_best.map_or("–".into(), |points| format!("{points:+.1}")),
        some(cell.time_mean_s, 2),
        some(cell.time_median_s, 2),
        some(cell.time_vs_best, 2),
        match (cell.speed_up, cell.speed_up_expected) {
            (Some(found), Some(expected)) => format!("{found:.2} ({expected:.2})"),
            (None, Some(expected)) => format!("– ({expected:.2})"),
            _ => "–".into(),
        },
        format!("{:.1}", cell.jerk),
        milli(cell.boundary_jump),
        milli(cell.state_error),
        format!("{:.1} / {:.1}", cell.held, cell.misses),
    ]
}

/// Slow and waiting against fast and not waiting.
fn published(report: &Report) -> String {
    let percent = |cell: &CellReport| format!("{:.0} %", 100.0 * cell.success.rate());
    let time = |cell: &CellReport| cell.time_mean_s.map_or(String::new(), |time| format!(" in {time:.1} s"));
    let said = |(slow, fast): (&CellReport, &CellReport)| {
        format!(
            "\npolicy {}: sync at {} {}{}; {} at {} {}{}\n",
            letter(slow.policy),
            slow.delay,
            percent(slow),
            time(slow),
            fast.method,
            fast.delay,
            percent(fast),
            time(fast)
        )
    };
    // Fixed delays in ticks are a table to be read along its rows; only latencies are settings of their own.
    let latencies = |(slow, _): &(&CellReport, &CellReport)| slow.delay.ends_with("ms");
    report.across_latencies().into_iter().filter(latencies).map(said).collect()
}

/// Latencies, where they were measured.
fn measured(report: &Report) -> String {
    let said = |cell: &CellReport| {
        let latency = cell.latency_ms?;
        let name = format!("policy {}, {}", letter(cell.policy), cell.method);
        let Distribution { count, p50, p95, max, .. } = latency;
        Some(format!("\n{name}: measured latency p50 {p50:.1} ms, p95 {p95:.1} ms, longest {max:.1} ms of {count}\n"))
    };
    report.cells.iter().filter_map(said).collect()
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::synthetic;
    use super::*;

    #[test]
    fn the_table_of_synthetic_rollouts() {
        insta::assert_snapshot!(markdown(&synthetic()));
    }

    #[test]
    fn slow_sync_stands_beside_fast_asynchrony() {
        let mut report = synthetic();
        assert_eq!(published(&report), "");
        report.cells[1].delay_ticks = 164.0;
        report.cells[1].delay = "5444ms".into();
        assert!(published(&report).contains("sync at 5444ms 100 % in 14.2 s; vlash at 8 100 % in 9.5 s"));
    }
}
