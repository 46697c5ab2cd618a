//! The terminal interface: state, update, view; one file a screen.
