//! Progress of long operations.

/// Called with a description of the current step, for users.
pub type Progress<'a> = dyn Fn(&str) + Send + Sync + 'a;
