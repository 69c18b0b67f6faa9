//! Progress of long operations.

/// Called with what is being done, for people.
pub type Progress<'a> = dyn Fn(&str) + Send + Sync + 'a;
