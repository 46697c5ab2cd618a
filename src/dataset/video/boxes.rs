//! Walking ISO-MP4 boxes (ISO/IEC 14496-12 §4.2) with every size checked against what encloses the box.
//!
//! `re_mp4`'s whole-file reader expands sample tables by unchecked indexing and trusts nested sizes, so a damaged file
//! can make it panic or allocate without bound. Its readers of single table boxes are sound as long as their input ends
//! where the box ends; [`Mp4Box::read`] gives them exactly that.

use std::fs::File;
use std::io::Cursor;
use std::os::unix::fs::FileExt as _;

use re_mp4::ReadBox;

/// More top-level boxes than any file that is not fragmented has; bounds the walk over garbage.
const MAX_TOP_LEVEL_BOXES: usize = 4096;

/// Four letters that name a box or a codec.
pub(super) type FourCc = [u8; 4];

/// A box inside a buffer.
#[derive(Clone, Copy)]
pub(super) struct Mp4Box<'a> {
    pub kind: FourCc,
    pub body: &'a [u8],
    /// The body with the eight bytes before it, as `re_mp4` wants it.
    framed: &'a [u8],
}

impl<'a> Mp4Box<'a> {
    /// Parses the box with one of `re_mp4`'s readers.
    pub fn read<T>(&self) -> Result<T, String>
    where
        T: for<'c> ReadBox<&'c mut Cursor<&'a [u8]>>,
    {
        let mut cursor = Cursor::new(self.framed);
        cursor.set_position(8);
        T::read_box(&mut cursor, self.framed.len() as u64)
            .map_err(|error| format!("box {} ({} bytes): {error}", name(&self.kind), self.body.len()))
    }

    /// The first child of that kind.
    pub fn find(&self, kind: &FourCc) -> Result<Option<Mp4Box<'a>>, String> {
        find(self.body, kind)
    }

    /// As [`Mp4Box::find`]; absence is an error.
    pub fn require(&self, kind: &FourCc) -> Result<Mp4Box<'a>, String> {
        self.find(kind)?.ok_or_else(|| format!("box {} holds no box {}", name(&self.kind), name(kind)))
    }

    /// The children, in order.
    pub fn children(&self) -> Children<'a> {
        children(self.body)
    }
}

/// The boxes that follow one another in `body`.
pub(super) fn children(body: &[u8]) -> Children<'_> {
    Children { body, at: 0 }
}

/// The first box of that kind in `body`.
pub(super) fn find<'a>(body: &'a [u8], kind: &FourCc) -> Result<Option<Mp4Box<'a>>, String> {
    for child in children(body) {
        let child = child?;
        if child.kind == *kind {
            return Ok(Some(child));
        }
    }
    Ok(None)
}

pub(super) struct Children<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Children<'a> {
    type Item = Result<Mp4Box<'a>, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..)?;
        // Some writers end a container with four zero bytes.
        let header = rest.get(..8)?;
        let parsed = Header::parse(header, rest.get(8..16), rest.len() as u64)
            .map_err(|found| format!("{found} (byte {} of its container)", self.at));
        let header = match parsed {
            Ok(header) => header,
            Err(found) => {
                self.at = self.body.len();
                return Some(Err(found));
            }
        };
        // Both fit: `Header::parse` checked them against `rest`.
        let (start, size) = (header.length as usize, header.size as usize);
        self.at += size;
        Some(Ok(Mp4Box { kind: header.kind, body: &rest[start..size], framed: &rest[start - 8..size] }))
    }
}

struct Header {
    kind: FourCc,
    /// Of the header itself: 8 or 16 bytes.
    length: u64,
    /// Of the whole box, header included; never more than what encloses it.
    size: u64,
}

impl Header {
    fn parse(first: &[u8], large: Option<&[u8]>, available: u64) -> Result<Header, String> {
        let word = |bytes: &[u8]| bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
        let (size, kind) = first.split_at(4);
        let kind: FourCc = kind.try_into().map_err(|_| "a box header is cut off".to_owned())?;
        let (length, size) = match word(size) {
            0 => (8, available),
            1 => (16, word(large.ok_or_else(|| format!("the header of box {} is cut off", name(&kind)))?)),
            size => (8, size),
        };
        if size < length || size > available {
            return Err(format!("box {} claims {size} bytes where {available} are left", name(&kind)));
        }
        Ok(Header { kind, length, size })
    }
}

/// Where the file's `moov` box lies, as (offset, size); the other top-level boxes are stepped over.
pub(super) fn locate_moov(file: &File, file_size: u64) -> Result<(u64, u64), String> {
    let mut at = 0;
    for _ in 0..MAX_TOP_LEVEL_BOXES {
        let left = file_size - at;
        if left < 8 {
            return Err(format!("no moov box in {file_size} bytes: the file is cut off or is no MP4"));
        }
        let mut bytes = [0; 16];
        let bytes = &mut bytes[..left.min(16) as usize];
        file.read_exact_at(bytes, at).map_err(|error| format!("byte {at} cannot be read: {error}"))?;
        let (first, large) = bytes.split_at(8);
        let header = Header::parse(first, (large.len() == 8).then_some(large), left)
            .map_err(|found| format!("{found} (byte {at} of {file_size}): the file is cut off or is no MP4"))?;
        if header.kind == *b"moov" {
            return Ok((at, header.size));
        }
        at += header.size;
    }
    Err(format!("no moov box among the first {MAX_TOP_LEVEL_BOXES} boxes"))
}

/// Printable form of a box's or codec's name.
pub(super) fn name(kind: &FourCc) -> String {
    format!("`{}`", kind.escape_ascii())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// What `read` makes of a box with that body.
    pub fn boxed<T>(kind: &FourCc, body: &[u8], read: impl FnOnce(&Mp4Box<'_>) -> T) -> T {
        let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
        bytes.extend(kind);
        bytes.extend(body);
        read(&find(&bytes, kind).unwrap().unwrap())
    }

    #[test]
    fn a_box_larger_than_its_container_ends_the_walk_with_its_name() {
        let mut bytes = vec![0, 0, 0, 12, b'f', b'r', b'e', b'e', 1, 2, 3, 4];
        bytes.extend([0, 0, 0, 99, b's', b't', b't', b's', 0]);
        let all: Vec<_> = children(&bytes).map(|child| child.map(|child| (child.kind, child.body.to_vec()))).collect();
        assert_eq!(all[0], Ok((*b"free", vec![1, 2, 3, 4])));
        assert_eq!(all[1], Err("box `stts` claims 99 bytes where 9 are left (byte 12 of its container)".to_owned()));
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn sixty_four_bit_sizes_and_sizes_to_the_end_are_read() {
        let mut bytes = vec![0, 0, 0, 1, b'm', b'd', b'a', b't', 0, 0, 0, 0, 0, 0, 0, 17, 7];
        bytes.extend([0, 0, 0, 0, b'f', b'r', b'e', b'e', 8, 9]);
        let bodies: Vec<_> = children(&bytes).map(|child| child.unwrap().body.to_vec()).collect();
        assert_eq!(bodies, [vec![7], vec![8, 9]]);
    }
}
