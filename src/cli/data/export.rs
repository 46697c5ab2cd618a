//! `vlash data export`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{DatasetArgs, Numbers};
use crate::cli::output::tell;
use crate::dataset::export::{Export, TOLERANCE_S};
use crate::dataset::{ACTION, DatasetError};

const EXAMPLES: &str = "\
Examples:
  vlash data export /data/pick --indices 0..9 --out pick.safetensors
  vlash data export /data/pick --like golden-frames.safetensors --out ours.safetensors";

/// Write decoded frames, states, action windows and padding flags to a safetensors file
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    /// Positions among the selected frames: 0,1,34 or 0..9 (both ends included)
    #[arg(long, value_name = "LIST", required_unless_present = "like", conflicts_with = "like")]
    indices: Option<Numbers>,
    /// Take indices and time offsets from this file, so that the two can be compared byte for byte
    #[arg(long, value_name = "FILE")]
    like: Option<PathBuf>,
    /// Steps of the exported action windows
    #[arg(long, value_name = "STEPS", default_value_t = 50, conflicts_with = "like")]
    horizon: usize,
    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub fn run(args: Args) -> Result<(), DatasetError> {
    let dataset = args.dataset.open()?;
    let export = match args.like {
        Some(like) => Export::like(&like)?,
        None => {
            let fps = f64::from(dataset.meta().info.fps);
            let offsets = (0..args.horizon).map(|step| step as f64 / fps).collect();
            let indices = args.indices.map(|indices| indices.0).unwrap_or_default();
            Export { indices, deltas: BTreeMap::from([(ACTION.to_owned(), offsets)]), tolerance_s: TOLERANCE_S }
        }
    };
    export.write(&dataset, &args.out)?;
    tell(format_args!(
        "{} items of {} written to {}",
        export.indices.len(),
        dataset.meta().root.display(),
        args.out.display()
    ));
    Ok(())
}
