//! Signals that ask the trainer to stop: finish the step, save, exit "resumable"; a second one exits at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::error::Kind;

/// The signals that schedulers, containers and people send before they kill.
const SIGNALS: [i32; 3] = [SIGTERM, SIGUSR1, SIGINT];

/// What is still to be said when the process leaves at once.
type LastWords = Box<dyn Fn() + Send>;

/// Set by the first signal; read at step boundaries.
#[derive(Clone, Default)]
pub struct StopFlag {
    raised: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
    last_words: Arc<Mutex<Option<LastWords>>>,
}

impl StopFlag {
    /// Installs the handlers. At the second signal the process says its last words and leaves at once with the code for
    /// "stopped"; at a third it leaves without them.
    pub fn install() -> std::io::Result<StopFlag> {
        let flag = StopFlag::default();
        let leaving = Arc::new(AtomicBool::new(false));
        let code = i32::from(Kind::Stopped.exit_code());
        for signal in SIGNALS {
            // Where the disk of the last words hangs.
            signal_hook::flag::register_conditional_shutdown(signal, code, leaving.clone())?;
            signal_hook::flag::register(signal, flag.raised.clone())?;
            signal_hook::flag::register_usize(signal, flag.signal.clone(), signal as usize)?;
        }
        // Files cannot be written in a handler: a thread hears the same signals.
        let mut signals = Signals::new(SIGNALS)?;
        let last_words = flag.last_words.clone();
        std::thread::spawn(move || {
            if signals.forever().nth(1).is_some() {
                leaving.store(true, Ordering::Relaxed);
                if let Some(say) = &*last_words.lock().unwrap_or_else(PoisonError::into_inner) {
                    say();
                }
                signal_hook::low_level::exit(code);
            }
        });
        // A file-size limit must come back as an error of the write, not as a kill.
        signal_hook::flag::register(SIGXFSZ, Arc::default())?;
        Ok(flag)
    }

    /// Sets what is done at the second signal before the process leaves; it must be short.
    pub fn before_leaving(&self, last_words: impl Fn() + Send + 'static) {
        *self.last_words.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(last_words));
    }

    /// Whether a signal has arrived.
    pub fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// The name of the signal that arrived last.
    pub fn name(&self) -> &'static str {
        match self.signal.load(Ordering::Relaxed) as i32 {
            SIGTERM => "SIGTERM",
            SIGUSR1 => "SIGUSR1",
            SIGINT => "SIGINT",
            _ => "a request",
        }
    }
}
