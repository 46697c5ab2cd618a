//! The `vlash` binary: arguments to configuration to one call.

use std::process::ExitCode;

fn main() -> ExitCode {
    vlash_forge::cli::main()
}
