//! A recording of rollouts beside each other: one seed, one delay, a pane a method, at the pace of the clock.

use std::path::Path;

use serde::Serialize;

use super::campaign::Policies;
use super::error::EvalError;
use super::grid::{Grid, Method};
use super::pictures::{Film, HEIGHT, Recorded};
use super::rollout::Rollout;
use super::virtual_run;
use crate::dataset::video::{VideoWriteError, VideoWriter};
use crate::robot::sim::world::FPS;

/// What was recorded.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Recording {
    pub file: String,
    pub seed: u64,
    pub frames: usize,
    /// From left to right.
    pub panes: Vec<Pane>,
}

/// One of its rollouts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pane {
    pub method: Method,
    pub delay: String,
    pub rollout: Rollout,
}

impl Recording {
    /// For people.
    pub fn text(&self) -> String {
        let pane = |pane: &Pane| {
            let ending = serde_json::to_value(pane.rollout.ending).unwrap_or_default();
            let ending = ending.as_str().unwrap_or_default().replace('-', " ");
            format!("{} at {}: {ending} after {:.1} s\n", pane.method, pane.delay, pane.rollout.seconds)
        };
        let panes: String = self.panes.iter().map(pane).collect();
        format!("{panes}{}: {} frames at {FPS} Hz, seed {}\n", self.file, self.frames, self.seed)
    }
}

/// Rolls out the grid's first seed by every cell, and writes them side by side to `path`, an MP4 file that appears when it
/// is whole.
///
/// # Errors
/// A rollout's, or the file cannot be written.
pub fn record(grid: &Grid, policies: &dyn Policies, path: &Path) -> Result<Recording, EvalError> {
    let seed = grid.seeds.first().copied().unwrap_or(0);
    let (mut recorded, mut panes) = (Vec::new(), Vec::new());
    for cell in &grid.cells {
        let mut ticks = Vec::new();
        let mut policy = policies.fork(seed)?;
        let rollout = virtual_run::watched(grid, cell, seed, policy.as_mut(), &mut |shown| ticks.push(shown))?;
        let unit = if cell.lag.latency.is_none() { "DELAY " } else { "" };
        let title = format!("{} {unit}{}", cell.method, cell.lag.label).to_uppercase();
        recorded.push(Recorded { title, ticks, ending: rollout.ending });
        panes.push(Pane { method: cell.method, delay: cell.lag.label.clone(), rollout });
    }
    let frames = write(&recorded, path)?;
    Ok(Recording { file: path.display().to_string(), seed, frames, panes })
}

/// The number of frames that were written.
fn write(recorded: &[Recorded], path: &Path) -> Result<usize, VideoWriteError> {
    let film = Film::new(recorded);
    let mut writer = VideoWriter::create(path, film.width(), HEIGHT, FPS as u32)?;
    let mut frames = 0;
    for frame in film {
        writer.push(&frame)?;
        frames += 1;
    }
    writer.finish()?;
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::super::grid::Wanted;
    use super::super::lag::Lag;
    use super::super::pictures::{LINGER, PANE};
    use super::super::testing::{Turner, facts};
    use super::*;
    use crate::dataset::video::{PoolOptions, VideoPool};
    use crate::robot::sim::Variant;

    #[test]
    fn the_file_is_as_long_as_the_longest_rollout_and_its_end() {
        let wanted = Wanted {
            variant: Variant::Moving,
            seeds: vec![6, 7],
            methods: vec![Method::Sync, Method::Vlash],
            lags: vec![Lag::fixed(4)],
            execute: Some(8),
            time_limit_s: 0.5,
        };
        let grid = Grid::new(wanted, &facts()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("both.mp4");
        let recording = record(&grid, &Turner::new("a"), &path).unwrap();
        assert_eq!((recording.seed, recording.frames), (6, 15 + LINGER));
        let methods: Vec<Method> = recording.panes.iter().map(|pane| pane.method).collect();
        assert_eq!(methods, [Method::Sync, Method::Vlash]);
        assert!(recording.text().contains("vlash at 4: time limit after 0.5 s"), "{}", recording.text());
        let pool = VideoPool::new(PoolOptions::default());
        let index = pool.index(&path).unwrap();
        assert_eq!((index.frames(), index.width, index.height), (recording.frames, 2 * PANE, HEIGHT));
        assert!(index.fps().is_some_and(|fps| (fps - FPS).abs() < 1e-3));
        // In the strip below: at tick 13 sync waits for its second chunk, vlash has it.
        let frame = pool.frame(&path, 14).unwrap();
        let strip = |pane: usize| {
            let x = pane * PANE + 4 + 13 * (PANE - 8) / 15 + 15;
            let at = ((HEIGHT - 10) * frame.width + x) * 3;
            <[u8; 3]>::try_from(&frame.data[at..at + 3]).unwrap()
        };
        let ([red, green, _], [red_too, green_too, _]) = (strip(0), strip(1));
        assert!(red > green + 60 && green_too > red_too + 60, "{:?}", (strip(0), strip(1)));

        let error = record(&grid, &Turner::new("a"), &directory.path().join("no/such.mp4")).unwrap_err();
        assert!(error.to_string().contains("such.mp4"), "{error}");
    }
}
