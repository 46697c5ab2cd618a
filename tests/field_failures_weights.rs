//! Field failures of weights (FF-07, FF-08) from outside: `model.base` points at damaged copies of a tiny checkpoint.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use rstest::rstest;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use support::{Bench, finish, stderr, succeed};
use vlash_forge::track::event::Body;

const FEW: &[&str] = &["train.steps=2", "schedule.decay_steps=2"];
const OUT: &str = "model.action_out_proj.weight";

/// A tensor as it is stored.
type Stored = (Dtype, Vec<usize>, Vec<u8>);
type Tensors = BTreeMap<String, Stored>;

struct Base {
    bench: Bench,
    model: PathBuf,
}

impl Base {
    fn new() -> Base {
        let bench = Bench::new();
        succeed(bench.train("base", &[FEW, &["adapter.enabled=false"]].concat()));
        let model = bench.path("base/checkpoints/last/pretrained_model");
        Base { bench, model }
    }

    /// Rewrites the base's weights.
    fn edit(self, edit: impl FnOnce(&mut Tensors)) -> Base {
        let path = self.model.join("model.safetensors");
        let bytes = fs::read(&path).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let stored = |view: TensorView| (view.dtype(), view.shape().to_vec(), view.data().to_vec());
        let mut tensors: Tensors = file.tensors().into_iter().map(|(name, view)| (name, stored(view))).collect();
        edit(&mut tensors);
        let view = |(dtype, shape, data)| TensorView::new(dtype, shape, data).unwrap();
        let views =
            tensors.iter().map(|(name, (dtype, shape, data))| (name, view((*dtype, shape.clone(), data.as_slice()))));
        serialize_to_file(views, None, &path).unwrap();
        self
    }

    fn train(&self, run: &str, settings: &[&str]) -> std::process::Command {
        let base = format!("model.base={}", self.model.display());
        self.bench.train(run, &[FEW, &[&base], settings].concat())
    }

    /// Runs to a refusal, which must come before anything is written; returns the message.
    fn refused(&self) -> String {
        let output = finish(self.train("refused", &[]));
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(64), "{text}");
        assert!(!self.bench.path("refused").exists(), "a refused run leaves nothing behind");
        text
    }

    /// Trains; the account of the weights, which is an event of the run.
    fn account(&self, run: &str, settings: &[&str]) -> String {
        succeed(self.train(run, settings));
        let account = |body| if let Body::Weights { account, .. } = body { Some(account) } else { None };
        self.bench.events(run).into_iter().find_map(|event| account(event.body)).unwrap()
    }
}

fn renamed(tensors: &mut Tensors, prefix: &str) {
    *tensors = std::mem::take(tensors).into_iter().map(|(name, t)| (name.replacen("model.", prefix, 1), t)).collect();
}

fn halves(tensors: &mut Tensors) {
    let (dtype, _, data) = tensors.get_mut(OUT).unwrap();
    let values = data.chunks_exact(4).map(|b| half::f16::from_f32(f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    (*dtype, *data) = (Dtype::F16, values.flat_map(half::f16::to_le_bytes).collect());
}

fn doubles(tensors: &mut Tensors) {
    let (dtype, _, data) = tensors.get_mut(OUT).unwrap();
    let values = data.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
    (*dtype, *data) = (Dtype::F64, values.flat_map(f64::to_le_bytes).collect());
}

#[rstest]
#[case::as_written(|_: &mut Tensors| {}, "(prefix \"model.\" on 113 of 113 keys)")]
#[case::bare(|t: &mut Tensors| renamed(t, ""), "recognised LeRobot layout; 111 loaded")]
#[case::wrapped(|t: &mut Tensors| renamed(t, "module."), "(prefix \"module.\" on 113 of 113 keys)")]
#[case::one_in_f16(halves, "111 loaded")]
#[case::one_in_f64(doubles, "111 loaded")]
fn ff_07_08_layouts_and_types_that_are_read(#[case] edit: fn(&mut Tensors), #[case] said: &str) {
    let account = Base::new().edit(edit).account("run", &[]);
    assert!(account.contains(said) && account.contains("0 new"), "{account}");
}

#[test]
fn ff_08_what_is_missing_is_an_error_until_it_is_allowed_to_be_new() {
    let base = Base::new().edit(|tensors| {
        tensors.retain(|name, _| !name.contains("action_in_proj.bias") && !name.ends_with("action_out_proj.weight"));
    });
    let text = base.refused();
    for part in ["109 loaded, 2 missing: ", "action_in_proj.bias [64]", "action_out_proj.weight [32, 64]"] {
        assert!(text.contains(part), "{text}");
    }
    let (_, setting) = text.trim_end().split_once("is meant: ").unwrap();
    let account = base.account("pasted", &[setting]);
    assert!(account.contains("action_in_proj.bias starts anew"), "{account}");
    base.account("options", &["--allow-new", "action_in_proj.bias", "--allow-new=action_out_proj.weight"]);
}

#[rstest]
#[case::of_another_shape(
    |t: &mut Tensors| { let (_, shape, data) = t.get_mut("model.action_in_proj.weight").unwrap(); data.truncate(64 * 14 * 4); *shape = vec![64, 14]; },
    &["1 of another shape: model.action_in_proj.weight is [64, 14], the policy has [64, 32]"]
)]
#[case::foreign(
    |t: &mut Tensors| { t.insert("model.extra.weight".into(), (Dtype::F32, vec![2], vec![0; 8])); },
    &["model.extra.weight [2]"]
)]
#[case::no_weight(
    |t: &mut Tensors| { let (dtype, _, data) = t.get_mut(OUT).unwrap(); *dtype = Dtype::I32; data.fill(0); },
    &["model.action_out_proj.weight (I32)"]
)]
fn ff_08_what_does_not_fit_is_named_and_never_dropped(#[case] edit: fn(&mut Tensors), #[case] parts: &[&str]) {
    let text = Base::new().edit(edit).refused();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}");
}

#[test]
fn ff_08_a_file_that_lacks_a_byte_or_all_of_them() {
    let base = Base::new();
    let path = base.model.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    let text = base.refused();
    assert!(text.contains("1 fewer than its header declares") && text.contains("hint: "), "{text}");
    // A header length that no file can have costs no memory.
    fs::write(&path, [0xff; 10]).unwrap();
    assert!(base.refused().contains("is no whole safetensors file"));
    fs::remove_file(&path).unwrap();
    assert!(base.refused().contains("has no model.safetensors"));
}

#[test]
fn ff_19_a_base_without_its_tokenizer_is_not_given_another_quietly() {
    let base = Base::new();
    fs::remove_file(base.model.join("tokenizer.json")).unwrap();
    let output = succeed(base.train("run", &[]));
    assert!(stderr(&output).contains("has no tokenizer.json"), "{}", stderr(&output));
}
