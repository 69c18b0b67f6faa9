//! One work tree of a container: what git packs, what is not committed, or all of it.

use std::collections::{BTreeMap, BTreeSet};

use coracle_client::ScanOptions;
use coracle_protocol::FileKind;
use coracle_types::{ContainerPath, Error as Engine};
use tokio::time::Instant;

use super::GuestSave;
use super::pack::ItemArchive;
use crate::save::error::SaveError;
use crate::save::git::Git;
use crate::save::limits::PRUNED;
use crate::save::manifest::{Bundle, PartKind, SavedItem, SavedKind};
use crate::save::repo_status::RepoStatus;
use crate::save::roots::Roots;
use crate::save::writer::SaveWriter;

/// A list of commits is no longer.
const MAX_SHALLOW: u64 = 1 << 20;

impl GuestSave<'_> {
    /// A work tree, by what git packs of it, or whole.
    pub(super) async fn tree(
        &self,
        out: &mut SaveWriter,
        path: &ContainerPath,
        trees: &BTreeSet<ContainerPath>,
    ) -> Result<SavedKind, SaveError> {
        let user = self.record.exec_user;
        let mut git = user.map(|user| Git::new(self.link, user, path, self.until));
        let status = match &mut git {
            Some(git) => git.status().await?,
            None => None,
        };
        match (git, status) {
            (Some(_), Some(status)) if status.is_clean() => Ok(SavedKind::Git),
            (Some(git), Some(status)) => {
                let mut item = SavedItem::new(path.clone(), SavedKind::Git);
                if !self.commits(out, &git, &status, &mut item).await? {
                    return self.whole_tree(out, item).await;
                }
                self.uncommitted(out, status, &mut item, trees).await?;
                out.add(item);
                Ok(SavedKind::Git)
            }
            _ if self.touched(path).await? => self.whole_tree(out, SavedItem::new(path.clone(), SavedKind::Tree)).await,
            _ => Ok(SavedKind::Tree),
        }
    }

    /// What git packs. Whether nothing that only it has is missing then.
    async fn commits(
        &self,
        out: &mut SaveWriter,
        git: &Git<'_>,
        status: &RepoStatus,
        item: &mut SavedItem,
    ) -> Result<bool, SaveError> {
        (item.head, item.branch) = (status.head.clone(), status.branch.clone());
        // What is on a remote is only worth its space while there is plenty.
        let mut draft = out.part(PartKind::Bundle)?.at_most(out.left() / 2);
        let fits = |done: Result<bool, SaveError>| match done {
            Err(SaveError::TooLarge) => Ok(false),
            done => done,
        };
        let mut made = fits(git.whole_bundle(&mut draft).await)?.then_some(Bundle::Whole);
        if made.is_none() && status.unpushed {
            out.drop_part(&draft)?;
            draft = out.part(PartKind::Bundle)?;
            made = fits(git.new_bundle(status, &mut draft).await)?.then_some(Bundle::New);
        }
        match made {
            Some(_) => out.keep(item, draft)?,
            None => out.drop_part(&draft)?,
        }
        item.bundle = made;
        if made.is_some() {
            item.shallow = self.shallow(&item.path).await?;
        }
        if status.staged {
            let mut draft = out.part(PartKind::Staged)?;
            // The files themselves are in the archive.
            if fits(git.staged(&mut draft).await)? { out.keep(item, draft)? } else { out.drop_part(&draft)? }
        }
        Ok(made.is_some() || !status.unpushed)
    }

    async fn shallow(&self, path: &ContainerPath) -> Result<Vec<String>, SaveError> {
        let text = match self.link.get(self.at(&format!("{path}/.git/shallow")), 0, MAX_SHALLOW).await {
            Ok((_, text)) => text,
            Err(Engine::Refused(_)) => return Ok(Vec::new()),
            Err(err) => return Err(err.into()),
        };
        let text = String::from_utf8_lossy(&text);
        let is_one = |it: &&str| [40, 64].contains(&it.len()) && it.bytes().all(|it| it.is_ascii_hexdigit());
        Ok(text.lines().filter(is_one).map(str::to_owned).collect())
    }

    async fn uncommitted(
        &self,
        out: &mut SaveWriter,
        status: RepoStatus,
        item: &mut SavedItem,
        trees: &BTreeSet<ContainerPath>,
    ) -> Result<(), SaveError> {
        status.deleted.into_iter().for_each(|it| item.deleted.add(it));
        status.odd.iter().for_each(|it| item.left_out.add(it, "its name cannot be saved"));
        let mut to = ItemArchive::new(out.archive()?, item);
        let mut dirs = BTreeMap::new();
        for path in status.changed.iter().collect::<BTreeSet<_>>() {
            // Git names nothing beyond a link; who does leads somewhere else.
            if self.is_direct(&mut dirs, &to.item.path, path).await? {
                self.add(&mut to, path).await?;
            } else {
                to.item.left_out.add(path, "it does not lie in the tree");
            }
        }
        let known = |it: &&String| to.item.path.join(it).is_ok_and(|it| trees.contains(&it));
        for dir in status.nested.iter().filter(|it| !known(it)).cloned().collect::<Vec<_>>() {
            self.add_all(&mut to, &dir).await?;
        }
        let ItemArchive { archive, item, .. } = to;
        out.keep_archive(item, archive)
    }

    /// Whether all parents of a file are directories of the tree. `known` are those that were checked.
    async fn is_direct(
        &self,
        known: &mut BTreeMap<String, bool>,
        tree: &ContainerPath,
        path: &str,
    ) -> Result<bool, SaveError> {
        for (at, _) in path.match_indices('/') {
            let dir = &path[..at];
            let is_dir = match known.get(dir) {
                Some(known) => *known,
                None => match self.link.stat(self.at(&format!("{tree}/{dir}"))).await {
                    Ok(entry) => entry.kind == FileKind::Dir,
                    Err(Engine::Refused(_)) => false,
                    Err(err) => return Err(err.into()),
                },
            };
            known.insert(dir.to_owned(), is_dir);
            if !is_dir {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether something of it was written since the container was filled. What came with a snapshot is older and may
    /// be nowhere else.
    async fn touched(&self, path: &ContainerPath) -> Result<bool, SaveError> {
        if self.record.snapshot.is_some() {
            return Ok(true);
        }
        let since = Some(Roots::from_record(self.record).since);
        let prune = PRUNED.iter().map(|name| (*name).to_owned()).collect();
        let within = self.until.saturating_duration_since(Instant::now());
        let options = ScanOptions { since, prune, max_entries: 1, within, ..ScanOptions::all(path.clone()) };
        let (entries, more) = self.scan(Some(options)).await?;
        Ok(more || !entries.is_empty())
    }

    async fn whole_tree(&self, out: &mut SaveWriter, item: SavedItem) -> Result<SavedKind, SaveError> {
        let mut item = SavedItem { kind: SavedKind::Tree, bundle: None, ..item };
        let mut to = ItemArchive::new(out.archive()?, &mut item);
        // Git takes no directory for a repository without these, and they may be empty.
        for dir in [".git", ".git/objects", ".git/refs"] {
            self.add_dir(&mut to, dir).await?;
        }
        self.add_all(&mut to, "").await?;
        let ItemArchive { archive, item: packed, .. } = to;
        out.keep_archive(packed, archive)?;
        out.add(item);
        Ok(SavedKind::Tree)
    }
}
