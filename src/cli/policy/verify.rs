//! `vlash policy verify`: does a checkpoint compute what another implementation computed?

use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::json;

use super::place;
use crate::cli::output::print;
use crate::config::train::DeviceKind;
use crate::device;
use crate::error::{Failure, Kind};
use crate::policy::checkpoint::verify::verify_checkpoint;
use crate::policy::verify::{Report, Row, Verdict};

const EXAMPLES: &str = "\
Examples:
  vlash policy verify /models/pi05_tiny --reference case-a/inputs.safetensors case-a/*forward*
  vlash policy verify outputs/tiny --reference inputs.safetensors inference.safetensors --json
  vlash policy verify outputs/tiny --reference inputs.safetensors inference.safetensors --device cuda";

/// Compare a checkpoint with reference tensors, name by name; exits 0 only when all agree and none is left over
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Directory with config.json and model.safetensors, of a checkpoint, or of a run
    checkpoint: PathBuf,
    /// Files of one case: inputs, train_forward, gradients, inference, …
    #[arg(long, value_name = "FILE.safetensors", required = true, num_args = 1..)]
    reference: Vec<PathBuf>,
    /// Where to compute: auto, cpu, cuda, or one of several GPUs such as cuda:1
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: DeviceKind,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let checkpoint = place::checkpoint(&args.checkpoint)?;
    let opened = device::open(args.device)?;
    let report = verify_checkpoint(&checkpoint, &args.reference, &opened.device)?;
    if args.json {
        let value = json!({
            "checkpoint": checkpoint,
            "device": opened.to_string(),
            "passed": report.passed(),
            "compared": report.compared,
            "failed": report.failed,
            "rows": report.rows,
        });
        print(&format!("{value:#}\n"))?;
    } else {
        print(&format!("computed on {opened}, in f32\n{}", text(&report)))?;
    }
    Ok(if report.passed() { ExitCode::SUCCESS } else { Kind::Input.exit_code().into() })
}

/// A table a file, then the counts and what failed.
fn text(report: &Report) -> String {
    let width = report.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max("name".len());
    let mut out = String::new();
    let mut file = None;
    for row in &report.rows {
        if file != Some(&row.file) {
            out.push_str(&format!(
                "{}\n{:<width$}  {:>9}  {:>9}  {:>9}  verdict\n",
                row.file, "name", "max abs", "max rel", "tolerance"
            ));
            file = Some(&row.file);
        }
        out.push_str(&format!("{}\n", line(row, width)));
    }
    let uncompared = report.rows.iter().filter(|row| matches!(row.verdict, Verdict::NotCompared(_))).count();
    let differ = report.failed - uncompared;
    out.push_str(&format!(
        "\n{} tensors compared: {} agree, {differ} differ; {uncompared} not compared\n",
        report.compared,
        report.compared - differ
    ));
    out.push_str(if report.passed() { "passed\n" } else { "FAILED\n" });
    let failed: Vec<&Row> = report.rows.iter().filter(|row| row.verdict != Verdict::Pass).collect();
    for row in failed.iter().take(10) {
        out.push_str(&format!("  {}\n", line(row, 0)));
    }
    if failed.len() > 10 {
        out.push_str(&format!("  and {} more\n", failed.len() - 10));
    }
    out
}

fn line(row: &Row, width: usize) -> String {
    let (verdict, reason) = match &row.verdict {
        Verdict::Pass => ("pass", String::new()),
        Verdict::Differs => ("DIFFERS", String::new()),
        Verdict::NotCompared(reason) => ("NOT COMPARED", format!(": {reason}")),
    };
    let number = |value: f64| if value.is_nan() { "-".to_owned() } else { format!("{value:.1e}") };
    format!(
        "{:<width$}  {:>9}  {:>9}  {:>9}  {verdict}{reason}",
        row.name,
        number(row.max_abs),
        number(row.max_rel),
        number(row.tolerance)
    )
}
