//! `vlash eval --video`: which rollouts are recorded, and what is said of them.

use std::path::Path;
use std::process::ExitCode;

use super::{Args, pretty};
use crate::cli::output::{print, tell};
use crate::config::train::DeviceKind;
use crate::error::Failure;
use crate::eval::campaign::Policies;
use crate::eval::grid::{Grid, Wanted};
use crate::eval::source::Source;
use crate::eval::{EvalError, video};

pub(super) fn run(args: &Args, path: &Path) -> Result<ExitCode, Failure> {
    if path.extension().is_none_or(|ending| !ending.eq_ignore_ascii_case("mp4")) {
        let problem = format!("--video {}: what is written is MP4", path.display());
        return Err(EvalError::Setting { problem, hint: "--video rollouts.mp4".into() }.into());
    }
    let source = Source::open(args.checkpoint.as_deref(), args.steps(), DeviceKind::Cpu)?;
    let grid = grid(args.wanted(None)?, &source)?;
    grid.notes.iter().for_each(|note| tell(format_args!("note: {note}")));
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    directory.map_or(Ok(()), std::fs::create_dir_all).map_err(|error| EvalError::Io {
        action: "make the directory of",
        path: path.into(),
        source: error,
    })?;
    let recording = video::record(&grid, &source, path)?;
    print(&if args.json { pretty(&recording)? } else { recording.text() })?;
    Ok(ExitCode::SUCCESS)
}

/// The first seed and the last delay, all modes.
fn grid(mut wanted: Wanted, source: &Source) -> Result<Grid, EvalError> {
    wanted.seeds.truncate(1);
    wanted.lags = wanted.lags.pop().into_iter().collect();
    let modes = wanted.methods.len();
    let grid = Grid::new(wanted, source.facts())?;
    if grid.cells.len() < modes {
        let problem = format!("--video: {}", grid.notes.join("; "));
        return Err(EvalError::Setting { problem, hint: "a shorter --latency, or other --modes".into() });
    }
    Ok(grid)
}
