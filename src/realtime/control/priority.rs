//! What the system can be asked for so that the loop is woken on time. Each may be refused; then it is said and goes on.

use nix::sys::mman::{MlockAllFlags, mlockall};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

/// What is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Priority {
    /// SCHED_FIFO at this priority (1…99) for the control thread.
    pub fifo: Option<u8>,
    /// Memory is never paged out.
    pub lock_memory: bool,
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
        refused
    }
}

fn fifo(priority: u8) -> Result<(), String> {
    let value = ThreadPriorityValue::try_from(priority)?;
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Crossplatform(value), policy)
        .map_err(|error| format!("{error:?}"))
}
