//! Converts a model's text to a path in the workspace, and back (workspace.md 2.1). Pure.

use crate::Code;
use serde::Deserialize;

use crate::response::{Result, fail};

/// Parts of a path, at most.
pub(crate) const MAX_DEPTH: usize = 16;

/// Characters of a part, at most.
pub(crate) const MAX_SEGMENT: usize = 80;

/// The characters that a path may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathCharset {
    /// ASCII only.
    #[default]
    Ascii,
    /// All but NUL.
    Utf8,
}

/// A path in the workspace, relative to it, its parts joined by `/`. The empty one is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    /// Any place, also the workspace itself; that is what nothing means, too.
    pub(crate) fn directory(text: Option<&str>, charset: PathCharset) -> Result<Self> {
        parse(text.unwrap_or("/"), charset)
    }

    /// A place in the workspace.
    pub(crate) fn file(field: &str, text: &str, charset: PathCharset) -> Result<Self> {
        if text.trim().is_empty() {
            return fail(Code::PathEmpty, format!("{field} must not be empty."));
        }
        let path = parse(text, charset)?;
        if path.0.is_empty() {
            return fail(Code::PathEmpty, format!("{field} must reference a file or directory."));
        }
        Ok(path)
    }

    pub(crate) fn root() -> Self {
        Self(String::new())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

fn parse(text: &str, charset: PathCharset) -> Result<Path> {
    let text = text.trim().trim_start_matches('/');
    let mut segments: Vec<&str> = text.split('/').map(str::trim).filter(|it| !it.is_empty()).collect();
    if segments.first() == Some(&"workspace") {
        segments.remove(0);
    }
    for segment in &segments {
        check(segment, charset)?;
    }
    if segments.len() > MAX_DEPTH {
        let message = format!("Path depth exceeds the allowed limit ({MAX_DEPTH} segments).");
        return fail(Code::PathDepth, message);
    }
    Ok(Path(segments.join("/")))
}

fn check(segment: &str, charset: PathCharset) -> Result<()> {
    if segment == "." || segment == ".." {
        return fail(Code::PathDots, "Path segments may not include '.' or '..'.");
    }
    if segment.contains('\0') || (charset == PathCharset::Ascii && !segment.is_ascii()) {
        return fail(Code::PathCharset, "Path segment must be ASCII text.");
    }
    if segment.chars().count() > MAX_SEGMENT {
        let message = format!("Path segments must be {MAX_SEGMENT} characters or fewer.");
        return fail(Code::PathSegment, message);
    }
    Ok(())
}

/// A path in an answer, in the form that can be passed back.
pub(crate) fn shown(path: &str) -> String {
    match path.split('/').next() {
        Some("") | None => "/".to_owned(),
        Some("workspace") => format!("/workspace/{path}"),
        _ => path.to_owned(),
    }
}

/// Whether a reported path can be passed back.
pub(crate) fn is_addressable(path: &str, charset: PathCharset) -> bool {
    parse(&shown(path), charset).is_ok_and(|it| it.0 == path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Path, PathCharset, is_addressable, shown};
    use crate::Code;

    fn parsed(text: &str) -> Result<String, (Code, String)> {
        let path = Path::file("path", text, PathCharset::Ascii);
        path.map(|it| it.as_str().to_owned()).map_err(|it| (it.code, it.message))
    }

    #[test]
    fn w26_what_a_model_writes_is_one_path_or_one_message() {
        for same in ["a/b", "/a/b", "workspace/a/b", "/workspace/a//b/", "  /workspace/ a / b "] {
            assert_eq!(parsed(same).unwrap(), "a/b", "{same:?}");
        }
        assert_eq!(parsed("/workspace/workspace/a").unwrap(), "workspace/a");
        let (deep, long) = (["a"; 17].join("/"), "a".repeat(81));
        for (text, code, message) in [
            ("", Code::PathEmpty, "path must not be empty."),
            ("  ", Code::PathEmpty, "path must not be empty."),
            ("/", Code::PathEmpty, "path must reference a file or directory."),
            ("/workspace/", Code::PathEmpty, "path must reference a file or directory."),
            ("a/../b", Code::PathDots, "Path segments may not include '.' or '..'."),
            ("./a", Code::PathDots, "Path segments may not include '.' or '..'."),
            ("ä", Code::PathCharset, "Path segment must be ASCII text."),
            ("a\0b", Code::PathCharset, "Path segment must be ASCII text."),
            (&long, Code::PathSegment, "Path segments must be 80 characters or fewer."),
            (&deep, Code::PathDepth, "Path depth exceeds the allowed limit (16 segments)."),
        ] {
            assert_eq!(parsed(text).unwrap_err(), (code, message.to_owned()), "{text:?}");
        }
        assert!(Path::file("path", &["a"; 16].join("/"), PathCharset::Ascii).is_ok());
        assert!(Path::file("path", "ä", PathCharset::Utf8).is_ok());
        assert!(Path::file("path", "a\0", PathCharset::Utf8).is_err());
        assert!(Path::directory(None, PathCharset::Ascii).unwrap().is_root());
    }

    #[test]
    fn what_the_rules_cannot_say_is_not_addressable() {
        for (path, is) in [("a", true), ("workspace/a", true), (" a", false), ("ä", false), ("a\nb", true), ("", true)]
        {
            assert_eq!(is_addressable(path, PathCharset::Ascii), is, "{path:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_told_can_be_passed_back(path in "(workspace|[a-z.]{1,8})(/[a-z.]{1,8}){0,5}") {
            if let Ok(parsed) = super::parse(&format!("/workspace/{path}"), PathCharset::Ascii) {
                prop_assert_eq!(super::parse(&shown(parsed.as_str()), PathCharset::Ascii).unwrap(), parsed);
            }
        }
    }
}
