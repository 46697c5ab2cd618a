//! Differentiable operations that candle lacks or does slowly: one file an operation, with its backward.
