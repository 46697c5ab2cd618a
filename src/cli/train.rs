//! `vlash train`: what was typed to a configuration.

use std::process::ExitCode;

use crate::cli::typed::{self, Flag, Typed, UsageError};
use crate::cli::{output, train_run};
use crate::config::train::Preset;
use crate::config::{self, Source};
use crate::error::Failure;

const FLAGS: &[Flag] = &[
    Flag {
        name: "--preset",
        value: Some("SIZE"),
        help: "tiny, small or full: sizes of the network; without CONFIG also which built-in one is used",
    },
    Flag { name: "--config_path", value: Some("FILE"), help: "The same as CONFIG (also --config)" },
    Flag { name: "--config", value: Some("FILE"), help: "" },
    Flag {
        name: "--allow-new",
        value: Some("NAME"),
        help: "A tensor that may be missing from the base and starts anew; repeatable",
    },
    Flag {
        name: "--print-config",
        value: None,
        help: "Print the resolved configuration with the origin of every value, and stop",
    },
    Flag {
        name: "--accept-changes",
        value: None,
        help: "Continue a run although the configuration differs in ways that change its numbers",
    },
    Flag {
        name: "--ignore-plan",
        value: None,
        help: "Try a run that does not fit the GPU by what `vlash plan` expects",
    },
    Flag { name: "--dry-run", value: None, help: "Check everything that can be checked without training, and stop" },
    Flag { name: "--no-tui", value: None, help: "Plain progress instead of the dashboard" },
    Flag { name: "--json", value: None, help: "Events as JSON lines on standard output" },
    Flag { name: "--help", value: None, help: "Print this help (also -h)" },
];

const EXAMPLES: &str = "\
Examples:
  vlash train                                        the built-in example: tiny policy, bundled data
  vlash train train.steps=200 --no-tui               the same, shorter, without the dashboard
  vlash train configs/train/pi05_lora.toml data.repo=/data/pick optim.lr=1e-4
  vlash train examples/train/pi05/async_lora.yaml --batch_size 4 dataset.episodes=0:40,45:50
  vlash train pick.yaml --print-config > pick.toml   the resolved configuration, as a file that loads again

Keys: configs/train/reference.toml. Arguments may use the names of TOML (train.batch_size) and of the
predecessors' YAML (batch_size), written a.b=c, --a.b=c or --a.b c.";

/// Fine-tune a policy.
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
    pub preset: Option<Preset>,
    /// `key=value`, in the order typed.
    pub overrides: Vec<String>,
    pub print_config: bool,
    pub accept_changes: bool,
    pub ignore_plan: bool,
    pub dry_run: bool,
    pub tui: bool,
    pub json: bool,
}

impl Request {
    /// Interprets the arguments; `None` when help was asked for.
    pub fn parse(arguments: &[String]) -> Result<Option<Request>, UsageError> {
        let usage = |message| UsageError { message, help: "vlash train --help" };
        let Typed { positionals, flags, overrides } = typed::sort(FLAGS, arguments).map_err(usage)?;
        let has = |name: &str| flags.iter().any(|(flag, _)| *flag == name);
        if has("--help") {
            return Ok(None);
        }
        let values =
            |name: &'static str| flags.iter().filter(move |(flag, _)| *flag == name).map(|(_, value)| value.clone());
        let (source, preset) = typed::configuration(positionals, &flags).map_err(usage)?;
        let new: Vec<String> = values("--allow-new").collect();
        let allowed = (!new.is_empty()).then(|| format!("model.allow_new={}", serde_json::json!(new)));
        Ok(Some(Request {
            source,
            preset,
            overrides: overrides.into_iter().chain(allowed).collect(),
            print_config: has("--print-config"),
            accept_changes: has("--accept-changes"),
            ignore_plan: has("--ignore-plan"),
            dry_run: has("--dry-run"),
            tui: !has("--no-tui"),
            json: has("--json"),
        }))
    }
}

/// Clap knows neither our options nor where they may stand, so both `--help` and `vlash help train` print this.
fn help() -> String {
    let usage = "vlash train [CONFIG] [OPTION…] [KEY=VALUE…]";
    format!("Fine-tune a policy.\n\nUsage: {usage}\n\n{}\n{EXAMPLES}\n", typed::help(FLAGS))
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let Some(request) = Request::parse(&args.typed)? else {
        output::print(&help())?;
        return Ok(ExitCode::SUCCESS);
    };
    let loaded = config::load(&request.source, request.preset, &request.overrides)?;
    for note in &loaded.notes {
        output::tell(format_args!("note: {note}"));
    }
    if request.print_config {
        output::print(&config::print::resolved(&loaded))?;
        return Ok(ExitCode::SUCCESS);
    }
    if request.dry_run {
        output::print(&train_run::check(&loaded, &request)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if train_run::wants_dashboard(request.tui, request.json) {
        train_run::watched(&loaded)
    } else {
        train_run::here(&loaded, &request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Request>, UsageError> {
        Request::parse(&line.split_whitespace().map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn every_spelling_of_file_and_override_is_understood() {
        let expected = parse("a.yaml optimizer.lr=1e-4 steps=5 seed=-1").unwrap().unwrap();
        assert_eq!(expected.source, Source::File("a.yaml".into()));
        for line in [
            "--config_path=a.yaml --optimizer.lr=1e-4 --steps=5 --seed=-1",
            "--config_path a.yaml --optimizer.lr 1e-4 --steps 5 --seed -1",
            "--optimizer.lr=1e-4 --config a.yaml steps=5 --seed -1",
            "optimizer.lr=1e-4 steps=5 a.yaml seed=-1",
        ] {
            assert_eq!(parse(line).unwrap().unwrap(), expected, "{line}");
        }
        // A line of a file, pasted between quotes.
        let pasted = ["a.yaml", "optimizer.lr = 1e-4", "steps =5", "seed= -1"].map(String::from);
        assert_eq!(Request::parse(&pasted).unwrap().unwrap(), expected);
    }

    #[test]
    fn options_stand_anywhere() {
        let request =
            parse("--no-tui c.toml --preset tiny x=1 --json --dry-run --allow-new a --allow-new=b").unwrap().unwrap();
        assert_eq!(request.preset, Some(Preset::Tiny));
        assert_eq!(request.overrides, ["x=1", "model.allow_new=[\"a\",\"b\"]"]);
        assert_eq!((request.tui, request.json, request.dry_run, request.print_config), (false, true, true, false));
        assert_eq!(parse("c.toml --print-config -h").unwrap(), None);
    }

    proptest::proptest! {
        #[test]
        fn no_argument_is_a_panic(arguments in proptest::collection::vec("(--)?[a-z.]{0,6}=?[ -~é]{0,6}", 0..6)) {
            let _ = Request::parse(&arguments);
        }
    }

    #[test]
    fn slips_are_explained() {
        let message = |line: &str| parse(line).unwrap_err().to_string();
        assert_eq!(message("--no-tiu"), "unknown option --no-tiu; did you mean --no-tui?");
        assert_eq!(message("--steps"), "--steps needs a value, as in --steps=VALUE");
        let unknown = "unknown option --learning_rate; a setting is written --learning_rate=VALUE";
        assert_eq!(message("--learning_rate"), unknown);
        assert_eq!(message("--optimizer.lr"), "--optimizer.lr needs a value, as in --optimizer.lr=VALUE");
        assert_eq!(message("--preset=medium"), "--preset: \"medium\" is not one of tiny, small, full");
        assert_eq!(message("--json=1"), "--json takes no value");
        assert_eq!(
            message("a.toml b.toml"),
            "two configuration files, a.toml and b.toml; settings are written key=value"
        );
    }
}
