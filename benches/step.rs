//! Time of a whole training step of the yardstick, forward and backward. The reference implementation takes 67 ms on
//! two cores, all parameters training.

mod yardstick;

use candle_core::{DType, Device, Tensor};
use vlash_forge::adapter::plan::{Everything, Frozen};
use yardstick::{Adapters, Yardstick};

fn main() {
    yardstick::leave_threads_to_rayon();
    divan::main();
}

/// With and without recomputation.
#[divan::bench(args = [false, true], sample_count = 40)]
fn all_parameters(bencher: divan::Bencher, recompute: bool) {
    let yardstick = Yardstick::new(&Everything, 3, recompute).expect("the yardstick builds");
    bencher.bench_local(|| yardstick.step());
}

#[divan::bench(args = [false, true], sample_count = 40)]
fn adapters(bencher: divan::Bencher, recompute: bool) {
    let yardstick = Yardstick::new(&Adapters, 3, recompute).expect("the yardstick builds");
    bencher.bench_local(|| yardstick.step());
}

/// A batch of `(frames, delays of each over one prefix)`: the same number of action chunks (the items), in fewer and fewer
/// frames. One delay of each frame is what random delays cost.
#[divan::bench(args = [(144, 1), (48, 3), (16, 9), (16, 1)], sample_count = 20)]
fn delays_over_one_prefix(bencher: divan::Bencher, (frames, delays): (usize, usize)) {
    let yardstick = Yardstick::shared(&Everything, [frames, delays]).expect("the yardstick builds");
    bencher.counter(divan::counter::ItemsCount::new(frames * delays)).bench_local(|| yardstick.step());
}

/// Ten denoising steps for one observation.
#[divan::bench(sample_count = 20)]
fn sampled_chunk(bencher: divan::Bencher) {
    let Yardstick { policy, batch, .. } = Yardstick::new(&Frozen, 3, false).expect("the yardstick builds");
    let one = batch.select(&[0]).expect("there is a first sample");
    let noise = Tensor::zeros((1, 10, 32), DType::F32, &Device::Cpu).expect("noise can be made");
    bencher.bench_local(|| policy.sample(&one, &noise, 10));
}
