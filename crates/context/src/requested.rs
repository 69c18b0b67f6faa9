//! A requested value, or the reason why it is not provided.

/// A step with its input, or why it is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested<T = ()> {
    Yes(T),
    No(String),
}
