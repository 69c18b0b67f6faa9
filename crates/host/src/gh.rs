//! The token of the user's GitHub program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use coracle_types::{Error, Secret};
use tokio::io::{AsyncRead, AsyncReadExt};
use zeroize::Zeroizing;

use super::process::{Invocation, Stdin, exit_of, spawn};

/// Variables of the user's environment that the program needs: the location of its sign-in, or tokens instead.
pub const VARIABLES: &[&str] = &[
    "HOME",
    "XDG_CONFIG_HOME",
    "GH_CONFIG_DIR",
    // Where the session's key ring listens.
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
];

const DEADLINE: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 4096;

/// Why there is no token. The program's output may contain one, and is not repeated.
#[derive(Debug, thiserror::Error)]
pub enum NoToken {
    /// The host's name is invalid.
    #[error("`{}` is not a name of a host", .0.escape_debug())]
    Host(String),
    /// The user is not signed in to that host.
    #[error("`gh` is not signed in to `{0}`")]
    NotSignedIn(String),
    /// Its output is not a token.
    #[error("the output of `gh` for `{0}` is not a token")]
    Odd(String),
    /// It did not end in time.
    #[error("`gh` gave no token within {} s", DEADLINE.as_secs())]
    Slow,
    /// It could not be started.
    #[error(transparent)]
    Start(#[from] Error),
}

/// Gets the token of a host from the GitHub program, which gets only [`VARIABLES`] of `env`.
///
/// `program` is an absolute path, as `cli::detect::find_program("gh")` gives it.
///
/// # Errors
/// [`NoToken`].
pub async fn gh_token(program: &Path, host: &str, env: &BTreeMap<String, Secret>) -> Result<Secret, NoToken> {
    if !crate::git_url::is_host(host) {
        return Err(NoToken::Host(host.chars().take(253).collect()));
    }
    let mut asks = Invocation::new(program, ["auth", "token", &format!("--hostname={host}")]);
    for name in VARIABLES {
        let value = env.get(*name).map(|it| OsString::from_vec(it.reveal().to_vec()));
        asks.env.extend(value.map(|it| ((*name).to_owned(), it)));
    }
    for (name, value) in [("PATH", "/usr/bin:/bin"), ("GH_PROMPT_DISABLED", "1"), ("GH_NO_UPDATE_NOTIFIER", "1")] {
        asks.env.insert(name.to_owned(), value.into());
    }
    let mut child = spawn(&asks, Stdin::Empty)?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let work = async { tokio::join!(beginning(out), beginning(err), child.wait()) };
    let (printed, _, status) = tokio::time::timeout(DEADLINE, work).await.map_err(|_| NoToken::Slow)?;
    let token = printed.trim_ascii();
    match status.map_or(-1, exit_of) {
        0 if token.is_empty() => Err(NoToken::NotSignedIn(host.to_owned())),
        0 if token.len() < MAX_BYTES && token.iter().all(u8::is_ascii_graphic) => Ok(Secret::new(token.to_vec())),
        0 => Err(NoToken::Odd(host.to_owned())),
        _ => Err(NoToken::NotSignedIn(host.to_owned())),
    }
}

/// Reads the start of an output into a buffer of fixed size, since a growing one leaves copies in memory. The rest is
/// read and discarded.
pub(super) async fn beginning(pipe: Option<impl AsyncRead + Unpin>) -> Zeroizing<Vec<u8>> {
    let mut buffered = Zeroizing::new(Vec::with_capacity(MAX_BYTES));
    let mut buffer = Zeroizing::new([0; 1024]);
    let Some(mut pipe) = pipe else { return buffered };
    while let Ok(count @ 1..) = pipe.read(&mut buffer[..]).await {
        let room = MAX_BYTES - buffered.len();
        buffered.extend_from_slice(&buffer[..count.min(room)]);
    }
    buffered
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    async fn token_from(script: &str, env: &[(&str, &str)]) -> Result<String, NoToken> {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("gh");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), Secret::from(*value))).collect();
        let token = gh_token(&program, "ghe.example.com", &env).await?;
        Ok(String::from_utf8(token.reveal().to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_token_of_a_host_is_read() {
        assert_eq!(token_from("echo \"$*\" | tr ' ' ,", &[]).await.unwrap(), "auth,token,--hostname=ghe.example.com");
        assert_eq!(token_from("printf '\\n gho_x \\n'", &[]).await.unwrap(), "gho_x");
    }

    #[tokio::test]
    async fn the_program_gets_only_the_variables_of_its_sign_in() {
        let env = [("HOME", "/h"), ("GH_TOKEN", "gho_x"), ("AWS_SECRET_ACCESS_KEY", "x"), ("GH_DEBUG", "api")];
        let seen = token_from("env | cut -d= -f1 | grep -v -e PWD -e SHLVL -e '^_$' | sort | tr '\\n' ,", &env).await;
        assert_eq!(seen.unwrap(), "GH_NO_UPDATE_NOTIFIER,GH_PROMPT_DISABLED,GH_TOKEN,HOME,PATH,");
        assert_eq!(token_from("echo $GH_TOKEN", &env).await.unwrap(), "gho_x");
    }

    #[tokio::test]
    async fn other_output_is_no_token_and_is_not_reported() {
        assert!(matches!(token_from("exit 1", &[]).await, Err(NoToken::NotSignedIn(_))));
        assert!(matches!(token_from("echo", &[]).await, Err(NoToken::NotSignedIn(_))));
        for invalid in ["echo 'gho_x gho_y'", "printf 'gho_x\\ngho_y'", "head -c 100000 /dev/zero | tr '\\0' g"] {
            let err = token_from(invalid, &[]).await.unwrap_err();
            assert!(matches!(err, NoToken::Odd(_)) && !format!("{err} {err:?}").contains("gho"), "{err}");
        }
        let missing = gh_token("/no/such/gh".as_ref(), "github.com", &BTreeMap::new()).await;
        assert!(matches!(missing, Err(NoToken::Start(_))));
        let option = gh_token("/bin/echo".as_ref(), "x --secure-storage", &BTreeMap::new()).await;
        assert!(matches!(option, Err(NoToken::Host(_))));
    }
}
