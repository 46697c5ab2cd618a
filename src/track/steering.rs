//! Steering a rollout by files in its run directory's `control/`: the way that is left when the socket cannot be reached.
//!
//! A file holds what the socket would carry, with an id: `{"id": "…", "steer": "hold"}`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::control;
use super::inbox::{self, SendError};
use super::telemetry::Steer;

/// One file in `control/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Unique; also the file's stem. Sorts by time of sending.
    pub id: String,
    #[serde(flatten)]
    pub steer: Steer,
}

/// Puts `steer` into the inbox of the rollout at `run_dir`, complete or not at all, and returns the order's id.
///
/// # Errors
/// The inbox did not take it.
pub fn send(run_dir: &Path, steer: Steer) -> Result<String, SendError> {
    inbox::put(run_dir, steer.name(), |id| Order { id, steer })
}

/// Takes every order out of the inbox of `run_dir`, oldest first. A file that is none is set aside as `*.bad` and returned
/// as an error text.
pub fn take(run_dir: &Path) -> Vec<Result<Order, String>> {
    control::take_as(run_dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_arrive_in_order_and_read_like_the_socket_s() {
        let run = tempfile::tempdir().unwrap();
        let id = send(run.path(), Steer::Hold).unwrap();
        let file = run.path().join("control").join(format!("{id}.json"));
        assert_eq!(std::fs::read_to_string(file).unwrap(), format!(r#"{{"id":"{id}","steer":"hold"}}"#));
        send(run.path(), Steer::Arm { robot: "piper-left".into() }).unwrap();
        let taken: Vec<Steer> = take(run.path()).into_iter().map(|order| order.unwrap().steer).collect();
        assert_eq!(taken, [Steer::Hold, Steer::Arm { robot: "piper-left".into() }]);
        assert!(take(run.path()).is_empty());
        let error = send(&run.path().join("gone"), Steer::Hold).unwrap_err();
        assert!(error.to_string().contains("hold"), "{error}");
    }
}
