//! Reports as Markdown, which is also what a terminal shows.

use std::fmt::Write;

use super::report::{Kind, Measure, Memory, Report};

const GIB: f64 = (1u64 << 30) as f64;

/// A whole report.
pub fn report(report: &Report) -> String {
    let mut text = format!("{}\n\n{}\n", settings(report), origin(report));
    text.push('\n');
    text.push_str(&measures(report));
    if !report.rates.is_empty() {
        text.push('\n');
        for (name, value) in &report.rates {
            let _ = writeln!(text, "- {name}: {}", number(*value));
        }
    }
    text.push('\n');
    let _ = writeln!(text, "- memory: {}", memory(&report.memory));
    for note in &report.notes {
        let _ = writeln!(text, "- {note}");
    }
    text
}

/// What was asked for, in one line.
fn settings(report: &Report) -> String {
    let kind = match report.kind {
        Kind::Infer => "infer",
        Kind::Train => "train",
        Kind::Load => "load",
        Kind::Ops => "ops",
    };
    let pairs: Vec<String> = report.settings.iter().map(|(name, value)| format!("{name} {}", plain(value))).collect();
    format!("{kind}: {}", pairs.join(", "))
}

fn plain(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// Device, ceilings, version and date.
pub fn origin(report: &Report) -> String {
    let origin = &report.origin;
    let mut text = origin.device.clone();
    if let Some((major, minor)) = origin.capability {
        let _ = write!(text, " (capability {major}.{minor}");
        if let Some((major, minor)) = origin.driver {
            let _ = write!(text, ", driver for CUDA {major}.{minor}");
        }
        text.push(')');
    }
    let _ = write!(text, "; {} with {} threads; vlash {}; {}", origin.cpu, origin.threads, origin.version, origin.date);
    if let Some(ceilings) = &report.ceilings {
        let _ = write!(
            text,
            "\nceilings measured: copy {} GB/s, {} product {} TFLOP/s",
            number(ceilings.copy_bytes_per_s / 1e9),
            ceilings.dtype,
            number(ceilings.matmul_flops_per_s / 1e12)
        );
    }
    text
}

/// A row for each part.
fn measures(report: &Report) -> String {
    let micro = report.kind == Kind::Ops;
    let unit = if micro { "µs" } else { "ms" };
    let rooflines = report.ceilings.is_some();
    let mut text = format!("| part | n | p50 {unit} | p90 | p99 | max | range of p50 |");
    text.push_str(if rooflines { " floor | p50 / floor | TFLOP/s | GB/s |\n" } else { "\n" });
    text.push_str(if rooflines {
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
    } else {
        "|---|---|---|---|---|---|---|\n"
    });
    for measure in &report.measures {
        text.push_str(&row(measure, if micro { 1e6 } else { 1e3 }, rooflines));
    }
    text
}

fn row(measure: &Measure, scale: f64, rooflines: bool) -> String {
    let time = |seconds: f64| number(seconds * scale);
    let s = &measure.seconds;
    let [low, high] = s.p50_range;
    let mut cells = vec![measure.name.clone(), s.n.to_string()];
    cells.extend([s.p50, s.p90, s.p99, s.max].map(time));
    cells.push(format!("{}–{}", time(low), time(high)));
    if rooflines {
        let per_s = |work: Option<f64>, unit: f64| work.filter(|work| *work > 0.0).map(|work| work / s.p50 / unit);
        let or_dash = |value: Option<f64>| value.map_or("–".to_string(), number);
        cells.push(or_dash(measure.floor_s.map(|floor| floor * scale)));
        cells.push(or_dash(measure.floor_s.filter(|floor| *floor > 0.0).map(|floor| s.p50 / floor)));
        cells.push(or_dash(per_s(measure.flops, 1e12)));
        cells.push(or_dash(per_s(measure.bytes, 1e9)));
    }
    format!("| {} |\n", cells.join(" | "))
}

/// Memory in GiB, as far as it is known.
pub fn memory(memory: &Memory) -> String {
    let gib = |bytes: u64| format!("{:.2} GiB", bytes as f64 / GIB);
    let host = format!("host peak {}", gib(memory.host_peak));
    let (Some(peak), Some(used), Some(total)) = (memory.device_peak, memory.device_used, memory.device_total) else {
        return host;
    };
    let loaded = memory.device_loaded.map_or(String::new(), |loaded| format!("with weights {}, ", gib(loaded)));
    format!("device peak {} of {} ({loaded}at the end {}); {host}", gib(peak), gib(total), gib(used))
}

/// About three digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1e6 => format!("{value:.3e}"),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        v if v >= 0.1 => format!("{value:.3}"),
        v if v >= 0.001 => format!("{value:.4}"),
        0.0 => "0".into(),
        _ => format!("{value:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_what_means_something() {
        let shown = [1234.5, 12.345, 1.2345, 0.012345, 0.0, 3.5e-7, 153_940_128.0].map(number);
        assert_eq!(shown, ["1234", "12.3", "1.23", "0.0123", "0", "3.5e-7", "1.539e8"]);
    }

    #[test]
    fn a_row_shows_rates_and_its_distance_from_the_floor() {
        let measure =
            Measure { floor_s: Some(0.5e-3), flops: Some(2e9), bytes: Some(1e6), ..Measure::of("call", &[1e-3, 1e-3]) };
        assert_eq!(
            row(&measure, 1e3, true),
            "| call | 2 | 1.00 | 1.00 | 1.00 | 1.00 | 1.00–1.00 | 0.500 | 2.00 | 2.00 | 1.00 |\n"
        );
        assert_eq!(row(&Measure::of("call", &[1e-3]), 1e3, true).matches('–').count(), 5);
    }
}
