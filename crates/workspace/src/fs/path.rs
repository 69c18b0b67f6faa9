//! Resolves a program's text to a path from the root. Pure.

use coracle_types::ContainerPath;

use super::{FsError, Result};
use crate::paths::{MAX_DEPTH, MAX_SEGMENT};

/// Folds `.` and `..`. The root is the empty text.
pub(super) fn folded(root: &ContainerPath, text: &str) -> Result<String> {
    if text.contains('\0') {
        return Err(FsError::invalid(text, "has a NUL"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in below(root, text).split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return Err(FsError::Escape(text.to_owned())),
            ".." => {}
            part => parts.push(part),
        }
    }
    if parts.len() > MAX_DEPTH {
        return Err(FsError::invalid(text, format!("has more than {MAX_DEPTH} segments")));
    }
    if parts.iter().any(|it| it.chars().count() > MAX_SEGMENT) {
        return Err(FsError::invalid(text, format!("has a segment of more than {MAX_SEGMENT} characters")));
    }
    Ok(parts.join("/"))
}

/// An absolute path in the container is taken from the root on, any other as it is.
fn below<'a>(root: &ContainerPath, text: &'a str) -> &'a str {
    match text.strip_prefix(root.as_str()) {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => rest,
        _ => text,
    }
}

/// Whether a reported path can be passed back.
pub(super) fn is_addressable(root: &ContainerPath, path: &str) -> bool {
    folded(root, path).is_ok_and(|it| it == path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fold(text: &str) -> Result<String> {
        folded(&ContainerPath::parse("/workspace").unwrap(), text)
    }

    #[test]
    fn what_a_program_writes_is_one_path_or_one_error() {
        for (text, path) in [
            ("a/b", "a/b"),
            ("/a//b/", "a/b"),
            ("/workspace/a/b", "a/b"),
            ("/workspace", ""),
            ("", ""),
            (".", ""),
            ("a/..", ""),
            ("a/./c/../b", "a/b"),
            ("workspace/a", "workspace/a"),
            ("/workspace/workspace/a", "workspace/a"),
            ("/workspaces/a", "workspaces/a"),
            (" ä/😀\n", " ä/😀\n"),
        ] {
            assert_eq!(fold(text).unwrap(), path, "{text:?}");
        }
        for text in ["..", "a/../..", "/../etc", "/workspace/../etc/passwd"] {
            assert!(matches!(fold(text), Err(FsError::Escape(_))), "{text:?}");
        }
        let (deep, long) = (["a"; 17].join("/"), "ä".repeat(81));
        for text in ["a\0b", &deep, &long] {
            assert!(matches!(fold(text), Err(FsError::Invalid { .. })), "{text:?}");
        }
        assert!(fold(&["a"; 16].join("/")).is_ok() && fold(&"ä".repeat(80)).is_ok());
        // What is folded away counts for nothing.
        assert_eq!(fold(&format!("{long}/../a")).unwrap(), "a");
    }

    proptest! {
        #[test]
        fn what_is_folded_never_climbs_and_stays(text in "[/.aä ]{0,20}") {
            if let Ok(path) = fold(&text) {
                prop_assert!(path.is_empty() || path.split('/').all(|it| !matches!(it, "" | "." | "..")));
                prop_assert_eq!(fold(&path).unwrap(), path);
            }
        }
    }
}
