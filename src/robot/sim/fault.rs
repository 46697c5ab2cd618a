//! Faults that the simulated robot plays, so that what watches it can be seen at work.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::render::Camera;
use crate::error::{Explain, Kind};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The camera gives no image any more.
    Stalled(Camera),
    /// Its images are new and all the same.
    Frozen(Camera),
    /// Its images are black.
    Black(Camera),
    /// Joint readings stand still.
    Feedback,
}

/// A fault with its time, from the first command on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
            "stall:wrist@2, freeze:front@2+0.8, black:wrist@2, feedback@2: what, from when, for how many seconds"
                .into(),
        )
    }
}

impl FromStr for Fault {
    type Err = NoFault;

    /// `stall:wrist@2`, `freeze:front@2+0.8`, `black:wrist@2`, `feedback@2`.
    fn from_str(text: &str) -> Result<Fault, NoFault> {
        let read = || {
            let (what, when) = text.trim().split_once('@')?;
            let broken = match what.split_once(':') {
                Some((kind, name)) => {
                    let camera = Camera::ALL.into_iter().find(|camera| camera.name() == name)?;
                    match kind {
                        "stall" => Broken::Stalled(camera),
                        "freeze" => Broken::Frozen(camera),
                        "black" => Broken::Black(camera),
                        _ => return None,
                    }
                }
                None if what == "feedback" => Broken::Feedback,
                None => return None,
            };
            let seconds = |text: &str| Duration::try_from_secs_f64(text.parse().ok()?).ok();
            let (from, lasts) = match when.split_once('+') {
                Some((from, lasts)) => (seconds(from)?, Some(seconds(lasts)?)),
                None => (seconds(when)?, None),
            };
            Some(Fault { broken, from, lasts })
        };
        read().ok_or_else(|| NoFault(text.into()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.broken {
            Broken::Stalled(camera) => write!(f, "stall:{}", camera.name())?,
            Broken::Frozen(camera) => write!(f, "freeze:{}", camera.name())?,
            Broken::Black(camera) => write!(f, "black:{}", camera.name())?,
            Broken::Feedback => f.write_str("feedback")?,
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
        for text in ["stall:wrist@2", "freeze:front@1.5+0.8", "black:wrist@0", "feedback@3"] {
            assert_eq!(text.parse::<Fault>().unwrap().to_string(), text);
        }
        for text in
            ["", "stall", "stall@2", "stall:side@2", "melt:wrist@2", "feedback@-1", "feedback@1+x", "freeze:front@1e99"]
        {
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
