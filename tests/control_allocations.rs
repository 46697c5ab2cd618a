//! A control tick allocates nothing, unless it asks for a chunk.

#![allow(unsafe_code, reason = "an allocator is unsafe to implement; this one passes everything on to the system's")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/arm.rs"]
mod arm;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::channel;
use std::time::Duration;

use arm::{HORIZON, JOINTS, MockArm, Swing};
use vlash_forge::realtime::control::{ControlSettings, Core, Pace};
use vlash_forge::realtime::deferred::Deferred;
use vlash_forge::realtime::policy::ChunkPolicy;
use vlash_forge::realtime::scheduler::{Mode, Overlap, Settings};
use vlash_forge::realtime::telemetry::{Record, Telemetry, TelemetrySettings};
use vlash_forge::realtime::worker::Injected;
use vlash_forge::robot::Robot;
use vlash_forge::robot::clock::Clock;
use vlash_forge::track::telemetry::{Message, Phase};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts what each thread allocates.
struct Counting;

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends has no counter any more; it is not the one that is asked about.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

#[test]
fn a_tick_without_a_launch_allocates_nothing() {
    for mode in [Mode::Sync, Mode::Vlash, Mode::Rtc] {
        let clock = Clock::virtual_();
        let (mut arm, policy) = (MockArm::new(&clock), Swing::new());
        let schedule = Settings { overlap: Overlap::Fixed(4), ..Settings::new(mode, HORIZON, 12, JOINTS, 30.0) };
        let settings = ControlSettings { expected_ticks: 1000, ..ControlSettings::new(schedule, "swing") };
        let mut core = Core::new(settings, policy.facts(), arm.features(), arm.limits()).unwrap();
        core.begin(&mut arm, clock.now()).unwrap();
        core.arm();
        // Every seventh is late by more than the overlap.
        let latencies = [100, 100, 100, 100, 100, 100, 250].map(Duration::from_millis).to_vec();
        let mut inference = Deferred::new(Box::new(policy), clock.clone(), Injected::Trace(latencies));
        let (steer, _asked) = channel();
        let telemetry = Telemetry::start(TelemetrySettings::default(), steer).unwrap();
        let mut pace = Pace::new(clock, 30.0, Duration::ZERO);
        let (mut launches, mut arrivals) = (0, 0);
        for tick in 0..600 {
            let before = allocations();
            let wake = pace.wait();
            assert_eq!(core.tick(wake.now, wake.missed, &mut arm, &mut inference).unwrap(), None);
            let (mut launched, mut said) = (false, false);
            for record in core.records() {
                if let Record::Message(Message::Chunk(chunk)) = &record {
                    launched |= matches!(chunk.phase, Phase::Launched { .. });
                    arrivals += u64::from(matches!(chunk.phase, Phase::Arrived { .. }));
                }
                // A chunk that is late is told a person in words, now and then.
                said |= matches!(&record, Record::Message(Message::Event { .. }));
                telemetry.send(record);
            }
            let after = allocations();
            launches += u64::from(launched);
            // The first send registers the thread with the queue.
            let quiet = !launched && !said && tick > 0;
            assert!(!quiet || after == before, "{mode}: tick {tick} allocated {} times", after - before);
        }
        assert!(launches > 30 && arrivals > 30, "{mode}: {launches} launches, {arrivals} arrivals");
        assert_eq!(telemetry.dropped(), 0);
    }
}
