//! A simulated tabletop: a Piper-like arm, a ball on a staging platform, two coloured pedestals.
//!
//! The task is to pick the ball and to place it on the pedestal of its colour. Everything is a function of a seed; the
//! world moves on a virtual clock or in real time.

pub mod dimensions;
pub mod render;
pub mod scene;
pub mod snapshot;
