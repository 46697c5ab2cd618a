//! A trained policy as a player: rolled out on the virtual clock, as `vlash eval` does it.

use std::path::Path;

use crate::collect::demonstration::{Demonstration, Player, Step};
use crate::config::train::DeviceKind;
use crate::error::Failure;
use crate::eval::EvalError;
use crate::eval::campaign::Policies;
use crate::eval::grid::{Grid, Method, Wanted};
use crate::eval::lag::Lag;
use crate::eval::rollout::Ending;
use crate::eval::source::Source;
use crate::eval::virtual_run;
use crate::robot::sim::{Setup, Variant};

/// A checkpoint on the CPU, where the same seed gives the same episode on every machine.
pub struct PolicyPlayer {
    source: Source,
    mode: Method,
    /// Control ticks of an inference.
    delay: usize,
    time_limit_s: f64,
}

impl PolicyPlayer {
    /// None: the policy in the box.
    ///
    /// # Errors
    /// A checkpoint that cannot be run, or a delay that its chunks cannot hide.
    pub fn open(
        checkpoint: Option<&Path>,
        mode: Method,
        delay: usize,
        time_limit_s: f64,
    ) -> Result<PolicyPlayer, EvalError> {
        let source = Source::open(checkpoint, None, DeviceKind::Cpu)?;
        let player = PolicyPlayer { source, mode, delay, time_limit_s };
        player.grid(Variant::Static, 0)?.notes.iter().for_each(|note| super::tell(format_args!("note: {note}")));
        Ok(player)
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    fn grid(&self, variant: Variant, seed: u64) -> Result<Grid, EvalError> {
        let wanted = Wanted {
            variant,
            seeds: vec![seed],
            methods: vec![self.mode],
            lags: vec![Lag::fixed(self.delay)],
            execute: None,
            time_limit_s: self.time_limit_s,
        };
        Grid::new(wanted, self.source.facts())
    }
}

impl Player for PolicyPlayer {
    fn play(&self, setup: &Setup) -> Result<Demonstration, Failure> {
        let grid = self.grid(setup.variant, setup.seed)?;
        let Some(cell) = grid.cells.first() else {
            return Err(EvalError::Report("an episode without a way to execute it".into()).into());
        };
        let mut policy = self.source.fork(setup.seed)?;
        let mut steps = Vec::new();
        let rollout = virtual_run::observed(&grid, cell, setup.seed, policy.as_mut(), &mut |moment| {
            steps.push(Step { state: moment.state, action: moment.command, snapshot: moment.before });
        })?;
        let ending = match rollout.ending {
            Ending::Placed => "placed",
            Ending::WrongPedestal => "wrong-pedestal",
            Ending::Lost => "lost",
            Ending::TimeLimit => "time-limit",
            Ending::Stopped => "stopped",
        };
        Ok(Demonstration { steps, success: rollout.success(), ending })
    }
}
