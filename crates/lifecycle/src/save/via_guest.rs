//! Saving from a container that runs: its guest finds and reads the files, and git inside packs what it knows.

mod pack;
mod tree;
mod untracked;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use coracle_archive::transfer::plain_name;
use coracle_client::{Link, ScanOptions};
use coracle_protocol::{ErrorCode, ExecState as JobState, FileRef, ScanEntry, UserSpec};
use coracle_runtime::Baseline;
use coracle_types::{ContainerPath, Error as Engine, Ids, JobId};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::error::{PathError, SaveError};
use super::limits::PRUNED;
use super::manifest::SavedKind;
use super::roots::Roots;
use super::writer::SaveWriter;
use crate::record::Record;

/// Work trees are looked for so deep below a root.
const TREE_DEPTH: u32 = 4;

/// Bytes of paths that a scan leaves out.
const MAX_SKIPPED: usize = 16 << 10;

/// A container that is being saved by its guest.
pub(super) struct GuestSave<'a> {
    pub(super) link: &'a Link,
    pub(super) record: &'a Record,
    pub(super) until: Instant,
    /// What it has no time for is saved another time.
    pub(super) is_tried_again: bool,
    /// Between TERM and KILL of what still runs.
    pub(super) grace: Duration,
    /// What the working directory was filled with, where that was remembered.
    pub(super) baseline: Option<&'a Baseline>,
}

/// What was found in the first look.
struct WorkScan {
    /// Work trees.
    trees: BTreeSet<ContainerPath>,
    /// Files below the working directory, and in no work tree, that were written since it was filled.
    written: Vec<ScanEntry>,
    more: bool,
}

/// Ends all that runs.
pub(crate) async fn end_commands(link: &Link, grace: Duration) -> coracle_types::Result<()> {
    let jobs = link.jobs().await?;
    let mut ending = JoinSet::new();
    for job in jobs.iter().filter(|it| it.end.state == JobState::Running) {
        let link = link.clone();
        let Ok(id) = JobId::parse(&job.job) else { continue };
        ending.spawn(async move { link.cancel(&id, grace).await });
    }
    // One that cannot be ended writes on; what it wrote so far is saved all the same.
    while ending.join_next().await.is_some() {}
    Ok(())
}

impl GuestSave<'_> {
    /// Ends what runs, and saves what would be lost.
    pub(super) async fn save(&self, out: &mut SaveWriter) -> Result<(), PathError> {
        let roots = Roots::from_record(self.record);
        let nowhere = |error| PathError { path: self.record.workdir.to_string(), error };
        let survey = async {
            end_commands(self.link, self.grace).await?;
            self.survey(&roots).await
        };
        let survey = timeout_at(self.until, survey).await.map_err(|_| nowhere(SaveError::TooSlow))?.map_err(nowhere)?;
        let mut whole: Vec<ContainerPath> = Vec::new();
        for path in &survey.trees {
            if whole.iter().any(|it| path.is_beneath(it.as_str())) {
                continue;
            }
            let saved = timeout_at(self.until, self.tree(out, path, &survey.trees)).await;
            let failed = |error| PathError { path: path.to_string(), error };
            if saved.map_err(|_| failed(SaveError::TooSlow))?.map_err(failed)? == SavedKind::Tree {
                whole.push(path.clone());
            }
        }
        self.files(out, survey).await.map_err(nowhere)
    }

    /// Work trees first: files in them are not listed, since a list has an end.
    async fn survey(&self, roots: &Roots<'_>) -> Result<WorkScan, SaveError> {
        let within = self.until.saturating_duration_since(Instant::now());
        let repositories = |root: &ContainerPath| ScanOptions {
            names: Some(vec![".git".into()]),
            // A level for the name itself.
            depth: Some(TREE_DEPTH + 1),
            prune: PRUNED.iter().filter(|it| **it != "target").chain(&[".git"]).map(|it| (*it).to_owned()).collect(),
            within,
            ..ScanOptions::all(root.clone())
        };
        let (first, second) = tokio::join!(
            self.scan(roots.workdir.as_ref().map(repositories)),
            self.scan(roots.home.as_ref().map(repositories)),
        );
        let ((first, _), (second, _)) = (first?, second?);
        let tree = |it: &ScanEntry| ContainerPath::parse(&it.path).ok()?.parent();
        let mut trees: BTreeSet<_> = first.iter().chain(&second).filter_map(tree).collect();
        for clone in &roots.clones {
            if !trees.contains(clone) && self.is_repository(clone).await? {
                trees.insert(clone.clone());
            }
        }
        let written = |root: &ContainerPath| ScanOptions {
            since: Some(roots.since),
            prune: PRUNED.iter().chain(&[".git"]).map(|it| (*it).to_owned()).chain(beneath(root, &trees)).collect(),
            within,
            ..ScanOptions::all(root.clone())
        };
        let outside = roots.workdir.as_ref().filter(|it| !trees.iter().any(|tree| it.is_beneath(tree.as_str())));
        let (written, more) = self.scan(outside.map(written)).await?;
        trees.retain(|it| roots.own(it));
        Ok(WorkScan { trees, written, more })
    }

    async fn is_repository(&self, path: &ContainerPath) -> Result<bool, SaveError> {
        match self.link.stat(self.at(&format!("{path}/.git"))).await {
            Ok(_) => Ok(true),
            Err(Engine::Refused(_)) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }

    /// Lists the files that a walk finds; none if there is no directory.
    async fn scan(&self, walk: Option<ScanOptions>) -> Result<(Vec<ScanEntry>, bool), SaveError> {
        let Some(walk) = walk else { return Ok((Vec::new(), false)) };
        let root = walk.root.clone();
        match self.link.walk(walk, &[]).await {
            // A guest's answer is untrusted: paths outside the request are ignored.
            Ok(mut scan) => {
                scan.entries.retain(|it| relative(&it.path, root.as_str()).is_some());
                Ok((scan.entries, scan.more))
            }
            Err(Engine::Refused(fault)) if matches!(fault.code, ErrorCode::NotFound | ErrorCode::WrongKind) => {
                Ok((Vec::new(), false))
            }
            Err(err) => Err(err.into()),
        }
    }

    /// As PID 1: as root it can read what a setup command left there.
    fn at(&self, path: &str) -> FileRef {
        let Ids { uid, gid } = self.record.guest.as_ref().and_then(|it| it.own).unwrap_or(Ids::ROOT);
        FileRef { user: UserSpec::Ids { uid, gid: Some(gid) }, path: path.to_owned(), follow: false }
    }
}

/// Work trees below a directory, as a scan of it leaves them out, as many as fit into a request.
fn beneath(root: &ContainerPath, trees: &BTreeSet<ContainerPath>) -> Vec<String> {
    let mut bytes = 0;
    let paths = trees.iter().filter_map(|it| relative(it.as_str(), root.as_str())).map(|it| format!("/{it}"));
    let fits = |it: &String| {
        bytes += it.len();
        bytes <= MAX_SKIPPED
    };
    paths.take_while(fits).collect()
}

/// The path from a directory, when it is a plain one below it.
fn relative(path: &str, above: &str) -> Option<String> {
    let rest = path.strip_prefix(above.trim_end_matches('/'))?.strip_prefix('/')?;
    plain_name(Path::new(rest)).filter(|it| !it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_leaves_out_the_work_trees_that_lie_in_it() {
        let path = |it: &str| ContainerPath::parse(it).unwrap();
        let trees = ["/home/me/x", "/workspace/app", "/workspace/deep/lib"].map(path).into();
        assert_eq!(beneath(&path("/workspace"), &trees), ["/app", "/deep/lib"]);
        assert_eq!(beneath(&ContainerPath::root(), &trees), ["/home/me/x", "/workspace/app", "/workspace/deep/lib"]);
        let many = (0..2000).map(|it| path(&format!("/workspace/{it:0>20}"))).collect();
        let fit = beneath(&path("/workspace"), &many);
        assert!((700..1000).contains(&fit.len()), "{}", fit.len());
    }
}
