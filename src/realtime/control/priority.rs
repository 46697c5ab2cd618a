//! What the system can be asked for so that the loop is woken on time. Each may be refused; then it is said and goes on.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::mman::{MlockAllFlags, mlockall};
use nix::unistd::Pid;
use thread_priority::{
    NormalThreadSchedulePolicy, RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue,
    ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priority {
    /// SCHED_FIFO at this priority (1…99) for the control thread.
    pub fifo: Option<u8>,
    /// Memory is never paged out.
    pub lock_memory: bool,
    /// The control thread stays on one core, the last of those it may use, and the inference thread keeps off it.
    pub own_core: bool,
}

impl Priority {
    /// Asks, for the calling thread; what was refused, in words.
    pub fn apply(self) -> Vec<String> {
        let mut refused = Vec::new();
        if let Some(priority) = self.fifo
            && let Err(reason) = fifo(priority)
        {
            refused.push(format!(
                "real-time priority {priority} was refused ({reason}): other programs may delay ticks. Allow it with: \
                 ulimit -r {priority}, or CAP_SYS_NICE"
            ));
        }
        if self.lock_memory
            && let Err(errno) = mlockall(MlockAllFlags::MCL_CURRENT | MlockAllFlags::MCL_FUTURE)
        {
            refused.push(format!(
                "memory could not be locked ({errno}): ticks may wait for paging. Allow it with: ulimit -l unlimited"
            ));
        }
        if self.own_core
            && let Err(errno) = stay_on(&own_core(&cores()))
        {
            refused
                .push(format!("the control thread could not be kept on one core ({errno}): ticks may move and wait"));
        }
        refused
    }

    /// For the thread that infers: off the control thread's core, where there are others. What cannot be had matters little.
    pub fn keep_off(self) {
        if self.own_core {
            let all = cores();
            let others = all.get(..all.len().saturating_sub(1)).unwrap_or_default();
            let _ = stay_on(others);
        }
    }
}

/// What a thread had in the system before a rollout ran in it.
pub(super) struct Place {
    cores: Vec<usize>,
}

impl Place {
    /// The calling thread's.
    pub(super) fn here() -> Place {
        Place { cores: cores() }
    }

    /// Gives the calling thread back what `asked` took, so that threads that it starts later do not inherit that. To give
    /// up is always permitted.
    pub(super) fn restore(self, asked: Priority) {
        if asked.fifo.is_some() {
            let usual = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
            let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Os(Default::default()), usual);
        }
        if asked.own_core {
            let _ = stay_on(&self.cores);
        }
    }
}

/// The cores that the calling thread may use.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(Pid::from_raw(0)).unwrap_or_default();
    (0..CpuSet::count()).filter(|core| set.is_set(*core).unwrap_or(false)).collect()
}

fn own_core(all: &[usize]) -> Vec<usize> {
    all.last().copied().filter(|_| all.len() > 1).into_iter().collect()
}

/// With no core named the thread stays where it is.
fn stay_on(cores: &[usize]) -> nix::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|core| set.set(*core))?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

fn fifo(priority: u8) -> Result<(), String> {
    let value = ThreadPriorityValue::try_from(priority)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(value), policy)
        .map_err(|error| format!("{error:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_inference_share_no_core_where_there_are_two() {
        let before = cores();
        let asked = Priority { own_core: true, ..Priority::default() };
        let on = |ask: fn(Priority)| std::thread::spawn(move || (ask(asked), cores()).1).join().unwrap();
        let control = on(|asked| assert_eq!(asked.apply(), [""; 0]));
        let given_back = on(|asked| {
            let place = Place::here();
            asked.apply();
            place.restore(asked);
        });
        assert_eq!(given_back, before);
        let inference = on(Priority::keep_off);
        if before.len() > 1 {
            assert_eq!(control.len(), 1);
            assert_eq!([&inference[..], &control[..]].concat(), before);
        }
        assert_eq!(cores(), before, "each asks for itself");
        assert_eq!(own_core(&[3]), [0; 0], "of one core nobody can keep off");
    }
}
