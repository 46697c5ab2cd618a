//! From the sample tables of a track (ISO/IEC 14496-12 §8.6, §8.7) to one entry a sample.

use re_mp4::{CttsBox, StscBox, StssBox, StszBox, SttsBox};

use super::index::SampleBytes;

/// 150 hours at 30 frames a second; bounds the memory that a hostile file can ask for.
const MAX_SAMPLES: usize = 1 << 24;

/// The tables as stored.
pub(super) struct Tables {
    pub sizes: StszBox,
    pub chunks: StscBox,
    pub chunk_offsets: Vec<u64>,
    pub durations: SttsBox,
    pub composition: Option<CttsBox>,
    /// Absent when every sample is a key frame.
    pub sync: Option<StssBox>,
}

/// One compressed frame, in decoding order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    pub bytes: SampleBytes,
    /// Presentation time in ticks of the track, before the edit list.
    pub pts: i64,
    pub sync: bool,
}

/// Expands the tables; every sample lies within the file and holds at least one byte.
pub(super) fn expand(tables: &Tables, file_size: u64) -> Result<Vec<Sample>, String> {
    let count = checked_count(&tables.sizes, file_size)?;
    let mut samples = place(tables, count, file_size)?;
    set_times(&mut samples, tables)?;
    if let Some(sync) = &tables.sync {
        for number in &sync.entries {
            let sample = usize::try_from(*number).ok().and_then(|number| number.checked_sub(1));
            samples
                .get_mut(sample.unwrap_or(usize::MAX))
                .ok_or_else(|| format!("key frame {number} of {count} samples"))?
                .sync = true;
        }
    }
    Ok(samples)
}

/// The number of samples, once their sizes are known to fit into the file.
fn checked_count(sizes: &StszBox, file_size: u64) -> Result<usize, String> {
    let count = if sizes.sample_size == 0 { sizes.sample_sizes.len() } else { sizes.sample_count as usize };
    if count > MAX_SAMPLES {
        return Err(format!("{count} samples; at most {MAX_SAMPLES} are read"));
    }
    let total: u64 = if sizes.sample_size == 0 {
        sizes.sample_sizes.iter().map(|size| u64::from(*size)).sum()
    } else {
        count as u64 * u64::from(sizes.sample_size)
    };
    if sizes.sample_size == 0 && sizes.sample_sizes.contains(&0) {
        return Err("a sample of 0 bytes".to_owned());
    }
    if total > file_size {
        return Err(format!("{count} samples of {total} bytes in a file of {file_size}"));
    }
    Ok(count)
}

/// Puts each sample at its place: chunks lie anywhere, samples of a chunk follow one another.
fn place(tables: &Tables, count: usize, file_size: u64) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::with_capacity(count);
    let runs = &tables.chunks.entries;
    let mut run = 0;
    for (chunk, start) in tables.chunk_offsets.iter().enumerate() {
        if samples.len() == count {
            break;
        }
        while runs.get(run + 1).is_some_and(|next| next.first_chunk as usize <= chunk + 1) {
            run += 1;
        }
        let Some(entry) = runs.get(run).filter(|entry| entry.first_chunk as usize <= chunk + 1) else {
            return Err(format!("chunk {} has no entry in `stsc`", chunk + 1));
        };
        if entry.sample_description_index != 1 {
            return Err("the codec's parameters change within the track".to_owned());
        }
        let mut offset = *start;
        for _ in 0..(entry.samples_per_chunk as usize).min(count - samples.len()) {
            let size = match tables.sizes.sample_size {
                0 => tables.sizes.sample_sizes.get(samples.len()).copied().unwrap_or(0),
                size => size,
            };
            let end = offset.checked_add(u64::from(size)).filter(|end| *end <= file_size).ok_or_else(|| {
                format!("sample {} of {count} begins at byte {offset} and has {size} bytes, the file has {file_size}: the file is cut off", samples.len())
            })?;
            samples.push(Sample { bytes: SampleBytes { offset, size }, pts: 0, sync: tables.sync.is_none() });
            offset = end;
        }
    }
    if samples.len() == count {
        Ok(samples)
    } else {
        Err(format!("the chunk tables place {} of {count} samples", samples.len()))
    }
}

fn set_times(samples: &mut [Sample], tables: &Tables) -> Result<(), String> {
    let count = samples.len();
    let mut rest = samples.iter_mut();
    let mut time = 0i64;
    for entry in &tables.durations.entries {
        for sample in rest.by_ref().take(entry.sample_count as usize) {
            sample.pts = time;
            time += i64::from(entry.sample_delta);
        }
    }
    if rest.len() > 0 {
        return Err(format!("`stts` gives the times of {} of {count} samples", count - rest.len()));
    }
    let Some(composition) = &tables.composition else { return Ok(()) };
    let mut rest = samples.iter_mut();
    for entry in &composition.entries {
        for sample in rest.by_ref().take(entry.sample_count as usize) {
            sample.pts += i64::from(entry.sample_offset);
        }
    }
    if rest.len() > 0 {
        return Err(format!("`ctts` gives the offsets of {} of {count} samples", count - rest.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::boxes::tests::boxed;
    use super::*;

    /// A table box of version 0: the number of rows, then the rows.
    fn table<T>(kind: &[u8; 4], row: usize, values: &[i32]) -> T
    where
        T: for<'c, 'a> re_mp4::ReadBox<&'c mut std::io::Cursor<&'a [u8]>>,
    {
        let rows = (values.len() / row) as i32;
        let body: Vec<u8> = [0, rows].iter().chain(values).flat_map(|value| value.to_be_bytes()).collect();
        boxed(kind, &body, |found| found.read().unwrap())
    }

    fn tables() -> Tables {
        Tables {
            sizes: StszBox { sample_sizes: vec![10, 20, 30, 40, 50], sample_count: 5, ..StszBox::default() },
            // First chunk, samples a chunk, description.
            chunks: table(b"stsc", 3, &[1, 2, 1, 2, 1, 1, 3, 2, 1]),
            chunk_offsets: vec![100, 500, 300],
            // Number of samples, duration.
            durations: table(b"stts", 2, &[4, 10, 9, 5]),
            composition: Some(table(b"ctts", 2, &[1, 10, 1, 20, 3, -10])),
            sync: Some(StssBox { entries: vec![1, 4], ..StssBox::default() }),
        }
    }

    #[test]
    fn tables_expand_to_places_times_and_key_frames() {
        let samples = expand(&tables(), 1000).unwrap();
        let places: Vec<_> = samples.iter().map(|sample| (sample.bytes.offset, sample.bytes.size)).collect();
        assert_eq!(places, [(100, 10), (110, 20), (500, 30), (300, 40), (340, 50)]);
        assert_eq!(samples.iter().map(|sample| sample.pts).collect::<Vec<_>>(), [10, 30, 10, 20, 30]);
        let sync: Vec<_> = samples.iter().map(|sample| sample.sync).collect();
        assert_eq!(sync, [true, false, false, true, false]);
    }

    #[test]
    fn contradictions_are_told() {
        let message = |change: fn(&mut Tables), file_size| {
            let mut tables = tables();
            change(&mut tables);
            expand(&tables, file_size).unwrap_err()
        };
        assert!(message(|_| (), 529).contains("sample 2 of 5 begins at byte 500 and has 30 bytes, the file has 529"));
        assert!(message(|_| (), 149).contains("5 samples of 150 bytes in a file of 149"));
        assert!(message(|tables| tables.chunk_offsets.truncate(2), 1000).contains("place 3 of 5"));
        assert!(message(|tables| tables.chunk_offsets[1] = u64::MAX, 1000).contains("cut off"));
        assert!(message(|tables| tables.durations.entries.truncate(1), 1000).contains("4 of 5"));
        assert!(
            message(|tables| tables.sync = Some(StssBox { entries: vec![6], ..StssBox::default() }), 1000)
                .contains("key frame 6 of 5")
        );
        let endless = |tables: &mut Tables| {
            tables.sizes = StszBox { sample_size: 1, sample_count: u32::MAX, ..StszBox::default() };
        };
        assert!(message(endless, u64::MAX).contains("at most"));
    }
}
