//! Matrix products on slices: the safe face of the `gemm` crate.

use gemm::Parallelism;

/// Multiply-adds below which a product stays on the calling thread.
const SHARE_FROM: usize = 256 * 1024;

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
pub(super) enum Into {
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
/// # Panics
/// When the shapes do not fit each other or the slices: a defect of the caller.
#[expect(unsafe_code, reason = "gemm's interface is raw pointers; every bound is asserted first")]
pub(super) fn multiply(out: &mut [f32], row_stride: usize, a: Matrix, b: Matrix, into: Into, threads: Threads) {
    let (m, n, k) = (a.rows, b.columns, a.columns);
    assert_eq!(a.columns, b.rows, "inner sizes of a matrix product differ");
    assert!(fits(out.len(), m, n, row_stride), "the product {m}×{n} does not fit its destination");
    if m == 0 || n == 0 {
        return;
    }
    let parallelism =
        if threads == Threads::All && m * n * k >= SHARE_FROM { Parallelism::Rayon(0) } else { Parallelism::None };
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
            into == Into::Add,
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
            parallelism,
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
        multiply(&mut out, 7, left, right, Into::Add, Threads::All);
        for i in 0..3 {
            for j in 0..7 {
                let sum: f32 = if j < 5 { (0..4).map(|k| a[i * 10 + k] * b[j * 8 + k]).sum() } else { 0.0 };
                assert_eq!(out[i * 7 + j], 1.0 + sum, "element {i},{j}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside of its slice")]
    fn a_matrix_beyond_its_slice_is_refused() {
        Matrix::strided(&[0.0; 10], 2, 4, 7);
    }
}
