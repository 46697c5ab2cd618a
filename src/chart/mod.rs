//! Charts as SVG files, for reports.
