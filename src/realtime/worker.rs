//! The thread that infers. The loop hands it an observation and looks for a chunk; neither waits for the other.
//!
//! Both ways there is one slot: a newer observation replaces one that was not begun, a newer chunk one that was not taken.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::policy::{ChunkPolicy, InferError, Inferred, PolicyFacts, Request};
use crate::error::Kind;

/// What became of a request.
#[derive(Debug)]
pub struct Reply {
    /// The launch's number.
    pub chunk: u64,
    pub result: Result<Inferred, InferError>,
    /// From the request to the chunk.
    pub latency: Duration,
}

/// Where the loop gets chunks from: the worker's thread, or a stand-in on a virtual clock.
pub trait Inference {
    /// Asks for a chunk; does not wait.
    fn request(&mut self, chunk: u64, request: Request);

    /// The newest chunk that is there; does not wait.
    fn poll(&mut self) -> Option<Reply>;
}

/// Latency for experiments: a chunk is given out no earlier than this after its request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Injected {
    #[default]
    None,
    Fixed(Duration),
    /// One a request, going round.
    Trace(Vec<Duration>),
}

impl Injected {
    /// Of the request that is number `request` from 0.
    pub fn of(&self, request: usize) -> Duration {
        match self {
            Injected::None => Duration::ZERO,
            Injected::Fixed(latency) => *latency,
            Injected::Trace(latencies) => {
                latencies.get(request % latencies.len().max(1)).copied().unwrap_or(Duration::ZERO)
            }
        }
    }
}

struct Job {
    chunk: u64,
    request: Request,
    asked: Instant,
    injected: bool,
}

#[derive(Default)]
struct Mailbox {
    job: Mutex<Option<Job>>,
    posted: Condvar,
    reply: Mutex<Option<Reply>>,
    answered: Condvar,
    closed: AtomicBool,
}

/// Between two calls of who waits.
const SIGN_OF_LIFE: Duration = Duration::from_millis(200);

/// A panic in a thread that held the lock leaves an `Option` in a sound state.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The inference thread's handle. Dropping it lets the thread end after what it is at.
pub struct Worker {
    mailbox: Arc<Mailbox>,
    facts: PolicyFacts,
}

impl Worker {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(policy: Box<dyn ChunkPolicy>, injected: Injected) -> std::io::Result<Worker> {
        Worker::start_after(policy, injected, || ())
    }

    /// As [`start`](Self::start); the thread calls `first` before all else, for its place in the system.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start_after(
        policy: Box<dyn ChunkPolicy>,
        injected: Injected,
        first: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<Worker> {
        let mailbox = Arc::new(Mailbox::default());
        let facts = policy.facts().clone();
        let served = Arc::clone(&mailbox);
        std::thread::Builder::new().name("inference".into()).spawn(move || {
            first();
            serve(&served, policy, &injected);
        })?;
        Ok(Worker { mailbox, facts })
    }

    pub fn facts(&self) -> &PolicyFacts {
        &self.facts
    }

    /// Infers `runs` times on `request` and waits for each, `patience` in all, so that what is slow once (kernels compiled,
    /// memory taken) is over before the arm moves; `waiting` is called now and then. The latency of the last run; it enters
    /// no figures.
    ///
    /// # Errors
    /// The policy's, or that it takes too long.
    pub fn warm_up(
        &mut self,
        request: &Request,
        runs: usize,
        patience: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<Duration, InferError> {
        let deadline = Instant::now() + patience;
        let mut latency = Duration::ZERO;
        for _ in 0..runs {
            self.post(Job { chunk: 0, request: request.clone(), asked: Instant::now(), injected: false });
            let reply = self.wait(deadline, waiting).ok_or_else(|| InferError {
                reason: format!("warm-up was not over after {} s", patience.as_secs()),
                kind: Kind::Environment,
            })?;
            reply.result?;
            latency = reply.latency;
        }
        Ok(latency)
    }

    fn wait(&self, deadline: Instant, waiting: &mut dyn FnMut()) -> Option<Reply> {
        let mut reply = lock(&self.mailbox.reply);
        loop {
            if let Some(reply) = reply.take() {
                return Some(reply);
            }
            waiting();
            let left = deadline.checked_duration_since(Instant::now())?.min(SIGN_OF_LIFE);
            let waited = self.mailbox.answered.wait_timeout(reply, left).unwrap_or_else(PoisonError::into_inner);
            reply = waited.0;
        }
    }

    fn post(&self, job: Job) {
        *lock(&self.mailbox.job) = Some(job);
        self.mailbox.posted.notify_one();
    }
}

impl Inference for Worker {
    fn request(&mut self, chunk: u64, request: Request) {
        self.post(Job { chunk, request, asked: Instant::now(), injected: true });
    }

    fn poll(&mut self) -> Option<Reply> {
        // The other side holds the lock for a move of a few words: the next tick will do.
        self.mailbox.reply.try_lock().ok()?.take()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.mailbox.closed.store(true, Ordering::Release);
        // Under the lock, so that the thread cannot miss it between its look and its wait.
        drop(lock(&self.mailbox.job));
        self.mailbox.posted.notify_all();
    }
}

fn serve(mailbox: &Mailbox, mut policy: Box<dyn ChunkPolicy>, injected: &Injected) {
    let mut served = 0;
    while let Some(job) = next(mailbox) {
        let result = catch_unwind(AssertUnwindSafe(|| policy.infer(&job.request)))
            .unwrap_or_else(|panic| Err(panicked(panic.as_ref())));
        if job.injected {
            let least = injected.of(served);
            served += 1;
            std::thread::sleep(least.saturating_sub(job.asked.elapsed()));
        }
        *lock(&mailbox.reply) = Some(Reply { chunk: job.chunk, result, latency: job.asked.elapsed() });
        mailbox.answered.notify_one();
    }
}

fn next(mailbox: &Mailbox) -> Option<Job> {
    let mut job = lock(&mailbox.job);
    loop {
        if mailbox.closed.load(Ordering::Acquire) {
            return None;
        }
        if let Some(job) = job.take() {
            return Some(job);
        }
        job = mailbox.posted.wait(job).unwrap_or_else(PoisonError::into_inner);
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> InferError {
    let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    InferError { reason: format!("the policy panicked: {}", said.unwrap_or("without a message")), kind: Kind::Internal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::realtime::policy::{Continuity, Timing};

    /// Gives the state back; panics when told to.
    struct Echo(PolicyFacts);

    impl ChunkPolicy for Echo {
        fn facts(&self) -> &PolicyFacts {
            &self.0
        }

        fn infer(&mut self, request: &Request) -> Result<Inferred, InferError> {
            assert!(request.state != [13.0], "thirteen");
            Ok(Inferred { actions: request.state.clone(), timing: Timing::default() })
        }
    }

    fn worker() -> Worker {
        let facts = PolicyFacts {
            horizon: 1,
            action_dim: 1,
            state_dim: 1,
            joints: None,
            cameras: Vec::new(),
            trained_delay: 0,
            rtc_trained_delay: 0,
            action_range: None,
        };
        Worker::start(Box::new(Echo(facts)), Injected::None).unwrap()
    }

    fn request(state: f32) -> Request {
        Request {
            images: Vec::new(),
            state: vec![state],
            task: "wave".into(),
            noise_seed: 0,
            continuity: Continuity::Free,
            leftover: None,
        }
    }

    fn reply(worker: &Worker) -> Reply {
        worker.wait(Instant::now() + Duration::from_secs(20), &mut || ()).unwrap()
    }

    #[test]
    fn chunks_come_back_under_their_numbers() {
        let mut worker = worker();
        worker.warm_up(&request(1.0), 2, Duration::from_secs(20), &mut || ()).unwrap();
        worker.request(7, request(2.0));
        let reply = reply(&worker);
        assert_eq!((reply.chunk, reply.result.unwrap().actions), (7, vec![2.0]));
        assert!(worker.poll().is_none());
    }

    #[test]
    fn a_panic_is_an_answer_and_the_thread_lives_on() {
        let mut worker = worker();
        worker.request(1, request(13.0));
        let error = reply(&worker).result.unwrap_err();
        assert!(error.reason.contains("panicked: thirteen"), "{}", error.reason);
        worker.request(2, request(3.0));
        assert_eq!(reply(&worker).chunk, 2);
        assert!(worker.warm_up(&request(13.0), 1, Duration::from_secs(20), &mut || ()).is_err());
    }

    #[test]
    fn traces_go_round() {
        let trace = Injected::Trace(vec![Duration::from_millis(1), Duration::from_millis(2)]);
        assert_eq!([trace.of(0), trace.of(3)], [Duration::from_millis(1), Duration::from_millis(2)]);
        assert_eq!(Injected::Trace(Vec::new()).of(3), Duration::ZERO);
    }
}
