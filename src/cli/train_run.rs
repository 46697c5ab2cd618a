//! Runs the trainer: in this process with plain progress, or as a process of its own under the dashboard.

use std::fs;
use std::io::IsTerminal;
use std::process::ExitCode;

use crate::cli::child::{self, Worker};
use crate::cli::output::tell;
use crate::cli::train::Request;
use crate::config::Loaded;
use crate::config::train::TrainConfig;
use crate::error::{Failure, Kind};
use crate::plan::report::gib;
use crate::track::console::{Console, count};
use crate::track::event::Outcome;
use crate::track::status::Status;
use crate::train::compute::Directly;
use crate::train::trainer::Ending;
use crate::train::{self, Report};
use crate::tui;

/// Whether the dashboard can and should be shown.
pub fn wants_dashboard(asked: bool, json: bool) -> bool {
    let dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
    let ci = std::env::var_os("CI").is_some();
    asked && !json && !dumb && !ci && std::io::stdout().is_terminal() && std::io::stdin().is_terminal()
}

/// Checks everything that can be checked without training, and says what would be trained.
pub fn check(loaded: &Loaded<TrainConfig>, asked: &Request) -> Result<String, Failure> {
    let config = &loaded.value;
    let session = train::run::check(config, asked.accept_changes, asked.ignore_plan)?;
    let (data, model) = (&session.data, &session.model);
    let held_out = data.held_out.as_ref().map_or(0, |dataset| dataset.len());
    let mut text = format!(
        "data: {} ({} frames to train on, {held_out} held out)\nweights: {}\ntrained: {} of {} parameters\n",
        data.root.display(),
        data.train.len(),
        model.account,
        count(model.trained),
        count(model.parameters)
    );
    text.push_str(&format!(
        "run: {} ({} steps of {} samples; a checkpoint takes about {:.1} MiB)\n",
        train::resume::directory(config).display(),
        config.train.steps,
        config.train.batch_size * config.train.grad_accum,
        model.checkpoint_bytes() as f64 / (1024.0 * 1024.0)
    ));
    let plan = &session.plan;
    let verdict = plan.verdict().unwrap_or_else(|| format!("{} GiB expected", gib(plan.total_bytes)));
    text.push_str(&format!("memory: {verdict}\n"));
    for finding in data.findings.iter().chain(&model.findings) {
        text.push_str(&format!("{}: {}\n", finding.code, finding.message));
        if let Some(fix) = &finding.fix {
            text.push_str(&format!("  fix: {fix}\n"));
        }
    }
    text.push_str("everything that can be checked without training is fine\n");
    Ok(text)
}

/// Trains in this process.
pub fn here(loaded: &Loaded<TrainConfig>, asked: &Request) -> Result<ExitCode, Failure> {
    let request = train::Request {
        config: &loaded.value,
        notes: loaded.notes.iter().map(ToString::to_string).collect(),
        command: std::env::args().collect(),
        accept_changes: asked.accept_changes,
        ignore_plan: asked.ignore_plan,
        compute: Box::new(Directly),
        listener: Box::new(Console::new(asked.json)),
    };
    let report = train::run(request)?;
    tell(format_args!("{}", summary(&report).trim_end()));
    Ok(match report.ending {
        Ending::Finished | Ending::AlreadyDone => ExitCode::SUCCESS,
        Ending::Stopped { .. } => ExitCode::from(Kind::Stopped.exit_code()),
    })
}

/// What a run ends with: how well it learned, where the checkpoint is, what to do next.
fn summary(report: &Report) -> String {
    let mut text = String::new();
    if let (Some(before), Some(after)) = (&report.before, &report.after) {
        text.push_str(&format!("held-out loss: {:.4} before, {:.4} after\n", before.loss, after.loss));
    }
    if let Some(after) = &report.after {
        text.push_str(&format!(
            "against predicting zero velocity ({:.4}): {:.2} ×\n",
            after.zero_velocity,
            after.loss / after.zero_velocity
        ));
        if let Some(shuffled) = after.shuffled {
            text.push_str(&format!(
                "with observations shuffled between samples ({shuffled:.4}): {:.2} × worse\n",
                shuffled / after.loss
            ));
        }
    }
    if let Some(saved) = &report.checkpoint {
        let model = saved.path.join("pretrained_model");
        text.push_str(&format!("checkpoint: {}\n", model.display()));
        text.push_str(&match report.ending {
            Ending::Finished => {
                format!("next: vlash policy info {}\n      vlash watch {}\n", model.display(), report.run.display())
            }
            Ending::AlreadyDone => format!(
                "this run has done all its steps: add some with train.steps=…, or begin another, e.g. run.dir={}-2\n",
                report.run.display()
            ),
            Ending::Stopped { .. } => "next: the same command continues this run\n".to_string(),
        });
    }
    text
}

/// Starts the trainer as a process of its own and shows its dashboard. Losing the terminal does not stop it.
pub fn watched(loaded: &Loaded<TrainConfig>) -> Result<ExitCode, Failure> {
    let run = train::resume::directory(&loaded.value);
    let arguments = std::env::args_os().skip(1).chain(["--no-tui".into()]);
    let mut trainer = Worker::start("train", arguments)?;
    let owns = |pid: u32| {
        let status = fs::read(run.join("status.json")).ok();
        status.and_then(|bytes| serde_json::from_slice::<Status>(&bytes).ok()).is_some_and(|status| status.pid == pid)
    };
    if let Some(code) = trainer.wait_until(owns, "checking configuration and data")? {
        return Ok(code);
    }
    let options = tui::Options { owned: true, ..tui::Options::default() };
    let exit = tui::watch(&run, &options);
    // The screen is gone; whatever happened to it, what the trainer says comes on the normal screen.
    let ended = match &exit {
        Ok(tui::Exit::Ended(Outcome::Finished | Outcome::Stopped | Outcome::Failed)) => trainer.wait()?,
        _ => trainer.try_wait()?,
    };
    match ended {
        Some(code) => Ok(code),
        None => {
            child::goes_on(&run);
            exit?;
            Ok(ExitCode::SUCCESS)
        }
    }
}
