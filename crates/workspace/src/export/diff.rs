//! Changes as text that `git apply` and `patch` read.

use std::time::Duration;

use coracle_host::tree::DirHandle;
use coracle_runtime::Baseline;
use coracle_types::Result;
use serde::Serialize;
use similar::TextDiff;

use super::changes::{Change, ChangeKind, Changes};
use super::{fetch, host_files};
use crate::GuestFs;

/// Files of more bytes are named only.
const MOST: u64 = 2 << 20;

/// And what comes after so much text.
const MOST_TEXT: usize = 16 << 20;

/// What is compared for longer is shown as replaced altogether.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileDiff {
    /// Its path in the workspace.
    pub path: String,
    /// How.
    pub change: ChangeKind,
    /// What is text is not in it.
    pub binary: bool,
    /// The whole difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// Why there is no difference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<&'static str>,
}

/// Compares every file that changed with what was copied in. That is stored only on the host, so where the host's
/// file is another one by now, the difference is not known.
///
/// # Errors
/// Those of the link.
pub async fn diff(files: &GuestFs, baseline: &Baseline, changes: &Changes) -> Result<Vec<FileDiff>> {
    let trees = baseline.mounts.iter().map(|it| host_files::tree(it).ok()).collect();
    let copied = ImportedFiles { baseline, trees };
    let (mut diffs, mut shown) = (Vec::new(), 0);
    for change in &changes.files {
        let compared = if shown > MOST_TEXT {
            Comparison::Unknown("there is too much to show")
        } else {
            compare(files, &copied, change).await?
        };
        let file = FileDiff { path: change.path.clone(), change: change.kind(), binary: false, diff: None, note: None };
        let file = match compared {
            Comparison::Text(text) => FileDiff { diff: Some(text), ..file },
            Comparison::Binary(text) => FileDiff { diff: Some(text), binary: true, ..file },
            Comparison::Unknown(note) => FileDiff { note: Some(note), ..file },
        };
        shown += file.diff.as_ref().map_or(0, String::len);
        diffs.push(file);
    }
    Ok(diffs)
}

enum Comparison {
    Text(String),
    Binary(String),
    Unknown(&'static str),
}

/// The imported files, and the host directories that still hold them.
struct ImportedFiles<'a> {
    baseline: &'a Baseline,
    trees: Vec<Option<DirHandle>>,
}

impl ImportedFiles<'_> {
    /// The content that was copied in, if the host's file still has it.
    fn content(&self, path: &str, sha256: &str) -> Option<Vec<u8>> {
        let (index, inner) = self.baseline.mount_of(path)?;
        host_files::content(self.trees.get(index)?.as_ref()?, inner, sha256, MOST)
    }
}

async fn compare(files: &GuestFs, copied: &ImportedFiles<'_>, change: &Change) -> Result<Comparison> {
    let large = |size: Option<u64>| size.is_some_and(|it| it > MOST);
    if large(change.old.as_ref().map(|it| it.size)) || large(change.new.as_ref().map(|it| it.size)) {
        return Ok(Comparison::Unknown("it is too large to show"));
    }
    if same_content(change) {
        return Ok(Comparison::Text(head(change)));
    }
    let old = match &change.old {
        None => Vec::new(),
        Some(old) => match copied.content(&change.path, &old.sha256) {
            Some(old) => old,
            None => return Ok(Comparison::Unknown("the host's file is not the one that was copied in any more")),
        },
    };
    let new = match &change.new {
        None => Vec::new(),
        Some(_) => match fetch::read(files, &change.path, MOST).await {
            Ok(Some(new)) => new,
            Ok(None) => return Ok(Comparison::Unknown("it is too large to show")),
            Err(coracle_types::Error::Refused(_)) => return Ok(Comparison::Unknown("it changes meanwhile")),
            Err(err) => return Err(err),
        },
    };
    Ok(unified(change, &old, &new))
}

fn same_content(change: &Change) -> bool {
    matches!((&change.old, &change.new), (Some(old), Some(new)) if old.sha256 == new.sha256)
}

fn unified(change: &Change, old: &[u8], new: &[u8]) -> Comparison {
    let text = |it: &[u8]| str::from_utf8(it).ok().filter(|it| !it.contains('\0')).map(str::to_owned);
    let (from, to) = names(change);
    let head = head(change);
    let (Some(old), Some(new)) = (text(old), text(new)) else {
        return Comparison::Binary(format!("{head}Binary files {from} and {to} differ\n"));
    };
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(&old, &new);
    Comparison::Text(format!("{head}{}", diff.unified_diff().context_radius(3).header(&from, &to)))
}

fn names(change: &Change) -> (String, String) {
    let name = |side: &str, there: bool| {
        if there { quoted(&format!("{side}/{}", change.path)) } else { "/dev/null".to_owned() }
    };
    (name("a", change.old.is_some()), name("b", change.new.is_some()))
}

/// The lines before the first hunk.
fn head(change: &Change) -> String {
    let (from, to) = (quoted(&format!("a/{}", change.path)), quoted(&format!("b/{}", change.path)));
    let mode = |bits: u32| if bits & 0o111 == 0 { "100644" } else { "100755" };
    let modes = match (&change.old, &change.new) {
        (None, Some(new)) => format!("new file mode {}\n", mode(new.mode)),
        (Some(old), None) => format!("deleted file mode {}\n", mode(old.mode)),
        (Some(old), Some(new)) if mode(old.mode) != mode(new.mode) => {
            format!("old mode {}\nnew mode {}\n", mode(old.mode), mode(new.mode))
        }
        _ => String::new(),
    };
    format!("diff --git {from} {to}\n{modes}")
}

/// A name as git writes it: one line, whatever is in it.
fn quoted(name: &str) -> String {
    let odd = |it: char| it.is_control() || it == '"' || it == '\\';
    if !name.contains(odd) {
        return name.to_owned();
    }
    let mut quoted = String::from("\"");
    for one in name.chars() {
        match one {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '"' | '\\' => quoted.extend(['\\', one]),
            one if one.is_control() => {
                one.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| quoted.push_str(&format!("\\{byte:03o}")));
            }
            one => quoted.push(one),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use coracle_runtime::BaselineFile;
    use insta::assert_snapshot;

    use super::*;

    fn shown(path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> String {
        let file = |bytes: &[u8], mode| BaselineFile { sha256: hex::encode(bytes), mode, size: bytes.len() as u64 };
        let change =
            Change { path: path.into(), old: old.map(|it| file(it, 0o644)), new: new.map(|it| file(it, 0o755)) };
        match unified(&change, old.unwrap_or_default(), new.unwrap_or_default()) {
            Comparison::Text(text) | Comparison::Binary(text) => text,
            Comparison::Unknown(note) => note.into(),
        }
    }

    #[test]
    fn a_change_is_shown_as_git_shows_it() {
        assert_snapshot!(shown("a\n\".py", Some(b"one\ntwo"), Some(b"one\ntwo\nthree\n")), @r#"
        diff --git "a/a\n\".py" "b/a\n\".py"
        old mode 100644
        new mode 100755
        --- "a/a\n\".py"
        +++ "b/a\n\".py"
        @@ -1,2 +1,3 @@
         one
        -two
        \ No newline at end of file
        +two
        +three
        "#);
        assert_snapshot!(shown("x", None, Some(b"\0")), @r"
        diff --git a/x b/x
        new file mode 100755
        Binary files /dev/null and b/x differ
        ");
        assert_snapshot!(shown("x", Some(b"a\n"), None), @r"
        diff --git a/x b/x
        deleted file mode 100644
        --- a/x
        +++ /dev/null
        @@ -1 +0,0 @@
        -a
        ");
    }
}
