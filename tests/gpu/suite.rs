//! The list of tests.

use candle_core::{DType, Device, Result};

use crate::cases::GROUPS;
use crate::full::Training;
use crate::parity::record::Record;
use crate::parity::training::Mode;
use crate::parity::{adapters, end_to_end, network, shared_observation, state_condition, training};
use crate::{behaviour, full, half, ops, optimizer};

/// Of the random inputs of the operations; set it to try others.
const SEED: &str = "VLASH_GPU_TESTS_SEED";

pub type Body = Box<dyn FnOnce(&Device, &mut Record) -> Result<()> + Send>;

type Comparison = fn(&Device, &mut Record) -> Result<()>;

const SHARED_OBSERVATION: [(&str, Comparison); 3] = [
    ("packed", shared_observation::agrees_with_the_packed_sequence),
    ("alone", shared_observation::branches_together_are_branches_alone),
    ("left_out", shared_observation::a_branch_that_does_not_count_changes_nothing),
];

/// A test, and where it applies.
pub struct Test {
    pub name: String,
    pub body: Body,
    /// Takes long, or much memory: runs when it is asked for by name.
    pub on_request: bool,
    /// Means nothing on the CPU.
    pub gpu_only: bool,
}

fn test(name: impl Into<String>, body: impl FnOnce(&Device, &mut Record) -> Result<()> + Send + 'static) -> Test {
    Test { name: name.into(), body: Box::new(body), on_request: false, gpu_only: false }
}

/// All tests. What empties the memory comes last, so that it disturbs no measurement.
pub fn tests() -> Vec<Test> {
    let groups = [operations(), reference(), optimisation(), precision(), behaviour(), full_size()];
    groups.into_iter().flatten().collect()
}

fn operations() -> Vec<Test> {
    let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let dtypes = [("f32", DType::F32), ("bf16", DType::BF16)];
    let all = dtypes.into_iter().flat_map(|dtype| GROUPS.into_iter().map(move |group| (dtype, group)));
    all.map(|((name, dtype), (operation, cases))| {
        test(format!("ops::{name}::{operation}"), move |device, record| {
            cases().iter().try_for_each(|case| ops::agrees(device, dtype, seed, case, record))
        })
    })
    .collect()
}

fn reference() -> Vec<Test> {
    let mut tests = Vec::new();
    for case in ["case-a", "case-b"] {
        tests.push(test(format!("reference::network::{case}"), |d, r| network::every_tensor(d, case, r)));
    }
    tests.push(test("reference::state_condition", state_condition::agrees_with_vlash));
    for (name, compare) in SHARED_OBSERVATION {
        tests.push(test(format!("reference::shared_observation::{name}"), compare));
    }
    tests.push(test("reference::new_state_branch", state_condition::a_new_branch_changes_nothing));
    for name in [adapters::ALL_LINEAR, adapters::LEROBOT_DEFAULT] {
        tests.push(test(format!("reference::adapter::{name}"), |d, r| adapters::every_tensor(d, name, r)));
        tests.push(test(format!("reference::adapter::{name}::base"), |d, r| {
            adapters::without_the_adapter_it_is_the_base(d, name, r)
        }));
    }
    tests.push(test("reference::adapter::merged", adapters::merged_it_acts_alike));
    tests.push(test("reference::end_to_end", end_to_end::agrees));
    tests
}

fn optimisation() -> Vec<Test> {
    let follow = |mode: Mode| {
        let name = format!("training::reference::{}", mode.name());
        test(name, move |device, record| training::follows_the_reference(device, mode, record))
    };
    let equal = |mode: Mode| {
        let name = format!("training::cpu::{}", mode.name());
        test(name, move |device, record| training::equals_the_cpu(device, mode, record))
    };
    let optimizer = test("training::optimizer", optimizer::equals_the_cpu);
    Mode::ALL.into_iter().map(follow).chain(Mode::ALL.into_iter().map(equal)).chain([optimizer]).collect()
}

fn precision() -> Vec<Test> {
    let mut tests = Vec::new();
    for case in ["case-a", "case-b"] {
        tests.push(test(format!("bf16::forward::{case}"), |d, r| half::forward(d, case, r)));
        tests.push(test(format!("bf16::gradients::{case}"), |d, r| half::gradients(d, case, r)));
        tests.push(test(format!("bf16::adapter_gradients::{case}"), |d, r| half::adapter_gradients(d, case, r)));
    }
    tests
}

fn behaviour() -> Vec<Test> {
    vec![
        test("repeats::f32", |d, r| behaviour::repeats_itself(d, DType::F32, r)),
        test("repeats::bf16", |d, r| behaviour::repeats_itself(d, DType::BF16, r)),
    ]
}

fn full_size() -> Vec<Test> {
    let trains = |name: &str, training: Training| Test {
        on_request: true,
        ..test(format!("full::{name}"), move |device, record| full::trains_and_samples(device, training, record))
    };
    let memory = Test { gpu_only: true, ..test("out_of_memory", behaviour::survives_its_memorys_end) };
    vec![trains("lora", Training::Lora), trains("cloud", Training::Cloud), memory]
}
