//! Files of the working directory that are in no work tree.

use std::collections::BTreeSet;

use coracle_protocol::ScanEntry;
use coracle_protocol::workspace::{SearchLimits, WorkspaceOp, WorkspaceReply};
use tokio::time::{Instant, timeout_at};

use super::pack::ItemArchive;
use super::{GuestSave, WorkScan, relative};
use crate::save::error::SaveError;
use crate::save::manifest::{SavedItem, SavedKind};
use crate::save::writer::SaveWriter;

impl GuestSave<'_> {
    /// Files in no work tree, the smallest first, as many as space and time allow. What is left out is named, unless it is
    /// saved another time: then nothing is removed.
    pub(super) async fn files(&self, out: &mut SaveWriter, survey: WorkScan) -> Result<(), SaveError> {
        let mut item = SavedItem::new(self.record.workdir.clone(), SavedKind::Files);
        let in_tree = |it: &ScanEntry| survey.trees.iter().any(|tree| relative(&it.path, tree.as_str()).is_some());
        let unchanged = self.unchanged(&survey.written).await;
        let is_unchanged = |it: &ScanEntry| unchanged.contains(&it.path);
        let mut written: Vec<_> = survey.written.iter().filter(|it| !in_tree(it) && !is_unchanged(it)).collect();
        if written.is_empty() && !survey.more {
            return Ok(());
        }
        written.sort_by(|a, b| (a.size, &a.path).cmp(&(b.size, &b.path)));
        let mut to = ItemArchive::new(out.archive()?, &mut item);
        let mut over = None;
        for it in written {
            let Some(path) = relative(&it.path, self.record.workdir.as_str()).filter(|_| !it.odd) else {
                to.item.left_out.add(&it.path, "its name cannot be saved");
                continue;
            };
            if let Some(reason) = over {
                to.item.left_out.add(&path, reason);
                continue;
            }
            match self.add(&mut to, &path).await {
                Ok(()) => {}
                // The next one is no smaller.
                Err(SaveError::TooLarge) => over = Some("it does not fit"),
                Err(SaveError::TooSlow) if !self.is_tried_again => over = Some("there was no time left"),
                Err(trouble) => return Err(trouble),
            }
            if let Some(reason) = over {
                to.item.left_out.add(&path, reason);
            }
        }
        if survey.more {
            to.item.left_out.add("", "there were more files than could be looked at");
        }
        let ItemArchive { archive, item: packed, .. } = to;
        out.keep_archive(packed, archive)?;
        out.add(item);
        Ok(())
    }

    /// Files that are what they were when the working directory was filled, or when it was last exported. Where that
    /// is unknown, none are: to save too much is the lesser fault.
    async fn unchanged(&self, written: &[ScanEntry]) -> BTreeSet<String> {
        let (Some(baseline), Some(user)) = (self.baseline, self.record.exec_user) else { return BTreeSet::new() };
        let known = |path: &str, sha256: &str| {
            baseline.files.get(path).is_some_and(|it| it.sha256 == sha256)
                || baseline.exported.get(path).is_some_and(|it| it == sha256)
        };
        if written.is_empty() {
            return BTreeSet::new();
        }
        let workdir = &self.record.workdir;
        let within_ms =
            u64::try_from(self.until.saturating_duration_since(Instant::now()).as_millis()).unwrap_or(0) / 2;
        let bounds = SearchLimits { most: 20_000, entries: 1_000_000, within_ms };
        let (mut unchanged, mut from) = (BTreeSet::new(), None);
        loop {
            let sums = self.link.space(user, workdir, WorkspaceOp::Sums { after: from, bounds });
            let Ok(Ok(WorkspaceReply::Summed { entries, after, .. })) = timeout_at(self.until, sums).await else {
                return unchanged;
            };
            from = after.filter(|_| !entries.is_empty());
            let same = entries.into_iter().filter(|it| it.sha256.as_deref().is_some_and(|sha| known(&it.path, sha)));
            unchanged.extend(same.map(|it| format!("{}/{}", workdir.as_str().trim_end_matches('/'), it.path)));
            if from.is_none() {
                return unchanged;
            }
        }
    }
}
