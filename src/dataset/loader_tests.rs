use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::dataset::reader::Selection;
use crate::dataset::window::{StateRule, WindowError};

/// 22 frames in episodes without cameras.
fn dataset() -> Arc<Dataset> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/vlash/dataset-equal-dims"));
    Arc::new(Dataset::open(root, Selection::default()).unwrap())
}

fn options(workers: usize, start: Cursor) -> LoaderOptions {
    LoaderOptions {
        batch_size: 5,
        workers,
        prefetch: 2,
        window: WindowSpec { horizon: 6, state: StateRule::ActionProxy },
        delays: Delays::Drawn { max: 4 },
        start,
        notice: Arc::new(|text| panic!("nothing to wait for: {text}")),
    }
}

fn loader<T: Send + 'static>(
    options: LoaderOptions,
    transform: impl Fn(Sample) -> Result<T, WindowError> + Send + Sync + 'static,
) -> Loader<T, WindowError> {
    let dataset = dataset();
    let order = Order::shuffled(11, dataset.len());
    Loader::new(dataset, order, options, Arc::new(move |sample, _| transform(sample))).unwrap()
}

fn stream(workers: usize, start: Cursor, batches: usize) -> Vec<(Vec<Sample>, Cursor)> {
    let mut loader = loader(options(workers, start), Ok);
    (0..batches).map(|_| loader.next_batch().map(|batch| (batch.items, batch.next)).unwrap()).collect()
}

#[test]
fn the_stream_is_the_same_with_any_number_of_workers() {
    let alone = stream(0, Cursor::default(), 12);
    assert_eq!(stream(1, Cursor::default(), 12), alone);
    assert_eq!(stream(3, Cursor::default(), 12), alone);
    // Batches run over the border of an epoch of 22 without dropping.
    let shown: Vec<usize> = alone.iter().flat_map(|(items, _)| items).map(|sample| sample.index).collect();
    assert_eq!(shown[..22].iter().collect::<BTreeSet<_>>().len(), 22);
    assert_eq!(shown[22..44].iter().collect::<BTreeSet<_>>().len(), 22);
    assert_ne!(shown[..22], shown[22..44]);
    assert!(alone.iter().flat_map(|(items, _)| items).any(|sample| sample.delays[0] > 0));
    assert!(alone.iter().flat_map(|(items, _)| items).all(|sample| !sample.action_is_pad[0]));
}

#[test]
fn all_delays_of_a_frame_are_branches_of_one_sample_with_any_number_of_workers() {
    let stream = |workers| {
        let options = LoaderOptions { delays: Delays::All { max: 4 }, ..options(workers, Cursor::default()) };
        let mut loader = loader(options, Ok);
        (0..4).flat_map(|_| loader.next_batch().unwrap().items).collect::<Vec<Sample>>()
    };
    let alone = stream(0);
    assert_eq!(stream(3), alone);
    let drawn: Vec<usize> = self::stream(0, Cursor::default(), 4)
        .into_iter()
        .flat_map(|(items, _)| items)
        .map(|sample| sample.index)
        .collect();
    assert_eq!(alone.iter().map(|sample| sample.index).collect::<Vec<_>>(), drawn, "the same frames in the same order");
    assert!(alone.iter().all(|sample| sample.delays == [0, 1, 2, 3, 4] && sample.valid == [true; 5]));
    assert!(alone.iter().any(|sample| sample.action_is_pad[4 * 6]), "branches may lie past the episode's end");
}

#[test]
fn a_resumed_stream_continues_in_the_middle_of_an_epoch() {
    let whole = stream(2, Cursor::default(), 8);
    let resumed = stream(3, whole[5].1, 2);
    assert_eq!(whole[5].1, Cursor { epoch: 1, position: 8 });
    assert_eq!(resumed, whole[6..]);
}

#[test]
fn errors_and_panics_of_a_worker_name_the_sample() {
    for workers in [0, 2] {
        let refuse = |sample: Sample| match (sample.episode, sample.frame) {
            (0, 3) => Err(WindowError::ProxyDimensions { state: 1, action: 2 }),
            (1, 2) => panic!("broken on purpose"),
            _ => Ok(sample.index),
        };
        let mut loader = loader(options(workers, Cursor::default()), refuse);
        let errors: Vec<LoaderError<WindowError>> = (0..6).filter_map(|_| loader.next_batch().err()).collect();
        let refused = errors.iter().find(|error| matches!(error, LoaderError::Transform { .. })).unwrap();
        assert_eq!(refused.to_string(), "preparing sample 3");
        let panicked = errors.iter().find(|error| matches!(error, LoaderError::Panicked { .. })).unwrap();
        assert!(panicked.to_string().ends_with("panicked: broken on purpose"), "{panicked}");
    }
}

#[test]
fn no_more_is_prepared_than_asked_for_and_dropping_joins_the_threads() {
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let mut loader = loader(options(3, Cursor::default()), move |sample| {
        count.fetch_add(1, Ordering::SeqCst);
        Ok(sample.index)
    });
    loader.next_batch().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(loader);
    // One batch delivered, two ahead.
    assert_eq!(made.load(Ordering::SeqCst), 15);
    assert_eq!(Arc::strong_count(&made), 1);
}
