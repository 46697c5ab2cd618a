//! One entry of `features` in `info.json`: type, shape, names.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a feature holds, and so where its values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FeatureKind {
    /// A vector of numbers or booleans in a parquet column.
    Numeric,
    /// Text in a parquet column.
    Text,
    /// Encoded still images (PNG, JPEG) in a parquet column of `struct{bytes, path}`.
    Image,
    /// Frames in MP4 files; no parquet column.
    Video,
    /// Anything else (language annotations, formats to come): not read.
    Other,
}

/// Height, width and channels of an image or video feature, whatever their order in `shape`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ImageShape {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
}

/// A declared feature.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Feature {
    pub name: String,
    pub kind: FeatureKind,
    /// As written: `float32`, `video`, …
    pub dtype: String,
    pub shape: Vec<usize>,
    /// Flat names of a vector's dimensions, when there are as many as dimensions.
    pub names: Option<Vec<String>>,
    /// Of images and videos.
    pub image: Option<ImageShape>,
    /// Distances instead of colours.
    pub is_depth: bool,
    /// `video.codec` as declared; the file decides.
    pub codec: Option<String>,
}

/// More values a row than any robot has; guards against a hostile shape.
const MOST_DIMENSIONS: usize = 1 << 24;

impl Feature {
    /// Reads one entry. `Err` says what is wrong with it; a warning says what was worked around.
    pub(super) fn parse(name: &str, value: &Value) -> Result<(Feature, Option<String>), String> {
        if name.is_empty() || name.contains(['/', '\\', '\0']) || name == "." || name == ".." {
            return Err(format!("{name:?} cannot be a feature's name (it becomes part of paths)"));
        }
        let map = value.as_object().ok_or_else(|| format!("is {value}, expected a table with dtype and shape"))?;
        let dtype = map.get("dtype").and_then(Value::as_str).ok_or("dtype is missing or not a text")?.to_owned();
        let kind = kind(&dtype);
        let shape = shape(map.get("shape"))?;
        let flat = flatten(map.get("names"));
        let is_picture = matches!(kind, FeatureKind::Image | FeatureKind::Video);
        let image = if is_picture { Some(image_shape(&shape, &flat)?) } else { None };
        let dimensions = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n));
        let dimensions = dimensions
            .filter(|&n| is_picture || n <= MOST_DIMENSIONS)
            .ok_or_else(|| format!("shape {shape:?} is larger than anything that can be meant"))?;
        let mut warning = None;
        let names = match kind {
            FeatureKind::Numeric if flat.len() == dimensions && !flat.is_empty() => Some(flat),
            FeatureKind::Numeric if !flat.is_empty() => {
                warning = Some(format!("has {} names for {dimensions} dimensions; named dim_0 … instead", flat.len()));
                None
            }
            _ => None,
        };
        let details = details(map);
        let feature = Feature {
            name: name.to_owned(),
            kind,
            is_depth: details.iter().any(|map| flag(map, "is_depth_map") || flag(map, "video.is_depth_map")),
            codec: details.iter().find_map(|map| map.get("video.codec")?.as_str()).map(str::to_owned),
            dtype,
            shape,
            names,
            image,
        };
        Ok((feature, warning))
    }

    /// Values in a row.
    pub fn dimensions(&self) -> usize {
        self.shape.iter().product()
    }

    /// The name of dimension `i`: as declared, or `dim_i`.
    pub fn dimension_name(&self, i: usize) -> String {
        self.names.as_ref().and_then(|names| names.get(i)).cloned().unwrap_or_else(|| format!("dim_{i}"))
    }

    /// Whether it holds pictures, in files or in the rows.
    pub fn is_camera(&self) -> bool {
        matches!(self.kind, FeatureKind::Image | FeatureKind::Video)
    }
}

fn kind(dtype: &str) -> FeatureKind {
    match dtype {
        "float16" | "float32" | "float64" | "bool" => FeatureKind::Numeric,
        "int8" | "int16" | "int32" | "int64" | "uint8" | "uint16" | "uint32" | "uint64" => FeatureKind::Numeric,
        "string" => FeatureKind::Text,
        "image" => FeatureKind::Image,
        "video" => FeatureKind::Video,
        _ => FeatureKind::Other,
    }
}

fn shape(value: Option<&Value>) -> Result<Vec<usize>, String> {
    let axes = match value {
        Some(Value::Array(axes)) => axes.as_slice(),
        None => return Err("shape is missing".into()),
        Some(other) => return Err(format!("shape is {other}, expected a list of sizes")),
    };
    axes.iter()
        .map(|axis| super::info::count(axis).ok_or_else(|| format!("shape holds {axis}, expected a size")))
        .collect()
}

/// All texts and numbers in `names`, however they are nested: a list, a list of one list, a map of lists, null.
fn flatten(names: Option<&Value>) -> Vec<String> {
    match names {
        Some(Value::String(name)) => vec![name.clone()],
        Some(Value::Number(number)) => vec![number.to_string()],
        Some(Value::Array(items)) => items.iter().flat_map(|item| flatten(Some(item))).collect(),
        Some(Value::Object(groups)) => groups.values().flat_map(|group| flatten(Some(group))).collect(),
        _ => Vec::new(),
    }
}

/// The axes' names decide; without them the axis of size 1 or 3 holds the channels.
fn image_shape(shape: &[usize], names: &[String]) -> Result<ImageShape, String> {
    let axis = |wanted: &[&str]| names.iter().position(|name| wanted.contains(&name.to_lowercase().as_str()));
    let named = (axis(&["height"]), axis(&["width"]), axis(&["channel", "channels"]));
    let found = match (shape, named) {
        (&[_, _, _], (Some(h), Some(w), Some(c))) if names.len() == 3 => Some((shape[h], shape[w], shape[c])),
        (&[height, width], _) => Some((height, width, 1)),
        (&[height, width, c @ (1 | 3)], _) | (&[c @ (1 | 3), height, width], _) => Some((height, width, c)),
        _ => None,
    };
    let (height, width, channels) = found
        .ok_or_else(|| format!("shape {shape:?} with names {names:?} does not tell height, width and channels"))?;
    Ok(ImageShape { height, width, channels })
}

/// Where writers put facts about a video: `info`, or (older) `video_info`.
fn details(map: &Map<String, Value>) -> Vec<&Map<String, Value>> {
    ["info", "video_info"].iter().filter_map(|key| map.get(*key)?.as_object()).collect()
}

fn flag(map: &Map<String, Value>, key: &str) -> bool {
    map.get(key).and_then(Value::as_bool).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!(["a", "b"]))]
    #[case(json!([["a", "b"]]))]
    #[case(json!({"motors": ["a", "b"]}))]
    #[case(json!({"left": ["a"], "right": ["b"]}))]
    fn names_of_vectors_in_all_shapes_that_occur(#[case] names: Value) {
        let (feature, warning) =
            Feature::parse("action", &json!({"dtype": "float32", "shape": [2], "names": names})).unwrap();
        assert_eq!(feature.names.unwrap(), ["a", "b"]);
        assert_eq!(warning, None);
    }

    #[test]
    fn names_of_another_count_are_replaced_with_a_warning() {
        let (feature, warning) =
            Feature::parse("action", &json!({"dtype": "float32", "shape": [3], "names": ["a"]})).unwrap();
        assert_eq!(feature.dimension_name(2), "dim_2");
        assert_eq!(warning.unwrap(), "has 1 names for 3 dimensions; named dim_0 … instead");
    }

    #[rstest]
    #[case(json!([48, 64, 3]), json!(["height", "width", "channels"]))]
    #[case(json!([48, 64, 3]), json!(["height", "width", "channel"]))]
    #[case(json!([3, 48, 64]), json!(["channels", "height", "width"]))]
    #[case(json!([3, 48, 64]), json!(null))]
    #[case(json!([48, 64, 3]), json!(null))]
    fn image_axes_by_name_then_by_size(#[case] shape: Value, #[case] names: Value) {
        let (feature, _) =
            Feature::parse("observation.images.a", &json!({"dtype": "video", "shape": shape, "names": names})).unwrap();
        assert_eq!(feature.image, Some(ImageShape { height: 48, width: 64, channels: 3 }));
    }

    #[rstest]
    #[case(json!({"is_depth_map": true}), json!(null))]
    #[case(json!({"video.is_depth_map": true}), json!(null))]
    #[case(json!(null), json!({"video.is_depth_map": true}))]
    fn depth_maps_are_recognised(#[case] info: Value, #[case] video_info: Value) {
        let value =
            json!({"dtype": "video", "shape": [4, 4, 1], "names": null, "info": info, "video_info": video_info});
        assert!(Feature::parse("observation.images.depth", &value).unwrap().0.is_depth);
    }

    #[rstest]
    #[case("a/../b", json!({"dtype": "video", "shape": [4, 4, 3]}))]
    #[case("action", json!({"dtype": "float32", "shape": [-1]}))]
    #[case("action", json!({"dtype": "float32", "shape": [4294967296u64, 4294967296u64]}))]
    #[case("action", json!({"dtype": "float32", "shape": [1e300]}))]
    #[case("action", json!({"shape": [1]}))]
    #[case("action", json!(7))]
    fn hostile_entries_are_refused(#[case] name: &str, #[case] value: Value) {
        assert!(Feature::parse(name, &value).is_err());
    }
}
