//! A chunk's actions by tick, in a buffer that is allocated once.

/// The actions of one chunk: as the policy made them, and thinned to one a tick.
#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) number: u64,
    /// The tick of its observation.
    pub(super) observed: u64,
    steps: Vec<f32>,
    rows: Vec<f32>,
    width: usize,
    length: usize,
    /// The row that the next tick commands.
    pub(super) row: usize,
    /// The row before which the next chunk should begin.
    pub(super) end: usize,
}

impl Chunk {
    /// An empty chunk with room for `steps` actions of `width` values, executed in `length` rows.
    pub(super) fn with_room(steps: usize, length: usize, width: usize) -> Chunk {
        Chunk {
            number: 0,
            observed: 0,
            steps: vec![0.0; steps * width],
            rows: vec![0.0; length * width],
            width,
            length: 0,
            row: 0,
            end: 0,
        }
    }

    /// Rows that it has.
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn at(&self, row: usize) -> Option<&[f32]> {
        self.rows.chunks_exact(self.width).take(self.length).nth(row)
    }

    /// Rows that remain to be executed.
    pub(super) fn remaining(&self) -> usize {
        self.end.saturating_sub(self.row)
    }

    /// Nothing of it is used any more.
    pub(super) fn clear(&mut self) {
        (self.length, self.row, self.end) = (0, 0, 0);
    }

    /// Takes every `speed`-th of `actions` (steps `speed` − 1, 2·`speed` − 1, …). Of a gripper the value is taken that is
    /// furthest from the one before, so that a grasp shorter than `speed` steps is not lost.
    pub(super) fn fill(&mut self, actions: &[f32], speed: usize, grippers: &[usize]) {
        self.steps.clear();
        self.steps.extend_from_slice(actions);
        let steps = actions.chunks_exact(self.width * speed);
        let mut before = actions.get(..self.width).unwrap_or_default();
        self.length = 0;
        for (row, steps) in self.rows.chunks_exact_mut(self.width).zip(steps) {
            if let Some(last) = steps.chunks_exact(self.width).next_back() {
                row.copy_from_slice(last);
            }
            for &gripper in grippers {
                let (Some(value), Some(&from)) = (row.get_mut(gripper), before.get(gripper)) else { continue };
                for &candidate in steps.iter().skip(gripper).step_by(self.width) {
                    if (candidate - from).abs() > (*value - from).abs() {
                        *value = candidate;
                    }
                }
            }
            before = row;
            self.length += 1;
        }
        (self.row, self.end) = (0, 0);
    }

    /// Fades `old` out over the `ticks` rows from the current one of each on, as far as both have rows.
    pub(super) fn blend(&mut self, old: &Chunk, ticks: usize) {
        let width = self.width;
        let own = self.rows.chunks_exact_mut(width).take(self.length).skip(self.row);
        let others = old.rows.chunks_exact(width).take(old.length).skip(old.row);
        for (i, (own, other)) in own.zip(others).take(ticks).enumerate() {
            let weight = (i + 1) as f32 / (ticks + 1) as f32;
            own.iter_mut().zip(other).for_each(|(own, other)| *own = weight * *own + (1.0 - weight) * other);
        }
    }

    /// The policy's actions that are left at `speed` steps a row, with the last repeated until there are at least `least`.
    pub(super) fn left(&self, speed: usize, least: usize) -> Vec<f32> {
        let gone = self.row * speed * self.width;
        let steps = self.steps.get(gone..).filter(|_| self.length > 0).unwrap_or_default();
        let mut left = steps.to_vec();
        if let Some(last) = steps.chunks_exact(self.width).next_back() {
            let missing = least.saturating_sub(left.len() / self.width);
            (0..missing).for_each(|_| left.extend_from_slice(last));
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_grasp_survives_the_speed_up() {
        let mut chunk = Chunk::with_room(9, 3, 2);
        // Joint 0 counts steps; the gripper is closed at step 3 only.
        let actions = [0.0, 1.0, 1.0, 1.0, 2.0, 1.0, 3.0, 0.0, 4.0, 1.0, 5.0, 1.0, 6.0, 1.0, 7.0, 1.0, 8.0, 1.0];
        chunk.fill(&actions, 3, &[1]);
        let rows: Vec<&[f32]> = (0..4).filter_map(|row| chunk.at(row)).collect();
        assert_eq!(rows, [&[2.0, 1.0][..], &[5.0, 0.0], &[8.0, 1.0]]);
        chunk.fill(&actions, 3, &[]);
        assert_eq!(chunk.at(1), Some(&[5.0, 1.0][..]));
    }

    #[test]
    fn leftovers_hold_their_last_action() {
        let mut chunk = Chunk::with_room(6, 3, 1);
        chunk.fill(&[1.0, 2.0, 3.0], 1, &[]);
        chunk.row = 1;
        assert_eq!(chunk.left(1, 4), [2.0, 3.0, 3.0, 3.0]);
        assert_eq!(chunk.left(1, 1), [2.0, 3.0]);
        chunk.row = 3;
        assert!(chunk.left(1, 4).is_empty());
        // At twice the speed a row is two of the policy's steps, which is what the next chunk has to fit.
        chunk.fill(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, &[]);
        chunk.row = 2;
        assert_eq!((chunk.at(2), chunk.left(2, 3)), (Some(&[6.0][..]), vec![5.0, 6.0, 6.0]));
        chunk.clear();
        assert!(chunk.left(2, 3).is_empty());
    }

    #[test]
    fn the_old_chunk_fades_out_while_it_has_actions() {
        let (mut old, mut new) = (Chunk::with_room(4, 4, 1), Chunk::with_room(4, 4, 1));
        old.fill(&[0.0; 4], 1, &[]);
        new.fill(&[3.0; 4], 1, &[]);
        old.row = 3;
        new.blend(&old, 2);
        assert_eq!([new.at(0), new.at(1)], [Some(&[1.0][..]), Some(&[3.0][..])]);
        old.row = 1;
        new.row = 1;
        new.blend(&old, 2);
        assert_eq!([new.at(1), new.at(2), new.at(3)], [Some(&[1.0][..]), Some(&[2.0][..]), Some(&[3.0][..])]);
    }
}
