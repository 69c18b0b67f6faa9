//! Saving from a container that runs: its guest finds and reads the files, and git inside packs what it knows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use coracle_runtime::archive::{Writer, plain_name};
use coracle_runtime::link::wire::space::{Act, Bounds, Done};
use coracle_runtime::link::wire::{At, FaultCode, Kind as FileKind, State as JobState, Walked, Who};
use coracle_runtime::link::{Link, Walk};
use coracle_runtime::{Baseline, ContainerPath, Error as Engine, Ids, JobId};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::git::{Git, Standing};
use super::manifest::{Bundle, Item, Kind, What};
use super::roots::Roots;
use super::shelf::Shelf;
use super::{Failed, PRUNED, Trouble};
use crate::record::Record;

/// Work trees are looked for so deep below a root.
const TREE_DEPTH: u32 = 4;

/// A list of commits is no longer.
const MAX_SHALLOW: u64 = 1 << 20;

/// A container that is being saved by its guest.
pub(super) struct Inside<'a> {
    pub(super) link: &'a Link,
    pub(super) record: &'a Record,
    pub(super) until: Instant,
    /// Between TERM and KILL of what still runs.
    pub(super) grace: Duration,
    /// What the working directory was filled with, where that was remembered.
    pub(super) baseline: Option<&'a Baseline>,
}

/// What was found in the first look.
struct Sight {
    /// Work trees.
    trees: BTreeSet<ContainerPath>,
    /// Files below the working directory that were written since it was filled.
    written: Vec<Walked>,
    more: bool,
}

/// Ends all that runs.
pub(crate) async fn end_commands(link: &Link, grace: Duration) -> coracle_runtime::Result<()> {
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

impl Inside<'_> {
    /// Ends what runs, and saves what would be lost.
    pub(super) async fn save(&self, shelf: &mut Shelf) -> Result<(), Failed> {
        let roots = Roots::of(self.record);
        let nowhere = |trouble| Failed { path: self.record.workdir.to_string(), trouble };
        let sight = async {
            end_commands(self.link, self.grace).await?;
            self.look(&roots).await
        };
        let sight = timeout_at(self.until, sight).await.map_err(|_| nowhere(Trouble::TooSlow))?.map_err(nowhere)?;
        let mut whole: Vec<ContainerPath> = Vec::new();
        for path in &sight.trees {
            if whole.iter().any(|it| path.is_beneath(it.as_str())) {
                continue;
            }
            let saved = timeout_at(self.until, self.tree(shelf, path, &sight.trees)).await;
            let failed = |trouble| Failed { path: path.to_string(), trouble };
            if saved.map_err(|_| failed(Trouble::TooSlow))?.map_err(failed)? == Kind::Tree {
                whole.push(path.clone());
            }
        }
        self.files(shelf, sight).await.map_err(nowhere)
    }

    /// All at once, so that it takes as long as the longest.
    async fn look(&self, roots: &Roots<'_>) -> Result<Sight, Trouble> {
        let within = self.until.saturating_duration_since(Instant::now());
        let repositories = |root: &ContainerPath| Walk {
            names: Some(vec![".git".into()]),
            // A level for the name itself.
            depth: Some(TREE_DEPTH + 1),
            prune: PRUNED.iter().filter(|it| **it != "target").chain(&[".git"]).map(|it| (*it).to_owned()).collect(),
            within,
            ..Walk::all(root.clone())
        };
        let written = |root: &ContainerPath| Walk {
            since: Some(roots.since),
            prune: PRUNED.iter().chain(&[".git"]).map(|it| (*it).to_owned()).collect(),
            within,
            ..Walk::all(root.clone())
        };
        let (first, second, written) = tokio::join!(
            self.met(roots.workdir.as_ref().map(repositories)),
            self.met(roots.home.as_ref().map(repositories)),
            self.met(roots.workdir.as_ref().map(written)),
        );
        let ((first, _), (second, _), (written, more)) = (first?, second?, written?);
        let tree = |it: &Walked| ContainerPath::parse(&it.path).ok()?.parent();
        let mut trees: BTreeSet<_> = first.iter().chain(&second).filter_map(tree).collect();
        for clone in &roots.clones {
            if !trees.contains(clone) && self.is_repository(clone).await? {
                trees.insert(clone.clone());
            }
        }
        trees.retain(|it| roots.own(it));
        Ok(Sight { trees, written, more })
    }

    async fn is_repository(&self, path: &ContainerPath) -> Result<bool, Trouble> {
        match self.link.stat(self.at(&format!("{path}/.git"))).await {
            Ok(_) => Ok(true),
            Err(Engine::Refused(_)) => Ok(false),
            Err(err) => Err(err.into()),
        }
    }

    /// What a walk meets; nothing where there is no directory.
    async fn met(&self, walk: Option<Walk>) -> Result<(Vec<Walked>, bool), Trouble> {
        let Some(walk) = walk else { return Ok((Vec::new(), false)) };
        let root = walk.root.clone();
        match self.link.walk(walk, &[]).await {
            // A guest may say anything; what lies elsewhere was not asked for.
            Ok(mut met) => {
                met.entries.retain(|it| relative(&it.path, root.as_str()).is_some());
                Ok((met.entries, met.more))
            }
            Err(Engine::Refused(fault)) if matches!(fault.code, FaultCode::NotFound | FaultCode::WrongKind) => {
                Ok((Vec::new(), false))
            }
            Err(err) => Err(err.into()),
        }
    }

    async fn tree(
        &self,
        shelf: &mut Shelf,
        path: &ContainerPath,
        trees: &BTreeSet<ContainerPath>,
    ) -> Result<Kind, Trouble> {
        let user = self.record.exec_user;
        let mut git = user.map(|user| Git::new(self.link, user, path, self.until));
        let standing = match &mut git {
            Some(git) => git.standing().await?,
            None => None,
        };
        match (git, standing) {
            (Some(_), Some(standing)) if standing.is_clean() => Ok(Kind::Git),
            (Some(git), Some(standing)) => {
                let mut item = Item::new(path.clone(), Kind::Git);
                if !self.commits(shelf, &git, &standing, &mut item).await? {
                    return self.whole_tree(shelf, path, item).await;
                }
                self.uncommitted(shelf, standing, &mut item, trees).await?;
                shelf.add(item);
                Ok(Kind::Git)
            }
            _ if self.touched(path).await? => self.whole_tree(shelf, path, Item::new(path.clone(), Kind::Tree)).await,
            _ => Ok(Kind::Tree),
        }
    }

    /// What git packs. Whether nothing that only it has is missing then.
    async fn commits(
        &self,
        shelf: &mut Shelf,
        git: &Git<'_>,
        standing: &Standing,
        item: &mut Item,
    ) -> Result<bool, Trouble> {
        (item.head, item.branch) = (standing.head.clone(), standing.branch.clone());
        // What is on a remote is only worth its room while there is plenty.
        let mut draft = shelf.part(What::Bundle)?.at_most(shelf.left() / 2);
        let fits = |done: Result<bool, Trouble>| match done {
            Err(Trouble::TooLarge) => Ok(false),
            done => done,
        };
        let mut made = fits(git.whole_bundle(&mut draft).await)?.then_some(Bundle::Whole);
        if made.is_none() && standing.unpushed {
            shelf.drop_part(draft)?;
            draft = shelf.part(What::Bundle)?;
            made = fits(git.new_bundle(standing, &mut draft).await)?.then_some(Bundle::New);
        }
        match made {
            Some(_) => shelf.keep(item, draft)?,
            None => shelf.drop_part(draft)?,
        }
        item.bundle = made;
        if made.is_some() {
            item.shallow = self.shallow(&item.path).await?;
        }
        if standing.staged {
            let mut draft = shelf.part(What::Staged)?;
            // The files themselves are in the archive.
            if fits(git.staged(&mut draft).await)? { shelf.keep(item, draft)? } else { shelf.drop_part(draft)? }
        }
        Ok(made.is_some() || !standing.unpushed)
    }

    async fn shallow(&self, path: &ContainerPath) -> Result<Vec<String>, Trouble> {
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
        shelf: &mut Shelf,
        standing: Standing,
        item: &mut Item,
        trees: &BTreeSet<ContainerPath>,
    ) -> Result<(), Trouble> {
        standing.deleted.into_iter().for_each(|it| item.deleted.add(it));
        standing.odd.iter().for_each(|it| item.left_out.add(it, "its name is none that can be kept"));
        let (name, mut writer) = shelf.archive()?;
        let mut dirs = BTreeMap::new();
        for path in standing.changed.iter().collect::<BTreeSet<_>>() {
            // Git names nothing beyond a link; who does leads somewhere else.
            if self.is_direct(&mut dirs, &item.path, path).await? {
                self.add(&mut writer, item, path).await?;
            } else {
                item.left_out.add(path, "it does not lie in the tree");
            }
        }
        let known = |it: &&String| item.path.join(it).is_ok_and(|it| trees.contains(&it));
        for dir in standing.nested.iter().filter(|it| !known(it)).cloned().collect::<Vec<_>>() {
            self.add_all(&mut writer, item, &dir).await?;
        }
        shelf.keep_archive(item, name, writer)
    }

    /// Whether all that lies above a file is directories of the tree. `known` are those that were looked at.
    async fn is_direct(
        &self,
        known: &mut BTreeMap<String, bool>,
        tree: &ContainerPath,
        path: &str,
    ) -> Result<bool, Trouble> {
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

    /// Whether something of it was written since the container was filled. What came with a snapshot is older and may be
    /// nowhere else.
    async fn touched(&self, path: &ContainerPath) -> Result<bool, Trouble> {
        if self.record.snapshot.is_some() {
            return Ok(true);
        }
        let since = Some(Roots::of(self.record).since);
        let within = self.until.saturating_duration_since(Instant::now());
        let (met, more) = self.met(Some(Walk { since, max_entries: 1, within, ..Walk::all(path.clone()) })).await?;
        Ok(more || !met.is_empty())
    }

    async fn whole_tree(&self, shelf: &mut Shelf, path: &ContainerPath, item: Item) -> Result<Kind, Trouble> {
        let mut item = Item { kind: Kind::Tree, bundle: None, ..item };
        let (name, mut writer) = shelf.archive()?;
        let top = item.top().to_owned();
        // Git takes no directory for a repository without these, and they may be empty.
        for dir in [".git", ".git/objects", ".git/refs"] {
            let there = self.link.stat(self.at(&format!("{path}/{dir}"))).await;
            if there.is_ok_and(|it| it.kind == FileKind::Dir) {
                writer.dir(&format!("{top}/{dir}"), 0o755)?;
            }
        }
        self.add_all(&mut writer, &mut item, "").await?;
        shelf.keep_archive(&mut item, name, writer)?;
        shelf.add(item);
        Ok(Kind::Tree)
    }

    /// Everything below a directory of the item.
    async fn add_all(&self, writer: &mut Writer, item: &mut Item, dir: &str) -> Result<(), Trouble> {
        let above = format!("{}/{dir}", item.path.as_str().trim_end_matches('/'));
        let Ok(root) = ContainerPath::parse(&above) else {
            item.left_out.add(dir, "its name is none that can be kept");
            return Ok(());
        };
        let prune = PRUNED.iter().map(|it| (*it).to_owned()).collect();
        let within = self.until.saturating_duration_since(Instant::now());
        let (met, more) = self.met(Some(Walk { prune, within, ..Walk::all(root) })).await?;
        if more {
            return Err(Trouble::Odd("there are more files than can be looked at"));
        }
        for it in met {
            match relative(&it.path, item.path.as_str()).filter(|_| !it.odd) {
                Some(path) => self.add(writer, item, &path).await?,
                None => item.left_out.add(&it.path, "its name is none that can be kept"),
            }
        }
        Ok(())
    }

    /// Adds a file or link, or says why not.
    async fn add(&self, writer: &mut Writer, item: &mut Item, path: &str) -> Result<(), Trouble> {
        let inside = format!("{}/{path}", item.path.as_str().trim_end_matches('/'));
        let name = format!("{}/{path}", item.top());
        let (entry, mut content) = match self.link.open_file(self.at(&inside), 0, u64::MAX >> 1).await {
            Ok(opened) => opened,
            Err(Engine::Refused(fault)) if fault.code == FaultCode::WrongKind => {
                return self.add_link(writer, item, (path, &inside, &name)).await;
            }
            Err(Engine::Refused(fault)) => {
                item.left_out.add(path, reason(fault.code));
                return Ok(());
            }
            Err(err) => return Err(err.into()),
        };
        let mtime = u64::try_from(entry.changed_ns / 1_000_000_000).unwrap_or(0);
        let mut growing = writer.begin(&name, entry.mode & 0o777, mtime)?;
        loop {
            match timeout_at(self.until, content.next()).await.map_err(|_| Trouble::TooSlow)? {
                Ok(Some(piece)) => growing.write(&piece)?,
                Ok(None) => break,
                Err(Engine::Refused(fault)) => {
                    drop(growing);
                    item.left_out.add(path, reason(fault.code));
                    return Ok(());
                }
                Err(err) => return Err(err.into()),
            }
        }
        growing.end()?;
        Ok(())
    }

    async fn add_link(
        &self,
        writer: &mut Writer,
        item: &mut Item,
        (path, inside, name): (&str, &str, &str),
    ) -> Result<(), Trouble> {
        let entry = match self.link.stat(self.at(inside)).await {
            Ok(entry) => entry,
            Err(Engine::Refused(fault)) => {
                item.left_out.add(path, reason(fault.code));
                return Ok(());
            }
            Err(err) => return Err(err.into()),
        };
        match (entry.kind, entry.link) {
            (FileKind::Link, Some(target)) => {
                if !writer.link_within(name, &target)? {
                    item.left_out.add(path, format!("it is a link out of the tree, to `{}`", target.escape_debug()));
                }
            }
            _ => item.left_out.add(path, "it is neither a file nor a link"),
        }
        Ok(())
    }

    /// Files in no work tree, the smallest first, as many as fit in room and time.
    async fn files(&self, shelf: &mut Shelf, sight: Sight) -> Result<(), Trouble> {
        let mut item = Item::new(self.record.workdir.clone(), Kind::Files);
        let in_tree = |it: &Walked| sight.trees.iter().any(|tree| relative(&it.path, tree.as_str()).is_some());
        let kept = self.kept(&sight.written).await;
        let is_kept = |it: &Walked| kept.contains(&it.path);
        let mut written: Vec<_> = sight.written.iter().filter(|it| !in_tree(it) && !is_kept(it)).collect();
        if written.is_empty() {
            return Ok(());
        }
        written.sort_by(|a, b| (a.size, &a.path).cmp(&(b.size, &b.path)));
        let (name, mut writer) = shelf.archive()?;
        let mut over = None;
        for it in written {
            let Some(path) = relative(&it.path, self.record.workdir.as_str()).filter(|_| !it.odd) else {
                item.left_out.add(&it.path, "its name is none that can be kept");
                continue;
            };
            if let Some(reason) = over {
                item.left_out.add(&path, reason);
                continue;
            }
            match self.add(&mut writer, &mut item, &path).await {
                Ok(()) => {}
                // The next one is no smaller.
                Err(Trouble::TooLarge) => over = Some("it does not fit"),
                Err(Trouble::TooSlow) => over = Some("there was no time left"),
                Err(trouble) => return Err(trouble),
            }
            if let Some(reason) = over {
                item.left_out.add(&path, reason);
            }
        }
        if sight.more {
            item.left_out.add("", "there were more files than could be looked at");
        }
        shelf.keep_archive(&mut item, name, writer)?;
        shelf.add(item);
        Ok(())
    }

    /// Files that are what they were when the working directory was filled, or when it was last exported. Where that
    /// cannot be told, none are: to save too much is the lesser fault.
    async fn kept(&self, written: &[Walked]) -> BTreeSet<String> {
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
        let bounds = Bounds { most: 20_000, entries: 1_000_000, within_ms };
        let (mut kept, mut from) = (BTreeSet::new(), None);
        loop {
            let sums = self.link.space(user, workdir, Act::Sums { after: from, bounds }, &[]);
            let Ok(Ok(Done::Summed { entries, after, .. })) = timeout_at(self.until, sums).await else { return kept };
            from = after.filter(|_| !entries.is_empty());
            let same = entries.into_iter().filter(|it| it.sha256.as_deref().is_some_and(|sha| known(&it.path, sha)));
            kept.extend(same.map(|it| format!("{}/{}", workdir.as_str().trim_end_matches('/'), it.path)));
            if from.is_none() {
                return kept;
            }
        }
    }

    /// As PID 1: as root it can read what a setup command left there.
    fn at(&self, path: &str) -> At {
        let Ids { uid, gid } = self.record.guest.as_ref().and_then(|it| it.own).unwrap_or(Ids::ROOT);
        At { user: Who::Ids { uid, gid: Some(gid) }, path: path.to_owned(), follow: false }
    }
}

fn reason(code: FaultCode) -> &'static str {
    match code {
        FaultCode::NotFound => "it went while it was saved",
        FaultCode::Denied => "it may not be read",
        _ => "it cannot be read",
    }
}

/// The path from a directory, when it is a plain one below it.
fn relative(path: &str, above: &str) -> Option<String> {
    let rest = path.strip_prefix(above.trim_end_matches('/'))?.strip_prefix('/')?;
    plain_name(Path::new(rest)).filter(|it| !it.is_empty())
}
