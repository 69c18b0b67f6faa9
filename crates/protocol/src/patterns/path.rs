//! Patterns of paths.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

use crate::workspace::{WorkspaceError, WorkspaceErrorCode};

/// Longest pattern in bytes.
pub const MAX_PATTERN: usize = 8 << 10;

/// A glob pattern for paths: `*` and `?` match within a part, `**` matches any number of parts.
#[derive(Clone, Debug)]
pub struct Pattern {
    matcher: GlobMatcher,
    /// Its leading parts that are plain names, except the last part.
    prefix: Vec<Vec<u8>>,
    /// Number of parts of a matching path, if it is limited.
    depth: usize,
    git: bool,
    slash: bool,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`WorkspaceErrorCode::BadPattern`].
    pub fn parse(pattern: &str) -> Result<Self, WorkspaceError> {
        let bad = |why: &str| WorkspaceError::with_detail(WorkspaceErrorCode::BadPattern, why);
        let slash = pattern.contains('/');
        let pattern = pattern.trim_start_matches('/');
        if pattern.is_empty() || pattern.len() > MAX_PATTERN {
            return Err(bad("a pattern must have 1 to 8192 bytes"));
        }
        let glob = GlobBuilder::new(&within_parts(pattern))
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|err| bad(&err.kind().to_string()))?;
        let parts: Vec<&str> = pattern.split('/').collect();
        let is_name = |it: &&&str| !it.contains(['*', '?', '[', ']', '{', '}', '\\']);
        let names = parts[..parts.len() - 1].iter().take_while(is_name);
        let prefix = names.map(|it| it.as_bytes().to_vec()).collect();
        let depth = if pattern.contains("**") { usize::MAX } else { parts.len() };
        let git = pattern.split(['/', '{', '}', ',']).any(|it| it == ".git");
        Ok(Self { matcher: glob.compile_matcher(), prefix, depth, git, slash })
    }

    /// Whether it matches this path.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        self.matcher.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// Whether it contains a directory `.git`.
    #[must_use]
    pub fn names_git(&self) -> bool {
        self.git
    }

    /// Whether it contains a `/`, so that it matches paths and not names.
    #[must_use]
    pub fn has_slash(&self) -> bool {
        self.slash
    }

    /// Whether a path below that directory can match.
    #[must_use]
    pub fn enters(&self, path: &[u8]) -> bool {
        let mut parts = path.split(|it| *it == b'/');
        let deep = parts.clone().count();
        deep < self.depth && self.prefix.iter().all(|name| parts.next().is_none_or(|it| it == name))
    }
}

/// Extends negated classes so that they do not match a `/`.
fn within_parts(pattern: &str) -> String {
    let (mut result, mut rest) = (String::with_capacity(pattern.len() + 1), pattern);
    while let Some(at) = rest.find(['\\', '[']) {
        let (before, from) = rest.split_at(at);
        // An escaped character, and a `]` at the start of a class, are literal.
        let taken = match from.as_bytes() {
            [b'\\', ..] => 1 + from[1..].chars().next().map_or(0, char::len_utf8),
            [_, b'!' | b'^', b']', ..] => 3,
            [_, b'!' | b'^', ..] => 2,
            _ => 1,
        };
        result.push_str(before);
        result.push_str(&from[..taken]);
        if taken > 1 && from.starts_with('[') {
            result.push('/');
        }
        rest = &from[taken..];
    }
    result + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w27_patterns_match_by_their_parts() {
        let matching = [
            ("**/*.py", &["a.py", "x/a.py", "x/y/.a.py"][..]),
            ("*.py", &["a.py", ".py"]),
            ("/x/**", &["x/a", "x/y/a"]),
            ("x/**/a", &["x/a", "x/y/a", "x/y/z/a"]),
            ("[!a-c]?", &["dd", ".x"]),
            ("{a,b}.{py,rs}", &["a.py", "b.rs"]),
            ("a{,b}", &["a", "ab"]),
            ("\\*", &["*"]),
            ("\\{a\\}", &["{a}"]),
            ("**", &["a", "x/a"]),
            ("ä?", &["äb"]),
        ];
        for (pattern, paths) in matching {
            let pattern = Pattern::parse(pattern).unwrap();
            for path in paths {
                assert!(pattern.matches(path.as_bytes()), "{pattern:?} {path}");
                for (at, _) in path.match_indices('/') {
                    assert!(pattern.enters(&path.as_bytes()[..at]), "{pattern:?} {path}");
                }
            }
        }
        let others = [
            ("*.py", "x/a.py"),
            ("x/**", "y/a"),
            ("?", "/"),
            ("a?b", "a/b"),
            ("a[!x]b", "a/b"),
            ("a[!]]b", "a/b"),
            ("a[!]]b", "a]b"),
            ("A", "a"),
            ("**/*.py", "a.pyc"),
            ("x/*", "x/y/z"),
        ];
        for (pattern, path) in others {
            assert!(!Pattern::parse(pattern).unwrap().matches(path.as_bytes()), "{pattern} {path}");
        }
        assert!(!Pattern::parse("src/*.rs").unwrap().enters(b"tests"));
        assert!(!Pattern::parse("src/*.rs").unwrap().enters(b"src/deep"));
        for bad in ["", "/", "[", "{a", "[z-a]"] {
            assert_eq!(Pattern::parse(bad).unwrap_err().code, WorkspaceErrorCode::BadPattern, "{bad}");
        }
    }
}
