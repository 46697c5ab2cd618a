//! `vlash watch`.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::error::Failure;
use crate::tui::{self, ColorChoice, Exit, GlyphChoice, Options};

const EXAMPLES: &str = "\
Examples:
  vlash watch outputs/tiny                 the dashboard; q leaves, the run goes on; ? lists the keys
  vlash watch outputs/tiny --plain         lines of text, also what a pipe gets
  vlash watch outputs/tiny --read-only     look, offer nothing that steers";

/// Watch and steer a running or finished training run.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The run's directory (outputs/NAME).
    run_dir: PathBuf,
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
    let exit = tui::watch(&args.run_dir, &options)?;
    Ok(match exit {
        Exit::Left | Exit::Ended(_) => ExitCode::SUCCESS,
        // As the shell reports a process that a signal ended.
        Exit::Signal(signal) => ExitCode::from(128u8.saturating_add(u8::try_from(signal).unwrap_or(127))),
        Exit::TerminalLost => ExitCode::from(crate::error::Kind::Environment.exit_code()),
    })
}
