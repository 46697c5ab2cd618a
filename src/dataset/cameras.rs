//! Which camera features a dataset is read with, and under which names.

use std::collections::{BTreeMap, BTreeSet};

use super::error::DatasetError;
use super::finding::{Finding, Severity};
use super::meta::{Feature, FeatureKind, ImageShape, Metadata};

/// A camera that is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Camera {
    /// Its feature in the dataset.
    pub feature: String,
    /// Its name after `data.rename`.
    pub name: String,
    pub source: CameraSource,
    pub shape: ImageShape,
}

/// Where a camera's images are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CameraSource {
    /// Frames of MP4 files.
    Video,
    /// Encoded stills in the parquet rows.
    Parquet,
}

/// Resolves `wanted` (feature names, before or after the rename; none: all but depth maps) in the dataset's order.
pub fn choose(
    meta: &Metadata,
    wanted: Option<&[String]>,
    rename: &BTreeMap<String, String>,
    findings: &mut Vec<Finding>,
) -> Result<Vec<Camera>, DatasetError> {
    let all: Vec<&Feature> = meta.cameras().collect();
    let refuse = |problem: String| DatasetError::Camera {
        problem,
        cameras: all.iter().map(|feature| feature.name.clone()).collect(),
    };
    let renamed = |feature: &Feature| rename.get(&feature.name).unwrap_or(&feature.name).clone();
    if let Some(unknown) = rename.keys().find(|key| meta.info.feature(key).is_none()) {
        return Err(refuse(format!("data.rename names {unknown}, which is no feature of this dataset")));
    }
    if let Some(wanted) = wanted
        && let Some(unknown) = wanted.iter().find(|name| !all.iter().any(|f| f.name == **name || renamed(f) == **name))
    {
        return Err(refuse(format!("data.cameras names {unknown}, which is no camera of this dataset")));
    }
    let mut cameras = Vec::new();
    let mut names = BTreeSet::new();
    for &feature in &all {
        let name = renamed(feature);
        let asked = wanted.map(|wanted| wanted.iter().any(|n| *n == feature.name || *n == name));
        if asked == Some(false) {
            continue;
        }
        if feature.is_depth && asked.is_none() {
            findings.push(depth_excluded(feature, &all));
            continue;
        }
        if !names.insert(name.clone()) {
            return Err(refuse(format!("data.rename gives two cameras the name {name}")));
        }
        let source = if feature.kind == FeatureKind::Video { CameraSource::Video } else { CameraSource::Parquet };
        if let Some(shape) = feature.image {
            cameras.push(Camera { feature: feature.name.clone(), name, source, shape });
        }
    }
    Ok(cameras)
}

fn depth_excluded(feature: &Feature, all: &[&Feature]) -> Finding {
    let colour: Vec<String> = all.iter().filter(|f| !f.is_depth).map(|f| format!("{:?}", f.name)).collect();
    Finding {
        severity: Severity::Warning,
        code: "depth-camera-excluded",
        message: format!(
            "{} is a depth map and is left out; name it in data.cameras to have it read as a picture",
            feature.name
        ),
        fix: Some(format!("data.cameras = [{}]", colour.join(", "))),
    }
}
