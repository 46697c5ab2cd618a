//! `vlash watch`.

use std::path::Path;
use std::process::ExitCode;

use crate::error::Failure;
use crate::tui::robot::{self, RobotSource};
use crate::tui::{self, ColorChoice, Exit, GlyphChoice, Options};

const EXAMPLES: &str = "\
Examples:
  vlash watch outputs/tiny                 the dashboard; q leaves, the run goes on; ? lists the keys
  vlash watch outputs/tiny --plain         lines of text, also what a pipe gets
  vlash watch outputs/tiny --read-only     look, offer nothing that steers
  vlash watch outputs/rollout-…            the Robot screen of a rollout
  vlash watch 127.0.0.1:4711               the same by its socket; from elsewhere: ssh -L 4711:127.0.0.1:4711 ROBOT";

/// Watch and steer a running or finished training run, or a rollout on a robot.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run's directory (outputs/NAME), or a rollout's socket (HOST:PORT).
    #[arg(value_name = "RUN_DIR | HOST:PORT")]
    target: String,
    /// Click to focus, wheel to scroll; takes selection away from the terminal.
    #[arg(long, overrides_with = "no_mouse")]
    mouse: bool,
    /// Leave the mouse to the terminal (default).
    #[arg(long)]
    no_mouse: bool,
    /// Colours to use; auto obeys NO_COLOR and COLORTERM.
    #[arg(long, value_enum, default_value_t)]
    color: ColorChoice,
    /// Characters of charts and borders; auto follows the locale.
    #[arg(long, value_enum, default_value_t)]
    glyphs: GlyphChoice,
    /// Lines of text instead of the screen, as for a pipe or a screen reader.
    #[arg(long)]
    plain: bool,
    /// Offer nothing that steers the run.
    #[arg(long)]
    read_only: bool,
    /// Draw at most once a second, for slow lines.
    #[arg(long)]
    slow: bool,
}

pub fn run(args: Args) -> Result<ExitCode, Failure> {
    let options = Options {
        owned: false,
        read_only: args.read_only,
        plain: args.plain,
        mouse: args.mouse && !args.no_mouse,
        slow: args.slow,
        color: args.color,
        glyphs: args.glyphs,
    };
    let exit = match rollout(&args.target) {
        Some(source) => robot::run(&source, &options)?,
        None => tui::watch(Path::new(&args.target), &options)?,
    };
    Ok(match exit {
        Exit::Left | Exit::Ended(_) => ExitCode::SUCCESS,
        // As the shell reports a process that a signal ended.
        Exit::Signal(signal) => ExitCode::from(128u8.saturating_add(u8::try_from(signal).unwrap_or(127))),
        Exit::TerminalLost => ExitCode::from(crate::error::Kind::Environment.exit_code()),
    })
}

/// What is meant, if it is a rollout: an address, or a directory with a rollout's files.
fn rollout(target: &str) -> Option<RobotSource> {
    let path = Path::new(target);
    if path.exists() {
        return RobotSource::is_rollout(path).then(|| RobotSource::Directory(path.into()));
    }
    let (host, port) = target.rsplit_once(':')?;
    let is_address = !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok();
    is_address.then(|| RobotSource::Socket(target.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_and_rollouts_are_told_from_training_runs() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path().to_str().unwrap();
        assert_eq!(rollout(path), None);
        std::fs::write(run.path().join("telemetry.jsonl"), "").unwrap();
        assert_eq!(rollout(path), Some(RobotSource::Directory(run.path().into())));
        for address in ["127.0.0.1:4711", "robot.local:80", "[::1]:4711"] {
            assert_eq!(rollout(address), Some(RobotSource::Socket(address.into())));
        }
        for other in ["outputs/tiny", "outputs/a:1", "host", ":80", "host:99999"] {
            assert_eq!(rollout(other), None, "{other}");
        }
    }
}
