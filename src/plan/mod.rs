//! Memory and time of a run, computed before anything starts.
