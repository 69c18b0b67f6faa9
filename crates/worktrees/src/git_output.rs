//! Parses the output of git, which is not trusted if git runs in a container.

use std::collections::BTreeMap;

use coracle_lifecycle::is_object_id;
use coracle_types::failure::{Failure, Result};
use serde::Serialize;

/// For [`refs_and_head`].
pub(crate) const WITH_SYMREF: &str = "--format=%(objectname) %(refname) %(symref)";

/// A file in a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its name in the worktree, with U+FFFD for bytes that are not UTF-8.
    pub path: String,
    /// `added`, `modified`, `deleted`, or `type_changed`.
    pub status: &'static str,
    /// Added lines; 0 for a binary file.
    pub additions: u64,
    /// Deleted lines; 0 for a binary file.
    pub deletions: u64,
    /// It is not a text file.
    pub binary: bool,
}

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFile {
    /// Its path in the repository.
    pub path: String,
    /// The id of its object, which is a digest of its content.
    pub oid: String,
    /// What it is.
    pub kind: CommitFileKind,
    /// Its size.
    pub size: u64,
}

/// The kind of a file in a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFileKind {
    /// A file.
    File,
    /// An executable file.
    Program,
    /// A symbolic link.
    Link,
}

/// Accepts an object id: SHA-1 or SHA-256 in hex.
pub(crate) fn oid(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|it| is_object_id(it))
}

/// Accepts a part of a commit's id that is long enough.
pub(crate) fn hexadecimal(text: &str) -> Option<&str> {
    let fits = (7..=64).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit());
    fits.then_some(text).filter(|it| it.len() < 40 || oid(it).is_some())
}

/// Parses lines `<oid> <name>`.
pub(crate) fn refs(output: &[u8]) -> Vec<(String, String)> {
    let lines = output.split(|it| *it == b'\n').filter_map(|it| std::str::from_utf8(it).ok()?.split_once(' '));
    lines.filter_map(|(id, name)| Some((oid(id)?.to_owned(), name.to_owned()))).collect()
}

/// Parses the output of `for-each-ref` for [`WITH_SYMREF`]: ids by name, and the target of the first symbolic one.
pub(crate) fn refs_and_head(output: &[u8]) -> (BTreeMap<String, String>, Option<String>) {
    let (mut found, mut head) = (BTreeMap::new(), None);
    for (id, rest) in refs(output) {
        match rest.split_once(' ') {
            Some((name, "")) => drop(found.insert(name.to_owned(), id)),
            Some((_, symref)) => head = Some(symref.to_owned()),
            None => drop(found.insert(rest, id)),
        }
    }
    (found, head)
}

/// Parses the output of `ls-tree -r -z --long`. Leaves out submodules, and names that are not UTF-8.
pub(crate) fn tree(output: &[u8]) -> Vec<CommitFile> {
    let read = |record: &[u8]| {
        let (meta, path) = std::str::from_utf8(record).ok()?.split_once('\t')?;
        let mut fields = meta.split_ascii_whitespace();
        let kind = match (fields.next()?, fields.next()?) {
            ("100755", "blob") => CommitFileKind::Program,
            ("120000", "blob") => CommitFileKind::Link,
            (_, "blob") => CommitFileKind::File,
            _ => return None,
        };
        let (id, size) = (oid(fields.next()?)?.to_owned(), fields.next()?.parse().ok()?);
        Some(CommitFile { path: path.to_owned(), oid: id, kind, size })
    };
    output.split(|it| *it == 0).filter_map(read).collect()
}

/// Returns the branch of HEAD in the output of `ls-remote --symref`.
pub(crate) fn head_branch(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find_map(|it| it.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"))?;
    coracle_host::branch::BranchName::parse(line).ok().map(|it| it.as_str().to_owned())
}

/// Whether the output of `ls-remote` contains a commit for HEAD.
pub(crate) fn has_head(output: &[u8]) -> bool {
    output.split(|it| *it == b'\n').any(|line| line.ends_with(b"\tHEAD") && !line.starts_with(b"ref: "))
}

/// Whether the object ids in the output of `ls-remote` are SHA-256.
pub(crate) fn is_sha256(output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(output);
    text.lines().filter_map(|line| oid(line.split_once('\t')?.0)).any(|id| id.len() == 64)
}

/// Returns the branches in the output of `ls-remote`, by name.
pub(crate) fn heads(output: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(output);
    let head = |line: &str| {
        let (id, name) = line.split_once('\t')?;
        Some((name.strip_prefix("refs/heads/")?.to_owned(), oid(id)?.to_owned()))
    };
    text.lines().filter_map(head).collect()
}

/// Returns directories in the output of `ls-files -s -z` that are repositories.
pub(crate) fn gitlinks(output: &[u8]) -> Vec<String> {
    let records = output.split(|it| *it == 0).filter_map(|it| it.strip_prefix(b"160000 "));
    let names = records.filter_map(|record| record.splitn(2, |it| *it == b'\t').nth(1));
    names.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

/// Parses the output of `diff-index -z --raw --numstat`: first a record and a name for each file, then its numbers.
pub(crate) fn changes(output: &[u8]) -> Result<Vec<FileChange>> {
    let odd = || Failure::internal("git inside printed a comparison that cannot be read");
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    let mut files: Vec<FileChange> = Vec::new();
    let mut parts = output.split(|it| *it == 0).filter(|it| !it.is_empty());
    let mut at = 0;
    while let Some(part) = parts.next() {
        if let Some(record) = part.strip_prefix(b":") {
            let status = match record.rsplit(|it| *it == b' ').next().and_then(<[u8]>::first) {
                Some(b'A') => "added",
                Some(b'D') => "deleted",
                Some(b'T') => "type_changed",
                Some(b'M' | b'U') => "modified",
                _ => return Err(odd()),
            };
            let path = text(parts.next().ok_or_else(odd)?);
            files.push(FileChange { path, status, additions: 0, deletions: 0, binary: false });
            continue;
        }
        let mut fields = part.splitn(3, |it| *it == b'\t');
        let (Some(added), Some(deleted), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            return Err(odd());
        };
        let file = files.get_mut(at).filter(|it| it.path == text(name)).ok_or_else(odd)?;
        at += 1;
        file.binary = added == b"-";
        let number = |it: &[u8]| std::str::from_utf8(it).ok().and_then(|it| it.parse().ok()).unwrap_or(0);
        (file.additions, file.deletions) = (number(added), number(deleted));
    }
    Ok(files)
}

/// Truncates a patch after the last file that fits, and counts the files in it.
pub(crate) fn whole_files(patch: &[u8], cut: bool) -> (&[u8], usize) {
    const BEGINS: &[u8] = b"diff --git ";
    let starts = |at: &usize| patch[*at..].starts_with(BEGINS) && (*at == 0 || patch[*at - 1] == b'\n');
    let files: Vec<usize> = (0..patch.len()).filter(starts).collect();
    match (cut, files.last()) {
        (true, Some(last)) => (&patch[..*last], files.len() - 1),
        _ => (patch, files.len()),
    }
}

/// Returns commit and name of a bundle's only reference, and the offset of its pack.
pub(crate) fn bundle_head(begins: &[u8]) -> Option<(String, String, usize)> {
    let ends = begins.windows(2).position(|it| it == b"\n\n")? + 2;
    let text = std::str::from_utf8(&begins[..ends - 2]).ok()?;
    let mut lines = text.lines();
    let version = lines.next()?;
    let mut found = None;
    for line in lines {
        match line.as_bytes().first()? {
            b'-' => drop(oid(line[1..].split(' ').next()?)?),
            b'@' if version == "# v3 git bundle" && line == "@object-format=sha1" => {}
            _ if found.is_none() => {
                let (id, name) = line.split_once(' ')?;
                found = Some((oid(id)?.to_owned(), name.to_owned()));
            }
            _ => return None,
        }
    }
    let known = matches!(version, "# v2 git bundle" | "# v3 git bundle");
    found.filter(|_| known).map(|(id, name)| (id, name, ends))
}

/// Parses the output of `push --porcelain` for the pushed ref: its flag and its message.
pub(crate) fn pushed(output: &[u8]) -> Option<(char, String)> {
    let text = String::from_utf8_lossy(output);
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, '\t');
        let flag = fields.next().filter(|it| it.chars().count() == 1)?.chars().next()?;
        let _refs = fields.next().filter(|it| it.contains(':'))?;
        Some((flag, fields.next()?.to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_hexadecimal() {
        assert_eq!(hexadecimal("0123abc"), Some("0123abc"));
        for bad in ["main", "0123ab", "0123abg", &"0".repeat(41)] {
            assert_eq!(hexadecimal(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_comparison_is_parsed_with_any_names() {
        let printed = b":000000 100644 0 1 A\0a b\0:100644 100644 1 2 M\0:x\ty\0:100644 000000 1 0 D\0\xff\0\
            3\t0\ta b\0-\t-\t:x\ty\x000\t7\t\xff\0";
        let found = changes(printed).unwrap();
        let seen: Vec<_> =
            found.iter().map(|it| (&*it.path, it.status, it.additions, it.deletions, it.binary)).collect();
        let expected =
            [("a b", "added", 3, 0, false), (":x\ty", "modified", 0, 0, true), ("\u{fffd}", "deleted", 0, 7, false)];
        assert_eq!(seen, expected);
        for bad in [&b"3\t0\ta"[..], b":x\0a\0", b"nonsense", b":1 2 3 4 M"] {
            assert!(changes(bad).is_err(), "{bad:?}");
        }
        assert_eq!(changes(b"").unwrap(), []);
    }

    #[test]
    fn nested_repositories_are_found() {
        let printed = b"100644 0 0\ta\x00160000 0 0\tsub/b\tc\0";
        assert_eq!(gitlinks(printed), ["sub/b\tc"]);
    }

    #[test]
    fn a_patch_is_cut_between_files() {
        let patch = b"diff --git a/a b/a\n+diff --git \ndiff --git a/b b/b\n+x\n";
        assert_eq!(whole_files(patch, false), (&patch[..], 2));
        assert_eq!(whole_files(patch, true), (&patch[..32], 1));
        assert_eq!(whole_files(b"diff --git a", true), (&b""[..], 0));
        assert_eq!(whole_files(b"", true), (&b""[..], 0));
    }

    #[test]
    fn references_and_the_symbolic_one_are_separate() {
        let id = "0".repeat(40);
        let printed = format!("{id} refs/a \n{id} refs/HEAD refs/a\nnonsense refs/b \n{id} refs/c/d \n");
        let (found, head) = refs_and_head(printed.as_bytes());
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["refs/a", "refs/c/d"]);
        assert_eq!(head.as_deref(), Some("refs/a"));
    }

    #[test]
    fn the_result_of_a_push_is_parsed() {
        let printed = b"To https://e.com/r\n*\t0123:refs/heads/coracle/x\t[new branch]\nDone\n";
        assert_eq!(pushed(printed), Some(('*', "[new branch]".into())));
        assert_eq!(pushed(b"To x\n!\ta:b\t[rejected] (fetch first)\n").unwrap().0, '!');
        assert_eq!(pushed(b"To x\nDone\n"), None);
    }

    #[test]
    fn a_bundle_has_one_reference_and_no_filter() {
        let id = "0".repeat(40);
        let head = |lines: &str| bundle_head(format!("{lines}\n\nPACK").replace("ID", &id).as_bytes());
        let (_, name, at) = head("# v2 git bundle\n-ID Subject\nID refs/heads/x").unwrap();
        assert_eq!((name.as_str(), at), ("refs/heads/x", 16 + 50 + 54 + 1));
        assert!(head("# v3 git bundle\n@object-format=sha1\nID refs/heads/x").is_some());
        let bad = [
            "",
            "# v2 git bundle",
            "# v2 git bundle\nID a\nID b",
            "# v3 git bundle\n@filter=blob:none\nID a",
            "x\nID a",
        ];
        for it in bad.into_iter().chain(["# v2 git bundle\n-x\nID a", "# v2 git bundle\nxx a"]) {
            assert_eq!(head(it), None, "{it}");
        }
    }

    #[test]
    fn the_head_of_a_remote_is_a_branch_or_nothing() {
        assert_eq!(head_branch(b"ref: refs/heads/trunk\tHEAD\n00\tHEAD\n").as_deref(), Some("trunk"));
        let id = "a".repeat(40);
        let printed = format!(
            "ref: refs/heads/a/b\tHEAD\n{id}\tHEAD\n{id}\trefs/heads/a/b\n{id}\trefs/tags/v1\nx\trefs/heads/c\n"
        );
        assert_eq!(heads(printed.as_bytes()), [("a/b".to_owned(), id)].into());
        for bad in ["", "00\tHEAD", "ref: refs/tags/x\tHEAD", "ref: refs/heads/--x\tHEAD", "ref: refs/heads/a..b\tHEAD"]
        {
            assert_eq!(head_branch(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_git_prints_panics(printed in proptest::collection::vec(0_u8..128, 0..200)) {
            let _ = changes(&printed);
            let _ = (refs(&printed), head_branch(&printed), heads(&printed), pushed(&printed));
            let (cut, _) = whole_files(&printed, true);
            proptest::prop_assert!(printed.starts_with(cut));
        }
    }
}
