//! `vlash data …`: look into datasets.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use crate::cli::output::tell;
use crate::config::ranges::{self, RangeError};
use crate::dataset::resolve::resolve;
use crate::dataset::{Dataset, DatasetError, Selection};
use crate::error::Failure;

mod check;
mod export;
mod fit;
mod info;
mod show;

/// Look into datasets: what they hold, whether they can be trained on, single samples as a trainer sees them.
#[derive(clap::Subcommand)]
pub enum Command {
    Info(info::Args),
    Check(check::Args),
    Show(show::Args),
    Export(export::Args),
}

pub fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Info(args) => info::run(args)?,
        Command::Check(args) => return check::run(args),
        Command::Show(args) => show::run(args)?,
        Command::Export(args) => export::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Which dataset, and what of it.
#[derive(clap::Args)]
struct DatasetArgs {
    /// Directory of the dataset, or owner/name below --root
    dataset: String,
    /// The dataset's own directory, or the parent of owner/name
    #[arg(long)]
    root: Option<PathBuf>,
    /// Episodes, in this order: 2,4 or 0..16,18..49 [default: all]
    #[arg(long, value_name = "LIST")]
    episodes: Option<Numbers>,
    /// Cameras by feature name [default: all that are not depth maps]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    cameras: Option<Vec<String>>,
}

impl DatasetArgs {
    /// The directory of the dataset. What is odd about where it was found is said on stderr.
    fn path(&self) -> Result<PathBuf, DatasetError> {
        let found = resolve(Some(&self.dataset), self.root.as_deref())?;
        if let Some(finding) = found.finding {
            tell(format_args!("warning: {}", finding.message));
        }
        Ok(found.path)
    }

    fn open(self) -> Result<Dataset, DatasetError> {
        let path = self.path()?;
        let episodes = self.episodes.map(|episodes| episodes.0);
        let dataset = Dataset::open(&path, Selection { episodes, cameras: self.cameras, ..Selection::default() })?;
        for finding in dataset.findings() {
            tell(format_args!("warning: {}", finding.message));
        }
        Ok(dataset)
    }
}

/// A list of numbers and ranges on the command line.
#[derive(Debug, Clone)]
struct Numbers(Vec<usize>);

impl FromStr for Numbers {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Numbers, RangeError> {
        ranges::parse(text).map(Numbers)
    }
}

/// Writes `text` and a line end to stdout. A reader that has gone away (`| head`) is no error.
fn print(text: &str) -> Result<(), DatasetError> {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Err(source) if source.kind() != ErrorKind::BrokenPipe => {
            Err(DatasetError::Write { path: "stdout".into(), source })
        }
        _ => Ok(()),
    }
}
