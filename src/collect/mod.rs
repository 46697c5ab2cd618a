//! Recording demonstrations on a robot into a LeRobot dataset.

pub mod demonstration;
