//! What is made of the spans of operations and engine calls: how long each took.
//!
//! **Invariant:** nothing here changes what an operation does or answers.

mod spans;

pub use self::spans::{SpanKind, SpanRecord, layer};
