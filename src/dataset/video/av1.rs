//! AV1 by rav1d, whose interface is dav1d's C interface: the one unsafe corner of video.
#![expect(unsafe_code, reason = "rav1d offers dav1d's C interface only; it is wrapped here and nowhere else")]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;

use rav1d::include::dav1d::data::Dav1dData;
use rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dLogger, Dav1dSettings};
use rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I422, DAV1D_PIXEL_LAYOUT_I444,
};
use rav1d::include::dav1d::picture::Dav1dPicture;
use rav1d::src::lib::{
    dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_flush, dav1d_get_picture,
    dav1d_open, dav1d_picture_unref, dav1d_send_data,
};

use super::color::{ColorSpace, Picture, Plane};
use super::decoder::{Decoder, Fault, Sink, pixel_format_fault};

/// Pixels a picture may have; a stream that states more is refused before its buffers are allocated.
const MAX_PIXELS: u32 = 1 << 26;
const FRAME_CONTEXTS: i32 = 2;
const AGAIN: i32 = -libc::EAGAIN;

pub(super) struct Av1Decoder {
    context: Option<Dav1dContext>,
    /// The sequence header: a sample may leave out what the container already holds.
    config_obus: Vec<u8>,
}

// SAFETY: the context is an `Arc<Rav1dContext>` in disguise. rav1d itself shares it between its worker threads, so what
// it points to is `Send + Sync`; nothing in it is tied to the thread that opened it.
unsafe impl Send for Av1Decoder {}

impl Av1Decoder {
    /// Two frame contexts, although frames are decoded one by one: with a single one, rav1d 1.1 aborts the process on
    /// any damaged frame (memorysafety/rav1d#1497: its error path unwraps a header that was taken before, inside a
    /// function that cannot unwind). Each context comes with a thread, which sleeps while its decoder is idle.
    ///
    /// Film grain is applied, as FFmpeg (and so LeRobot) does: the stream states its seed, so frames are repeatable.
    pub fn open(config_obus: Vec<u8>) -> Result<Av1Decoder, Fault> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: the pointer is valid for writes of a `Dav1dSettings`, which the call initialises in full.
        let mut settings = unsafe {
            dav1d_default_settings(NonNull::from(&mut settings).cast());
            settings.assume_init()
        };
        settings.n_threads = FRAME_CONTEXTS;
        settings.max_frame_delay = FRAME_CONTEXTS;
        settings.all_layers = 0;
        settings.frame_size_limit = MAX_PIXELS;
        // SAFETY: without a callback there is nothing whose safety could depend on the arguments. The default logger
        // writes to standard error, in the middle of the terminal interface.
        settings.logger = unsafe { Dav1dLogger::new(None, None) };
        let mut context = None;
        // SAFETY: both pointers come from live locals, valid for the reads and writes the call makes.
        let result = unsafe { dav1d_open(Some(NonNull::from(&mut context)), Some(NonNull::from(&mut settings))) };
        match context {
            Some(_) if result.0 == 0 => Ok(Av1Decoder { context, config_obus }),
            _ => Err(format!("rav1d cannot be started (error {})", result.0).into()),
        }
    }

    /// The next picture of the samples sent so far, if there is one.
    fn picture(&mut self) -> Result<Option<OwnedPicture>, Fault> {
        // The first request after a sample only looks; the second one waits for the frame in progress.
        match self.poll()? {
            Some(picture) => Ok(Some(picture)),
            None => self.poll(),
        }
    }

    fn poll(&mut self) -> Result<Option<OwnedPicture>, Fault> {
        let mut picture = OwnedPicture(Dav1dPicture::default());
        // SAFETY: the context is open until `drop`; the picture is a live local, valid for writes.
        let result = unsafe { dav1d_get_picture(self.context, Some(NonNull::from(&mut picture.0))) };
        match result.0 {
            0 => Ok(Some(picture)),
            AGAIN => Ok(None),
            error => Err(format!("rav1d: no picture (error {error})").into()),
        }
    }
}

impl Drop for Av1Decoder {
    fn drop(&mut self) {
        // SAFETY: the context comes from `dav1d_open` and is closed once: the call leaves `None` behind.
        unsafe { dav1d_close(Some(NonNull::from(&mut self.context))) };
    }
}

impl Decoder for Av1Decoder {
    fn push(&mut self, sample: &[u8], start: bool, sink: Sink<'_>) -> Result<(), Fault> {
        let before: &[u8] = if start { &self.config_obus } else { &[] };
        let mut data = OwnedData::copy(before, sample)?;
        let mut shown = 0;
        loop {
            if data.0.sz > 0 {
                // SAFETY: the context is open until `drop`; the data is a live local, valid for reads and writes.
                let result = unsafe { dav1d_send_data(self.context, Some(NonNull::from(&mut data.0))) };
                if !matches!(result.0, 0 | AGAIN) {
                    return Err(format!("rav1d: not a decodable sample (error {})", result.0).into());
                }
            }
            match self.picture()? {
                Some(picture) => {
                    shown += 1;
                    sink(&picture.view()?)?;
                }
                None if data.0.sz == 0 => break,
                None => (),
            }
        }
        // A sample is a temporal unit, which shows exactly one frame (AV1 specification §7.5).
        if shown == 1 { Ok(()) } else { Err(format!("a sample shows {shown} frames instead of one").into()) }
    }

    fn flush(&mut self, sink: Sink<'_>) -> Result<(), Fault> {
        while let Some(picture) = self.picture()? {
            sink(&picture.view()?)?;
        }
        if let Some(context) = self.context {
            // SAFETY: the context comes from `dav1d_open` and is open until `drop`.
            unsafe { dav1d_flush(context) };
        }
        Ok(())
    }
}

/// A buffer of rav1d's, given back when dropped.
struct OwnedData(Dav1dData);

impl OwnedData {
    fn copy(first: &[u8], second: &[u8]) -> Result<OwnedData, Fault> {
        let size = first.len() + second.len();
        let mut data = OwnedData(Dav1dData::default());
        // SAFETY: the data is a live local, valid for writes.
        let buffer = unsafe { dav1d_data_create(Some(NonNull::from(&mut data.0)), size) };
        if buffer.is_null() {
            return Err(format!("rav1d: no buffer of {size} bytes").into());
        }
        // SAFETY: the buffer was just created with `size` bytes, is not shared yet, and overlaps neither slice.
        unsafe {
            ptr::copy_nonoverlapping(first.as_ptr(), buffer, first.len());
            ptr::copy_nonoverlapping(second.as_ptr(), buffer.add(first.len()), second.len());
        }
        Ok(data)
    }
}

impl Drop for OwnedData {
    fn drop(&mut self) {
        // SAFETY: the data is valid for reads and writes, and holds what rav1d put there or nothing.
        unsafe { dav1d_data_unref(Some(NonNull::from(&mut self.0))) };
    }
}

/// A picture of rav1d's, given back when dropped.
struct OwnedPicture(Dav1dPicture);

impl Drop for OwnedPicture {
    fn drop(&mut self) {
        // SAFETY: the picture is valid for reads and writes, and holds what rav1d put there or nothing.
        unsafe { dav1d_picture_unref(Some(NonNull::from(&mut self.0))) };
    }
}

impl OwnedPicture {
    fn view(&self) -> Result<Picture<'_>, Fault> {
        let bits = self.0.p.bpc.unsigned_abs();
        if (bits, self.0.p.layout) != (8, DAV1D_PIXEL_LAYOUT_I420) {
            let layout = match self.0.p.layout {
                DAV1D_PIXEL_LAYOUT_I400 => "monochrome",
                DAV1D_PIXEL_LAYOUT_I420 => "4:2:0",
                DAV1D_PIXEL_LAYOUT_I422 => "4:2:2",
                DAV1D_PIXEL_LAYOUT_I444 => "4:4:4",
                _ => "of an unknown layout",
            };
            return Err(pixel_format_fault(bits, layout));
        }
        let (width, height) = (self.0.p.w.unsigned_abs() as usize, self.0.p.h.unsigned_abs() as usize);
        let (chroma_width, chroma_height) = (width.div_ceil(2), height.div_ceil(2));
        Ok(Picture {
            width,
            height,
            y: self.plane(0, width, height)?,
            u: self.plane(1, chroma_width, chroma_height)?,
            v: self.plane(2, chroma_width, chroma_height)?,
            space: self.color_space(),
        })
    }

    fn plane(&self, plane: usize, width: usize, height: usize) -> Result<Plane<'_>, Fault> {
        let stride = usize::try_from(self.0.stride[plane.min(1)]).unwrap_or(0);
        match self.0.data[plane] {
            Some(data) if stride >= width && height > 0 => {
                let length = stride * (height - 1) + width;
                // SAFETY: the picture has 8 bits a sample and this plane `height` rows, `stride` bytes apart, of at
                // least `width` samples; rav1d's allocator initialises them, and the reference that `self` holds keeps
                // them alive and unwritten.
                Ok(Plane { data: unsafe { slice::from_raw_parts(data.as_ptr().cast(), length) }, stride })
            }
            _ => {
                Err(format!("rav1d: plane {plane} of a {width}x{height} picture has a stride of {stride} bytes").into())
            }
        }
    }

    /// The stream's matrix, and always limited range: FFmpeg gives AV1 pictures a pixel format that stands for limited
    /// range, whatever the sequence header says, so LeRobot's readers convert them so.
    fn color_space(&self) -> ColorSpace {
        // SAFETY: the picture keeps its sequence header alive, and rav1d does not write to it any more.
        let matrix = self.0.seq_hdr.map(|header| unsafe { header.as_ref() }.mtrx);
        matrix.map_or(ColorSpace::UNSTATED, |matrix| ColorSpace::new(matrix, false))
    }
}
