//! Sources of repositories, and names of workflows' branches.

mod links;

use std::io::Read as _;
use std::path::{Path, PathBuf};

use coracle_host::branch::BranchName;
use coracle_host::fs::HostPath;
use coracle_host::git::Peer;
use coracle_host::git_url::{GitRules, GitUrl};
use coracle_types::WorkflowId;
use coracle_types::failure::{Code, Failure, Result};
use sha2::{Digest as _, Sha256};

pub(crate) use self::links::checked_repository;

/// A repository that may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RepositorySource {
    Url(GitUrl),
    /// A directory of this host, with links resolved.
    Dir(PathBuf),
}

impl RepositorySource {
    /// Parses a URL, or a directory below one of `roots`.
    pub(crate) fn parse(text: &str, allow_private: bool, roots: &[PathBuf]) -> Result<Self> {
        if !text.starts_with('/') {
            let url = GitUrl::parse(text, GitRules { allow_private, ssh: true });
            return url.map(Self::Url).map_err(|err| {
                let (is_rule, why) = (err.rule().is_some(), err.to_string());
                if is_rule { Failure::new(Code::PolicyDenied, why) } else { no_url(&why) }
            });
        }
        let held = HostPath::open(Path::new(text)).map_err(|err| Failure::new(Code::InvalidUrl, err.to_string()))?;
        if !held.is_dir() {
            return Err(Failure::new(Code::InvalidUrl, "a local source is a directory"));
        }
        beneath(held.real(), roots)?;
        Ok(Self::Dir(held.real().to_owned()))
    }

    /// The source for git and messages: an accepted URL has no password.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Url(url) => url.as_str().to_owned(),
            Self::Dir(dir) => dir.display().to_string(),
        }
    }

    pub(crate) fn peer(&self) -> Peer<'_> {
        match self {
            Self::Url(url) => Peer::Url(url),
            Self::Dir(_) => Peer::Dir,
        }
    }

    /// The name of its mirror.
    pub(crate) fn key(&self) -> String {
        hex::encode(&Sha256::digest(self.text())[..8])
    }
}

fn no_url(why: &str) -> Failure {
    Failure::new(Code::InvalidUrl, why).hint("give a directory on this host by its path, such as `./name`")
}

/// Fails unless a directory is below one that the user allows.
pub(crate) fn beneath(real: &Path, roots: &[PathBuf]) -> Result<()> {
    let within = |root: &PathBuf| root.canonicalize().is_ok_and(|root| real.starts_with(root));
    if roots.iter().any(within) {
        return Ok(());
    }
    let message = format!("`{}` lies beneath no directory that may be used", real.display());
    Err(Failure::new(Code::PolicyDenied, message).detail("rule", "allow_roots"))
}

/// Returns the branch of a workflow, after validating a given one.
pub(crate) fn branch_of(prefix: &str, id: &WorkflowId, given: Option<&str>) -> Result<BranchName> {
    let text = given.map_or_else(|| format!("{prefix}{id}"), str::to_owned);
    let refuse =
        |why: &str| Err(Failure::new(Code::InvalidBranch, format!("That is not a valid branch of a workflow: {why}.")));
    if !text.starts_with(prefix) || text.len() == prefix.len() {
        return refuse(&format!("it does not begin with `{prefix}`"));
    }
    // Git accepts these characters in a name, but a refspec interprets them.
    if text.contains(['+', ':']) {
        return refuse("it has `+` or `:`");
    }
    BranchName::parse(text).or_else(|_| refuse("git does not accept such a name"))
}

/// The directories of a checkout's repository.
pub(crate) struct RepositoryDirs {
    pub(crate) git_dir: PathBuf,
    pub(crate) common_dir: PathBuf,
}

impl RepositoryDirs {
    /// Finds those of a directory below `roots`; `None` if it has no repository.
    pub(crate) fn find(dir: &Path, roots: &[PathBuf]) -> Result<Option<Self>> {
        let dot_git = dir.join(".git");
        let Ok(held) = HostPath::open(&dot_git) else { return Ok(None) };
        let git_dir = if held.is_dir() {
            held.real().to_owned()
        } else {
            let text = small_file(&dot_git, 4096).unwrap_or_default();
            let Some(to) = text.strip_prefix("gitdir: ") else { return Ok(None) };
            let Ok(held) = HostPath::open(&dir.join(to.trim_end())) else { return Ok(None) };
            held.real().to_owned()
        };
        let common = small_file(&git_dir.join("commondir"), 4096).map(|it| git_dir.join(it.trim_end()));
        let common = common.unwrap_or_else(|| git_dir.clone());
        let Ok(common) = HostPath::open(&common) else { return Ok(None) };
        // A file in the checkout contains these paths, so they have to be allowed as well.
        for place in [git_dir.as_path(), common.real()] {
            beneath(place, roots)?;
        }
        Ok(Some(Self { git_dir, common_dir: common.real().to_owned() }))
    }
}

/// Reads a small regular file.
pub(crate) fn small_file(path: &Path, max: u64) -> Option<String> {
    let mut text = String::new();
    HostPath::open(path).ok()?.file().ok()?.take(max).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> WorkflowId {
        WorkflowId::parse("issue-1").unwrap()
    }

    #[test]
    fn x25_branches_need_their_prefix_and_no_characters_of_refspecs() {
        assert_eq!(branch_of("coracle/", &id(), None).unwrap().as_str(), "coracle/issue-1");
        assert_eq!(branch_of("coracle/", &id(), Some("coracle/x/y")).unwrap().as_str(), "coracle/x/y");
        let bad =
            ["main", ":main", "+coracle/x", "coracle/", "coracle/a:b", "coracle/a+b", "coracle/@{1}", "-coracle/x"];
        for text in
            bad.into_iter().chain(["coracle/x.lock", "coracle/../main", "coracle/a b", "coracle/-\n", "coracle//a"])
        {
            assert_eq!(branch_of("coracle/", &id(), Some(text)).unwrap_err().code, Code::InvalidBranch, "{text}");
        }
    }

    #[test]
    fn sources_are_urls_and_allowed_directories() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let roots = [dir.path().to_owned()];
        let code = |text: &str| RepositorySource::parse(text, false, &roots).map_err(|it| it.code);
        assert!(code(dir.path().to_str().unwrap()).is_ok());
        assert!(code("https://e.com/r.git").is_ok() && code("git@e.com:a/r.git").is_ok());
        assert!(code("ssh://git@e.com/a/r").is_ok());
        assert_eq!(code(other.path().to_str().unwrap()), Err(Code::PolicyDenied));
        std::os::unix::fs::symlink(other.path(), dir.path().join("link")).unwrap();
        assert_eq!(code(dir.path().join("link").to_str().unwrap()), Err(Code::PolicyDenied));
        assert_eq!(code("http://e.com/r"), Err(Code::PolicyDenied));
        let bad =
            ["https://me:pw@e.com/r", "ext::sh -c id", "-c", "file:///etc", "https://e.com/\n", "../x", "", "/nope"];
        for text in bad {
            assert_eq!(code(text), Err(Code::InvalidUrl), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn an_accepted_branch_is_one_word_below_the_prefix(text in "(coracle/)?[a-z+:@{}~^ ./-]{0,12}") {
            if let Ok(name) = branch_of("coracle/", &id(), Some(&text)) {
                proptest::prop_assert!(name.as_str().starts_with("coracle/") && !name.as_str().contains([':', '+', ' ', '~', '^']));
                proptest::prop_assert!(!name.as_str().contains(".."));
            }
        }
    }
}
