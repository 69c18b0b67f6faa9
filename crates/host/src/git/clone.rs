//! Inspects an untrusted repository.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_types::{Error, Excerpt};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::limited::{self, GitLimits, LimitedOutcome};
use super::program::{GitVersion, version_of};
use super::{GitProgram, InspectError, Remote};
use crate::git_url::GitUrl;
use crate::hardened::{self, Side};
use crate::process::{Invocation, ProgramOutput};
use crate::resolver::addresses_public;

/// Added to the settings of every git.
const SETTINGS: &[&str] = &[
    "protocol.https.allow=always",
    // One thread, so that the limit of the address space limits the total memory.
    "pack.threads=1",
];

/// Git ends by itself if this process was killed and the server sends nothing.
pub(super) const IMPATIENT: &[&str] = &["http.lowSpeedLimit=1", "http.lowSpeedTime=30"];

/// A tree of 64 MiB may decompress to a thousand times that size.
const MEMORY: u64 = 1 << 30;

/// Maximum size of the names at the top of a repository: many thousands.
const MAX_NAMES: usize = 1 << 20;

/// The first git that supports fixed addresses of a host.
const PINS: GitVersion = GitVersion { major: 2, minor: 37, patch: 0 };

/// The place and the addresses of a clone.
#[derive(Debug)]
struct CloneScope<'a> {
    /// Its directory.
    dir: &'a Path,
    /// Addresses of its host; none if any address may be connected to.
    pinned: &'a [SocketAddr],
    until: Instant,
}

impl GitProgram {
    pub(super) async fn inspect_clone(
        &self,
        remote: &Remote,
        temp_dir: &Path,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, InspectError> {
        let until = Instant::now() + self.deadline;
        let slow = |_| InspectError::TooSlow { after: self.deadline };
        let program = self.program.as_ref().ok_or(InspectError::NoGit)?;
        // SSH needs an identity, and none is used here.
        if remote.url.is_ssh() {
            return Err(InspectError::Private);
        }
        let pinned = match remote.allow_private {
            true => vec![],
            false => timeout_at(until, self.addresses(program, &remote.url)).await.map_err(slow)??,
        };
        let failed = |source| Error::Host { what: "cannot make a temporary directory".into(), source };
        let dir = tempfile::Builder::new().prefix("coracle-git-").tempdir_in(temp_dir).map_err(failed)?;
        let scope = CloneScope { dir: dir.path(), pinned: &pinned, until };
        let seen = self.clone_and_list(remote, &scope, cancel).await;
        remove(dir).await;
        seen
    }

    /// Resolves the addresses that git may connect to.
    pub(super) async fn addresses(&self, program: &Path, url: &GitUrl) -> Result<Vec<SocketAddr>, InspectError> {
        if version_of(program).await?.is_none_or(|it| it < PINS) {
            return Err(InspectError::OldGit);
        }
        Ok(addresses_public(url).await?)
    }

    async fn clone_and_list(
        &self,
        remote: &Remote,
        scope: &CloneScope<'_>,
        cancel: &CancellationToken,
    ) -> Result<Vec<String>, InspectError> {
        let CloneScope { dir, pinned, until } = *scope;
        let program = self.program.as_ref().ok_or(InspectError::NoGit)?;
        let bare = dir.join("it");
        let words = [settings(&remote.url, pinned), clone_words(remote, &bare)].concat();
        let clones = Invocation { env: environment(&remote.url), ..Invocation::new(program, in_dir(dir, words)) };
        let limits = GitLimits { until, max_bytes: self.max_bytes, memory: MEMORY, keep_bytes: 8192 };
        let cloned = self.ended(limited::run(&clones, dir, &limits, cancel).await?)?;
        if !cloned.ok() {
            return Err(refusal(&cloned));
        }
        let words = [settings(&remote.url, &[]), list_words(&bare)].concat();
        let lists = Invocation { env: environment(&remote.url), ..Invocation::new(program, in_dir(dir, words)) };
        let limits = GitLimits { keep_bytes: 2 * MAX_NAMES, ..limits };
        let listed = self.ended(limited::run(&lists, dir, &limits, cancel).await?)?;
        match (listed.ok(), listed.stdout.total_bytes()) {
            (false, _) => Err(InspectError::Unreachable(Excerpt::from_bytes(&listed.stderr.bytes()))),
            (true, size) if size > MAX_NAMES as u64 => Err(InspectError::TooBig { max_bytes: MAX_NAMES as u64 }),
            (true, _) => Ok(names(&listed.stdout.bytes())),
        }
    }

    fn ended(&self, ended: LimitedOutcome) -> Result<ProgramOutput, InspectError> {
        match ended {
            LimitedOutcome::Itself(finished) => Ok(finished),
            LimitedOutcome::TooBig => Err(InspectError::TooBig { max_bytes: self.max_bytes }),
            // The caller no longer waits.
            LimitedOutcome::TooSlow | LimitedOutcome::Cancelled => Err(InspectError::TooSlow { after: self.deadline }),
        }
    }
}

fn environment(url: &GitUrl) -> BTreeMap<String, OsString> {
    let fixed = hardened::environment(Side::Host).map(|(name, value)| (name.to_owned(), value.into()));
    let protocols = if url.insecure() { "http:https" } else { "https" };
    fixed.chain([("GIT_ALLOW_PROTOCOL".to_owned(), protocols.into())]).collect()
}

/// Limits git's search for a repository to the directory.
fn in_dir(dir: &Path, words: Vec<OsString>) -> Vec<OsString> {
    [vec!["-C".into(), dir.into()], words].concat()
}

fn settings(url: &GitUrl, pinned: &[SocketAddr]) -> Vec<OsString> {
    let http = url.insecure().then(|| "protocol.http.allow=always".to_owned());
    let more = http.into_iter().chain(pin(url, pinned).map(|it| format!("http.curloptResolve={it}")));
    let fixed = hardened::settings(Side::Host).chain(SETTINGS.iter().chain(IMPATIENT).copied());
    let all = fixed.map(str::to_owned).chain(more);
    all.flat_map(|it| ["-c".into(), it.into()]).collect()
}

/// Returns `HOST:PORT:ADDRESS[,ADDRESS]`, with which curl resolves nothing itself. A host that is an address needs no
/// entry.
pub(super) fn pin(url: &GitUrl, pinned: &[SocketAddr]) -> Option<String> {
    if pinned.is_empty() || url.address().is_some() {
        return None;
    }
    let bracketed = |it: &SocketAddr| if it.is_ipv6() { format!("[{}]", it.ip()) } else { it.ip().to_string() };
    let addresses: Vec<String> = pinned.iter().map(bracketed).collect();
    Some(format!("{}:{}:{}", url.host(), url.port(), addresses.join(",")))
}

fn clone_words(remote: &Remote, bare: &Path) -> Vec<OsString> {
    let words = ["clone", "--bare", "--depth=1", "--single-branch", "--no-tags", "--filter=blob:none", "--template="];
    let branch = remote.branch.as_ref().map(|it| format!("--branch={it}"));
    let ends = [OsString::from("--"), remote.url.as_str().into(), bare.into()];
    words.into_iter().map(Into::into).chain(branch.map(Into::into)).chain(ends).collect()
}

fn list_words(bare: &Path) -> Vec<OsString> {
    let mut git_dir = OsString::from("--git-dir=");
    git_dir.push(bare);
    [vec![git_dir], ["ls-tree", "-z", "--name-only", "HEAD"].map(Into::into).to_vec()].concat()
}

fn names(listed: &[u8]) -> Vec<String> {
    let names = listed.split(|it| *it == 0).filter(|it| !it.is_empty());
    names.map(|it| String::from_utf8_lossy(it).into_owned()).collect()
}

fn refusal(cloned: &ProgramOutput) -> InspectError {
    let stderr = cloned.stderr.bytes();
    if wants_credential(&stderr) {
        InspectError::Private
    } else {
        InspectError::Unreachable(Excerpt::from_bytes(&stderr))
    }
}

/// Git reports reasons only as text. The text decides the error message and whether a credential is requested, nothing
/// else.
pub(super) fn wants_credential(stderr: &[u8]) -> bool {
    let words = String::from_utf8_lossy(stderr);
    let phrases =
        ["could not read Username", "could not read Password", "Authentication failed", "returned error: 403"];
    phrases.iter().any(|it| words.contains(it))
}

/// Removes a directory into which a process that was just killed may still write.
async fn remove(dir: TempDir) {
    let path: PathBuf = dir.keep();
    for _ in 0..20 {
        match tokio::fs::remove_dir_all(&path).await {
            Ok(()) => return,
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return,
            Err(err) => tracing::debug!(%err, "a temporary directory is not empty yet"),
        }
        sleep(Duration::from_millis(50)).await;
    }
    tracing::warn!(path = %path.display(), "a temporary directory could not be removed");
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::branch::BranchName;
    use crate::git_url::GitRules;

    fn remote(url: &str, allow_private: bool) -> Remote {
        let url = GitUrl::parse(url, GitRules { allow_private, ssh: true }).unwrap();
        Remote { url, branch: None, allow_private }
    }

    fn text(words: &[OsString]) -> String {
        words.iter().map(|it| it.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn git_gets_its_settings_and_protocols() {
        let mut remote = remote("https://e.com/r.git", false);
        remote.branch = Some(BranchName::parse("a/b").unwrap());
        let pinned = ["8.8.8.8:443", "[2606::1]:443"].map(|it| it.parse().unwrap());
        let words = [settings(&remote.url, &pinned), clone_words(&remote, "/tmp/it".as_ref())].concat();
        insta::assert_snapshot!(text(&words).replace(" -c ", "\n-c "), @r"
        -c core.hooksPath=/dev/null
        -c core.fsmonitor=false
        -c core.attributesFile=/dev/null
        -c core.pager=cat
        -c core.editor=false
        -c core.sshCommand=false
        -c credential.helper=
        -c protocol.allow=never
        -c submodule.recurse=false
        -c diff.ignoreSubmodules=all
        -c commit.gpgSign=false
        -c safe.bareRepository=explicit
        -c gc.auto=0
        -c maintenance.auto=false
        -c core.symlinks=false
        -c http.followRedirects=false
        -c fetch.fsckObjects=true
        -c transfer.fsckObjects=true
        -c protocol.https.allow=always
        -c pack.threads=1
        -c http.lowSpeedLimit=1
        -c http.lowSpeedTime=30
        -c http.curloptResolve=e.com:443:8.8.8.8,[2606::1] clone --bare --depth=1 --single-branch --no-tags --filter=blob:none --template= --branch=a/b -- https://e.com/r.git /tmp/it
        ");
        assert_eq!(environment(&remote.url)["GIT_ALLOW_PROTOCOL"], "https");
    }

    #[test]
    fn plain_http_is_a_protocol_if_it_is_allowed() {
        let remote = remote("http://10.0.0.1/r", true);
        assert!(text(&settings(&remote.url, &[])).ends_with("-c protocol.http.allow=always"));
        assert_eq!(environment(&remote.url)["GIT_ALLOW_PROTOCOL"], "http:https");
    }

    #[tokio::test]
    async fn git_connects_to_the_checked_address_and_does_not_prompt() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = [listener.local_addr().unwrap()];
        let remote = remote(&format!("http://no-such-host.invalid:{}/r", at[0].port()), true);
        let (temp, cancel) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let git = GitProgram::of_this_host(&[]).await;
        let until = Instant::now() + Duration::from_secs(30);
        let scope = CloneScope { dir: temp.path(), pinned: &at, until };
        let looks = git.clone_and_list(&remote, &scope, &cancel);
        let meets = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1000];
            let count = stream.read(&mut head).await.unwrap();
            String::from_utf8_lossy(&head[..count]).into_owned()
        };
        let (seen, head) = tokio::join!(looks, meets);
        assert!(matches!(seen, Err(InspectError::Unreachable(_))), "{seen:?}");
        assert!(head.contains("Host: no-such-host.invalid:"), "{head}");
    }

    #[tokio::test]
    async fn a_private_host_is_not_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asks = Remote { allow_private: false, ..remote(&format!("https://localhost:{port}/r"), true) };
        let temp = tempfile::tempdir().unwrap();
        let seen =
            GitProgram::of_this_host(&[]).await.inspect_clone(&asks, temp.path(), &CancellationToken::new()).await;
        assert!(matches!(seen, Err(InspectError::Address(crate::resolver::ResolveError::Private { .. }))), "{seen:?}");
        assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err());
    }
}
