//! `vlash data show`: one sample as the trainer sees it.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::{DatasetArgs, fit, print};
use crate::dataset::meta::Feature;
use crate::dataset::sample::Sample;
use crate::dataset::window::{StateRule, WindowSpec};
use crate::dataset::{Dataset, DatasetError};
use crate::error::Failure;

const EXAMPLES: &str = "\
Examples:
  vlash data show /data/pick --index 120
  vlash data show /data/pick --index 120 --png frames/
  vlash data show /data/pick --index 120 --delay 3 --json";

/// Show one sample as the trainer sees it: images, state, action window, padding, task, prompt
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    dataset: DatasetArgs,
    #[command(flatten)]
    fit: fit::PolicyArgs,
    /// Position among the selected frames
    #[arg(long, value_name = "N")]
    index: usize,
    /// Steps of the action window [default: the policy's chunk, else 50]
    #[arg(long, value_name = "STEPS")]
    horizon: Option<usize>,
    /// Delay offset in frames (temporal delay augmentation)
    #[arg(long, value_name = "FRAMES", default_value_t = 0)]
    delay: usize,
    /// Take a delayed state from the recording instead of the preceding action
    #[arg(long)]
    ground_truth: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the camera images into this directory
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let fit = args.fit.open()?;
    let dataset = args.dataset.open()?;
    let state = if args.ground_truth { StateRule::GroundTruth } else { StateRule::ActionProxy };
    let window = WindowSpec { horizon: args.horizon.unwrap_or(fit.horizon()), state };
    let sample = dataset.sample(args.index, &window, args.delay)?;
    let pictures = match &args.png {
        Some(directory) => save_images(&sample, directory)?,
        None => Vec::new(),
    };
    let mut report = describe(&dataset, args.index, &sample);
    report.extend(fit.describe(&dataset, &sample)?);
    if !pictures.is_empty() {
        report.insert("png".into(), json!(pictures));
    }
    if args.json {
        return Ok(print(&format!("{:#}", Value::Object(report)))?);
    }
    Ok(print(&text(&report))?)
}

/// The raw sample, in the order in which it is shown.
fn describe(dataset: &Dataset, position: usize, sample: &Sample) -> Map<String, Value> {
    let images: Vec<Value> = sample
        .images
        .iter()
        .map(|(camera, image)| json!({"camera": camera, "height": image.height, "width": image.width}))
        .collect();
    let rows: Vec<&[f32]> = sample.actions.chunks(dataset.action_dim().max(1)).collect();
    let entries = [
        ("position", json!(position)),
        ("index", json!(sample.index)),
        ("episode", json!(sample.episode)),
        ("frame", json!(sample.frame)),
        ("delay", json!(sample.delays.first())),
        ("task", json!(sample.task)),
        ("images", json!(images)),
        ("state_names", json!(names(dataset.state_feature()))),
        ("state", json!(sample.state)),
        ("action_names", json!(names(Some(dataset.action_feature())))),
        ("actions", json!(rows)),
        ("action_is_pad", json!(sample.action_is_pad)),
    ];
    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn names(feature: Option<&Feature>) -> Vec<String> {
    feature.map_or(Vec::new(), |feature| (0..feature.dimensions()).map(|i| feature.dimension_name(i)).collect())
}

/// One line an entry; lists of lists take a line a row.
fn text(report: &Map<String, Value>) -> String {
    let line = |(key, value): (&String, &Value)| match value {
        Value::Array(rows) if rows.iter().any(|row| row.is_array() || row.is_object()) => {
            let rows: Vec<String> = rows.iter().enumerate().map(|(at, row)| format!("  {at:>3}  {row}")).collect();
            format!("{key}\n{}", rows.join("\n"))
        }
        Value::String(text) => format!("{key:<14} {text:?}"),
        other => format!("{key:<14} {other}"),
    };
    report.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn save_images(sample: &Sample, directory: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let error = |path: &Path, source| DatasetError::Write { path: path.to_path_buf(), source };
    std::fs::create_dir_all(directory).map_err(|source| error(directory, source))?;
    let save = |(camera, image): &(String, std::sync::Arc<crate::dataset::frame::RgbFrame>)| {
        let path = directory.join(format!("{:06}.{}.png", sample.index, camera.replace(['/', '\\'], "_")));
        let (width, height) = (image.width as u32, image.height as u32);
        image::save_buffer(&path, &image.data, width, height, image::ColorType::Rgb8)
            .map_err(|source| error(&path, std::io::Error::other(source)))?;
        Ok(path)
    };
    sample.images.iter().map(save).collect()
}
