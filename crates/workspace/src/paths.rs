//! Converts a model's text to a path in the workspace, and back. Pure.

use coracle_types::ContainerPath;
use serde::Deserialize;

use crate::Code;
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

/// How the text of a call becomes a path.
#[derive(Clone, Debug, Default)]
pub struct PathRules {
    /// The characters that a path may have.
    pub charset: PathCharset,
    /// The directory that paths are relative to. `/workspace` names it too, whatever it is called.
    pub root: PathRoot,
}

/// The directory that paths are relative to.
#[derive(Clone, Debug, Default)]
pub enum PathRoot {
    /// `/workspace`. Other absolute paths are taken from it on.
    #[default]
    Workspace,
    /// The work directory of a container that has files elsewhere too: other absolute paths are refused.
    Directory(ContainerPath),
}

impl PathRoot {
    /// As messages call it.
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Workspace => WORKSPACE,
            Self::Directory(path) => path.as_str(),
        }
    }

    /// An absolute path from the root on; `None` for one that is not beneath it.
    pub(crate) fn strip<'a>(&self, text: &'a str) -> Option<&'a str> {
        let beneath = |root: &str| {
            let rest = text.strip_prefix(root.trim_end_matches('/'))?;
            (rest.is_empty() || rest.starts_with('/')).then_some(rest)
        };
        beneath(self.as_str()).or_else(|| beneath(WORKSPACE))
    }
}

/// The usual root.
const WORKSPACE: &str = "/workspace";

/// A path in the workspace, relative to it, its parts joined by `/`. The empty one is the workspace itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Path(String);

impl Path {
    /// Any place, also the workspace itself; that is what nothing means, too.
    pub(crate) fn directory(text: Option<&str>, rules: &PathRules) -> Result<Self> {
        parse(text.unwrap_or("/"), rules)
    }

    /// A place in the workspace.
    pub(crate) fn file(text: &str, rules: &PathRules) -> Result<Self> {
        if text.trim().is_empty() {
            return fail(Code::PathEmpty, "The path must not be empty.");
        }
        let path = parse(text, rules)?;
        if path.0.is_empty() {
            return fail(Code::PathEmpty, "The path must reference a file or directory.");
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

fn parse(text: &str, rules: &PathRules) -> Result<Path> {
    let text = text.trim();
    let segments = match (&rules.root, rules.root.strip(text)) {
        (PathRoot::Directory(_), Some(rest)) => segments(rest),
        (PathRoot::Directory(root), None) if text.starts_with('/') && text != "/" => {
            return fail(Code::PathEscape, format!("{text} is outside the work directory {root}."));
        }
        _ => {
            let mut segments = segments(text);
            if segments.first() == Some(&"workspace") {
                segments.remove(0);
            }
            segments
        }
    };
    for segment in &segments {
        check(segment, rules.charset)?;
    }
    if segments.len() > MAX_DEPTH {
        let message = format!("Path depth exceeds the allowed limit ({MAX_DEPTH} segments).");
        return fail(Code::PathDepth, message);
    }
    Ok(Path(segments.join("/")))
}

fn segments(text: &str) -> Vec<&str> {
    text.split('/').map(str::trim).filter(|it| !it.is_empty()).collect()
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
    let rules = PathRules { charset, root: PathRoot::Workspace };
    parse(&shown(path), &rules).is_ok_and(|it| it.0 == path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use coracle_types::ContainerPath;

    use super::{Path, PathCharset, PathRoot, PathRules, is_addressable, shown};
    use crate::Code;

    const ASCII: PathRules = PathRules { charset: PathCharset::Ascii, root: PathRoot::Workspace };
    const UTF8: PathRules = PathRules { charset: PathCharset::Utf8, root: PathRoot::Workspace };

    fn parsed(text: &str) -> Result<String, (Code, String)> {
        parsed_by(text, &ASCII)
    }

    fn parsed_by(text: &str, rules: &PathRules) -> Result<String, (Code, String)> {
        let path = Path::file(text, rules);
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
            ("", Code::PathEmpty, "The path must not be empty."),
            ("  ", Code::PathEmpty, "The path must not be empty."),
            ("/", Code::PathEmpty, "The path must reference a file or directory."),
            ("/workspace/", Code::PathEmpty, "The path must reference a file or directory."),
            ("a/../b", Code::PathDots, "Path segments may not include '.' or '..'."),
            ("./a", Code::PathDots, "Path segments may not include '.' or '..'."),
            ("ä", Code::PathCharset, "Path segment must be ASCII text."),
            ("a\0b", Code::PathCharset, "Path segment must be ASCII text."),
            (&long, Code::PathSegment, "Path segments must be 80 characters or fewer."),
            (&deep, Code::PathDepth, "Path depth exceeds the allowed limit (16 segments)."),
        ] {
            assert_eq!(parsed(text).unwrap_err(), (code, message.to_owned()), "{text:?}");
        }
        assert!(Path::file(&["a"; 16].join("/"), &ASCII).is_ok());
        assert!(Path::file("ä", &UTF8).is_ok());
        assert!(Path::file("a\0", &UTF8).is_err());
        assert!(Path::directory(None, &ASCII).unwrap().is_root());
    }

    #[test]
    fn of_a_container_with_other_directories_only_the_work_directory_is_meant() {
        let root = PathRoot::Directory(ContainerPath::parse("/home/agent/app").unwrap());
        let rules = PathRules { charset: PathCharset::Ascii, root };
        for same in ["a/b", "/home/agent/app/a/b", "/workspace/a/b", "workspace/a/b"] {
            assert_eq!(parsed_by(same, &rules).unwrap(), "a/b", "{same:?}");
        }
        assert_eq!(parsed_by("/workspace/workspace/a", &rules).unwrap(), "workspace/a");
        assert!(Path::directory(Some("/"), &rules).unwrap().is_root());
        for outside in ["/etc/passwd", "/home/agent/apple", "/workspaces/a"] {
            let (code, message) = parsed_by(outside, &rules).unwrap_err();
            assert_eq!(code, Code::PathEscape);
            assert_eq!(message, format!("{outside} is outside the work directory /home/agent/app."));
        }
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
        fn reported_paths_can_be_passed_back(path in "(workspace|[a-z.]{1,8})(/[a-z.]{1,8}){0,5}") {
            if let Ok(parsed) = super::parse(&format!("/workspace/{path}"), &ASCII) {
                prop_assert_eq!(super::parse(&shown(parsed.as_str()), &ASCII).unwrap(), parsed);
            }
        }
    }
}
