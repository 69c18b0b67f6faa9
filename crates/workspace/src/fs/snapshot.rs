//! Snapshots of files under tags, and their restoration.

use super::git::{CLEAN, IndexGit};
use super::{FsError, GuestFs, Result};

/// Repositories within each other that are gone through, at most.
const MAX_REPOSITORIES: usize = 1000;

/// A repository within whose files are none: git remembers that there is one, of which it knows no more than this.
const NO_COMMIT: &str = "1111111111111111111111111111111111111111";

/// The name of a snapshot, which git takes as that of a tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag(String);

impl Tag {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
        let odd = text.len() > 64
            || !text.starts_with(|it: char| it.is_ascii_alphanumeric())
            || !text.chars().all(plain)
            || text.contains("..")
            || text.ends_with('.')
            || text.ends_with(".lock");
        if odd { Err(FsError::invalid(text, "is no tag of a snapshot")) } else { Ok(Self(text.to_owned())) }
    }

    fn reference(&self) -> String {
        format!("refs/tags/{}", self.0)
    }
}

/// Keeps what is there.
pub(super) async fn take(fs: &GuestFs, tag: &Tag) -> Result<String> {
    let git = IndexGit::open(fs).await?;
    let taken = record(&git, tag).await;
    git.close().await;
    taken
}

async fn record(git: &IndexGit<'_>, tag: &Tag) -> Result<String> {
    if find(git, tag).await?.is_some() {
        return Err(FsError::Exists(tag.0.clone()));
    }
    let seen = files(git).await?;
    // Skips files that were deleted concurrently.
    git.fed(&["update-index", "-z", "--add", "--remove", "--stdin"], seen.files).await?;
    if !seen.bare.is_empty() {
        let lines: Vec<String> = seen.bare.iter().map(|it| format!("160000 {NO_COMMIT}\t{it}\0")).collect();
        git.fed(&["update-index", "-z", "--index-info"], lines.concat().into_bytes()).await?;
    }
    let tree = id(&git.printed("", &["write-tree"]).await?)?;
    let commit = id(&git.printed("", &["commit-tree", "-m", &tag.0, &tree]).await?)?;
    // Nothing before: of two at once one is first.
    if !git.run("", &["update-ref", "--no-deref", &tag.reference(), &commit, ""]).await?.ok() {
        let taken = find(git, tag).await?.is_some();
        let failed = || FsError::Git("the snapshot cannot be named".into());
        return Err(if taken { FsError::Exists(tag.0.clone()) } else { failed() });
    }
    Ok(commit)
}

/// Brings back what a tag keeps.
pub(super) async fn restore(fs: &GuestFs, tag: &Tag) -> Result<()> {
    let git = IndexGit::open(fs).await?;
    let restored = bring_back(&git, tag).await;
    git.close().await;
    restored
}

async fn bring_back(git: &IndexGit<'_>, tag: &Tag) -> Result<()> {
    let commit = find(git, tag).await?.ok_or_else(|| FsError::NotFound(tag.0.clone()))?;
    // Removes nothing before all data of the snapshot is known to exist.
    git.printed("", &["rev-list", "--objects", "--quiet", &commit]).await?;
    git.printed("", &["read-tree", &commit]).await?;
    let bare = git.printed("", &["ls-files", "-s", "-z"]).await?;
    // Marks unchanged files, so that the checkout does not touch them. It fails if any file has changed, which is no
    // error here.
    git.run("", &["update-index", "-q", "--really-refresh"]).await?;
    // Before, since a directory may be in a file's way.
    let mut cleaned = vec![git.run("", CLEAN).await?];
    let placed = git.run("", &["checkout-index", "--quiet", "--all", "--force"]).await?;
    for dir in gitlinks(&bare) {
        cleaned.push(git.empty(dir).await?);
    }
    // All restorable files exist now, even if some others could not be removed.
    placed.good()?;
    cleaned.into_iter().try_for_each(|it| it.good().map(drop))
}

/// Age at which unreferenced objects are freed: longer than any snapshot takes.
const PRUNE: &str = "--prune=15.minutes.ago";

/// Removes a tag, and frees what no tag holds.
pub(super) async fn forget(fs: &GuestFs, tag: &Tag) -> Result<()> {
    let git = IndexGit::open(fs).await?;
    let gone = async {
        let commit = find(&git, tag).await?.ok_or_else(|| FsError::NotFound(tag.0.clone()))?;
        git.printed("", &["update-ref", "--no-deref", "-d", &tag.reference(), &commit]).await?;
        // It fails if another process collects garbage already, which is no error here: the rest is removed with the
        // next tag.
        git.run("", &["gc", "--quiet", PRUNE]).await.map(drop)
    };
    let gone = gone.await;
    git.close().await;
    gone
}

async fn find(git: &IndexGit<'_>, tag: &Tag) -> Result<Option<String>> {
    let commit = format!("{}^{{commit}}", tag.reference());
    let output = git.run("", &["rev-parse", "--verify", "--quiet", "--end-of-options", &commit]).await?;
    if output.ok() { id(&output.stdout).map(Some) } else { Ok(None) }
}

/// Repositories that an index names as such.
fn gitlinks(output: &[u8]) -> Vec<&str> {
    let records = output.split(|it| *it == 0).filter_map(|it| str::from_utf8(it).ok()?.strip_prefix("160000 "));
    records.filter_map(|it| it.split_once('\t').map(|it| it.1)).collect()
}

/// The files of a workspace.
#[derive(Debug, Default)]
struct WorkspaceListing {
    /// Paths of all files and links, each with a NUL behind it.
    files: Vec<u8>,
    /// Repositories that hold none, nor another repository.
    bare: Vec<String>,
}

/// All files of the workspace. Git lists a repository within as one entry; its files are those of a work tree of their
/// own.
async fn files(git: &IndexGit<'_>) -> Result<WorkspaceListing> {
    let (mut seen, mut dirs, mut count) = (WorkspaceListing::default(), vec![String::new()], 0);
    while let Some(dir) = dirs.pop() {
        count += 1;
        if count > MAX_REPOSITORIES {
            return Err(FsError::Git(format!("there are more than {MAX_REPOSITORIES} repositories")));
        }
        // Unreadable files are not listed, so a restore would remove them.
        let output = match git.printed_whole(&dir, &["ls-files", "-z", "--others"]).await {
            // It was removed concurrently.
            Err(FsError::NotFound(_)) if !dir.is_empty() => continue,
            output => output?,
        };
        if output.is_empty() && !dir.is_empty() {
            seen.bare.push(dir.trim_end_matches('/').to_owned());
        }
        for name in output.split(|it| *it == 0).filter(|it| !it.is_empty()) {
            if let Some(inner) = name.strip_suffix(b"/") {
                let inner = str::from_utf8(inner).map_err(|_| {
                    FsError::invalid(&String::from_utf8_lossy(inner), "is a repository whose name is no UTF-8")
                })?;
                dirs.push(format!("{dir}{inner}/"));
            } else if !is_temporary(name) {
                seen.files.extend(dir.as_bytes());
                seen.files.extend(name);
                seen.files.push(0);
            }
        }
    }
    Ok(seen)
}

/// A file that is being written, under the name that it has before its own.
fn is_temporary(path: &[u8]) -> bool {
    let name = path.rsplit(|it| *it == b'/').next().unwrap_or_default();
    let digits = name.strip_prefix(b".coracle-").and_then(|it| it.strip_suffix(b".tmp"));
    digits.is_some_and(|it| it.len() == 16 && it.iter().all(u8::is_ascii_hexdigit))
}

/// The id of an object, as git prints it.
fn id(printed: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(printed);
    let id = text.trim_end();
    let is_id = matches!(id.len(), 40 | 64) && id.bytes().all(|it| it.is_ascii_hexdigit());
    if is_id { Ok(id.to_owned()) } else { Err(FsError::Git("it printed no id".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_plain_name() {
        for tag in ["a", "1.0", "before_edit-2", &"x".repeat(64)] {
            assert!(Tag::parse(tag).is_ok(), "{tag}");
        }
        let long = "x".repeat(65);
        for tag in ["", "-f", ".a", "a/b", "a b", "a..b", "a.", "a.lock", "ä", "a\n", "@{0}", "HEAD^", &long] {
            assert!(matches!(Tag::parse(tag), Err(FsError::Invalid { .. })), "{tag:?}");
        }
    }

    #[test]
    fn what_a_writer_has_not_named_yet_is_no_file() {
        assert!(is_temporary(b"a/.coracle-0123456789abcdef.tmp") && !is_temporary(b".coracle-0123.tmp"));
    }
}
