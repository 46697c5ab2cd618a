//! `training_state/`: what resuming needs beside the weights.
