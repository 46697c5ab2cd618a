//! Faults that the simulated robot plays, so that what watches it can be seen at work.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::JOINT_NAMES;
use super::render::Camera;
use crate::error::{Explain, Kind};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Broken {
    /// The camera gives no image any more.
    Stalled(Camera),
    /// Its images are new and all the same.
    Frozen(Camera),
    /// Its images are black.
    Black(Camera),
    /// Joint readings stand still.
    Feedback,
    /// The joint, by its number, stays where it is, whatever is commanded.
    Stuck(usize),
    /// The joint's reading is so far from where it is; radians, of the gripper metres.
    Offset(usize, f32),
    /// Each n-th command is lost: the one before stays in force.
    Dropped(u32),
}

impl Broken {
    /// What is written before the `@`.
    fn parse(text: &str) -> Option<Broken> {
        let Some((kind, what)) = text.split_once(':') else { return (text == "feedback").then_some(Broken::Feedback) };
        let camera = || Camera::ALL.into_iter().find(|camera| camera.name() == what);
        match kind {
            "stall" => camera().map(Broken::Stalled),
            "freeze" => camera().map(Broken::Frozen),
            "black" => camera().map(Broken::Black),
            "stick" => joint(what).map(Broken::Stuck),
            "offset" => {
                let (name, by) = what.split_once('=')?;
                let by: f32 = by.parse().ok().filter(|by: &f32| by.is_finite())?;
                Some(Broken::Offset(joint(name)?, by))
            }
            "drop" => what.parse().ok().filter(|&each| each > 0).map(Broken::Dropped),
            _ => None,
        }
    }
}

/// Joints' names without `.pos`.
fn short_names() -> impl Iterator<Item = &'static str> {
    JOINT_NAMES.into_iter().map(|name| name.strip_suffix(".pos").unwrap_or(name))
}

fn joint(name: &str) -> Option<usize> {
    short_names().position(|known| known == name)
}

/// A fault with its time, from the first command on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    pub broken: Broken,
    pub from: Duration,
    /// None: for good.
    pub lasts: Option<Duration>,
}

impl Fault {
    /// Whether it is there `since` after the first command.
    pub fn is_there(&self, since: Duration) -> bool {
        since >= self.from && self.lasts.is_none_or(|lasts| since < self.from + lasts)
    }
}

/// A text that describes no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no fault of the simulated robot")]
pub struct NoFault(String);

impl Explain for NoFault {
    fn kind(&self) -> Kind {
        Kind::Input
    }

    fn hint(&self) -> Option<String> {
        Some(
            "stall:wrist@2, freeze:front@2+0.8, black:wrist@2, feedback@2, stick:joint_3@2, offset:joint_3=0.1@2, \
             drop:3@2: what, from when, for how many seconds"
                .into(),
        )
    }
}

impl FromStr for Fault {
    type Err = NoFault;

    /// `stall:wrist@2`, `freeze:front@2+0.8`, `black:wrist@2`, `feedback@2`, `stick:joint_3@2`, `offset:joint_3=0.1@2`,
    /// `drop:3@2`.
    fn from_str(text: &str) -> Result<Fault, NoFault> {
        let read = || {
            let (what, when) = text.trim().split_once('@')?;
            let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
            let (from, lasts) = match when.split_once('+') {
                Some((from, lasts)) => (seconds(from)?, Some(seconds(lasts)?)),
                None => (seconds(when)?, None),
            };
            Some(Fault { broken: Broken::parse(what)?, from, lasts })
        };
        read().ok_or_else(|| NoFault(text.into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |joint: usize| short_names().nth(joint).unwrap_or("?");
        match self.broken {
            Broken::Stalled(camera) => write!(f, "stall:{}", camera.name())?,
            Broken::Frozen(camera) => write!(f, "freeze:{}", camera.name())?,
            Broken::Black(camera) => write!(f, "black:{}", camera.name())?,
            Broken::Feedback => f.write_str("feedback")?,
            Broken::Stuck(joint) => write!(f, "stick:{}", name(joint))?,
            Broken::Offset(joint, by) => write!(f, "offset:{}={by}", name(joint))?,
            Broken::Dropped(each) => write!(f, "drop:{each}")?,
        }
        write!(f, "@{}", self.from.as_secs_f64())?;
        self.lasts.map_or(Ok(()), |lasts| write!(f, "+{}", lasts.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_as_they_are_written() {
        let cameras = ["stall:wrist@2", "freeze:front@1.5+0.8", "black:wrist@0", "feedback@3"];
        let joints = ["stick:joint_3@2", "offset:gripper=0.005@1+2", "offset:joint_6=-0.1@0", "drop:3@1"];
        for text in cameras.into_iter().chain(joints) {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        let cameras = ["stall:side@2", "melt:wrist@2", "feedback@-1", "feedback@1+x", "freeze:front@1e99"];
        let joints = ["stick:joint_7@1", "stick@1", "offset:joint_1@1", "offset:joint_1=NaN@1", "drop:0@1", "drop@1"];
        for text in ["", "stall", "stall@2"].into_iter().chain(cameras).chain(joints) {
            assert_eq!(text.parse::<Fault>().unwrap_err(), NoFault(text.into()));
        }
    }

    #[test]
    fn a_fault_has_its_time() {
        let fault: Fault = "stall:wrist@2+1".parse().unwrap();
        let there = |seconds| fault.is_there(Duration::from_secs_f64(seconds));
        assert_eq!([there(1.9), there(2.0), there(2.9), there(3.0)], [false, true, true, false]);
    }
}
