//! `vlash run`: what was typed to a rollout's configuration.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cli::typed::{self, Flag, Typed, UsageError};
use crate::cli::{output, train_run};
use crate::config::{self, Source};
use crate::error::Failure;

mod session;
mod settings;
mod watched;
mod witness;

const FLAGS: &[Flag] = &[
    Flag { name: "--config_path", value: Some("FILE"), help: "The same as CONFIG (also --config)" },
    Flag { name: "--config", value: Some("FILE"), help: "" },
    Flag { name: "--seed", value: Some("N"), help: "Seed of the simulated scene (robot.seed)" },
    Flag { name: "--seconds", value: Some("S"), help: "Longest time of an episode (control.duration_s)" },
    Flag { name: "--episodes", value: Some("N"), help: "Simulated episodes in a row, each with its own seed" },
    Flag { name: "--dry-run", value: None, help: "Check whether policy, robot and settings fit, and stop" },
    Flag {
        name: "--print-config",
        value: None,
        help: "Print the resolved configuration with the origin of every value, and stop",
    },
    Flag { name: "--no-tui", value: None, help: "Lines of text instead of the Robot screen" },
    Flag { name: "--json", value: None, help: "Telemetry as JSON lines on standard output" },
    Flag { name: "--help", value: None, help: "Print this help (also -h)" },
];

const EXAMPLES: &str = "\
Examples:
  vlash run                                      the policy in the box on the simulated arm
  vlash run robot.variant=moving control.mode=sync --seed 7
                                                 where waiting for every chunk hurts
  vlash run --no-tui --episodes 10               ten scenes in a row, as lines of text
  vlash run configs/run/sim.toml policy.path=outputs/sim/checkpoints/last/pretrained_model
  vlash run async.yaml robot.type=sim --policy.path=CHECKPOINT --single_task='pick the ball'
                                                 a configuration of VLASH's, on the simulated arm
  vlash run control.latency_ms=184.5             as if inference took as long as on a slower machine
  vlash run robot.faults='[stall:wrist@3+0.8]'   see the watchdog at work

On the Robot screen SPACE holds the arm under torque and E is the arm's own emergency stop; ? lists the keys. SIGINT and
SIGTERM end a rollout in an orderly way with its report, a second one at once.

Keys: configs/run/reference.toml. Arguments may use the names of TOML (control.overlap) and of VLASH's YAML
(inference_overlap_steps), written a.b=c, --a.b=c or --a.b c.";

/// Run a policy on a robot.
#[derive(clap::Args)]
#[command(disable_help_flag = true, override_help = help())]
pub struct Args {
    /// A configuration file, options, and key=value settings, in any order.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CONFIG | OPTION | KEY=VALUE")]
    typed: Vec<String>,
}

/// What was asked for.
#[derive(Debug, PartialEq)]
pub struct Request {
    pub source: Source,
    /// `key=value`, in the order typed.
    pub overrides: Vec<String>,
    pub print_config: bool,
    pub dry_run: bool,
    pub tui: bool,
    pub json: bool,
}

impl Request {
    /// Interprets the arguments; `None` when help was asked for.
    pub fn parse(arguments: &[String]) -> Result<Option<Request>, UsageError> {
        let usage = |message| UsageError { message, help: "vlash run --help" };
        let Typed { positionals, flags, mut overrides } = typed::sort(FLAGS, arguments).map_err(usage)?;
        let has = |name: &str| flags.iter().any(|(flag, _)| *flag == name);
        if has("--help") {
            return Ok(None);
        }
        let (source, _) = typed::configuration(positionals, &flags).map_err(usage)?;
        let short = [("--seed", "robot.seed"), ("--seconds", "control.duration_s"), ("--episodes", "run.episodes")];
        for (flag, value) in &flags {
            if let Some((_, key)) = short.iter().find(|(name, _)| name == flag) {
                overrides.push(format!("{key}={value}"));
            }
        }
        Ok(Some(Request {
            source,
            overrides,
            print_config: has("--print-config"),
            dry_run: has("--dry-run"),
            tui: !has("--no-tui"),
            json: has("--json"),
        }))
    }
}

fn help() -> String {
    let usage = "vlash run [CONFIG] [OPTION…] [KEY=VALUE…]";
    format!("Run a policy on a robot.\n\nUsage: {usage}\n\n{}\n{EXAMPLES}\n", typed::help(FLAGS))
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let Some(request) = Request::parse(&args.typed)? else {
        output::print(&help())?;
        return Ok(ExitCode::SUCCESS);
    };
    let loaded = config::load_run(&request.source, &request.overrides)?;
    for note in &loaded.notes {
        output::tell(format_args!("note: {note}"));
    }
    if request.print_config {
        output::print(&config::print::resolved(&loaded))?;
        return Ok(ExitCode::SUCCESS);
    }
    if request.dry_run {
        output::print(&session::check(&loaded.value)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let directory = directory(&loaded.value);
    if train_run::wants_dashboard(request.tui, request.json) {
        watched::run(&directory, &session::policy_name(&loaded.value))
    } else {
        session::run(&loaded.value, &directory, request.json)
    }
}

/// Where the rollout's files go: every rollout has a directory of its own.
fn directory(config: &config::run::RunConfig) -> PathBuf {
    config.run.dir.clone().unwrap_or_else(|| {
        let time = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        PathBuf::from("outputs").join(format!("{}-{time}", config.run.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_options_are_settings() {
        let line = "--seed 7 a.yaml --seconds=2 --no-tui --episodes 3 fps=15";
        let typed: Vec<String> = line.split(' ').map(String::from).collect();
        let request = Request::parse(&typed).unwrap().unwrap();
        assert_eq!(request.source, Source::File("a.yaml".into()));
        assert_eq!(request.overrides, ["fps=15", "robot.seed=7", "control.duration_s=2", "run.episodes=3"]);
        assert_eq!((request.tui, request.json, request.dry_run), (false, false, false));
        let slip = Request::parse(&["--episode".to_string()]).unwrap_err();
        assert_eq!(slip.to_string(), "unknown option --episode; did you mean --episodes?");
    }
}
