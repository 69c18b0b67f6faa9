//! The program `coracle`.

use std::process::ExitCode;

fn main() -> ExitCode {
    coracle::main(std::env::args_os())
}
