//! Samples as plain tensors in a safetensors file, under the names of the golden fixtures: `all.*` holds every row,
//! `frame.I.*` the item I, `window.I.*` the item I with time offsets. So that readers can be compared byte for byte.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors, View};

use super::error::DatasetError;
use super::frame::RgbFrame;
use super::reader::{ACTION, Dataset, STATE, SelectedEpisode, row};
use super::rows::EpisodeRows;
use super::window::{Step, offsets_in_frames, shifted};
use crate::files::write_atomic;

/// What to export.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Export {
    /// Positions among the selected frames.
    pub indices: Vec<usize>,
    /// Offsets in seconds, by feature: LeRobot's `delta_timestamps`.
    pub deltas: BTreeMap<String, Vec<f64>>,
    /// How far an offset may lie beside a frame, in seconds.
    pub tolerance_s: f64,
}

/// LeRobot's default tolerance.
pub const TOLERANCE_S: f64 = 1e-4;

impl Export {
    /// Takes indices and offsets from another export (or a golden file).
    pub fn like(path: &Path) -> Result<Export, DatasetError> {
        let bytes = std::fs::read(path).map_err(|source| DatasetError::read(path, source))?;
        let wrong = |message: String| DatasetError::metadata(path, message);
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| wrong(error.to_string()))?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(|error| wrong(error.to_string()))?;
        let indices = tensors.tensor("indices").map_err(|error| wrong(format!("tensor indices: {error}")))?;
        if indices.dtype() != Dtype::I64 {
            return Err(wrong(format!("tensor indices holds {:?}, expected I64", indices.dtype())));
        }
        let index = |bytes: &[u8]| {
            let value = i64::from_le_bytes(bytes.try_into().map_err(|_| wrong("tensor indices is cut off".into()))?);
            usize::try_from(value).map_err(|_| wrong(format!("tensor indices holds {value}")))
        };
        let indices = indices.data().chunks(8).map(index).collect::<Result<Vec<_>, _>>()?;
        let deltas = header.metadata().as_ref().and_then(|metadata| metadata.get("delta_timestamps"));
        let deltas = match deltas {
            Some(text) => serde_json::from_str(text).map_err(|error| wrong(format!("delta_timestamps: {error}")))?,
            None => BTreeMap::new(),
        };
        Ok(Export { indices, deltas, tolerance_s: TOLERANCE_S })
    }

    /// Writes the tensors to `path`. Dtypes: I64 for indices, F32 for vectors and times, U8 for images `[3, H, W]` and
    /// padding flags.
    pub fn write(&self, dataset: &Dataset, path: &Path) -> Result<(), DatasetError> {
        let mut tensors = Tensors::default();
        tensors.integers("indices".into(), vec![self.indices.len()], self.indices.iter().map(|&index| index as i64));
        all(dataset, &mut tensors);
        let mut tasks = serde_json::Map::new();
        for &index in &self.indices {
            let (episode, frame) = dataset.locate(index)?;
            item(dataset, episode, frame, &format!("frame.{index}"), &mut tensors)?;
            self.window(dataset, episode, frame, &format!("window.{index}"), &mut tensors)?;
            tasks.insert(index.to_string(), dataset.task(episode, frame)?.into());
        }
        let deltas =
            serde_json::Value::from_iter(self.deltas.iter().map(|(key, offsets)| (key.clone(), offsets.clone())));
        let metadata = HashMap::from([
            ("writer".to_owned(), format!("vlash {}", env!("CARGO_PKG_VERSION"))),
            ("tasks".to_owned(), serde_json::Value::Object(tasks).to_string()),
            ("delta_timestamps".to_owned(), deltas.to_string()),
        ]);
        let bytes = safetensors::serialize(tensors.0, Some(metadata))
            .map_err(|source| DatasetError::Export { path: path.to_path_buf(), source })?;
        write_atomic(path, &bytes).map_err(|source| DatasetError::Write { path: path.to_path_buf(), source })
    }

    fn window(
        &self,
        dataset: &Dataset,
        episode: &SelectedEpisode,
        frame: usize,
        prefix: &str,
        tensors: &mut Tensors,
    ) -> Result<(), DatasetError> {
        for (feature, deltas) in &self.deltas {
            let offsets = offsets_in_frames(feature, deltas, dataset.meta().info.fps, self.tolerance_s)?;
            let steps: Vec<Step> = offsets.iter().map(|&offset| shifted(frame, offset, episode.rows.length)).collect();
            let name = format!("{prefix}.{feature}");
            match vector(dataset, feature) {
                Some((width, matrix)) => {
                    let values =
                        steps.iter().flat_map(|step| row(matrix(&episode.rows), width, step.frame).iter().copied());
                    tensors.floats(name.clone(), vec![steps.len(), width], values);
                }
                None => {
                    let frames = pictures(dataset, episode, feature, &steps)?;
                    tensors.images(name.clone(), &frames, true);
                }
            }
            tensors.bytes(
                format!("{name}_is_pad"),
                vec![steps.len()],
                steps.iter().map(|step| step.is_pad.into()).collect(),
            );
        }
        Ok(())
    }
}

type Matrix = fn(&EpisodeRows) -> &[f32];

/// State or action by its name after the rename: width and values.
fn vector(dataset: &Dataset, feature: &str) -> Option<(usize, Matrix)> {
    match feature {
        STATE => Some((dataset.state_dim(), |rows| &rows.state)),
        ACTION => Some((dataset.action_dim(), |rows| &rows.action)),
        _ => None,
    }
}

fn pictures(
    dataset: &Dataset,
    episode: &SelectedEpisode,
    feature: &str,
    steps: &[Step],
) -> Result<Vec<Arc<RgbFrame>>, DatasetError> {
    let camera =
        dataset.cameras().iter().find(|camera| camera.name == feature).ok_or_else(|| DatasetError::Camera {
            problem: format!("{feature} is neither state, action nor a camera that is read"),
            cameras: dataset.cameras().iter().map(|camera| camera.name.clone()).collect(),
        })?;
    steps.iter().map(|step| dataset.image(episode, camera, step.frame)).collect()
}

/// Every selected row.
fn all(dataset: &Dataset, tensors: &mut Tensors) {
    let rows = || dataset.episodes().iter().map(|episode| &episode.rows);
    let frames = dataset.len();
    if dataset.state_dim() > 0 {
        let values = rows().flat_map(|rows| rows.state.iter().copied());
        tensors.floats(format!("all.{STATE}"), vec![frames, dataset.state_dim()], values);
    }
    let values = rows().flat_map(|rows| rows.action.iter().copied());
    tensors.floats(format!("all.{ACTION}"), vec![frames, dataset.action_dim()], values);
    tensors.floats("all.timestamp".into(), vec![frames], rows().flat_map(|rows| rows.timestamp.iter().copied()));
    for (name, column) in INTEGERS {
        tensors.integers(format!("all.{name}"), vec![frames], rows().flat_map(|rows| column(rows).iter().copied()));
    }
    let numbers = dataset.episodes().iter().flat_map(|e| std::iter::repeat_n(e.meta.index as i64, e.rows.length));
    tensors.integers("all.episode_index".into(), vec![frames], numbers);
}

type Integers = fn(&EpisodeRows) -> &[i64];

const INTEGERS: [(&str, Integers); 3] =
    [("frame_index", |rows| &rows.frame_index), ("index", |rows| &rows.index), ("task_index", |rows| &rows.task_index)];

/// One frame with all its images.
fn item(
    dataset: &Dataset,
    episode: &SelectedEpisode,
    frame: usize,
    prefix: &str,
    tensors: &mut Tensors,
) -> Result<(), DatasetError> {
    for feature in [STATE, ACTION] {
        if let Some((width, matrix)) = vector(dataset, feature).filter(|(width, _)| *width > 0) {
            let values = row(matrix(&episode.rows), width, frame).iter().copied();
            tensors.floats(format!("{prefix}.{feature}"), vec![width], values);
        }
    }
    let timestamp = episode.rows.timestamp.get(frame).copied();
    tensors.floats(format!("{prefix}.timestamp"), Vec::new(), timestamp.into_iter());
    for (name, column) in INTEGERS {
        tensors.integers(format!("{prefix}.{name}"), Vec::new(), column(&episode.rows).get(frame).copied().into_iter());
    }
    tensors.integers(format!("{prefix}.episode_index"), Vec::new(), [episode.meta.index as i64].into_iter());
    for camera in dataset.cameras() {
        let picture = dataset.image(episode, camera, frame)?;
        tensors.images(format!("{prefix}.{}", camera.name), &[picture], false);
    }
    Ok(())
}

/// Tensors on their way into a file.
#[derive(Default)]
struct Tensors(Vec<(String, Tensor)>);

struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    data: Vec<u8>,
}

impl View for Tensor {
    fn dtype(&self) -> Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.data)
    }

    fn data_len(&self) -> usize {
        self.data.len()
    }
}

impl Tensors {
    fn push(&mut self, name: String, dtype: Dtype, shape: Vec<usize>, data: Vec<u8>) {
        self.0.push((name, Tensor { dtype, shape, data }));
    }

    fn floats(&mut self, name: String, shape: Vec<usize>, values: impl Iterator<Item = f32>) {
        self.push(name, Dtype::F32, shape, values.flat_map(f32::to_le_bytes).collect());
    }

    fn integers(&mut self, name: String, shape: Vec<usize>, values: impl Iterator<Item = i64>) {
        self.push(name, Dtype::I64, shape, values.flat_map(i64::to_le_bytes).collect());
    }

    fn bytes(&mut self, name: String, shape: Vec<usize>, values: Vec<u8>) {
        self.push(name, Dtype::U8, shape, values);
    }

    /// Images of one camera as `[3, H, W]`, or `[n, 3, H, W]` when `stacked`.
    fn images(&mut self, name: String, frames: &[Arc<RgbFrame>], stacked: bool) {
        let Some(first) = frames.first() else { return };
        let mut shape = vec![3, first.height, first.width];
        if stacked {
            shape.insert(0, frames.len());
        }
        let channel = |frame: &Arc<RgbFrame>, channel: usize| {
            frame.data.iter().skip(channel).step_by(3).copied().collect::<Vec<u8>>()
        };
        let data = frames.iter().flat_map(|frame| (0..3).flat_map(move |at| channel(frame, at))).collect();
        self.bytes(name, shape, data);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::fixture;
    use super::*;
    use crate::dataset::reader::Selection;
    use rstest::rstest;

    /// The whole data section of the file, so names, dtypes, shapes, order and every byte.
    #[rstest]
    #[case("v21")]
    #[case("v30-av1")]
    #[case("v30-h264")]
    fn an_export_equals_the_golden_file_byte_for_byte(#[case] name: &str) {
        let golden_path = fixture(&format!("datasets/{name}.golden-frames.safetensors"));
        let dataset = Dataset::open(&fixture(&format!("datasets/{name}")), Selection::default()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("export.safetensors");
        let export = Export::like(&golden_path).unwrap();
        export.write(&dataset, &path).unwrap();
        let (ours, golden) = (std::fs::read(&path).unwrap(), std::fs::read(&golden_path).unwrap());
        let (ours_start, ours_header) = SafeTensors::read_metadata(&ours).unwrap();
        let (golden_start, golden_header) = SafeTensors::read_metadata(&golden).unwrap();
        assert_eq!(ours_header.offset_keys(), golden_header.offset_keys());
        for key in golden_header.offset_keys() {
            let facts = |header: &safetensors::tensor::Metadata| {
                header.info(&key).map(|info| (info.dtype, info.shape.clone(), info.data_offsets))
            };
            assert_eq!(facts(&ours_header), facts(&golden_header), "{key}");
        }
        assert!(ours[8 + ours_start..] == golden[8 + golden_start..], "the bytes differ");
        assert_eq!(Export::like(&path).unwrap(), export);
        let metadata = |header: &safetensors::tensor::Metadata| -> serde_json::Value {
            serde_json::from_str(&header.metadata().as_ref().unwrap()["tasks"]).unwrap()
        };
        assert_eq!(metadata(&ours_header), metadata(&golden_header));
    }

    #[test]
    fn an_offset_beside_the_grid_or_an_unknown_feature_is_refused() {
        let selection = Selection { cameras: Some(Vec::new()), ..Selection::default() };
        let dataset = Dataset::open(&fixture("datasets/v21"), selection).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let write = |feature: &str, delta: f64| {
            let deltas = BTreeMap::from([(feature.to_owned(), vec![delta])]);
            let export = Export { indices: vec![3], deltas, tolerance_s: TOLERANCE_S };
            export.write(&dataset, &dir.path().join("a.safetensors")).map_err(|error| error.to_string())
        };
        assert_eq!(write(STATE, -1.0 / 30.0), Ok(()));
        assert!(write(STATE, 0.05).unwrap_err().contains("beside the nearest frame at 30 fps"));
        assert!(write("observation.images.top", 0.0).unwrap_err().contains("neither state, action nor a camera"));
    }
}
