//! Reads what git prints. Inside a container it may print anything.

use std::collections::BTreeMap;

use coracle_lifecycle::is_object_id;
use coracle_types::failure::{Failure, Result};
use serde::Serialize;

/// For [`refs_and_head`].
pub(crate) const WITH_SYMREF: &str = "--format=%(objectname) %(refname) %(symref)";

/// A file in a comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileChange {
    /// Its name in the worktree; what is no text in it became U+FFFD.
    pub path: String,
    /// `added`, `modified`, `deleted`, or `type_changed`.
    pub status: &'static str,
    /// Lines that came; 0 for a binary file.
    pub additions: u64,
    /// Lines that went; 0 for a binary file.
    pub deletions: u64,
    /// It is no text.
    pub binary: bool,
}

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFile {
    /// Its path in the repository.
    pub path: String,
    /// Its id, which is a sum over its content.
    pub oid: String,
    /// What it is.
    pub kind: CommitFileKind,
    /// Its length.
    pub size: u64,
}

/// What lies at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitFileKind {
    /// A file.
    File,
    /// A program.
    Program,
    /// A symbolic link.
    Link,
}

/// An id of an object: SHA-1 or SHA-256 in hex.
pub(crate) fn oid(text: &str) -> Option<&str> {
    Some(text.trim()).filter(|it| is_object_id(it))
}

/// Part of a commit's id, long enough to be one.
pub(crate) fn hexadecimal(text: &str) -> Option<&str> {
    let fits = (7..=64).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit());
    fits.then_some(text).filter(|it| it.len() < 40 || oid(it).is_some())
}

/// `<oid> <name>` a line.
pub(crate) fn refs(output: &[u8]) -> Vec<(String, String)> {
    let lines = output.split(|it| *it == b'\n').filter_map(|it| std::str::from_utf8(it).ok()?.split_once(' '));
    lines.filter_map(|(id, name)| Some((oid(id)?.to_owned(), name.to_owned()))).collect()
}

/// What `for-each-ref` prints for [`WITH_SYMREF`]: ids by name, and what the first symbolic one stands for.
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

/// What `ls-tree -r -z --long` prints. Names that are no text, and submodules, are left out.
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

/// The branch that `ls-remote --symref` says HEAD is.
pub(crate) fn head_branch(output: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().find_map(|it| it.strip_prefix("ref: refs/heads/")?.strip_suffix("\tHEAD"))?;
    coracle_host::branch::BranchName::parse(line).ok().map(|it| it.as_str().to_owned())
}

/// Whether `ls-remote` prints a commit that HEAD is.
pub(crate) fn has_head(output: &[u8]) -> bool {
    output.split(|it| *it == b'\n').any(|line| line.ends_with(b"\tHEAD") && !line.starts_with(b"ref: "))
}

/// Whether the objects that `ls-remote` prints have SHA-256 names.
pub(crate) fn is_sha256(output: &[u8]) -> bool {
    let text = String::from_utf8_lossy(output);
    text.lines().filter_map(|line| oid(line.split_once('\t')?.0)).any(|id| id.len() == 64)
}

/// The branches that `ls-remote` prints, by name.
pub(crate) fn heads(output: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(output);
    let head = |line: &str| {
        let (id, name) = line.split_once('\t')?;
        Some((name.strip_prefix("refs/heads/")?.to_owned(), oid(id)?.to_owned()))
    };
    text.lines().filter_map(head).collect()
}

/// Directories that `ls-files -s -z` names as repositories of their own.
pub(crate) fn gitlinks(output: &[u8]) -> Vec<String> {
    let records = output.split(|it| *it == 0).filter_map(|it| it.strip_prefix(b"160000 "));
    let names = records.filter_map(|it| it.splitn(2, |it| *it == b'\t').nth(1));
    names.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

/// What `diff-index -z --raw --numstat` prints: first a record and a name for each file, then its numbers.
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

/// Cuts a patch behind the last file that fits, and counts the files in it.
pub(crate) fn whole_files(patch: &[u8], cut: bool) -> (&[u8], usize) {
    const BEGINS: &[u8] = b"diff --git ";
    let starts = |at: &usize| patch[*at..].starts_with(BEGINS) && (*at == 0 || patch[*at - 1] == b'\n');
    let files: Vec<usize> = (0..patch.len()).filter(starts).collect();
    match (cut, files.last()) {
        (true, Some(last)) => (&patch[..*last], files.len() - 1),
        _ => (patch, files.len()),
    }
}

/// Commit and name of the one reference of a bundle, and where its pack begins.
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

/// A flag of `push --porcelain` for our one ref, and what is said of it.
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
    fn a_comparison_is_read_whatever_its_names() {
        let told = b":000000 100644 0 1 A\0a b\0:100644 100644 1 2 M\0:x\ty\0:100644 000000 1 0 D\0\xff\0\
            3\t0\ta b\0-\t-\t:x\ty\x000\t7\t\xff\0";
        let found = changes(told).unwrap();
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
    fn repositories_within_are_found() {
        let told = b"100644 0 0\ta\x00160000 0 0\tsub/b\tc\0";
        assert_eq!(gitlinks(told), ["sub/b\tc"]);
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
    fn references_and_the_symbolic_one_are_told_apart() {
        let id = "0".repeat(40);
        let told = format!("{id} refs/a \n{id} refs/HEAD refs/a\nnonsense refs/b \n{id} refs/c/d \n");
        let (found, head) = refs_and_head(told.as_bytes());
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["refs/a", "refs/c/d"]);
        assert_eq!(head.as_deref(), Some("refs/a"));
    }

    #[test]
    fn what_became_of_a_push_is_read() {
        let told = b"To https://e.com/r\n*\t0123:refs/heads/coracle/x\t[new branch]\nDone\n";
        assert_eq!(pushed(told), Some(('*', "[new branch]".into())));
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
        let told = format!(
            "ref: refs/heads/a/b\tHEAD\n{id}\tHEAD\n{id}\trefs/heads/a/b\n{id}\trefs/tags/v1\nx\trefs/heads/c\n"
        );
        assert_eq!(heads(told.as_bytes()), [("a/b".to_owned(), id)].into());
        for bad in ["", "00\tHEAD", "ref: refs/tags/x\tHEAD", "ref: refs/heads/--x\tHEAD", "ref: refs/heads/a..b\tHEAD"]
        {
            assert_eq!(head_branch(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_git_prints_panics(told in proptest::collection::vec(0_u8..128, 0..200)) {
            let _ = changes(&told);
            let _ = (refs(&told), head_branch(&told), heads(&told), pushed(&told));
            let (kept, _) = whole_files(&told, true);
            proptest::prop_assert!(told.starts_with(kept));
        }
    }
}
