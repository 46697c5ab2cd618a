//! Matrix products on slices: the safe face of the `gemm` crate.

use gemm::Parallelism;
use rayon::prelude::*;

/// Least work of a piece of a shared product, in multiply-adds; about 20 µs.
const PIECE: usize = 1 << 20;
/// Least rows of a piece: each packs the whole right side for itself.
const PIECE_ROWS: usize = 32;
/// Most pieces of a product.
const PIECES: usize = 16;

/// A matrix inside a slice, with any row and column stride.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A row-major matrix without gaps.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// A row-major matrix whose rows start `row_stride` elements apart.
    pub fn strided(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(fits(values.len(), rows, columns, row_stride), "matrix {rows}×{columns} outside of its slice");
        Self { values, rows, columns, row_stride, column_stride: 1 }
    }

    /// At most `count` rows from `first`, which exists.
    fn rows(self, first: usize, count: usize) -> Self {
        Self { values: &self.values[first * self.row_stride..], rows: count.min(self.rows - first), ..self }
    }

    /// The transpose, in place.
    pub fn t(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Whether a row-major matrix lies within `length` elements.
fn fits(length: usize, rows: usize, columns: usize, row_stride: usize) -> bool {
    rows == 0 || columns == 0 || (columns <= row_stride && (rows - 1) * row_stride + columns <= length)
}

/// What happens to the elements that the destination holds already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Write {
    Overwrite,
    Add,
}

/// Whether one product may be shared among threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Threads {
    One,
    All,
}

/// `out (+)= a · b`, `out` row-major with rows `row_stride` apart.
///
/// Pieces of rows are shared by rayon, not by `gemm` itself, whose threads wait for each other in a loop: on a busy
/// machine that costs more than it gains. The pieces depend on the sizes alone, so results do not depend on the
/// number of threads.
///
/// # Panics
/// When the shapes do not fit each other or the slices: a defect of the caller.
pub(super) fn multiply(out: &mut [f32], row_stride: usize, a: Matrix, b: Matrix, write: Write, threads: Threads) {
    let work_per_row = (b.columns * a.columns).max(1);
    let rows = PIECE.div_ceil(work_per_row).max(PIECE_ROWS).max(a.rows.div_ceil(PIECES));
    if threads == Threads::One || rows >= a.rows || row_stride == 0 {
        return multiply_piece(out, row_stride, a, b, write);
    }
    // The last row of a strided destination may end before its stride: nothing lies behind the m-th row.
    let length = out.len().min(a.rows * row_stride);
    out[..length].par_chunks_mut(rows * row_stride).enumerate().for_each(|(piece, out)| {
        multiply_piece(out, row_stride, a.rows(piece * rows, rows), b, write);
    });
}

#[expect(unsafe_code, reason = "gemm's interface is raw pointers; every bound is asserted first")]
fn multiply_piece(out: &mut [f32], row_stride: usize, a: Matrix, b: Matrix, write: Write) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(a.columns, b.rows, "inner sizes of a matrix product differ");
    assert!(fits(out.len(), m, n, row_stride), "the product {m}×{n} does not fit its destination");
    if m == 0 || n == 0 {
        return;
    }
    // SAFETY: `out` holds m rows of n elements with this stride (asserted above) and is borrowed mutably, so it
    // overlaps neither input; `Matrix` was checked against its slice when it was made, and its transpose covers
    // the same elements.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            out.as_mut_ptr(),
            1,
            row_stride as isize,
            write == Write::Add,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_strided_and_transposed_matrices_equal_the_plain_sum() {
        let a: Vec<f32> = (0..40).map(|v| v as f32 * 0.25 - 3.0).collect();
        let b: Vec<f32> = (0..40).map(|v| 2.0 - v as f32 * 0.5).collect();
        // a: 3×4 with stride 10; b: (5×4 with stride 8) transposed to 4×5.
        let mut out = vec![1.0; 3 * 7];
        let (left, right) = (Matrix::strided(&a, 3, 4, 10), Matrix::strided(&b, 5, 4, 8).t());
        multiply(&mut out, 7, left, right, Write::Add, Threads::All);
        for i in 0..3 {
            for j in 0..7 {
                let sum: f32 = if j < 5 { (0..4).map(|k| a[i * 10 + k] * b[j * 8 + k]).sum() } else { 0.0 };
                assert_eq!(out[i * 7 + j], 1.0 + sum, "element {i},{j}");
            }
        }
    }

    #[test]
    fn shared_products_equal_one_piece() {
        let (m, n, k) = (200, 96, 300);
        let a: Vec<f32> = (0..m * k).map(|v| ((v * 7919) % 101) as f32 * 0.01 - 0.5).collect();
        let b: Vec<f32> = (0..k * n).map(|v| ((v * 104_729) % 97) as f32 * 0.01 - 0.5).collect();
        // `a` as it is, and as the transpose of a transposed one: both ways that the backward passes take.
        let mut transposed = vec![0.0; m * k];
        for (i, row) in a.chunks(k).enumerate() {
            row.iter().enumerate().for_each(|(j, &v)| transposed[j * m + i] = v);
        }
        for left in [Matrix::new(&a, m, k), Matrix::new(&transposed, k, m).t()] {
            let (mut one, mut all) = (vec![0.5; m * n], vec![0.5; m * n]);
            multiply(&mut one, n, left, Matrix::new(&b, k, n), Write::Add, Threads::One);
            multiply(&mut all, n, left, Matrix::new(&b, k, n), Write::Add, Threads::All);
            assert!(one.iter().zip(&all).all(|(one, all)| (one - all).abs() < 1e-5));
        }
    }

    #[test]
    #[should_panic(expected = "outside of its slice")]
    fn a_matrix_beyond_its_slice_is_refused() {
        Matrix::strided(&[0.0; 10], 2, 4, 7);
    }
}
