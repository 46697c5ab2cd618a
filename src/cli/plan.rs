//! `vlash plan`: memory and time of a run before anything starts.

use std::process::ExitCode;

use crate::cli::output;
use crate::cli::typed::{self, Flag, Typed, UsageError};
use crate::collect::bundled::Bundled;
use crate::config::train::{DeviceKind, Preset, TrainConfig};
use crate::config::{self, Source};
use crate::dataset::{Metadata, resolve};
use crate::device;
use crate::error::{Explain, Failure, Kind};
use crate::plan::report::On;
use crate::plan::{Report, Subject, cards};
use crate::train::prepare::fit;

const FLAGS: &[Flag] = &[
    Flag {
        name: "--gpu",
        value: Some("NAME"),
        help: "A card of the table, for time and verdict; else the GPU that is here",
    },
    Flag {
        name: "--preset",
        value: Some("SIZE"),
        help: "tiny, small or full: sizes of the network; without CONFIG also which built-in one is used",
    },
    Flag { name: "--config_path", value: Some("FILE"), help: "The same as CONFIG (also --config)" },
    Flag { name: "--config", value: Some("FILE"), help: "" },
    Flag { name: "--json", value: None, help: "Print JSON" },
    Flag { name: "--help", value: None, help: "Print this help (also -h)" },
];

const EXAMPLES: &str = "\
Examples:
  vlash plan configs/train/pi05_lora.toml
  vlash plan configs/train/pi05_full.toml train.batch_size=1 --gpu H200
  vlash plan async_lora.yaml --gpu \"RTX 4090\" --json

Neither a GPU nor the dataset nor the weights need be here. Memory is in GiB (2^30 bytes), at the highest point of a
step; time is a range.";

/// Memory and time of a run, before anything starts.
#[derive(clap::Args)]
#[command(disable_help_flag = true, override_help = help())]
pub struct Args {
    /// As for `vlash train`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CONFIG | OPTION | KEY=VALUE")]
    typed: Vec<String>,
}

/// What was asked for.
struct Request {
    source: Source,
    preset: Option<Preset>,
    overrides: Vec<String>,
    gpu: Option<String>,
    json: bool,
}

impl Request {
    /// Interprets the arguments; `None` when help was asked for.
    fn parse(arguments: &[String]) -> Result<Option<Request>, UsageError> {
        let usage = |message| UsageError { message, help: "vlash plan --help" };
        let Typed { positionals, flags, overrides } = typed::sort(FLAGS, arguments).map_err(usage)?;
        let value = |name: &str| flags.iter().rev().find(|(flag, _)| *flag == name).map(|(_, value)| value.clone());
        if value("--help").is_some() {
            return Ok(None);
        }
        let (source, preset) = typed::configuration(positionals, &flags).map_err(usage)?;
        let (gpu, json) = (value("--gpu"), value("--json").is_some());
        Ok(Some(Request { source, preset, overrides, gpu, json }))
    }
}

fn help() -> String {
    let usage = "vlash plan [CONFIG] [OPTION…] [KEY=VALUE…]";
    let flags = typed::help(FLAGS);
    format!("Memory and time of a run, before anything starts.\n\nUsage: {usage}\n\n{flags}\n{EXAMPLES}\n")
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
    let here = cameras(&loaded.value);
    let mut subject = Subject::new(&loaded.value, here.clone())?;
    subject.notes.extend(foreign_cameras(&loaded.value, here.as_deref()));
    let report = report(&subject, request.gpu.as_deref())?;
    let text = if request.json {
        format!("{}\n", serde_json::to_string_pretty(&report).map_err(Unprintable)?)
    } else {
        report.text()
    };
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// On the card that was named, else on the GPU that is here, else on none in particular.
fn report(subject: &Subject, named: Option<&str>) -> Result<Report, Failure> {
    if let Some(name) = named {
        return Ok(Report::of(subject, On::card(cards::named(name)?))?);
    }
    // The GPU that the run would take, else the first; a machine without one is no reason not to plan.
    let kind = match subject.config.runtime.device {
        DeviceKind::Cuda(index) => DeviceKind::Cuda(index),
        DeviceKind::Auto | DeviceKind::Cpu => DeviceKind::Auto,
    };
    let here = device::open(kind).ok();
    Ok(match here.as_ref().and_then(|opened| Some((opened, opened.gpu.as_ref()?))) {
        Some((opened, gpu)) => Report::of(subject, fit::on(gpu, fit::free_bytes(gpu, opened)))?,
        None => Report::of(subject, On::GPU)?,
    })
}

/// The chosen cameras of the dataset, by the names that the policy knows; none when it is not here.
fn cameras(config: &TrainConfig) -> Option<Vec<String>> {
    let features = if let Some(bundled) = Bundled::named(config.data.repo.as_deref(), config.data.root.is_some()) {
        bundled.cameras()
    } else {
        let root = resolve::resolve(config.data.repo.as_deref(), config.data.root.as_deref()).ok()?.path;
        let metadata = Metadata::read(&root).ok()?;
        metadata.cameras().filter(|camera| !camera.is_depth).map(|camera| camera.name.clone()).collect()
    };
    let chosen = |feature: &String| config.data.cameras.as_ref().is_none_or(|names| names.contains(feature));
    Some(features.iter().filter(|feature| chosen(feature)).map(|feature| named(config, feature)).collect())
}

/// A camera's name after `data.rename`.
fn named(config: &TrainConfig, feature: &str) -> String {
    config.data.rename.get(feature).cloned().unwrap_or_else(|| feature.to_owned())
}

/// That `data.cameras` names what the dataset, which is `here`, does not have: training would refuse it.
fn foreign_cameras(config: &TrainConfig, here: Option<&[String]>) -> Option<String> {
    let here = here?;
    let chosen = config.data.cameras.as_ref()?.iter();
    let foreign: Vec<&str> =
        chosen.filter(|feature| !here.contains(&named(config, feature))).map(String::as_str).collect();
    (!foreign.is_empty()).then(|| format!("data.cameras names {}, no camera of this dataset", foreign.join(", ")))
}

#[derive(Debug, thiserror::Error)]
#[error("the plan cannot be printed")]
struct Unprintable(#[source] serde_json::Error);

impl Explain for Unprintable {
    fn kind(&self) -> Kind {
        Kind::Internal
    }
}
