//! Arguments to configuration to one call; one file a subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Failure;

mod bench;
mod child;
mod collect;
mod data;
mod eval;
mod gpu;
mod output;
mod plan;
mod policy;
mod run;
mod train;
mod train_run;
mod typed;
mod watch;

const EXAMPLES: &str = "\
Examples:
  vlash train                          train the built-in example; needs nothing else
  vlash data check /data/pick          can this LeRobot dataset be trained on?
  vlash train configs/train/pi05_lora.toml data.repo=/data/pick model.base=/models/pi05_base
  vlash plan configs/train/pi05_lora.toml
                                       which GPU is large enough, how long will it take?
  vlash run                            the policy in the box on the simulated arm
  vlash watch outputs/pi05_lora        attach to a run, from any terminal
  vlash policy info outputs/pi05_lora/checkpoints/last/pretrained_model
  vlash eval --delays 0,4,8            success and time against inference delay, waiting or not
  vlash gpu                            which GPUs can be used here; what is missing where
  vlash bench infer                    how fast is this machine, and how far from what it could be?
  vlash help data check                the help of a subcommand

Exit codes: 0 done; 64 bad input or configuration; 69 environment (disk, permission, GPU);
70 a defect of vlash; 75 stopped with a checkpoint, the same command continues.";

/// Fine-tune vision-language-action policies (π₀.₅) on LeRobot datasets.
#[derive(Parser)]
#[command(name = "vlash", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Args),
    Run(run::Args),
    Plan(plan::Args),
    Watch(watch::Args),
    Collect(collect::Args),
    Eval(Box<eval::Args>),
    #[command(subcommand)]
    Data(data::Command),
    #[command(subcommand)]
    Policy(policy::Command),
    Gpu(gpu::Args),
    #[command(subcommand)]
    Bench(bench::Command),
}

/// Parses the arguments, runs the subcommand, prints a failure once, and returns the exit code.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { crate::error::Kind::Input.exit_code() } else { 0 });
        }
    };
    let result: Result<ExitCode, Failure> = match cli.command {
        Command::Train(args) => train::run(args),
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::run(args),
        Command::Watch(args) => watch::run(args),
        Command::Collect(args) => collect::run(args),
        Command::Eval(args) => eval::run(*args),
        Command::Data(command) => data::run(command),
        Command::Policy(command) => policy::run(command),
        Command::Gpu(args) => gpu::run(args),
        Command::Bench(command) => bench::run(command),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            output::tell(format_args!("vlash: {}", failure.message()));
            ExitCode::from(failure.kind().exit_code())
        }
    }
}
