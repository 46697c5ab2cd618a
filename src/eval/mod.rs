//! Success and smoothness of a policy over seeds, methods and delays on the simulated robot; errors on recordings; videos.
//!
//! `grid` says what is rolled out, `virtual_run` does one rollout on a virtual clock and `real_run` one in real time,
//! `campaign` does all of them, `report` and `table` say what came of it. `open_loop` predicts on recorded episodes instead, and
//! `video` draws rollouts side by side.

pub mod campaign;
pub mod charts;
mod error;
mod font;
pub mod grid;
pub mod lag;
pub mod ledger;
pub mod open_loop;
pub mod pictures;
pub mod real_run;
mod remarks;
pub mod report;
pub mod rollout;
pub mod source;
pub mod stats;
pub mod table;
#[cfg(test)]
mod testing;
pub mod video;
pub mod virtual_run;

pub use error::EvalError;
