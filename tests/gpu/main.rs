//! The GPU tests: one executable that carries its fixtures and runs from any folder of a GPU host.
//!
//! Built where there is no GPU (`cargo test --features cuda --test gpu --no-run`), run by `gpu/test.sh`. It computes
//! the same comparisons as the CPU's suite (`tests/parity`) and what only a device can get wrong. Arguments are those
//! of any test executable (a filter of names, `--list`, `--exact`), and `--json FILE` for all numbers. The group
//! `full::` runs when the filter begins with it, or with `--ignored`.
//!
//! Without a GPU every test is ignored. `VLASH_GPU_TESTS_DEVICE=cpu` makes a dry run on the CPU.

mod behaviour;
mod cases;
mod fixtures;
mod full;
mod half;
mod ops;
mod optimizer;
#[path = "../parity/mod.rs"]
mod parity;
mod report;
mod site;
mod suite;
mod tolerance;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use parity::record::Record;
use report::{Entry, Report};
use site::Site;
use suite::Test;

/// The file of all numbers, as an alternative to `--json`.
const JSON: &str = "VLASH_GPU_TESTS_JSON";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(problem) => {
            eprintln!("gpu tests: {problem}");
            ExitCode::from(64)
        }
    }
}

fn run() -> Result<ExitCode, String> {
    let (mut arguments, json) = arguments(std::env::args().collect())?;
    // One device, one stream: tests beside each other would measure each other.
    arguments.test_threads = Some(1);
    let site = Site::open();
    match &site {
        Ok(site) => eprintln!("gpu tests on {}", site.name),
        Err(reason) => eprintln!("gpu tests are ignored: {reason}"),
    }
    // Removed when this returns.
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    if site.is_ok() && !arguments.list {
        let packed = |error| format!("cannot unpack the fixtures into {}: {error}", folder.path().display());
        fixtures::unpack(folder.path()).map_err(packed)?;
    }
    parity::take_fixtures_from(folder.path());

    let report = Arc::new(Report::default());
    let trials = suite::tests().into_iter().map(|test| trial(test, &site, &arguments, &report)).collect();
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Ok(site) = &site
        && !arguments.list
    {
        println!("{}", report.table(&site.name));
        if let Some(path) = json {
            report.write(&path, &site.name).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    Ok(conclusion.exit_code())
}

/// Takes `--json FILE` out of the arguments of a test executable.
fn arguments(mut given: Vec<String>) -> Result<(Arguments, Option<PathBuf>), String> {
    let mut json = std::env::var_os(JSON).map(PathBuf::from);
    if let Some(at) = given.iter().position(|argument| argument == "--json") {
        if at + 1 >= given.len() {
            return Err("--json wants a file".into());
        }
        json = given.drain(at..at + 2).nth(1).map(PathBuf::from);
    }
    Ok((Arguments::from_iter(given), json))
}

fn trial(test: Test, site: &Result<Site, String>, arguments: &Arguments, report: &Arc<Report>) -> Trial {
    let Test { name, body, on_request, gpu_only } = test;
    let refusal = match site {
        Err(reason) => Some(reason.clone()),
        Ok(site) if gpu_only && site.device.is_cpu() => Some("it means nothing on the CPU".into()),
        Ok(_) => None,
    };
    let group = name.split("::").next().unwrap_or(&name);
    let asked_for = arguments.filter.as_deref().is_some_and(|filter| filter.starts_with(group));
    // `--ignored` selects what is marked so: it must not be undone by a filter beside it.
    let ignored = refusal.is_some() || (on_request && (!asked_for || arguments.ignored));
    let (site, report, test) = (site.clone(), Arc::clone(report), name.clone());
    let runner = move || match (site, refusal) {
        (Ok(site), None) => observe(test, body, &site, &report),
        (_, refusal) => Ok(Completion::ignored_with(refusal.unwrap_or_default())),
    };
    Trial::ignorable_test(name, runner).with_ignored_flag(ignored)
}

/// Runs one test, prints its worst number and keeps all of them, of a failed or panicked test as well.
fn observe(test: String, body: suite::Body, site: &Site, report: &Report) -> Result<Completion, Failed> {
    let mut record = Record::default();
    let started = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| body(&site.device, &mut record)));
    let failure = match outcome {
        Ok(Ok(())) => record.check().err(),
        Ok(Err(error)) => Some(error.to_string()),
        Err(panic) => Some(text(&*panic)),
    };
    let entry = Entry { test, failure: failure.clone(), seconds: started.elapsed().as_secs_f64(), record };
    print!("{} [{:.1} s] ", entry.summary(), entry.seconds);
    report.add(entry);
    failure.map_or(Ok(Completion::Completed), |failure| Err(Failed::from(failure)))
}

fn text(panic: &(dyn std::any::Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|text| text.to_string());
    words.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without words".into())
}
