//! Reviews what the user's git would act on, where files are shared and cannot be protected by mounts.

use std::collections::BTreeSet;
use std::time::Duration;

use coracle_client::ScanOptions;
use coracle_protocol::{ErrorCode, FileKind};
use coracle_types::failure::Result;
use coracle_types::{Error, SandboxWarning};

use super::WorktreeManager;
use super::create::link_of;
use super::git_in_container::{Workdir, lost};
use crate::shared_dir::config_of;
use crate::workflow_records::Repository;

/// The code of every one of these warnings.
const REVIEW: &str = "review";

/// Maximum number of reported differences.
const MAX_REPORTED: usize = 20;

/// Maximum depth of the search for repositories below the root.
const DEPTH: u32 = 32;

/// Timeout of that search.
const WITHIN: Duration = Duration::from_secs(10);

/// Files that redirect git, none of which Coracle creates.
const ABSENT: [&str; 3] = ["repo.git/commondir", "repo.git/config.worktree", "repo.git/objects/info/alternates"];

/// The link from a linked worktree's directory to its repository.
const COMMON_DIR: &str = "../..\n";

impl WorktreeManager {
    /// Compares what the user's git acts on with what was written; does nothing where files are not shared. Each
    /// difference is a warning `review`: code inside or the user made it.
    ///
    /// # Errors
    /// `sandbox_lost`.
    pub async fn review(&self, at: &Workdir) -> Result<Vec<SandboxWarning>> {
        if at.shared.is_none() {
            return Ok(Vec::new());
        }
        let records = self.records(at)?;
        let url = records.repository()?.map(|Repository { url }| url);
        let ids = records.ids()?;
        let mut found = Vec::new();
        if text(at, "repo.git/config").await?.as_deref() != Some(&config_of(url.as_deref())) {
            found.push(("repo.git/config".to_owned(), "is not as it was written"));
        }
        for place in ABSENT {
            if at.stat(place).await?.is_some() {
                found.push((place.to_owned(), "was not there"));
            }
        }
        for place in ["repo.git/hooks", "repo.git/info"] {
            if !is_empty_dir(at, place).await? {
                found.push((place.to_owned(), "is not the empty directory that was made"));
            }
        }
        for id in &ids {
            let admin = format!("repo.git/worktrees/{id}");
            let (dot_git, common) = (format!("worktrees/{id}/.git"), format!("{admin}/commondir"));
            let (link, seen) = tokio::join!(text(at, &dot_git), text(at, &common));
            // A missing link redirects nothing, and is listed as missing.
            if link?.is_some_and(|it| it != link_of(id)) {
                found.push((dot_git, "is not as it was written"));
            }
            if seen?.is_some_and(|it| it != COMMON_DIR) {
                found.push((common, "is not as it was written"));
            }
            let own = format!("{admin}/config.worktree");
            if at.stat(&own).await?.is_some() {
                found.push((own, "was not there"));
            }
        }
        let known = ids.iter().map(|id| format!("{}/.git", at.tree_path(id))).collect();
        let (nested, more) = repositories(at, &known).await?;
        found.extend(nested.into_iter().map(|it| (it, "is a repository of its own")));
        Ok(warnings(&found, more))
    }
}

/// Reads a small file; empty for anything else.
async fn text(at: &Workdir, below: &str) -> Result<Option<String>> {
    match at.link.get(at.file(below), 0, 64 << 10).await {
        Ok((_, bytes)) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(Error::Refused(fault)) if matches!(fault.code, ErrorCode::NotFound | ErrorCode::NoDirectory) => Ok(None),
        Err(Error::Refused(_)) => Ok(Some(String::new())),
        Err(err) => Err(lost(err)),
    }
}

async fn is_empty_dir(at: &Workdir, below: &str) -> Result<bool> {
    match at.link.list(at.file(below), 1).await {
        Ok((entries, more)) => Ok(entries.is_empty() && !more),
        Err(Error::Refused(_)) => Ok(false),
        Err(err) => Err(lost(err)),
    }
}

/// Finds other repositories: directories with a `.git`, and bare ones, by the entries that git requires.
async fn repositories(at: &Workdir, known: &BTreeSet<String>) -> Result<(Vec<String>, bool)> {
    let walk = ScanOptions {
        names: Some([".git", "HEAD", "objects"].map(str::to_owned).to_vec()),
        depth: Some(DEPTH),
        prune: [".git", "repo.git", "objects"].map(str::to_owned).to_vec(),
        within: WITHIN,
        ..ScanOptions::all(at.root.clone())
    };
    let walked = match at.link.walk(walk, &[]).await {
        Ok(walked) => walked,
        Err(Error::Refused(_)) => return Ok((Vec::new(), true)),
        Err(err) => return Err(lost(err)),
    };
    let name_of = |path: &str| path.rsplit_once('/').map(|(above, name)| (above.to_owned(), name.to_owned()));
    let (mut found, mut heads, mut stores) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for entry in &walked.entries {
        match name_of(&entry.path) {
            Some((above, name)) if name == ".git" && !known.contains(&entry.path) => drop(found.insert(above)),
            Some((above, name)) if name == "HEAD" => drop(heads.insert(above)),
            Some((above, name)) if name == "objects" && entry.kind == FileKind::Dir => drop(stores.insert(above)),
            _ => {}
        }
    }
    found.extend(heads.intersection(&stores).cloned());
    let root = format!("{}/", at.root);
    Ok((found.into_iter().map(|it| it.strip_prefix(&root).unwrap_or(&it).to_owned()).collect(), walked.more))
}

fn warnings(found: &[(String, &str)], more: bool) -> Vec<SandboxWarning> {
    let each = found.iter().take(MAX_REPORTED).map(|(place, what)| format!("`{}` {what}", place.escape_debug()));
    let rest = found.len().saturating_sub(MAX_REPORTED);
    let rest = (rest > 0).then(|| format!("{rest} places more are not as they were written"));
    let cut = more.then(|| "not everything could be checked".to_owned());
    each.chain(rest).chain(cut).map(|it| SandboxWarning::new(REVIEW, it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_differences_is_reported_in_a_few_lines() {
        let found: Vec<_> = (0..30).map(|n| (format!("a\n{n}"), "was not there")).collect();
        let reported = warnings(&found, true);
        assert_eq!((reported.len(), &*reported[0].message), (22, "`a\\n0` was not there"));
        assert_eq!(reported[20].message, "10 places more are not as they were written");
        assert!(warnings(&[], false).is_empty());
    }
}
