//! CUDA: the libraries at run time, and what the driver knows.

mod shim;
