//! What a tool said.

/// What a tool said: a text for the model, and whether it did not do what was asked.
pub(crate) type Said = (String, bool);
