//! Runs the trainer: in this process with plain progress, or as a process of its own under the dashboard.

use std::fs::{self, File};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use crate::cli::output::tell;
use crate::cli::train::Request;
use crate::config::Loaded;
use crate::config::train::TrainConfig;
use crate::error::{Explain, Failure, Kind};
use crate::plan::report::gib;
use crate::track::console::{Console, count};
use crate::track::event::Outcome;
use crate::track::status::Status;
use crate::train::compute::Directly;
use crate::train::trainer::Ending;
use crate::train::{self, Report};
use crate::tui;

/// How long the dashboard gives the trainer to end after a stop was asked for.
const PATIENCE: Duration = Duration::from_millis(200);

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
    let output = std::env::temp_dir().join(format!("vlash-train-{}.log", std::process::id()));
    let mut trainer = Trainer::start(&output)?;
    if let Some(code) = trainer.wait_for_run(&run)? {
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
            tell(format_args!(
                "the run goes on: {}\nwatch it again with `vlash watch {}`",
                run.display(),
                run.display()
            ));
            exit?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

struct Trainer {
    child: Child,
    output: PathBuf,
}

impl Trainer {
    fn start(output: &Path) -> Result<Trainer, SpawnError> {
        let error = |source| SpawnError { path: output.into(), source };
        let log = File::create(output).map_err(error)?;
        let program = std::env::current_exe().map_err(error)?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).arg("--no-tui").stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(error)?).stderr(log);
        // A process group of its own: neither Ctrl-C nor the terminal's end reaches the trainer.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Ok(Trainer { child: command.spawn().map_err(error)?, output: output.into() })
    }

    /// Waits until the trainer owns the run directory; the exit code when it left before.
    fn wait_for_run(&mut self, run: &Path) -> Result<Option<ExitCode>, SpawnError> {
        let since = Instant::now();
        let mut said = false;
        loop {
            if let Some(code) = self.try_wait()? {
                return Ok(Some(code));
            }
            let status =
                fs::read(run.join("status.json")).ok().and_then(|bytes| serde_json::from_slice::<Status>(&bytes).ok());
            if status.is_some_and(|status| status.pid == self.child.id()) {
                return Ok(None);
            }
            if !said && since.elapsed() > Duration::from_secs(2) {
                tell(format_args!("checking configuration and data …"));
                said = true;
            }
            std::thread::sleep(PATIENCE);
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitCode>, SpawnError> {
        let status = self.child.try_wait().map_err(|source| SpawnError { path: self.output.clone(), source })?;
        Ok(status.map(|status| self.conclude(status)))
    }

    fn wait(&mut self) -> Result<Option<ExitCode>, SpawnError> {
        let status = self.child.wait().map_err(|source| SpawnError { path: self.output.clone(), source })?;
        Ok(Some(self.conclude(status)))
    }

    /// Prints the end of what the trainer printed, and passes its exit code on.
    fn conclude(&self, status: std::process::ExitStatus) -> ExitCode {
        const TAIL: usize = 8;
        if let Ok(text) = fs::read_to_string(&self.output) {
            let lines: Vec<&str> = text.lines().collect();
            for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
                tell(format_args!("{line}"));
            }
        }
        let _ = fs::remove_file(&self.output);
        let killed = Kind::Internal.exit_code();
        ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(killed))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot start the trainer (its output goes to {path})")]
struct SpawnError {
    path: PathBuf,
    source: std::io::Error,
}

impl Explain for SpawnError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }

    fn hint(&self) -> Option<String> {
        Some("vlash train --no-tui trains in this process".into())
    }
}
