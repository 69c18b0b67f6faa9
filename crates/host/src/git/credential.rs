//! Credentials of the user's own helper, for a git without other access to the user's configuration.
//!
//! **Invariant:** a credential is in no argument, no variable and no file: it is passed through a pipe that is read
//! once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use coracle_types::{Error, Input, Result, Secret};
use tempfile::TempDir;
use zeroize::Zeroizing;

use super::own::Login;
use crate::gh::beginning;
use crate::git_url::GitUrl;
use crate::process::{Invocation, Stdin, exit_of, spawn};

/// Timeout of a helper, which may use a key ring, but must not prompt.
const DEADLINE: Duration = Duration::from_secs(20);

/// `username=…` and `password=…`, on one line each.
pub(super) struct Credential(Zeroizing<Vec<u8>>);

/// A pipe in Coracle's own directory that contains a credential until a helper reads it.
pub(super) struct CredentialPipe {
    dir: TempDir,
    /// Open at both ends, so that written data waits in it, and is discarded with this process.
    _held: File,
}

impl Credential {
    /// Runs the user's git in an empty directory. `None` if it has no credential.
    pub(super) async fn request(
        program: &Path,
        url: &GitUrl,
        env: &BTreeMap<String, OsString>,
        scratch: &Path,
    ) -> Result<Option<Self>> {
        let failed = |source| Error::Host { what: "cannot make a temporary directory".into(), source };
        let dir = tempfile::Builder::new().prefix("coracle-ask-").tempdir_in(scratch).map_err(failed)?;
        let mut asks = Invocation::new(program, [OsString::from("-C"), dir.path().into()]);
        asks.words.extend(["credential", "fill"].map(OsString::from));
        asks.env.clone_from(env);
        // No prompt can be answered, and repositories above the directory are ignored.
        let quiet = [("GIT_TERMINAL_PROMPT", "0"), ("GIT_ASKPASS", "/bin/false"), ("SSH_ASKPASS", "/bin/false")];
        asks.env.extend(quiet.map(|(name, value)| (name.to_owned(), value.into())));
        asks.env.insert("GIT_CEILING_DIRECTORIES".into(), scratch.into());
        let mut child = spawn(&asks, Stdin::Input(Input::Bytes(question(url).into_bytes())))?;
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let work = async { tokio::join!(beginning(out), beginning(err), child.wait()) };
        let late = |_| Error::TimedOut { verb: "git credential", after: DEADLINE };
        let (printed, _, status) = tokio::time::timeout(DEADLINE, work).await.map_err(late)?;
        Ok(if status.map_or(-1, exit_of) == 0 { Self::read(&printed) } else { None })
    }

    /// Selects the fields to forward. The memory is reserved at once, since a growing buffer leaves copies in memory.
    fn read(printed: &[u8]) -> Option<Self> {
        let mut fields = Zeroizing::new(Vec::with_capacity(printed.len() + 2));
        for key in [&b"username="[..], b"password="] {
            let line = printed.split(|it| *it == b'\n').find(|it| it.starts_with(key) && it.len() > key.len())?;
            fields.extend_from_slice(line);
            fields.push(b'\n');
        }
        Some(Self(fields))
    }

    /// Returns user name and password.
    pub(super) fn login(&self) -> Option<Login> {
        let part = |key: &[u8]| self.0.split(|it| *it == b'\n').find_map(|it| it.strip_prefix(key));
        let username = std::str::from_utf8(part(b"username=")?).ok()?.to_owned();
        Some(Login { username, password: Secret::new(part(b"password=")?.to_vec()) })
    }

    /// Puts it where a helper finds it.
    #[cfg(target_os = "linux")]
    pub(super) fn piped(&self, scratch: &Path) -> Result<CredentialPipe> {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let failed = |source| Error::Host { what: "cannot pass a credential on".into(), source };
        let dir = tempfile::Builder::new().prefix("coracle-pipe-").tempdir_in(scratch).map_err(failed)?;
        let path = dir.path().join("it");
        mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).map_err(|err| failed(err.into()))?;
        let mut held = File::options().read(true).write(true).open(&path).map_err(failed)?;
        held.write_all(&self.0).map_err(failed)?;
        Ok(CredentialPipe { dir, _held: held })
    }

    /// Puts it where a helper finds it.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn piped(&self, _: &Path) -> Result<CredentialPipe> {
        let source = std::io::ErrorKind::Unsupported.into();
        Err(Error::Host { what: "cannot pass a credential on".into(), source })
    }
}

impl CredentialPipe {
    /// Returns the value of git's `credential.helper` that reads it, once. It ignores its argument: git adds `get`,
    /// `store` or `erase`.
    pub(super) fn helper(&self) -> String {
        let path = self.dir.path().join("it").display().to_string().replace('\'', r"'\''");
        let reads = "IFS= read -r a && IFS= read -r b && printf '%s\\n%s\\n' \"$a\" \"$b\"";
        format!("!f() {{ test \"$1\" = get || exit 0; {{ {reads}; }} < '{path}'; }}; f")
    }
}

fn question(url: &GitUrl) -> String {
    let scheme = if url.insecure() { "http" } else { "https" };
    let rest = url.as_str().split_once("://").map_or("", |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    format!("protocol={scheme}\nhost={host}\npath={path}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::git_url::GitRules;

    fn url(text: &str) -> GitUrl {
        GitUrl::parse(text, GitRules { allow_private: true, ssh: false }).unwrap()
    }

    #[test]
    fn the_request_contains_the_server_with_its_port() {
        assert_eq!(question(&url("https://e.com:8443/a/b.git")), "protocol=https\nhost=e.com:8443\npath=a/b.git\n\n");
    }

    #[tokio::test]
    async fn the_users_helper_is_run_and_its_answer_is_read_once() {
        let home = tempfile::tempdir().unwrap();
        let helper = "!f() { test \"$1\" = get && printf 'username=me\\npassword=ses ame\\nquit=0\\n'; }; f";
        let config = format!("[credential]\n\thelper = {helper:?}\n");
        std::fs::write(home.path().join(".gitconfig"), config).unwrap();
        let git = crate::find_program::find_program("git").unwrap();
        let env: BTreeMap<String, OsString> =
            [("HOME".to_owned(), home.path().into()), ("PATH".to_owned(), "/usr/bin:/bin".into())].into();
        let found = Credential::request(&git, &url("https://e.com/r"), &env, home.path()).await.unwrap().unwrap();
        assert_eq!(found.0.as_slice(), b"username=me\npassword=ses ame\n");
        let pipe = found.piped(home.path()).unwrap();
        let script = pipe.helper();
        let asks = Invocation::new("/bin/sh", ["-c", &format!("{} get", &script[1..])]);
        let output = crate::process::run("sh", &asks, Stdin::Empty, (DEADLINE, 1000)).await.unwrap();
        assert_eq!(output.stdout.text(), "username=me\npassword=ses ame\n", "{}", output.stderr.text());
        drop(pipe);
        let none = BTreeMap::from([("PATH".to_owned(), OsString::from("/usr/bin:/bin"))]);
        assert!(Credential::request(&git, &url("https://e.com/r"), &none, home.path()).await.unwrap().is_none());
        // No file is left.
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
