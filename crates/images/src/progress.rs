//! Who is told how far a long act is.

/// Told what happens, in words for people.
pub type Progress<'a> = dyn Fn(&str) + Send + Sync + 'a;
