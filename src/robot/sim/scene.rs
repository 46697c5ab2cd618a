//! What one seed looks like: where things stand, their colours, light and cameras.
