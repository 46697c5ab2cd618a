//! Arguments to configuration to one call; one file a subcommand.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::error::Failure;

mod data;
mod output;
mod policy;
mod train;
mod train_run;
mod typed;
mod watch;

/// Fine-tune and deploy vision-language-action policies.
#[derive(Parser)]
#[command(name = "vlash", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Train(train::Args),
    Watch(watch::Args),
    #[command(subcommand)]
    Data(data::Command),
    #[command(subcommand)]
    Policy(policy::Command),
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
        Command::Watch(args) => watch::run(args),
        Command::Data(command) => data::run(command),
        Command::Policy(command) => policy::run(command),
    };
    match result {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("vlash: {}", failure.message());
            ExitCode::from(failure.kind().exit_code())
        }
    }
}
