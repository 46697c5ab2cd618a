use super::*;
use crate::config::train::{ScheduleConfig, ScheduleKind};
use crate::train::clip::clip;
use crate::train::schedule::Schedule;
use half::bf16;
use rstest::rstest;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/optimisation")).join(name)
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn vector(values: &[f32]) -> Tensor {
    Tensor::new(values, &Device::Cpu).unwrap()
}

fn var(values: &[f32]) -> Var {
    Var::from_tensor(&vector(values)).unwrap()
}

/// The largest difference in units of the larger side's spacing, elements below `floor` aside.
fn worst_relative(found: &Tensor, expected: &Tensor, floor: f32) -> f32 {
    let pairs = values(found).into_iter().zip(values(expected));
    pairs.map(|(f, e)| (f - e).abs() / e.abs().max(floor)).fold(0.0, f32::max)
}

/// What a golden file says of its run.
struct Golden {
    tensors: HashMap<String, Tensor>,
    settings: Settings,
    schedule: Schedule,
    clip: f64,
}

fn golden(name: &str) -> Golden {
    let bytes = std::fs::read(fixture(name)).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let number = |key: &str| metadata[key].parse::<f64>().unwrap();
    let betas: Vec<f64> = metadata["betas"].split(',').map(|b| b.parse().unwrap()).collect();
    let config = ScheduleConfig {
        kind: ScheduleKind::CosineDecayWithWarmup,
        warmup_steps: number("warmup") as usize,
        decay_steps: number("decay_steps") as usize,
        peak_lr: number("lr"),
        decay_lr: number("decay_lr"),
    };
    Golden {
        tensors: candle_core::safetensors::load_buffer(&bytes, &Device::Cpu).unwrap(),
        settings: Settings { betas: [betas[0], betas[1]], eps: number("eps"), weight_decay: number("weight_decay") },
        schedule: Schedule::new(&config, number("lr"), number("total_steps") as usize),
        clip: number("clip"),
    }
}

fn initial(golden: &Golden) -> Vec<(String, Var)> {
    let names = ["p0", "p1", "p2"];
    names.map(|n| (n.to_string(), Var::from_tensor(&golden.tensors[&format!("init.{n}")]).unwrap())).to_vec()
}

fn gradients(golden: &Golden, step: u64) -> BTreeMap<String, Tensor> {
    let gradient = |name: &str| golden.tensors.get(&format!("step.{step}.grad.{name}")).cloned();
    ["p0", "p1", "p2"].iter().filter_map(|n| Some((n.to_string(), gradient(n)?))).collect()
}

#[rstest]
#[case("adamw-preset.safetensors")]
#[case("adamw-large-lr.safetensors")]
fn ten_steps_match_pytorch(#[case] file: &str) {
    let golden = golden(file);
    let mut optimizer = AdamW::new(initial(&golden), golden.settings).unwrap();
    let norms: Vec<f64> = golden.tensors["grad_norm"].to_vec1().unwrap();
    let rates: Vec<f64> = golden.tensors["lr"].to_vec1().unwrap();
    let mut skipped = 0;
    for step in 0..10u64 {
        let gradients = gradients(&golden, step);
        let clipped = clip(&gradients, golden.clip).unwrap();
        let lr = golden.schedule.lr(step);
        // PyTorch sums its norm in f32, and the golden value is that f32.
        assert!((clipped.norm - norms[step as usize]).abs() <= 2e-7 * norms[step as usize], "norm of step {step}");
        assert!((lr - rates[step as usize]).abs() <= 1e-14 * lr, "rate of step {step}");
        for (name, gradient) in &gradients {
            let found = gradient.affine(clipped.coefficient, 0.0).unwrap();
            let expected = &golden.tensors[&format!("step.{step}.clipped_grad.{name}")];
            assert!(worst_relative(&found, expected, 1e-30) <= 3e-7, "clipped gradient of {name}, step {step}");
        }
        optimizer.step(&gradients, lr, clipped.coefficient).unwrap();
        let state = optimizer.state().unwrap();
        for (name, var) in optimizer.masters() {
            let expected = |part: &str| &golden.tensors[&format!("step.{step}.{part}.{name}")];
            // A few roundings of f32 a step. A first moment is a sum of gradients that may cancel, so it is judged by
            // its tensor's largest entry; PyTorch also fuses its multiplication and addition there.
            let largest = values(expected("exp_avg")).into_iter().fold(1e-30, |m: f32, v| m.max(v.abs()));
            let errors = [
                worst_relative(var, expected("param"), 1e-2),
                worst_relative(&state[&format!("exp_avg/{name}")], expected("exp_avg"), largest),
                worst_relative(&state[&format!("exp_avg_sq/{name}")], expected("exp_avg_sq"), 1e-30),
            ];
            assert!(errors.iter().all(|&error| error <= 5e-7), "{name}, step {step}: {errors:?}");
        }
        skipped += 3 - gradients.len();
    }
    let counts = optimizer.state().unwrap();
    let count = |name: &str| counts[&format!("step/{name}")].to_scalar::<i64>().unwrap();
    assert!(skipped > 0, "the goldens skip a parameter, or this test does not see it");
    assert_eq!((count("p0"), count("p1"), count("p2")), (10, 10, 10 - skipped as i64));
}

/// The same recurrence in f64, written for one element.
struct Exact {
    value: f64,
    moments: [f64; 2],
}

impl Exact {
    fn step(&mut self, gradient: f64, settings: &Settings, lr: f64, count: i32) {
        let [beta1, beta2] = settings.betas;
        self.value *= 1.0 - lr * settings.weight_decay;
        self.moments[0] = beta1 * self.moments[0] + (1.0 - beta1) * gradient;
        self.moments[1] = beta2 * self.moments[1] + (1.0 - beta2) * gradient * gradient;
        let mean = self.moments[0] / (1.0 - beta1.powi(count));
        let spread = (self.moments[1] / (1.0 - beta2.powi(count))).sqrt();
        self.value -= lr * mean / (spread + settings.eps);
    }
}

#[test]
fn small_updates_survive_in_f32_masters_and_would_vanish_in_bf16() {
    let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 1e-10 };
    let (lr, count, start) = (5e-5, 64usize, 0.02f32);
    let gradient = |step: i32, index: usize| 0.5 + 0.25 * (step as f64 * 0.3 + index as f64).sin();
    let master = var(&vec![start; count]);
    let mut optimizer = AdamW::new([("w".to_string(), master.clone())], settings).unwrap();
    let mut exact: Vec<Exact> = (0..count).map(|_| Exact { value: f64::from(start), moments: [0.0; 2] }).collect();
    let mut low = vec![bf16::from_f32(start); count];
    for step in 1..=100 {
        let before = values(&master);
        let row: Vec<f32> = (0..count).map(|i| gradient(step, i) as f32).collect();
        optimizer.step(&BTreeMap::from([("w".to_string(), vector(&row))]), lr, 1.0).unwrap();
        for (element, &g) in exact.iter_mut().zip(&row) {
            element.step(f64::from(g), &settings, lr, step);
        }
        // The same update applied to weights that are kept in bf16 only.
        for ((low, before), after) in low.iter_mut().zip(&before).zip(values(&master)) {
            *low = bf16::from_f32(low.to_f32() + (after - before));
        }
    }
    for (found, exact) in values(&master).into_iter().zip(&exact) {
        // 100 additions, each rounded to half a unit of 2^-29 (the spacing around 0.02).
        assert!((f64::from(found) - exact.value).abs() < 100.0 * 1e-9, "{found} against {}", exact.value);
        assert!((f64::from(start) - exact.value) > 3e-3, "the weights were to move by about 100 · 5e-5");
    }
    assert!(low.iter().all(|&low| low == bf16::from_f32(start)), "bf16 was to stand still");
}

#[test]
fn second_moments_decay_once_gradients_vanish() {
    // In bf16, 0.999 · v rounds back to v for ever.
    let settings = Settings { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.0 };
    let mut optimizer = AdamW::new([("w".to_string(), var(&[1.0]))], settings).unwrap();
    for step in 0..1001 {
        let gradient = vector(&[if step == 0 { 1.0 } else { 0.0 }]);
        optimizer.step(&BTreeMap::from([("w".to_string(), gradient)]), 0.0, 1.0).unwrap();
    }
    let second = values(&optimizer.state().unwrap()["exp_avg_sq/w"])[0];
    assert!((second - 1e-3 * 0.999f32.powi(1000)).abs() < 1e-7, "{second}");
}

#[test]
fn a_restored_optimizer_continues_bit_for_bit() {
    let golden = golden("adamw-large-lr.safetensors");
    let run = |optimizer: &mut AdamW, steps: std::ops::Range<u64>| {
        for step in steps {
            optimizer.step(&gradients(&golden, step), golden.schedule.lr(step), 0.3).unwrap();
        }
    };
    let mut straight = AdamW::new(initial(&golden), golden.settings).unwrap();
    run(&mut straight, 0..5);
    let state: HashMap<String, Tensor> = straight.state().unwrap().into_iter().collect();
    let weights: Vec<_> = straight.masters().map(|(n, v)| (n.to_string(), v.copy().unwrap())).collect();
    run(&mut straight, 5..10);

    let restart = weights.iter().map(|(n, t)| (n.clone(), Var::from_tensor(t).unwrap()));
    let mut resumed = AdamW::new(restart, golden.settings).unwrap();
    resumed.restore(&state).unwrap();
    run(&mut resumed, 5..10);
    for ((name, a), (_, b)) in straight.masters().zip(resumed.masters()) {
        let bits = |v: &Var| values(v).into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(a), bits(b), "{name}");
    }
}

#[test]
fn a_state_of_other_parameters_is_refused_and_changes_nothing() {
    let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.0 };
    let mut optimizer = AdamW::new([("a".to_string(), var(&[1.0])), ("b".to_string(), var(&[1.0]))], settings).unwrap();
    let whole: HashMap<String, Tensor> = optimizer.state().unwrap().into_iter().collect();
    let message = |optimizer: &mut AdamW, change: &dyn Fn(&mut HashMap<String, Tensor>)| {
        let mut state = whole.clone();
        change(&mut state);
        let error = optimizer.restore(&state).unwrap_err();
        assert_eq!(error.kind(), Kind::Input);
        error.to_string()
    };
    let missing = message(&mut optimizer, &|state| drop(state.remove("exp_avg/b")));
    assert!(missing.contains("lacks 1 of 6 tensors (first: exp_avg/b)"), "{missing}");
    let extra = message(&mut optimizer, &|state| drop(state.insert("step/c".to_string(), vector(&[1.0]))));
    assert!(extra.contains("holds 1 tensors") && extra.contains("step/c"), "{extra}");
    let shape = message(&mut optimizer, &|state| drop(state.insert("exp_avg/a".to_string(), vector(&[1.0, 2.0]))));
    assert!(shape.contains("exp_avg/a is F32 [2], expected F32 [1]"), "{shape}");
    let count = Tensor::new(-1i64, &Device::Cpu).unwrap();
    let count = message(&mut optimizer, &|state| drop(state.insert("step/a".to_string(), count.clone())));
    assert!(count.contains("step/a"), "{count}");
    assert_eq!(optimizer.slots[0].steps, 0);
}

#[test]
fn gradients_that_do_not_fit_are_refused_before_anything_moves() {
    let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1 };
    let mut optimizer = AdamW::new([("a".to_string(), var(&[1.0])), ("b".to_string(), var(&[1.0]))], settings).unwrap();
    let good = ("a".to_string(), vector(&[1.0]));
    let shape = BTreeMap::from([good.clone(), ("b".to_string(), vector(&[1.0, 2.0]))]);
    assert!(matches!(optimizer.step(&shape, 0.1, 1.0), Err(OptimizerError::GradientShape { .. })));
    let foreign = BTreeMap::from([good, ("z".to_string(), vector(&[1.0]))]);
    assert!(matches!(optimizer.step(&foreign, 0.1, 1.0), Err(OptimizerError::Untrained { .. })));
    assert!(optimizer.masters().all(|(_, v)| values(v) == [1.0]));
    let low = Var::from_tensor(&vector(&[1.0]).to_dtype(DType::BF16).unwrap()).unwrap();
    assert!(matches!(AdamW::new([("a".to_string(), low)], settings), Err(OptimizerError::NotF32 { .. })));
}

#[test]
fn transposed_and_low_precision_gradients_are_taken_as_they_are_meant() {
    let settings = Settings { betas: [0.0, 0.0], eps: 0.0, weight_decay: 0.0 };
    let master = Var::from_tensor(&Tensor::zeros((2, 2), DType::F32, &Device::Cpu).unwrap()).unwrap();
    let mut optimizer = AdamW::new([("w".to_string(), master.clone())], settings).unwrap();
    // Without momentum an update is lr · sign(gradient).
    let gradient = Tensor::new(&[[1f32, -1.0], [1.0, 1.0]], &Device::Cpu).unwrap();
    let gradient = gradient.to_dtype(DType::BF16).unwrap().t().unwrap();
    optimizer.step(&BTreeMap::from([("w".to_string(), gradient)]), 0.5, 1.0).unwrap();
    assert_eq!(values(&master), [-0.5, -0.5, 0.5, -0.5]);
}

/// Not a measurement, a guard: prints what a step over half a million parameters costs (`--nocapture`).
#[test]
fn a_step_over_half_a_million_parameters_is_one_pass() {
    let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.01 };
    let parameters: Vec<(String, Var)> = (0..100).map(|i| (format!("p{i:03}"), var(&vec![0.1; 5_000]))).collect();
    let gradients: BTreeMap<String, Tensor> =
        parameters.iter().map(|(n, _)| (n.clone(), vector(&vec![0.01; 5_000]))).collect();
    let mut optimizer = AdamW::new(parameters, settings).unwrap();
    let start = std::time::Instant::now();
    for _ in 0..10 {
        let clipped = clip(&gradients, 1.0).unwrap();
        optimizer.step(&gradients, 1e-4, clipped.coefficient).unwrap();
    }
    let each = start.elapsed() / 10;
    println!("clip and AdamW over 500,000 parameters in 100 tensors: {each:?} a step");
    // Seven f32 of traffic an element; even this profile on a busy machine is far below.
    assert!(each < std::time::Duration::from_millis(200), "{each:?}");
}
