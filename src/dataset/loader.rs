//! The prefetching loader: worker threads read, decode and transform samples ahead; batches come in order.
//!
//! What a batch holds depends on (seed, epoch, position) alone, never on the number of workers or on who was faster.
//! A batch may begin in one epoch and end in the next, so every sample of an epoch is used.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::error::DatasetError;
use super::order::{Cursor, Order};
use super::reader::Dataset;
use super::sample::Sample;
use super::window::{Delays, WindowSpec};
use crate::error::{Explain, Kind};

/// Waiting longer than this is said (and said again each time it passes).
const PATIENCE: Duration = Duration::from_secs(10);

/// What a worker does with a sample.
pub type Transform<T, E> = Arc<dyn Fn(Sample, SampleRef) -> Result<T, E> + Send + Sync>;

/// Where the loader says that it waits, and for what.
pub type Notice = Arc<dyn Fn(String) + Send + Sync>;

/// How samples are drawn and how many are prepared ahead.
#[derive(Clone)]
pub struct LoaderOptions {
    pub batch_size: usize,
    /// Threads; 0: samples are made when they are asked for.
    pub workers: usize,
    /// Batches that are prepared ahead, at least 1.
    pub prefetch: usize,
    pub window: WindowSpec,
    pub delays: Delays,
    /// Where to start.
    pub start: Cursor,
    pub notice: Notice,
}

/// Which sample an item of a batch was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleRef {
    /// Position among the dataset's selected frames.
    pub sample: usize,
    pub epoch: u64,
    /// The delay drawn for it; 0 where all delays are branches of the sample.
    pub delay: usize,
}

/// Consecutive samples of the stream.
#[derive(Debug)]
pub struct LoadedBatch<T> {
    pub items: Vec<T>,
    /// One per item.
    pub samples: Vec<SampleRef>,
    /// Where the next batch starts: what a checkpoint after this batch stores.
    pub next: Cursor,
}

/// Why a batch cannot be delivered.
#[derive(Debug, Error)]
pub enum LoaderError<E: Explain> {
    #[error("reading sample {}", sample.sample)]
    Read { sample: SampleRef, source: DatasetError },
    #[error("preparing sample {}", sample.sample)]
    Transform { sample: SampleRef, source: E },
    #[error("preparing sample {} (epoch {}, delay {}) panicked: {message}", sample.sample, sample.epoch, sample.delay)]
    Panicked { sample: SampleRef, message: String },
    #[error("the selection holds no frames")]
    Empty,
    #[error("cannot start loader thread {worker}")]
    Thread { worker: usize, source: std::io::Error },
}

impl<E: Explain> Explain for LoaderError<E> {
    fn kind(&self) -> Kind {
        match self {
            LoaderError::Read { source, .. } => source.kind(),
            LoaderError::Transform { source, .. } => source.kind(),
            LoaderError::Panicked { .. } => Kind::Internal,
            LoaderError::Empty => Kind::Input,
            LoaderError::Thread { .. } => Kind::Environment,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            LoaderError::Read { source, .. } => source.hint(),
            LoaderError::Transform { source, .. } => source.hint(),
            LoaderError::Panicked { .. } => Some("this is a defect in vlash: please report it".into()),
            LoaderError::Thread { .. } => Some("lower data.workers".into()),
            LoaderError::Empty => None,
        }
    }
}

/// Delivers batches; ends its threads when dropped.
pub struct Loader<T, E: Explain> {
    shared: Arc<Shared<T, E>>,
    threads: Vec<JoinHandle<()>>,
    batch_size: usize,
    notice: Notice,
    /// Number in the stream of the next sample to deliver.
    next: u64,
}

struct Shared<T, E: Explain> {
    dataset: Arc<Dataset>,
    order: Order,
    window: WindowSpec,
    delays: Delays,
    transform: Transform<T, E>,
    /// Samples that may be in preparation or waiting.
    capacity: u64,
    queue: Mutex<Queue<T, E>>,
    /// A sample is ready.
    ready: Condvar,
    /// There is room for another, or the loader ends.
    room: Condvar,
}

type Made<T, E> = Result<(T, SampleRef), LoaderError<E>>;

struct Queue<T, E: Explain> {
    /// Number of the next sample that a worker takes up.
    next_taken: u64,
    /// Number of the next sample to deliver.
    next_delivered: u64,
    done: BTreeMap<u64, Made<T, E>>,
    /// Who is at what, since when.
    working: BTreeMap<u64, (usize, Instant)>,
    stopping: bool,
}

impl<T: Send + 'static, E: Explain> Loader<T, E> {
    /// Starts the threads. `order` must count the samples of `dataset`.
    pub fn new(
        dataset: Arc<Dataset>,
        order: Order,
        options: LoaderOptions,
        transform: Transform<T, E>,
    ) -> Result<Loader<T, E>, LoaderError<E>> {
        if dataset.is_empty() || order.is_empty() {
            return Err(LoaderError::Empty);
        }
        let batch_size = options.batch_size.max(1);
        let next = order.number(options.start);
        let queue = Queue {
            next_taken: next,
            next_delivered: next,
            done: BTreeMap::new(),
            working: BTreeMap::new(),
            stopping: false,
        };
        let shared = Arc::new(Shared {
            dataset,
            order,
            window: options.window,
            delays: options.delays,
            transform,
            capacity: (batch_size as u64).saturating_mul(options.prefetch.max(1) as u64),
            queue: Mutex::new(queue),
            ready: Condvar::new(),
            room: Condvar::new(),
        });
        let mut loader = Loader { shared, threads: Vec::new(), batch_size, notice: options.notice, next };
        for worker in 0..options.workers {
            let shared = loader.shared.clone();
            let thread = std::thread::Builder::new().name(format!("loader-{worker}"));
            let thread = thread.spawn(move || shared.work(worker));
            loader.threads.push(thread.map_err(|source| LoaderError::Thread { worker, source })?);
        }
        Ok(loader)
    }

    /// The next batch, in order. After an error the stream goes on behind the sample that failed.
    pub fn next_batch(&mut self) -> Result<LoadedBatch<T>, LoaderError<E>> {
        let mut items = Vec::with_capacity(self.batch_size.min(1 << 16));
        let mut samples = Vec::with_capacity(self.batch_size.min(1 << 16));
        while items.len() < self.batch_size {
            let made = if self.threads.is_empty() { self.shared.make(self.next) } else { self.wait_for(self.next) };
            self.next += 1;
            let (item, sample) = made?;
            items.push(item);
            samples.push(sample);
        }
        Ok(LoadedBatch { items, samples, next: self.cursor() })
    }

    /// Where the next batch starts.
    pub fn cursor(&self) -> Cursor {
        self.shared.order.cursor(self.next)
    }

    fn wait_for(&self, number: u64) -> Made<T, E> {
        let since = Instant::now();
        let mut said = 0;
        let mut queue = self.shared.lock();
        loop {
            if let Some(made) = queue.done.remove(&number) {
                queue.next_delivered = number + 1;
                drop(queue);
                self.shared.room.notify_all();
                return made;
            }
            let waited = self.shared.ready.wait_timeout(queue, PATIENCE);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            let waits = since.elapsed().as_secs() / PATIENCE.as_secs();
            if waits > said {
                said = waits;
                let text = self.shared.describe_wait(number, queue.working.get(&number), since);
                drop(queue);
                (self.notice)(text);
                queue = self.shared.lock();
            }
        }
    }
}

impl<T, E: Explain> Drop for Loader<T, E> {
    fn drop(&mut self) {
        self.shared.lock().stopping = true;
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of a sample are caught where it is made.
            let _ = thread.join();
        }
    }
}

impl<T, E: Explain> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, Queue<T, E>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, worker: usize) {
        while let Some(number) = self.take(worker) {
            let made = self.make(number);
            let mut queue = self.lock();
            queue.working.remove(&number);
            queue.done.insert(number, made);
            drop(queue);
            self.ready.notify_all();
        }
    }

    /// The next sample to make, once there is room; none when the loader ends.
    fn take(&self, worker: usize) -> Option<u64> {
        let mut queue = self.lock();
        while !queue.stopping && queue.next_taken >= queue.next_delivered.saturating_add(self.capacity) {
            queue = self.room.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.stopping {
            return None;
        }
        let number = queue.next_taken;
        queue.next_taken += 1;
        queue.working.insert(number, (worker, Instant::now()));
        Some(number)
    }

    /// Sample `number` of the stream: a pure function of the order's seed and `number`.
    fn make(&self, number: u64) -> Made<T, E> {
        let cursor = self.order.cursor(number);
        let mut sample = SampleRef { sample: self.order.sample(cursor), epoch: cursor.epoch, delay: 0 };
        let made = catch_unwind(AssertUnwindSafe(|| {
            let read = |source| LoaderError::Read { sample, source };
            let (episode, frame) = self.dataset.locate(sample.sample).map_err(read)?;
            let delays = match self.delays {
                Delays::All { max } => (0..=max).collect(),
                Delays::Drawn { max } => {
                    sample.delay = self.order.delay(cursor.epoch, sample.sample, frame, episode.rows.length, max);
                    vec![sample.delay]
                }
            };
            let raw = self.dataset.branches(sample.sample, &self.window, delays);
            let raw = raw.map_err(|source| LoaderError::Read { sample, source })?;
            (self.transform)(raw, sample).map_err(|source| LoaderError::Transform { sample, source })
        }));
        match made {
            Ok(made) => made.map(|item| (item, sample)),
            Err(panic) => Err(LoaderError::Panicked { sample, message: panic_message(&*panic) }),
        }
    }

    fn describe_wait(&self, number: u64, worker: Option<&(usize, Instant)>, since: Instant) -> String {
        let sample = self.order.sample(self.order.cursor(number));
        let place = match self.dataset.locate(sample) {
            Ok((episode, frame)) => format!("episode {}, frame {frame}", episode.meta.index),
            Err(_) => "outside of the dataset".into(),
        };
        let who = match worker {
            Some((worker, taken)) => format!("loader thread {worker} is at it since {} s", taken.elapsed().as_secs()),
            None => "no loader thread has taken it up".into(),
        };
        format!("waiting for sample {sample} ({place}) since {} s: {who}", since.elapsed().as_secs())
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}

#[cfg(test)]
#[path = "loader_tests.rs"]
mod tests;
