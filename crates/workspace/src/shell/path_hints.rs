//! Files that a program reports as changed.

use crate::paths::{Path, PathCharset, PathRoot, PathRules};

/// Lines at the end of an output that are looked at.
const LINES: usize = 64;

/// Hints that are taken.
const MAX_HINTS: usize = 256;

/// Prefix of a line that names a file.
const PREFIX: &str = "FILE_CHANGE: ";

/// The files named in the last lines of an output: by its tail, or by its head when that is all of it. What is no path of a
/// workspace is left out; the others are only looked at.
pub(super) fn parse(tail: &[u8], head: &[u8], root: &PathRoot) -> Vec<String> {
    let text = String::from_utf8_lossy(if tail.is_empty() { head } else { tail }).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    let named = last.iter().filter_map(|it| it.trim_end().strip_prefix(PREFIX));
    let rules = PathRules { charset: PathCharset::Utf8, root: root.clone() };
    let paths = named.filter_map(|it| Path::file(it, &rules).ok());
    paths.map(|it| it.as_str().to_owned()).take(MAX_HINTS).collect()
}

#[cfg(test)]
mod tests {
    use super::{PathRoot, parse};

    #[test]
    fn w40_only_paths_of_the_workspace_are_hints() {
        let output =
            "x\nFILE_CHANGE: ../../etc/passwd\nFILE_CHANGE: nope\n FILE_CHANGE: no\nFILE_CHANGE: /workspace/a b\r\n";
        assert_eq!(parse(&[], output.as_bytes(), &PathRoot::Workspace), ["nope", "a b"]);
        let early = format!("FILE_CHANGE: early\n{}", "x\n".repeat(64));
        assert!(parse(early.as_bytes(), b"", &PathRoot::Workspace).is_empty());
    }
}
