//! Still images in parquet cells.

use std::io::Cursor;
use std::path::Path;

use image::{ImageReader, Limits};

use super::frame::RgbFrame;
use super::meta::ImageShape;
use super::table::EncodedImage;

/// Decodes a PNG or JPEG to RGB. The size must be the declared one. `root` is where file names start.
pub fn decode(image: &EncodedImage, shape: ImageShape, root: &Path) -> Result<RgbFrame, String> {
    let bytes = match image {
        EncodedImage::Bytes(bytes) => bytes.as_slice(),
        EncodedImage::File(path) => {
            let bytes = std::fs::read(root.join(path)).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            return decode(&EncodedImage::Bytes(bytes), shape, root);
        }
    };
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
    let mut limits = Limits::default();
    limits.max_image_height = u32::try_from(shape.height).ok();
    limits.max_image_width = u32::try_from(shape.width).ok();
    reader.limits(limits);
    let picture = reader.decode().map_err(|error| {
        format!("cannot decode the image (expected {} × {} pixels): {error}", shape.width, shape.height)
    })?;
    let picture = picture.into_rgb8();
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    if (width, height) != (shape.width, shape.height) {
        return Err(format!(
            "the image has {width} × {height} pixels, info.json declares {} × {}",
            shape.width, shape.height
        ));
    }
    Ok(RgbFrame { height, width, data: picture.into_raw() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{ImageFormat, RgbImage};

    fn png(width: u32, height: u32) -> EncodedImage {
        let mut bytes = Cursor::new(Vec::new());
        RgbImage::from_fn(width, height, |x, y| image::Rgb([x as u8, y as u8, 7]))
            .write_to(&mut bytes, ImageFormat::Png)
            .unwrap();
        EncodedImage::Bytes(bytes.into_inner())
    }

    const SHAPE: ImageShape = ImageShape { height: 2, width: 3, channels: 3 };

    #[test]
    fn a_png_comes_back_pixel_for_pixel() {
        let frame = decode(&png(3, 2), SHAPE, Path::new(".")).unwrap();
        assert_eq!((frame.height, frame.width), (2, 3));
        assert_eq!(frame.data, [0, 0, 7, 1, 0, 7, 2, 0, 7, 0, 1, 7, 1, 1, 7, 2, 1, 7]);
    }

    #[test]
    fn another_size_and_damaged_bytes_are_refused() {
        assert!(decode(&png(2, 2), SHAPE, Path::new(".")).unwrap_err().contains("declares 3 × 2"));
        assert!(decode(&png(300, 2), SHAPE, Path::new(".")).is_err());
        let EncodedImage::Bytes(mut bytes) = png(3, 2) else { unreachable!() };
        bytes.truncate(40);
        assert!(decode(&EncodedImage::Bytes(bytes), SHAPE, Path::new(".")).is_err());
    }
}
