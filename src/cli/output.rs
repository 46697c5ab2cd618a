//! Data on standard output, words on standard error.

use std::io::{self, Write};

use crate::error::{Explain, Kind};

/// Standard output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write to standard output")]
pub struct Output(#[source] io::Error);

impl Explain for Output {
    fn kind(&self) -> Kind {
        Kind::Environment
    }
}

/// Says a line to whoever reads standard error. Nobody need: `eprintln!` would end the process.
pub fn tell(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes data to standard output; a reader that has had enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<(), Output> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Output(error)),
        _ => Ok(()),
    }
}
