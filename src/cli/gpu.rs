//! `vlash gpu`: the GPUs that a run could use, and the libraries behind them.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;

use super::output::print;
use crate::device::requirements::Built;
use crate::device::search::Library;
use crate::device::{self, Gpu, Survey};
use crate::error::{Explain, Failure};

const EXAMPLES: &str = "\
Examples:
  vlash gpu                 which GPUs can be used, by which libraries
  vlash gpu --search        and every place that was looked into
  vlash gpu --json

Exits 69 when no GPU can be used, and says what is missing where.";

/// List the GPUs that this process sees, with driver, memory and the libraries that were found
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Show every place that was looked into for the libraries
    #[arg(long)]
    search: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let survey = device::survey();
    if args.json {
        print(&format!("{:#}\n", to_json(&survey)))?;
    } else {
        print(&text(&survey, args.search))?;
    }
    match survey.problem {
        None => Ok(ExitCode::SUCCESS),
        // The JSON holds it; scripts take the code.
        Some(problem) if args.json => Ok(problem.kind().exit_code().into()),
        Some(problem) => Err(problem.into()),
    }
}

fn version((major, minor): (u32, u32)) -> String {
    format!("{major}.{minor}")
}

fn to_json(survey: &Survey) -> serde_json::Value {
    let gpus: Vec<_> = survey
        .gpus
        .iter()
        .map(|(gpu, refused)| {
            json!({
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "capability": version(gpu.capability),
                "memory_bytes": gpu.total_bytes,
                "driver_cuda": version(gpu.driver),
                "machine_code": survey.built.map(|built| built.has_machine_code(gpu.capability)),
                "refused": refused.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    let found = |library| survey.search.opened(library);
    json!({
        "usable": survey.problem.is_none(),
        "problem": survey.problem.as_ref().map(ToString::to_string),
        "hint": survey.problem.as_ref().and_then(Explain::hint),
        "gpus": gpus,
        "libraries": {
            "driver": found(Library::Driver),
            "cublas": found(Library::Cublas),
            "curand": found(Library::Curand),
        },
        "search": survey.search,
        "built": survey.built.map(|built| json!({
            "toolkit": version(built.toolkit),
            "capabilities": built.capabilities.iter().copied().map(version).collect::<Vec<_>>(),
        })),
    })
}

fn text(survey: &Survey, with_search: bool) -> String {
    let mut out = String::new();
    for (gpu, refused) in &survey.gpus {
        let served = match refused {
            None => kernels(gpu, survey.built).to_owned(),
            Some(refused) => format!("refused: {refused}"),
        };
        let _ = writeln!(out, "{gpu}\n  {}\n  {served}", gpu.uuid);
    }
    let mut line = |key: &str, value: String| {
        let _ = writeln!(out, "{key:<8} {value}");
    };
    if let Some((gpu, _)) = survey.gpus.first() {
        line("driver", format!("supports CUDA {}", version(gpu.driver)));
    }
    for (key, library) in [("libcuda", Library::Driver), ("cuBLAS", Library::Cublas), ("cuRAND", Library::Curand)] {
        if let Some(path) = survey.search.opened(library) {
            line(key, path.display().to_string());
        }
    }
    if let Some(built) = survey.built {
        let list: Vec<String> = built.capabilities.iter().copied().map(version).collect();
        line(
            "build",
            format!(
                "CUDA {}, machine code for compute capability {}, PTX for newer",
                version(built.toolkit),
                list.join(", ")
            ),
        );
    }
    // A missing library's places stand in the error that follows.
    if with_search && !survey.search.0.is_empty() {
        let _ = writeln!(out, "{}", survey.search);
    }
    out
}

fn kernels(gpu: &Gpu, built: Option<Built>) -> &'static str {
    match built {
        Some(built) if built.has_machine_code(gpu.capability) => "machine code in this build",
        _ => "kernels are translated at the first start",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::requirements::check;
    use crate::device::search::{Look, Outcome, Search};

    fn survey() -> Survey {
        let gpu = |index, name: &str, capability, gib: u64| Gpu {
            index,
            uuid: format!("GPU-0000000{index}"),
            name: name.into(),
            capability,
            total_bytes: gib << 30,
            driver: (12, 8),
        };
        let gpus =
            [gpu(0, "NVIDIA A10", (8, 6), 24), gpu(1, "Tesla T4", (7, 5), 16), gpu(2, "NVIDIA B200", (10, 0), 192)];
        let look = |library, origin, folder: Option<&str>, outcome| Look {
            library,
            origin,
            folder: folder.map(Into::into),
            outcome,
        };
        let search = Search(vec![
            look(Library::Driver, "the loader's own search", None, Outcome::Opened("/usr/lib/libcuda.so.1".into())),
            look(Library::Cublas, "the loader's own search", None, Outcome::Absent),
            look(
                Library::Cublas,
                "the CUDA toolkit",
                Some("/usr/local/cuda/lib64"),
                Outcome::Opened("/usr/local/cuda/lib64/libcublas.so.12".into()),
            ),
        ]);
        let built = Some(Built { toolkit: (12, 4), capabilities: &[(8, 0), (8, 6), (9, 0)] });
        Survey {
            gpus: gpus.into_iter().map(|gpu| (gpu.clone(), check(&gpu).err())).collect(),
            problem: None,
            search,
            built,
        }
    }

    #[test]
    fn text_names_cards_libraries_and_refusals() {
        insta::assert_snapshot!(text(&survey(), true), @r"
        GPU 0: NVIDIA A10 (24.0 GiB, compute capability 8.6)
          GPU-00000000
          machine code in this build
        GPU 1: Tesla T4 (16.0 GiB, compute capability 7.5)
          GPU-00000001
          refused: GPU 1 (Tesla T4) has compute capability 7.5 and therefore no bf16, which training and inference here are built on; 8.0 is needed
        GPU 2: NVIDIA B200 (192.0 GiB, compute capability 10.0)
          GPU-00000002
          kernels are translated at the first start
        driver   supports CUDA 12.8
        libcuda  /usr/lib/libcuda.so.1
        cuBLAS   /usr/local/cuda/lib64/libcublas.so.12
        build    CUDA 12.4, machine code for compute capability 8.0, 8.6, 9.0, PTX for newer
        looked for libcuda.so.1:
          the loader's own search: opened /usr/lib/libcuda.so.1
        looked for libcublas.so.13 or libcublas.so.12:
          the loader's own search: not there
          /usr/local/cuda/lib64 (the CUDA toolkit): opened /usr/local/cuda/lib64/libcublas.so.12
        ");
    }

    #[test]
    fn json_says_which_card_can_be_used() {
        let json = to_json(&survey());
        assert_eq!(json["usable"], true);
        assert_eq!(json["gpus"][0]["refused"], serde_json::Value::Null);
        assert!(json["gpus"][1]["refused"].as_str().unwrap().contains("bf16"));
        assert_eq!(json["gpus"][2]["machine_code"], false);
        assert_eq!(json["libraries"]["cublas"], "/usr/local/cuda/lib64/libcublas.so.12");
        assert_eq!(json["search"][1]["outcome"], "absent");
    }
}
