//! Signals that ask the trainer to stop: finish the step, save, exit "resumable"; a second one exits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use crate::error::Kind;

/// The signals that schedulers, containers and people send before they kill.
const SIGNALS: [i32; 3] = [SIGTERM, SIGUSR1, SIGINT];

/// Set by the first signal; read at step boundaries.
#[derive(Debug, Clone, Default)]
pub struct StopFlag {
    raised: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl StopFlag {
    /// Installs the handlers. From the second signal on, the process leaves at once with the code for "stopped".
    pub fn install() -> std::io::Result<StopFlag> {
        let flag = StopFlag::default();
        for signal in SIGNALS {
            // Order matters: the shutdown tests the flag that the next handler sets.
            signal_hook::flag::register_conditional_shutdown(
                signal,
                i32::from(Kind::Stopped.exit_code()),
                flag.raised.clone(),
            )?;
            signal_hook::flag::register(signal, flag.raised.clone())?;
            signal_hook::flag::register_usize(signal, flag.signal.clone(), signal as usize)?;
        }
        Ok(flag)
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
