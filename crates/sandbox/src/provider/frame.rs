//! A part of what a program says.

use coracle_types::Exit;

/// A part of what a program says; exactly one [`Exit`](Self::Exit), which is the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Printed.
    Stdout(Vec<u8>),
    /// Printed to standard error.
    Stderr(Vec<u8>),
    /// It ended.
    Exit(Exit),
}
