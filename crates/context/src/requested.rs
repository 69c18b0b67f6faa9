//! Something that is asked for, or the reason why not.

/// A step that is done, or why it is not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requested<T = ()> {
    Yes(T),
    No(String),
}
