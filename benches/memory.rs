//! Peak of allocated bytes in a training step against depth, with and without recomputation ("max alloc").

mod yardstick;

use vlash_forge::adapter::plan::{Everything, TrainPlan};
use yardstick::{Adapters, Yardstick};

#[global_allocator]
static ALLOCATIONS: divan::AllocProfiler = divan::AllocProfiler::system();

fn main() {
    yardstick::leave_threads_to_rayon();
    divan::main();
}

fn step(bencher: divan::Bencher, plan: &dyn TrainPlan, depth: usize, recompute: bool) {
    let yardstick = Yardstick::new(plan, depth, recompute).expect("the yardstick builds");
    bencher.bench_local(|| yardstick.step());
}

#[divan::bench(args = [3, 6, 12], sample_count = 3)]
fn recomputed(bencher: divan::Bencher, depth: usize) {
    step(bencher, &Adapters, depth, true);
}

#[divan::bench(args = [3, 6, 12], sample_count = 3)]
fn recorded(bencher: divan::Bencher, depth: usize) {
    step(bencher, &Adapters, depth, false);
}

#[divan::bench(args = [3, 6, 12], sample_count = 3)]
fn all_parameters_recomputed(bencher: divan::Bencher, depth: usize) {
    step(bencher, &Everything, depth, true);
}
