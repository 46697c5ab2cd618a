//! What the planner expects, beside what `vlash bench table` measured: one H200 (driver 580, CUDA 12.4 kernels), full
//! size, bf16, prompts of 200 tokens, peak as the driver counts it after 13 steps.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use rstest::rstest;
use vlash_forge::config::train::Preset;
use vlash_forge::config::{self, Source};
use vlash_forge::plan::Subject;
use vlash_forge::plan::memory::estimate;
use vlash_forge::plan::subject::Target;

const GIB: f64 = (1u64 << 30) as f64;
/// How far a prediction may be off.
const OFF: f64 = 0.15;

const ADAPTERS: &[&str] = &[
    "adapter.enabled=true",
    "adapter.rank=16",
    r#"adapter.targets=["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj","out_proj","fc1","fc2"]"#,
    "adapter.also_train=[]",
];
/// The predecessors' extra modules, and the state condition that two of them belong to.
const EXTRAS: &[&str] = &[
    ADAPTERS[0],
    ADAPTERS[1],
    ADAPTERS[2],
    r#"adapter.also_train=["action_in_proj","action_out_proj","time_mlp_in","time_mlp_out","state_proj","state_mlp_in","state_mlp_out","embeddings","input_layernorm","post_attention_layernorm"]"#,
    "model.state_cond=true",
];
const EVERYTHING: &[&str] = &["adapter.enabled=false"];
const SHARED: &[&str] = &["train.delay.max=8", "train.delay.shared=true"];

#[rstest]
#[case::lora_floor(ADAPTERS, 1, 3, true, &[], 9.43)]
#[case::lora_floor_extras(EXTRAS, 1, 3, true, &[], 11.05)]
#[case::lora(EXTRAS, 1, 2, false, &[], 14.37)]
#[case::lora_16(EXTRAS, 16, 2, false, &[], 89.96)]
#[case::lora_16_recompute(EXTRAS, 16, 2, true, &[], 16.87)]
#[case::shared_4x9(EXTRAS, 4, 2, false, SHARED, 32.74)]
#[case::full_8_recompute(EVERYTHING, 8, 2, true, &[], 64.43)]
#[case::full_8(EVERYTHING, 8, 2, false, &[], 75.87)]
fn memory_is_within_15_percent_of_what_was_measured(
    #[case] trains: &[&str],
    #[case] batch: usize,
    #[case] cameras: usize,
    #[case] recompute: bool,
    #[case] more: &[&str],
    #[case] measured: f64,
) {
    let mut settings: Vec<String> = trains.iter().chain(more).map(ToString::to_string).collect();
    settings.extend([
        "model.base=/base".to_string(),
        "data.repo=/data".into(),
        "model.dtype=bfloat16".into(),
        "train.grad_accum=1".into(),
        format!("train.batch_size={batch}"),
        format!("train.activation_checkpointing={recompute}"),
    ]);
    let loaded = config::load(&Source::Embedded, Some(Preset::Full), &settings).unwrap();
    let cameras = (0..cameras).map(|i| format!("camera_{i}")).collect();
    let subject = Subject::new(&loaded.value, Some(cameras)).unwrap();
    let memory = estimate(&subject, Target::Gpu).unwrap().memory;
    let expected = memory.total() as f64 / GIB;
    let off = expected / measured - 1.0;
    println!("expected {expected:.2} GiB, measured {measured:.2} GiB, {:+.1} %", 100.0 * off);
    for (line, bytes) in memory.lines() {
        println!("  {line:28} {:8.2}", bytes as f64 / GIB);
    }
    assert!(off.abs() <= OFF, "expected {expected:.2} GiB, measured {measured:.2} GiB: {:+.1} %", 100.0 * off);
}
