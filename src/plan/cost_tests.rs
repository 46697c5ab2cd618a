//! Against the numbers that follow from the published sizes by hand.

use super::*;
use crate::adapter::plan::{Everything, LoraSpec};
use crate::policy::parameters::parameters;

const TERA: f64 = 1e12;
const THREE_CAMERAS: Shape = Shape { batch: 1, cameras: 3, prompt: 200, suffixes: 1 };

fn near(found: f64, wanted: f64, tolerance: f64) {
    assert!((found - wanted).abs() <= tolerance, "{found} is not {wanted} ± {tolerance}");
}

/// Adapters of rank 16 on the linears whose last name is listed.
struct Adapters(&'static [&'static str]);

impl TrainPlan for Adapters {
    fn lora(&self, module: &str) -> Option<LoraSpec> {
        let hit = module.rsplit('.').next().is_some_and(|last| self.0.contains(&last));
        hit.then_some(LoraSpec { rank: 16, scale: 1.0, dropout: 0.0 })
    }
    fn trains(&self, _: &str) -> bool {
        false
    }
    fn seed(&self) -> u64 {
        0
    }
}

#[test]
fn the_parts_of_a_call_are_those_of_the_published_sizes() {
    let arch = Arch::full_pi05();
    assert_eq!(THREE_CAMERAS.prefix(&arch), 968);
    let call = inference(&arch, &THREE_CAMERAS, 1, Dtype::Bfloat16);
    // SigLIP: 411 M parameters in linears over 256 tokens, and 27 attentions of 256 by 256.
    near(call.vision.linear / 3.0 / TERA, 0.21, 0.005);
    near(call.vision.attention / 3.0 / TERA, 0.008, 0.0005);
    // The last layer ends behind its keys and values.
    near(call.prefix.linear / TERA, 2.0 * (17.0 * 110_100_480.0 + 2.0 * 2048.0 * 256.0) * 968.0 / TERA, 1e-9);
    near(call.prefix.flops() / TERA, 3.8, 0.05);
    near(call.denoise.linear / TERA, 0.031, 0.001);
    // 0.62 GB of bf16 linears, 0.47 GB of f32 modulation, and the cache of 17.8 MB.
    near(call.denoise.bytes / 1e9, 0.623 + 0.466 + 0.018, 0.02);
}

#[test]
fn more_steps_read_the_linears_again_and_the_modulation_not() {
    let arch = Arch::full_pi05();
    let bytes = |steps| inference(&arch, &THREE_CAMERAS, steps, Dtype::Bfloat16).denoise.bytes;
    near((bytes(10) - bytes(1)) / 9.0 / 1e9, 0.623 + 0.018, 0.005);
    let flops = |steps| inference(&arch, &THREE_CAMERAS, steps, Dtype::Bfloat16).denoise.flops();
    near(flops(10) / flops(1), 10.0, 1e-9);
}

/// Measured ceilings of an H200: the floors that the first table was set against.
#[test]
fn the_floors_of_known_works() {
    let (arch, peak) = (Arch::full_pi05(), Peak { flops_per_s: 750e12, bytes_per_s: 4.3e12 });
    let two = Shape { cameras: 2, ..THREE_CAMERAS };
    near(inference(&arch, &two, 10, Dtype::Bfloat16).seconds(&peak), 6e-3, 0.7e-3);
    near(inference(&arch, &THREE_CAMERAS, 10, Dtype::Bfloat16).seconds(&peak), 8e-3, 1e-3);
    let full = training(&arch, &Shape { batch: 8, ..two }, &Everything, false, Dtype::Bfloat16);
    near(full.seconds(&peak), 120e-3, 15e-3);
}

#[test]
fn everything_updated_is_every_parameter_that_is_read() {
    let arch = Arch::full_pi05();
    let all: usize = parameters(&arch).iter().map(|parameter| parameter.elements()).sum();
    // Of the language model's last layer, and its final norm.
    let unread = 109_053_952.0 + 2048.0;
    let cost = training(&arch, &THREE_CAMERAS, &Everything, false, Dtype::Bfloat16);
    assert_eq!(cost.updated, all as f64 - unread);
    assert_eq!(cost.optimizer.bytes, 28.0 * cost.updated);
}

#[test]
fn adapters_cost_one_product_more_than_the_forward_and_recomputation_another() {
    let arch = Arch::full_pi05();
    let plan = Adapters(&GEMMA);
    let kept = training(&arch, &THREE_CAMERAS, &plan, false, Dtype::Bfloat16);
    let again = training(&arch, &THREE_CAMERAS, &plan, true, Dtype::Bfloat16);
    // q, k, v of the vision tower have the same names. The last layer's unread half is not among them.
    let unread = 16.0 * (2.0 * 4096.0 + 3.0 * (2048.0 + 16384.0));
    assert_eq!(kept.updated, 26_542_080.0 - unread + 27.0 * 3.0 * 16.0 * 2304.0);
    near(kept.backward.linear / kept.forward.linear, 1.0, 0.03);
    near(again.backward.linear / kept.backward.linear, 2.0, 0.03);
    near(kept.backward.attention / kept.forward.attention, 2.0, 1e-9);
}

#[test]
fn nothing_in_front_of_what_trains_is_walked_back() {
    let arch = Arch::full_pi05();
    let cost = training(&arch, &THREE_CAMERAS, &Adapters(&["time_mlp_in"]), true, Dtype::Bfloat16);
    assert!(cost.backward.flops() < 0.05 * cost.forward.flops());
    let none = training(&arch, &THREE_CAMERAS, &Frozen, true, Dtype::Bfloat16);
    assert_eq!((none.backward, none.updated), (Work::default(), 0.0));
}

#[test]
fn delays_that_share_a_prefix_add_only_their_suffixes() {
    let arch = Arch { state_cond: true, ..Arch::full_pi05() };
    let cost = |suffixes| training(&arch, &Shape { suffixes, ..THREE_CAMERAS }, &Everything, false, Dtype::Bfloat16);
    let (one, nine) = (cost(1), cost(9));
    let ratio = nine.forward.flops() / one.forward.flops();
    assert!(ratio > 1.02 && ratio < 1.1, "{ratio}");
}
