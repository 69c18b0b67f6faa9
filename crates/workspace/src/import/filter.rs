//! Selects files of a directory. Pure.

use coracle_protocol::patterns::Pattern as PathPattern;

/// Patterns of paths: any of the first, none of the second.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    include: Vec<PathPattern>,
    exclude: Vec<PathPattern>,
    /// The original patterns.
    given: (Vec<String>, Vec<String>),
}

impl Filter {
    /// Reads patterns; blank ones are none.
    ///
    /// # Errors
    /// The pattern that cannot be read, and why.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self, (String, String)> {
        let read = |all: &[String]| {
            let given = all.iter().map(|it| it.trim()).filter(|it| !it.is_empty());
            given.map(|it| parse(it).map_err(|why| (it.to_owned(), why))).collect::<Result<Vec<_>, _>>()
        };
        let given = (include.to_vec(), exclude.to_vec());
        Ok(Self { include: read(include)?, exclude: read(exclude)?, given })
    }

    pub(super) fn include(&self) -> &[String] {
        &self.given.0
    }

    pub(super) fn exclude(&self) -> &[String] {
        &self.given.1
    }

    /// Whether a file is meant, by its path from the directory.
    #[must_use]
    pub fn takes(&self, path: &str) -> bool {
        let any = |all: &[PathPattern]| all.iter().any(|it| it.matches(path.as_bytes()));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }

    /// Whether a directory may have such files.
    pub(super) fn enters(&self, path: &str) -> bool {
        self.include.is_empty() || self.include.iter().any(|it| it.enters(path.as_bytes()))
    }
}

fn parse(pattern: &str) -> Result<PathPattern, String> {
    if pattern.split('/').any(|it| it == "..") {
        return Err("a pattern has no `..`".into());
    }
    PathPattern::parse(pattern).map_err(|trouble| trouble.detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Filter;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn w13_a_file_matches_one_pattern_and_none_that_leaves_out() {
        let filter = filter(&["**/*.py", " "], &["t/**"]);
        for (path, takes) in [("a.py", true), ("x/a.py", true), ("t/a.py", false), ("x/t/a.py", true), ("a.txt", false)]
        {
            assert_eq!(filter.takes(path), takes, "{path}");
        }
    }

    #[test]
    fn an_invalid_pattern_is_reported() {
        for bad in ["[", "../x", "a/../b"] {
            assert_eq!(Filter::new(&[bad.to_owned()], &[]).unwrap_err().0, bad);
        }
        assert!(Filter::new(&[], &["{".to_owned()]).is_err());
    }

    proptest! {
        #[test]
        fn a_directory_of_a_file_that_is_meant_is_entered(
            include in proptest::collection::vec("(\\*\\*/)?[ab*?]{1,3}(/[ab*]{1,2}){0,2}", 0..3),
            path in "[ab]{1,2}(/[ab]{1,2}){0,3}",
        ) {
            let filter = Filter::new(&include, &[]).unwrap();
            for (at, _) in path.match_indices('/') {
                prop_assert!(!filter.takes(&path) || filter.enters(&path[..at]), "{include:?} {path}");
            }
        }
    }
}
