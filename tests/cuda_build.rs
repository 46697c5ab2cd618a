//! The build with GPU support on a machine without a GPU: what it needs in order to start, what it computes, and
//! what it says when a GPU is asked for. Drivers of all kinds are played by a small library of the tests.

#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "cuda_build/elf.rs"]
mod elf;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use support::{Bench, finish, stderr, succeed};

/// The C library and the compiler's runtime. None of NVIDIA's; the C++ runtime of the H.264 decoder is inside.
const ALLOWED: [&str; 5] = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"];

/// `vlash` in an environment that names no library and no GPU.
fn vlash(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = bench.vlash(arguments);
    for variable in ["LD_LIBRARY_PATH", "VLASH_CUDA_LIBRARIES", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV", "CONDA_PREFIX"] {
        command.env_remove(variable);
    }
    // No python3 there, whose environment might hold libraries.
    command.env("PATH", bench.dir.path());
    command
}

/// Whether this machine has a driver; then what is said about its absence cannot be tested here.
fn has_driver(bench: &Bench) -> bool {
    let json: Value = serde_json::from_slice(&finish(vlash(bench, &["gpu", "--json"])).stdout).unwrap();
    !json["libraries"]["driver"].is_null()
}

/// Standard error, with the places that were looked into (other machines have others) and the test's folder left out.
fn said(bench: &Bench, output: &Output) -> String {
    let text = stderr(output).replace(&bench.dir.path().display().to_string(), "[dir]");
    let mut lines: Vec<&str> =
        text.lines().map(|line| if line.starts_with("  ") { "  [places]" } else { line }).collect();
    lines.dedup();
    lines.join("\n")
}

/// A folder with a `libcuda.so.1` of `tests/cuda_build/driver.c`; `complete`: with every function of the list.
fn driver(bench: &Bench, folder: &str, complete: bool) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(root.join("tests/cuda_build/driver.c")).unwrap();
    let list = fs::read_to_string(root.join("src/device/cuda-symbols.txt")).unwrap();
    let missing = |name: &&str| {
        name.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase))
            && !source.contains(&format!("{name}("))
    };
    let filler: String =
        list.lines().filter(missing).map(|name| format!("int {name}(void) {{ return 999; }}\n")).collect();
    let folder = bench.path(folder);
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("driver.c");
    fs::write(&file, source.replace("FILLER", if complete { &filler } else { "" })).unwrap();
    let target = folder.join("libcuda.so.1");
    succeed({
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-w", "-o"]).arg(target).arg(file);
        cc
    });
    folder
}

/// `vlash gpu` with this driver and these claims of it.
fn gpu(bench: &Bench, folder: &Path, claims: &[(&str, &str)]) -> Output {
    let mut command = vlash(bench, &["gpu"]);
    command.env("VLASH_CUDA_LIBRARIES", folder).envs(claims.iter().copied());
    finish(command)
}

#[test]
fn the_binary_needs_no_library_of_nvidia_to_start() {
    let dynamic = elf::dynamic(Path::new(env!("CARGO_BIN_EXE_vlash")));
    eprintln!("needs {:?}, glibc {:?}", dynamic.needed, dynamic.glibc);
    let others: Vec<_> = dynamic.needed.iter().filter(|name| !ALLOWED.contains(&name.as_str())).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(dynamic.needed.contains("libc.so.6"));
}

#[test]
fn it_starts_and_computes_on_the_cpu_where_there_is_no_cuda() {
    let bench = Bench::new();
    succeed(vlash(&bench, &["--version"]));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pi05-tiny");
    let checkpoint = bench.path("checkpoint");
    fs::create_dir(&checkpoint).unwrap();
    fs::copy(fixtures.join("config_with_tiny_dims.json"), checkpoint.join("config.json")).unwrap();
    fs::copy(fixtures.join("model.safetensors"), checkpoint.join("model.safetensors")).unwrap();
    let files =
        ["inputs", "train_forward", "gradients"].map(|name| fixtures.join(format!("case-a/{name}.safetensors")));
    let files = files.each_ref().map(|file| file.to_str().unwrap());
    let arguments = [&["policy", "verify", "checkpoint", "--reference"], &files[..]].concat();
    let output = succeed(vlash(&bench, &arguments));
    assert!(String::from_utf8_lossy(&output.stdout).contains("computed on CPU"));
}

#[test]
fn a_gpu_that_is_asked_for_is_never_replaced_by_the_cpu() {
    let bench = Bench::new();
    if has_driver(&bench) {
        return eprintln!("skipped: this machine has a driver");
    }
    let output = finish(vlash(&bench, &["gpu"]));
    assert_eq!(output.status.code(), Some(69));
    let text = stderr(&output);
    for place in
        ["/usr/local/nvidia/lib64", "/run/opengl-driver/lib", "/.singularity.d/libs", "the loader's own search"]
    {
        assert!(text.contains(place), "{place}: {text}");
    }
    insta::assert_snapshot!(said(&bench, &output), @r"
    vlash: no usable libcuda.so.1 was found
    looked for libcuda.so.1:
      [places]
    hint: run on a machine with an NVIDIA driver of release 550 or newer; in a container, pass it through (docker run --gpus all, singularity exec --nv); where it lies elsewhere, set VLASH_CUDA_LIBRARIES=FOLDER
    ");

    let output = finish(vlash(&bench, &["train", "--no-tui", "data.repo=bundled/reach", "runtime.device=cuda"]));
    assert_eq!(output.status.code(), Some(69));
    assert!(stderr(&output).contains("/usr/local/nvidia/lib64"));
    insta::assert_snapshot!(said(&bench, &output), @r"
    vlash: no usable libcuda.so.1 was found
    looked for libcuda.so.1:
      [places]
    hint: run on a machine with an NVIDIA driver of release 550 or newer; in a container, pass it through (docker run --gpus all, singularity exec --nv); where it lies elsewhere, set VLASH_CUDA_LIBRARIES=FOLDER
    ");

    // `auto` in a job that was given a GPU.
    let mut command = vlash(&bench, &["train", "--no-tui", "data.repo=bundled/reach", "runtime.device=auto"]);
    command.env("CUDA_VISIBLE_DEVICES", "GPU-8f2c41d0");
    let output = finish(command);
    assert_eq!(output.status.code(), Some(69));
    insta::assert_snapshot!(said(&bench, &output), @r"
    vlash: a GPU is meant here (CUDA_VISIBLE_DEVICES=GPU-8f2c41d0) and cannot be used: no usable libcuda.so.1 was found
    looked for libcuda.so.1:
      [places]
    hint: run on a machine with an NVIDIA driver of release 550 or newer; in a container, pass it through (docker run --gpus all, singularity exec --nv); where it lies elsewhere, set VLASH_CUDA_LIBRARIES=FOLDER; or say that the CPU is meant: runtime.device=cpu
    ");
}

#[test]
fn a_stub_and_a_library_of_another_driver_release_are_passed_over() {
    let bench = Bench::new();
    let stubs = driver(&bench, "toolkit/stubs", true);
    let other = driver(&bench, "other", true);
    for (folder, init, why) in [
        (&stubs, "0", "a stub for linking"),
        (&other, "34", "a stub for linking"),
        (&other, "804", "does not fit the driver that runs in the kernel (cuInit: error 804)"),
    ] {
        let mut command = vlash(&bench, &["gpu", "--search"]);
        let output = finish({
            command.env("VLASH_CUDA_LIBRARIES", folder).env("FAKE_INIT", init);
            command
        });
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.contains("VLASH_CUDA_LIBRARIES")).unwrap();
        assert!(line.contains(why) && line.contains(&folder.display().to_string()), "{text}");
    }
}

#[test]
fn a_driver_that_cannot_serve_is_named_with_what_it_lacks() {
    let bench = Bench::new();
    let complete = driver(&bench, "complete", true);
    let partial = driver(&bench, "partial", false);
    let cases: [(&Path, &[(&str, &str)]); 6] = [
        (&complete, &[("FAKE_VERSION", "12020")]),
        (&partial, &[]),
        (&complete, &[("FAKE_INIT", "100")]),
        (&complete, &[("FAKE_INIT", "802")]),
        (&complete, &[("FAKE_COUNT", "0")]),
        (&complete, &[("CUDA_VISIBLE_DEVICES", "NoDevFiles")]),
    ];
    let mut told = Vec::new();
    for (folder, claims) in cases {
        let output = gpu(&bench, folder, claims);
        assert_eq!(output.status.code(), Some(69), "{claims:?}");
        told.push(said(&bench, &output));
    }
    insta::assert_snapshot!(told.join("\n\n"), @r#"
    vlash: the driver's library [dir]/complete/libcuda.so.1 supports CUDA 12.2, this build needs 12.4
    hint: ask for a machine with driver 550 or newer (nvidia-smi shows the driver's release)

    vlash: the driver's library [dir]/partial/libcuda.so.1 has no cuCtxDestroy_v2, which this program calls
    hint: ask for a machine with a newer driver

    vlash: the NVIDIA driver is there and shows no GPU
    hint: nvidia-smi -L lists the GPUs of the machine; a job or container sees those that it was given (SLURM: --gres=gpu:1, docker run --gpus all, singularity exec --nv)

    vlash: cuInit failed in [dir]/complete/libcuda.so.1: CUDA_ERROR_SYSTEM_NOT_READY (as the test wants it)
    hint: nvidia-smi shows whether the driver works at all; if it does not, the machine needs its administrator

    vlash: the NVIDIA driver is there and shows no GPU
    hint: nvidia-smi -L lists the GPUs of the machine; a job or container sees those that it was given (SLURM: --gres=gpu:1, docker run --gpus all, singularity exec --nv)

    vlash: CUDA_VISIBLE_DEVICES="NoDevFiles" hides every GPU from this process
    hint: unset CUDA_VISIBLE_DEVICES, or ask the scheduler for a GPU (SLURM: --gres=gpu:1)
    "#);
    let twice = gpu(&bench, &complete, &[("CUDA_VISIBLE_DEVICES", "0,0")]);
    assert_eq!(twice.status.code(), Some(64), "{}", stderr(&twice));
}

#[test]
fn a_card_without_bf16_is_refused_and_others_are_listed() {
    let bench = Bench::new();
    let folder = driver(&bench, "driver", true);
    let json = |capability: &str| -> Value {
        let mut command = vlash(&bench, &["gpu", "--json"]);
        command.env("VLASH_CUDA_LIBRARIES", &folder).env("FAKE_CAPABILITY", capability).env("FAKE_COUNT", "2");
        serde_json::from_slice(&finish(command).stdout).unwrap()
    };
    let t4 = json("75");
    assert_eq!(t4["gpus"].as_array().unwrap().len(), 2);
    assert!(t4["gpus"][1]["refused"].as_str().unwrap().contains("no bf16"), "{t4:#}");
    assert_eq!(t4["usable"], false);
    let ada = json("89");
    assert_eq!((&ada["gpus"][0]["refused"], &ada["gpus"][0]["machine_code"]), (&Value::Null, &Value::Bool(true)));
    assert_eq!(ada["gpus"][1]["uuid"], "GPU-11111111-1111-1111-1111-111111111111");
    assert_eq!(json("120")["gpus"][0]["machine_code"], false);

    let mut command = vlash(&bench, &["train", "--no-tui", "data.repo=bundled/reach", "runtime.device=cuda:3"]);
    command.env("VLASH_CUDA_LIBRARIES", &folder);
    let output = finish(command);
    assert_eq!(output.status.code(), Some(64));
    assert!(stderr(&output).contains("there is no GPU 3: this process sees 1"), "{}", stderr(&output));
}
