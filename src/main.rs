//! The `vlash` binary: arguments to configuration to one call.

use std::process::ExitCode;

fn main() -> ExitCode {
    one_elementwise_thread();
    vlash_forge::cli::main()
}

/// candle spreads elementwise loops over threads that spin while they wait: on few cores that costs more than it
/// gives. The operations that matter here are our own and share rayon's threads. Whoever sets the variable decides.
fn one_elementwise_thread() {
    const VARIABLE: &str = "CANDLE_NUM_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: the first statement of the process; no other thread exists that could read the environment.
        #[expect(unsafe_code, reason = "candle reads its thread count from the environment only")]
        unsafe {
            std::env::set_var(VARIABLE, "1");
        }
    }
}
