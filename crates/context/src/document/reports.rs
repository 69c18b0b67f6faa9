//! Renders reports of other crates.

use coracle_worktrees::changes::{ApplyReport, Diff, FileChange, PushReport};
use jiff::Timestamp;

use super::{Document, Render, StyledText};
use crate::humanize::count;

impl Render for ApplyReport {
    fn render(&self, _: Timestamp) -> Document {
        let to = format!(" in {}", self.to.display());
        let line = match (&self.branch, self.files.len() as u64) {
            (Some(branch), _) => StyledText::new().good(format!("branch {branch}")).plain(format!(" is{to}")),
            (None, 0) => "nothing changed".into(),
            (None, files) => StyledText::new().good(format!("{} changed", count(files, "file", "files"))).plain(to),
        };
        Document::line(line).timed()
    }
}

/// Renders the patch unchanged, so that it can be piped, or names and numbers.
impl Render for Diff {
    fn render(&self, _: Timestamp) -> Document {
        if self.files.is_empty() {
            return Document::line("nothing changed");
        }
        let file = |it: &FileChange| {
            let numbers = match it.binary {
                true => "binary".to_owned(),
                false => format!("+{} -{}", it.additions, it.deletions),
            };
            StyledText::from(format!("{}  {}  ", it.status, it.path)).dim(numbers)
        };
        let document = match self.patch.as_str() {
            "" => Document::default().and_lines(self.files.iter().map(file)),
            patch => Document::line(patch.lines().collect::<Vec<_>>().join("\n")),
        };
        let omitted = self.omitted_files.len() as u64;
        let more = count(omitted, "more file is not shown", "more files are not shown");
        document.and_lines((omitted > 0).then(|| StyledText::new().dim(format!("{more}; `--max-bytes` takes more"))))
    }
}

impl Render for PushReport {
    fn render(&self, _: Timestamp) -> Document {
        let commit: String = self.new.chars().take(12).collect();
        let rest = if self.uncommitted { "; what is not committed was not pushed" } else { "" };
        Document::line(StyledText::new().name(&self.reference).plain(format!(" is at {commit}{rest}"))).timed()
    }
}
