//! Glob patterns in settings.

use coracle_types::failure::{Code, Failure};
use globset::{GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

/// Builds a set of globs. With `paths`, `*` does not match a `/`.
pub(crate) fn globs(patterns: &[String], paths: bool) -> Result<GlobSet, Failure> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern).literal_separator(paths).build();
        set.add(glob.map_err(|err| invalid(&format!("That is no pattern: {err}.")))?);
    }
    set.build().map_err(|err| invalid(&err.to_string()))
}

/// Builds one glob of paths, in which `*` does not match a `/`.
pub(crate) fn glob(pattern: &str) -> Result<GlobMatcher, Failure> {
    let glob = GlobBuilder::new(pattern).literal_separator(true).build();
    Ok(glob.map_err(|err| invalid(&format!("That is no pattern: {err}.")))?.compile_matcher())
}

pub(crate) fn invalid(message: &str) -> Failure {
    Failure::new(Code::InvalidInput, message)
}
