//! One episode's physics: a kinematic hand, a dynamic ball, and what it can lie on.

use rapier3d::prelude::*;

use super::bodies::{Hand, array, insert_stand, insert_table, vector};
use super::dimensions::*;
use super::ik::tcp;
use super::motion::Motors;
use super::scene::{PEDESTAL_TOP, PLATFORM_SPEED, PLATFORM_TOP, PLATFORM_TRAVEL, Scene, Setup};
use super::snapshot::Snapshot;
use crate::robot::kinematics::JOINTS;

/// Control ticks a second; commands hold for one tick.
pub const FPS: f64 = 30.0;
/// Steps of the physics a tick.
const SUBSTEPS: usize = 8;

const BALL_MASS: f32 = 0.02;
/// A ball further from the fingers' middle than this (along their width) slips out, metres.
const PAD: f64 = 0.014;
/// Opening beyond the grip at which the ball is let go, metres.
const LET_GO: f64 = 0.0015;
/// The ball counts as resting below this speed, metres a second, for so many ticks.
const RESTING: f32 = 0.02;
const REST_TICKS: u32 = 9;

/// How an episode stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Outcome {
    Running,
    /// The ball rests on the pedestal of its colour, let go, since `seconds`.
    Placed {
        seconds: f64,
    },
    /// It rests on the other pedestal.
    WrongPedestal,
    /// It is free, and where the arm cannot reach it.
    Lost,
}

/// A world that moves by control ticks; the same commands give the same states.
pub struct World {
    scene: Scene,
    physics: PhysicsWorld,
    motors: Motors,
    hand: Hand,
    ball: (RigidBodyHandle, ColliderHandle),
    platform: RigidBodyHandle,
    /// Offset of the platform from its middle, and its direction.
    travel: f64,
    heading: i8,
    held: Option<Grip>,
    ticks: u64,
    rested: u32,
    outcome: Outcome,
}

/// What holds the ball.
struct Grip {
    joint: ImpulseJointHandle,
    opening: f64,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("ticks", &self.ticks).field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl World {
    /// The world of `setup` at its beginning.
    pub fn new(setup: &Setup) -> World {
        let scene = Scene::draw(setup);
        let mut physics = PhysicsWorld::new();
        physics.gravity = Vector::new(0.0, 0.0, -9.81);
        physics.integration_parameters.dt = (1.0 / (FPS * SUBSTEPS as f64)) as f32;
        // The scale of the scene: rapier's tolerances are made for objects of a metre.
        physics.integration_parameters.length_unit = 0.05;
        insert_table(&mut physics);
        for at in scene.pedestals {
            let body = RigidBodyBuilder::fixed().translation(vector([at[0], at[1], PEDESTAL_TOP]));
            insert_stand(&mut physics, body, PEDESTAL_RADIUS, PEDESTAL_TOP);
        }
        let travel = scene.phase * PLATFORM_TRAVEL * f64::from(scene.heading.abs());
        let middle = [scene.platform[0], scene.platform[1] + travel, PLATFORM_TOP];
        let body = RigidBodyBuilder::kinematic_position_based().translation(vector(middle));
        let platform = insert_stand(&mut physics, body, PLATFORM_RADIUS, PLATFORM_THICKNESS);
        let motors = Motors::new(scene.start);
        let hand = Hand::insert(&mut physics, &motors);
        let place = [middle[0] + scene.ball[0], middle[1] + scene.ball[1], PLATFORM_TOP + BALL_RADIUS];
        let body = RigidBodyBuilder::dynamic()
            .translation(vector(place))
            .angular_damping(6.0)
            .ccd_enabled(true)
            .can_sleep(false);
        let collider = ColliderBuilder::ball(BALL_RADIUS as f32).mass(BALL_MASS).friction(0.8).restitution(0.1);
        let ball = physics.insert(body, collider);
        World {
            heading: scene.heading,
            scene,
            physics,
            motors,
            hand,
            ball,
            platform,
            travel,
            held: None,
            ticks: 0,
            rested: 0,
            outcome: Outcome::Running,
        }
    }

    /// One control tick of 1/30 s towards `command`: six angles in radians, the opening in metres. A value that is not
    /// finite leaves its joint where it is.
    pub fn step(&mut self, command: &[f32; 7]) {
        self.motors.aim(command, 1.0 / FPS);
        for _ in 0..SUBSTEPS {
            let blocked = self.blocked();
            self.motors.advance(1.0 / (FPS * SUBSTEPS as f64), blocked);
            self.move_platform(1.0 / (FPS * SUBSTEPS as f64));
            self.hand.place(&mut self.physics, &self.motors);
            self.physics.step();
            self.grip();
        }
        self.ticks += 1;
        self.judge();
    }

    /// Measured joints: six angles in radians, the opening in metres.
    pub fn joints(&self) -> [f32; 7] {
        self.motors.positions().map(|value| value as f32)
    }

    /// What cameras see now.
    pub fn snapshot(&self) -> Snapshot {
        let positions = self.motors.positions();
        Snapshot {
            look: self.scene.look.clone(),
            joints: self.motors.angles(),
            gripper: positions[JOINTS],
            ball: self.ball(),
            platform: self.platform(),
            heading: self.heading,
            pedestals: self.scene.pedestals.map(|[x, y]| [x, y, PEDESTAL_TOP]),
        }
    }

    /// How it stands.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Seconds since the beginning.
    pub fn time(&self) -> f64 {
        self.ticks as f64 / FPS
    }

    /// Progress in words.
    pub fn progress(&self) -> &'static str {
        match (self.outcome, &self.held) {
            (Outcome::Placed { .. }, _) => "placed",
            (Outcome::WrongPedestal, _) => "on the wrong pedestal",
            (Outcome::Lost, _) => "lost",
            (Outcome::Running, Some(_)) => "held",
            (Outcome::Running, None) if self.rested > 0 => "approaching",
            (Outcome::Running, None) => "rolling",
        }
    }

    /// The ball's centre, metres.
    pub fn ball(&self) -> [f64; 3] {
        self.physics.bodies.get(self.ball.0).map_or([0.0; 3], |body| array(body.translation()))
    }

    /// Centre of the platform's top, metres.
    pub fn platform(&self) -> [f64; 3] {
        [self.scene.platform[0], self.scene.platform[1] + self.travel, PLATFORM_TOP]
    }

    /// Velocity of the platform along y, metres a second.
    pub fn platform_velocity(&self) -> f64 {
        f64::from(self.heading) * PLATFORM_SPEED
    }

    /// Centre of the top of the pedestal that the ball belongs on.
    pub fn goal(&self) -> [f64; 3] {
        let [x, y] = self.scene.pedestals[self.scene.goal()];
        [x, y, PEDESTAL_TOP]
    }

    /// Whether the ball lies, let go, on the pedestal that it belongs on, at rest or not.
    pub fn rests_on_goal(&self) -> bool {
        self.held.is_none() && self.is_on(self.scene.pedestals[self.scene.goal()])
    }

    fn is_on_platform(&self) -> bool {
        let (ball, top) = (self.ball(), self.platform());
        let away = ((ball[0] - top[0]).powi(2) + (ball[1] - top[1]).powi(2)).sqrt();
        away < PLATFORM_RADIUS && (ball[2] - top[2] - BALL_RADIUS).abs() < 0.006
    }

    fn is_on(&self, top: [f64; 2]) -> bool {
        let ball = self.ball();
        let away = ((ball[0] - top[0]).powi(2) + (ball[1] - top[1]).powi(2)).sqrt();
        away < PEDESTAL_RADIUS && (ball[2] - PEDESTAL_TOP - BALL_RADIUS).abs() < 0.006
    }

    /// Whether the fingers hold the ball.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    fn move_platform(&mut self, dt: f64) {
        if self.heading == 0 {
            return;
        }
        self.travel += self.platform_velocity() * dt;
        if self.travel.abs() >= PLATFORM_TRAVEL {
            self.heading = if self.travel > 0.0 { -1 } else { 1 };
        }
        let place = vector(self.platform());
        if let Some(body) = self.physics.bodies.get_mut(self.platform) {
            body.set_next_kinematic_translation(place);
        }
    }

    fn touches(&self, finger: usize) -> bool {
        let pair = self.physics.contact_pair(self.hand.fingers[finger].1, self.ball.1);
        pair.is_some_and(|pair| pair.has_any_active_contact())
    }

    /// The ball in the frame of the tool centre point.
    fn ball_in_hand(&self) -> [f64; 3] {
        let pose = tcp(&self.motors.angles());
        let away: [f64; 3] = std::array::from_fn(|i| self.ball()[i] - pose.position[i]);
        std::array::from_fn(|c| (0..3).map(|r| pose.rotation[r][c] * away[r]).sum())
    }

    /// The opening below which the fingers cannot close, because the ball is between them.
    fn blocked(&self) -> Option<f64> {
        if let Some(grip) = &self.held {
            return Some(grip.opening);
        }
        let [x, _, z] = self.ball_in_hand();
        let between = x.abs() < PAD && z.abs() < BALL_RADIUS && self.touches(0) && self.touches(1);
        between.then_some(2.0 * BALL_RADIUS - 0.0005)
    }

    /// Takes the ball when both fingers press on it, and lets it go when they open.
    fn grip(&mut self) {
        let opening = self.motors.opening();
        match &self.held {
            None => {
                let [x, _, z] = self.ball_in_hand();
                let within = x.abs() < PAD && (-0.014..0.012).contains(&z);
                let closing = opening <= 2.0 * BALL_RADIUS + 0.0015 && self.motors.is_closing();
                if within && closing && self.touches(0) && self.touches(1) {
                    self.take(opening);
                }
            }
            Some(grip) if opening > grip.opening + LET_GO => {
                let joint = grip.joint;
                self.physics.remove_impulse_joint(joint);
                self.held = None;
            }
            Some(_) => {}
        }
    }

    fn take(&mut self, opening: f64) {
        let bodies = &self.physics.bodies;
        let (Some(palm), Some(ball)) = (bodies.get(self.hand.palm), bodies.get(self.ball.0)) else { return };
        let relative = palm.position().inverse() * *ball.position();
        let joint =
            FixedJointBuilder::new().local_frame1(relative).local_frame2(Pose::IDENTITY).contacts_enabled(false);
        let joint = self.physics.insert_impulse_joint(self.hand.palm, self.ball.0, joint);
        self.held = Some(Grip { joint, opening });
    }

    fn judge(&mut self) {
        let Some(body) = self.physics.bodies.get(self.ball.0) else { return };
        let linear = body.linvel();
        // At rest against what it lies on, which may be the moving platform.
        let under = if self.is_on_platform() { self.platform_velocity() as f32 } else { 0.0 };
        let still = Vector::new(linear.x, linear.y - under, linear.z).length() < RESTING;
        self.rested = if still && self.held.is_none() { self.rested + 1 } else { 0 };
        let ball = self.ball();
        let goal = self.scene.goal();
        let rests = self.rested >= REST_TICKS && !self.touches(0) && !self.touches(1);
        let reach = (ball[0] * ball[0] + ball[1] * ball[1]).sqrt();
        self.outcome = if let Outcome::Placed { .. } = self.outcome {
            self.outcome
        } else if self.held.is_none() && (ball[2] < -0.05 || !(0.16..0.5).contains(&reach)) {
            Outcome::Lost
        } else if rests && self.is_on(self.scene.pedestals[goal]) {
            Outcome::Placed { seconds: self.time() }
        } else if rests && self.is_on(self.scene.pedestals[1 - goal]) {
            Outcome::WrongPedestal
        } else {
            Outcome::Running
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::robot::sim::{Expert, Perturbation, Variant};

    const SETUP: Setup = Setup { variant: Variant::Static, seed: 5 };

    fn history(setup: &Setup, ticks: usize) -> Vec<Snapshot> {
        let mut world = World::new(setup);
        let mut noise = Perturbation::new(setup.seed, 1.0);
        (0..ticks)
            .map(|_| {
                let command = noise.apply(&Expert.act(&world));
                world.step(&command);
                world.snapshot()
            })
            .collect()
    }

    #[test]
    fn the_same_commands_give_the_same_states_in_any_thread() {
        for variant in [Variant::Static, Variant::Moving] {
            let setup = Setup { variant, seed: 3 };
            let other = std::thread::spawn(move || history(&setup, 90));
            let here = history(&setup, 90);
            assert!(other.join().is_ok_and(|there| there == here));
        }
    }

    /// Plays the expert until the ball is held.
    fn holding() -> World {
        let mut world = World::new(&SETUP);
        while !world.is_held() && world.time() < 5.0 {
            let command = Expert.act(&world);
            world.step(&command);
        }
        assert!(world.is_held());
        world
    }

    #[test]
    fn an_opened_hand_drops_the_ball() {
        let mut world = holding();
        for _ in 0..25 {
            let command = Expert.act(&world);
            world.step(&command);
        }
        assert!(world.is_held() && world.ball()[2] > PLATFORM_TOP + 0.04, "{:?}", world.ball());
        let mut command = world.joints();
        command[6] = GRIPPER_MAX as f32;
        for _ in 0..30 {
            world.step(&command);
        }
        assert!(!world.is_held() && world.ball()[2] < PLATFORM_TOP + 0.03, "{:?}", world.ball());
    }

    #[test]
    fn a_hand_that_closes_beside_the_ball_holds_nothing() {
        let mut world = World::new(&SETUP);
        let mut command = world.joints();
        command[6] = 0.0;
        for _ in 0..30 {
            world.step(&command);
        }
        assert!(!world.is_held());
        assert!(world.joints()[6] < 0.002, "nothing stops the fingers");
        assert_eq!(world.outcome(), Outcome::Running);
    }

    #[test]
    fn a_closed_hand_pushes_the_ball_off() {
        let mut world = World::new(&SETUP);
        let from = world.ball();
        let mut command = world.joints();
        command[6] = 0.0;
        let beside = super::super::ik::solve([from[0], from[1] + 0.1, from[2]], &super::super::ik::HOME);
        let beyond = super::super::ik::solve([from[0], from[1] - 0.15, from[2]], &super::super::ik::HOME);
        for goal in [beside, beyond] {
            for _ in 0..60 {
                for (value, wanted) in command.iter_mut().zip(goal) {
                    *value += (wanted as f32 - *value).clamp(-0.03, 0.03);
                }
                world.step(&command);
            }
        }
        let away = (world.ball()[1] - from[1]).abs();
        assert!(away > 0.05, "the ball went {away} m, to {:?}", world.ball());
    }

    #[test]
    fn a_ball_is_lost_out_of_reach_but_not_while_it_is_held() {
        let mut world = holding();
        let mut command = world.joints();
        let behind = super::super::ik::solve([0.13, 0.0, 0.2], &super::super::ik::HOME);
        for _ in 0..90 {
            for (value, wanted) in command.iter_mut().zip(behind) {
                *value += (wanted as f32 - *value).clamp(-0.03, 0.03);
            }
            world.step(&command);
        }
        assert!(world.is_held() && world.ball()[0] < 0.158, "{:?}", world.ball());
        assert_eq!(world.outcome(), Outcome::Running);
        command[6] = GRIPPER_MAX as f32;
        for _ in 0..30 {
            world.step(&command);
        }
        assert_eq!(world.outcome(), Outcome::Lost);
    }

    #[test]
    fn a_command_that_is_allowed_is_reached_within_its_tick() {
        let mut world = World::new(&SETUP);
        let mut command = world.joints();
        for tick in 0..20 {
            for (joint, value) in command.iter_mut().take(6).enumerate() {
                *value += 0.01 * (tick as f32 * 0.3 + joint as f32).sin();
            }
            world.step(&command);
            for (found, wanted) in world.joints().iter().zip(command) {
                assert!((found - wanted).abs() < 1e-4, "tick {tick}: {found} for {wanted}");
            }
        }
    }

    #[test]
    fn numbers_that_are_none_move_nothing() {
        let mut world = World::new(&SETUP);
        let before = world.joints();
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            world.step(&[bad; 7]);
        }
        assert_eq!(world.joints(), before);
    }
}
