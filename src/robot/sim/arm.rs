//! The tabletop as a [`Robot`]: commands move the world as time passes, cameras have threads of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::fault::{Broken, Fault};
use super::ik::{self, HOME};
use super::render::{Camera, render};
use super::world::FPS;
use super::{IMAGE_SIZE, JOINT_NAMES, Outcome, ROBOT_TYPE, Setup, World};
use crate::dataset::frame::RgbFrame;
use crate::robot::clock::Clock;
use crate::robot::{CameraFeature, Features, Frame, JointState, Limits, Robot, RobotError};

/// A pause of the commands is made up for by at most so many ticks of the world.
const MOST_TICKS: u64 = 90;
/// How far the hand of an arm without torque sinks in a tick, and to which height above the table; metres.
const SINK: f64 = 0.002;
const SUNK: f64 = 0.03;

/// One episode's simulated arm. On a monotonic clock its cameras are threads; on a virtual one an image is drawn when it is
/// looked at.
pub struct SimRobot {
    features: Features,
    limits: Limits,
    clock: Clock,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    state: State,
    /// What is commanded.
    command: [f32; 7],
    frozen: Option<Vec<f32>>,
    /// Commands that came while some are lost.
    counted: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Disconnected,
    Connected,
    EmergencyStopped,
}

struct Shared {
    world: Mutex<Table>,
    newest: [Mutex<Option<Frame>>; 2],
    faults: Vec<Fault>,
    over: AtomicBool,
}

struct Table {
    world: World,
    ticks: u64,
    /// When the first command came.
    begun: Option<Duration>,
}

impl Shared {
    /// A panic of a camera's thread leaves the world sound: it only looks.
    fn table(&self) -> MutexGuard<'_, Table> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is broken `since` the first command.
    fn broken(&self, since: Option<Duration>) -> impl Iterator<Item = Broken> + '_ {
        let there = move |fault: &&Fault| since.is_some_and(|since| fault.is_there(since));
        self.faults.iter().filter(there).map(|fault| fault.broken)
    }

    /// One tick of the world under `command`, as far as its joints obey.
    fn step(&self, table: &mut Table, command: &[f32; 7]) {
        let mut obeyed = *command;
        let joints = table.world.joints();
        for broken in self.broken(Some(Duration::from_secs_f64(table.ticks as f64 / FPS))) {
            if let Broken::Stuck(joint) = broken
                && let (Some(obeyed), Some(&stands)) = (obeyed.get_mut(joint), joints.get(joint))
            {
                *obeyed = stands;
            }
        }
        table.world.step(&obeyed);
        table.ticks += 1;
    }

    /// Takes an image of what is there now.
    fn capture(&self, slot: usize, camera: Camera, clock: &Clock) {
        let (snapshot, begun, captured) = {
            let table = self.table();
            (table.world.snapshot(), table.begun, clock.now())
        };
        let since = begun.map(|begun| captured.saturating_sub(begun));
        let is = |wanted| self.broken(since).any(|broken| broken == wanted);
        let Some(mailbox) = self.newest.get(slot) else { return };
        let before = mailbox.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if is(Broken::Stalled(camera)) {
            return;
        }
        let sequence = before.as_ref().map_or(0, |frame| frame.sequence + 1);
        let image = match before {
            Some(frame) if is(Broken::Frozen(camera)) => frame.image,
            _ if is(Broken::Black(camera)) => {
                Arc::new(RgbFrame { height: IMAGE_SIZE, width: IMAGE_SIZE, data: vec![0; 3 * IMAGE_SIZE * IMAGE_SIZE] })
            }
            _ => Arc::new(render(&snapshot, camera, IMAGE_SIZE)),
        };
        *mailbox.lock().unwrap_or_else(PoisonError::into_inner) = Some(Frame { captured, sequence, image });
    }
}

/// Tells how the task stands, beside the robot that is at it.
#[derive(Clone)]
pub struct Judge(Arc<Shared>);

impl Judge {
    /// Facts of the physics, and the same in words.
    pub fn look(&self) -> (Outcome, &'static str) {
        let table = self.0.table();
        (table.world.outcome(), table.world.progress())
    }

    /// Simulated seconds since the scene began.
    pub fn time(&self) -> f64 {
        self.0.table().world.time()
    }
}

impl SimRobot {
    /// The scene of `setup`. Times are of `clock`.
    pub fn new(setup: &Setup, clock: &Clock, faults: &[Fault]) -> SimRobot {
        let world = World::new(setup);
        let camera =
            |camera: Camera| CameraFeature { name: camera.name().into(), height: IMAGE_SIZE, width: IMAGE_SIZE };
        SimRobot {
            features: Features {
                robot_type: ROBOT_TYPE.into(),
                joints: JOINT_NAMES.map(String::from).to_vec(),
                cameras: Camera::ALL.map(camera).to_vec(),
            },
            limits: Limits::piper(),
            clock: clock.clone(),
            command: world.joints(),
            shared: Arc::new(Shared {
                world: Mutex::new(Table { world, ticks: 0, begun: None }),
                newest: Default::default(),
                faults: faults.to_vec(),
                over: AtomicBool::new(false),
            }),
            threads: Vec::new(),
            state: State::Disconnected,
            frozen: None,
            counted: 0,
        }
    }

    /// Whether the command that comes `since` the first one is lost.
    fn loses(&mut self, since: Duration) -> bool {
        let dropped = |broken| if let Broken::Dropped(each) = broken { Some(each) } else { None };
        let Some(each) = self.shared.broken(Some(since)).find_map(dropped) else { return false };
        self.counted = self.counted.wrapping_add(1);
        self.counted.is_multiple_of(each)
    }

    /// Who tells how the task stands.
    pub fn judge(&self) -> Judge {
        Judge(Arc::clone(&self.shared))
    }

    fn film(&mut self) -> Result<(), RobotError> {
        for (slot, camera) in Camera::ALL.into_iter().enumerate() {
            self.shared.capture(slot, camera, &self.clock);
            if matches!(self.clock, Clock::Virtual(_)) {
                continue;
            }
            let (shared, clock) = (Arc::clone(&self.shared), self.clock.clone());
            let filming = move || {
                let mut next = clock.now();
                while !shared.over.load(Ordering::Relaxed) {
                    next += Duration::from_secs_f64(1.0 / FPS);
                    std::thread::sleep(next.saturating_sub(clock.now()));
                    shared.capture(slot, camera, &clock);
                }
            };
            let thread = std::thread::Builder::new().name(format!("camera {}", camera.name())).spawn(filming);
            self.threads.push(thread.map_err(|error| RobotError::Fault {
                robot: ROBOT_TYPE.into(),
                found: format!("camera {} cannot start: {error}", camera.name()),
                hint: None,
            })?);
        }
        Ok(())
    }

    fn end_cameras(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panic of its own is in the log; there is nothing to mend.
            let _ = thread.join();
        }
    }
}

impl Drop for SimRobot {
    fn drop(&mut self) {
        self.end_cameras();
    }
}

impl State {
    /// Steps the world through the ticks that have passed by `now`, under `command`, and returns their number. The nearest
    /// tick counts, so that a command that is a little early or late moves the world by exactly one.
    fn catch_up(self, shared: &Shared, table: &mut Table, now: Duration, command: &[f32; 7]) -> u64 {
        let Some(begun) = table.begun else { return 0 };
        let passed = (now.saturating_sub(begun).as_secs_f64() * FPS).round() as u64;
        // A process that slept for minutes does not simulate them.
        table.ticks = table.ticks.max(passed.saturating_sub(MOST_TICKS));
        while table.ticks < passed {
            let command = if self == State::EmergencyStopped { sunk(&table.world) } else { *command };
            shared.step(table, &command);
        }
        passed
    }
}

/// What an arm without torque does in a tick: its hand sinks, down to the table.
fn sunk(world: &World) -> [f32; 7] {
    let mut joints = world.joints();
    let angles: [f64; 6] = std::array::from_fn(|joint| f64::from(joints[joint]));
    let [x, y, z] = ik::tcp(&angles).position;
    let lower = ik::solve([x, y, (z - SINK).max(SUNK)], &angles);
    joints.iter_mut().zip(lower).for_each(|(joint, angle)| *joint = angle as f32);
    joints
}

impl Robot for SimRobot {
    fn features(&self) -> &Features {
        &self.features
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn connect(&mut self) -> Result<(), RobotError> {
        if self.state == State::Disconnected {
            self.shared.over.store(false, Ordering::Relaxed);
            self.film()?;
        }
        self.command = self.shared.table().world.joints();
        self.state = State::Connected;
        Ok(())
    }

    fn read(&mut self, state: &mut JointState) -> Result<(), RobotError> {
        let now = self.clock.now();
        let mut table = self.shared.table();
        self.state.catch_up(&self.shared, &mut table, now, &self.command);
        let joints = table.world.joints();
        let since = table.begun.map(|begun| now.saturating_sub(begun));
        drop(table);
        state.positions.clear();
        if self.shared.broken(since).any(|broken| broken == Broken::Feedback) {
            state.positions.extend_from_slice(self.frozen.get_or_insert_with(|| joints.to_vec()));
        } else {
            self.frozen = None;
            state.positions.extend_from_slice(&joints);
        }
        for broken in self.shared.broken(since) {
            if let Broken::Offset(joint, by) = broken {
                state.positions.get_mut(joint).into_iter().for_each(|position| *position += by);
            }
        }
        state.captured = now;
        Ok(())
    }

    fn frames(&mut self, frames: &mut Vec<Option<Frame>>) {
        if matches!(self.clock, Clock::Virtual(_)) && self.state != State::Disconnected {
            for (slot, camera) in Camera::ALL.into_iter().enumerate() {
                self.shared.capture(slot, camera, &self.clock);
            }
        }
        frames.clear();
        let newest = self.shared.newest.iter().map(|slot| slot.lock().unwrap_or_else(PoisonError::into_inner).clone());
        frames.extend(newest);
    }

    /// Moves the world on by a tick under `command`; ticks that have passed without one ran under the one before.
    fn send(&mut self, command: &[f32]) -> Result<(), RobotError> {
        if self.state == State::Disconnected {
            return Err(RobotError::State { robot: ROBOT_TYPE.into(), attempted: "move", found: "not connected" });
        }
        let wrong = RobotError::Width { robot: ROBOT_TYPE.into(), found: command.len(), expected: self.command.len() };
        let command: [f32; 7] = command.try_into().map_err(|_| wrong)?;
        if self.state == State::EmergencyStopped {
            let found = "stopped by its emergency stop";
            return Err(RobotError::State { robot: ROBOT_TYPE.into(), attempted: "move", found });
        }
        let now = self.clock.now();
        let begun = *self.shared.table().begun.get_or_insert(now);
        let lost = self.loses(now.saturating_sub(begun));
        let mut table = self.shared.table();
        let passed = self.state.catch_up(&self.shared, &mut table, now, &self.command);
        if !lost {
            self.command = command;
        }
        if table.ticks <= passed {
            self.shared.step(&mut table, &self.command);
        }
        Ok(())
    }

    fn emergency_stop(&mut self) -> Result<(), RobotError> {
        self.command = self.shared.table().world.joints();
        self.state = State::EmergencyStopped;
        Ok(())
    }

    fn rest(&self, command: &[f32]) -> Option<Vec<f32>> {
        let mut rest = command.to_vec();
        rest.iter_mut().zip(HOME).for_each(|(joint, home)| *joint = home as f32);
        Some(rest)
    }

    fn disconnect(&mut self) -> Result<(), RobotError> {
        self.end_cameras();
        self.state = State::Disconnected;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robot::sim::Variant;

    const SETUP: Setup = Setup { variant: Variant::Moving, seed: 4 };

    fn connected() -> (SimRobot, Clock) {
        let clock = Clock::virtual_();
        let mut robot = SimRobot::new(&SETUP, &clock, &[]);
        robot.connect().unwrap();
        (robot, clock)
    }

    fn tick(clock: &Clock, number: u64) {
        clock.set(Duration::from_secs_f64(number as f64 / FPS));
    }

    fn joints(robot: &mut SimRobot) -> Vec<f32> {
        let mut state = JointState::default();
        robot.read(&mut state).unwrap();
        state.positions
    }

    #[test]
    fn ticks_that_pass_without_a_command_run_under_the_one_before() {
        let (mut robot, clock) = connected();
        let mut world = World::new(&SETUP);
        let first = {
            let mut joints = world.joints();
            joints[0] += 0.02;
            joints
        };
        let mut second = first;
        second[0] += 0.02;
        // Commands at ticks 0 and 5: ticks 1 to 4 hold the first one.
        robot.send(&first).unwrap();
        tick(&clock, 5);
        robot.send(&second).unwrap();
        (0..5).for_each(|_| world.step(&first));
        world.step(&second);
        assert_eq!(joints(&mut robot), world.joints());
        assert_eq!(robot.judge().0.table().world.snapshot(), world.snapshot());
    }

    #[test]
    fn the_world_moves_on_while_nothing_is_commanded() {
        let (mut robot, clock) = connected();
        let still = joints(&mut robot);
        robot.send(&still).unwrap();
        let before = robot.judge().0.table().world.platform();
        tick(&clock, 6);
        // The motors hold in f64 what was read in f32.
        let held = joints(&mut robot);
        assert!(held.iter().zip(&still).all(|(held, still)| (held - still).abs() < 1e-5), "{held:?} after {still:?}");
        let way = (robot.judge().0.table().world.platform()[1] - before[1]).abs();
        assert!((0.005..0.011).contains(&way), "the platform went {way} m of 0.01");
    }

    #[test]
    fn an_emergency_stop_lets_the_arm_sink_and_refuses_commands_until_it_is_connected_again() {
        let (mut robot, clock) = connected();
        let still = joints(&mut robot);
        robot.send(&still).unwrap();
        robot.emergency_stop().unwrap();
        let height = |joints: &[f32]| ik::tcp(&std::array::from_fn(|at| f64::from(joints[at]))).position[2];
        tick(&clock, 30);
        let sunk = joints(&mut robot);
        assert!(height(&sunk) < height(&still) - 0.04, "{} after {}", height(&sunk), height(&still));
        assert!(matches!(robot.send(&still), Err(RobotError::State { .. })));
        robot.connect().unwrap();
        robot.send(&sunk).unwrap();
        tick(&clock, 40);
        assert!((height(&joints(&mut robot)) - height(&sunk)).abs() < 1e-3);
    }

    /// Where the joints are said to be after ten ticks of commands that move all joints by 5 mrad each, and where they are.
    fn faulty(faults: &[&str]) -> ([f32; 7], [f32; 7]) {
        let faults: Vec<Fault> = faults.iter().map(|text| text.parse().unwrap()).collect();
        let clock = Clock::virtual_();
        let mut robot = SimRobot::new(&SETUP, &clock, &faults);
        robot.connect().unwrap();
        let start = joints(&mut robot);
        for number in 0..10 {
            tick(&clock, number);
            let way = 0.005 * (number + 1) as f32;
            let command: Vec<f32> = start.iter().map(|from| from + way).collect();
            robot.send(&command).unwrap();
        }
        let said = joints(&mut robot);
        let real = robot.judge().0.table().world.joints();
        let moved = |of: &[f32]| std::array::from_fn(|joint| of[joint] - start[joint]);
        (moved(&said), moved(&real))
    }

    #[test]
    fn a_joint_that_sticks_stays_and_the_others_move() {
        let (_, moved) = faulty(&["stick:joint_3@0"]);
        assert!(moved[2].abs() < 1e-5 && (moved[1] - 0.05).abs() < 1e-4, "{moved:?}");
        // From the sixth tick on: it brakes, and has gone half the way.
        let (said, moved) = faulty(&["stick:joint_3@0.16"]);
        assert!((0.02..0.035).contains(&moved[2]) && said == moved, "{moved:?}");
        let (_, freed) = faulty(&["stick:joint_3@0+0.16"]);
        assert!((freed[2] - 0.05).abs() < 1e-3, "{freed:?}");
    }

    #[test]
    fn a_joint_that_reads_an_offset_is_elsewhere() {
        let (said, moved) = faulty(&["offset:joint_2=-0.1@0.1"]);
        assert!((said[1] - (moved[1] - 0.1)).abs() < 1e-6, "{said:?} {moved:?}");
        assert!((moved[1] - 0.05).abs() < 1e-4 && said[0] == moved[0], "{moved:?}");
    }

    #[test]
    fn a_lost_command_leaves_the_one_before_in_force() {
        let moved = |fault: &str| faulty(&[fault]).1[0];
        // Of ten commands the fifth and the tenth are lost; the ninth is the last that is obeyed.
        assert!((moved("drop:5@0") - 0.045).abs() < 1e-4, "{}", moved("drop:5@0"));
        assert!((moved("drop:3@0") - 0.05).abs() < 1e-4, "{}", moved("drop:3@0"));
        assert!(moved("drop:1@0").abs() < 1e-5, "{}", moved("drop:1@0"));
    }

    #[test]
    fn a_command_of_another_width_or_before_connecting_is_refused() {
        let mut robot = SimRobot::new(&SETUP, &Clock::virtual_(), &[]);
        assert!(matches!(robot.send(&[0.0; 7]), Err(RobotError::State { .. })));
        robot.connect().unwrap();
        assert!(matches!(robot.send(&[0.0; 6]), Err(RobotError::Width { found: 6, .. })));
    }
}
