//! GitHub's token.

use std::fmt;
use std::time::{Duration, Instant};

use coracle_types::{Command, Exit, Secret};

pub use crate::env::token::NAMES;
use crate::env::{SessionEnv, VariableSource};
use crate::{Status, StepContext, StepReport};

const STEP: &str = "forward_gh";

/// Maximum length of a token.
const MAX_TOKEN: usize = 4096;

/// Why no token is forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GhSkipReason {
    /// It was not requested.
    NotRequested,
    /// The host has no `gh`.
    NoProgram,
    /// No account is signed in for that host.
    NotSignedIn,
}

impl fmt::Display for GhSkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotRequested => "not requested",
            Self::NoProgram => "the host has no `gh`",
            Self::NotSignedIn => "`gh` on the host is not signed in",
        })
    }
}

/// The report of a container without a token.
#[must_use]
pub fn skipped(why: GhSkipReason) -> StepReport {
    StepReport::skipped(STEP, why.to_string())
}

/// Parses the output of `gh auth token`; none if it is not a token.
#[must_use]
pub fn token(printed: &[u8]) -> Option<Secret> {
    let token = printed.trim_ascii();
    let fits = (1..=MAX_TOKEN).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic);
    fits.then(|| Secret::new(token.to_vec()))
}

/// Whether a text is a valid host for a token: `github.com`, or a private host.
#[must_use]
pub fn is_host(text: &str) -> bool {
    let plain = |it: u8| it.is_ascii_alphanumeric() || b".-:".contains(&it);
    (1..=255).contains(&text.len()) && !text.starts_with(['-', '.', ':']) && text.bytes().all(plain)
}

/// Prints which of the two variables are not empty, and never their values.
const NOT_EMPTY: &str =
    r#"if [ -n "$GH_TOKEN" ]; then echo GH_TOKEN; fi; if [ -n "$GITHUB_TOKEN" ]; then echo GITHUB_TOKEN; fi"#;

/// Reports whether the token is in the session. `given` is the session's own entry.
pub async fn forwarded(context: &StepContext, session: &SessionEnv, given: &StepReport) -> StepReport {
    let begun = Instant::now();
    let names: Vec<&str> = session.names().filter(|it| it.1 == VariableSource::Gh).map(|it| it.0).collect();
    if names.is_empty() {
        return StepReport::skipped(STEP, "`env` of the call sets `GH_TOKEN` and `GITHUB_TOKEN` itself");
    }
    let detail = format!("{} of every command", names.join(" and "));
    if given.status == Status::Failed {
        let error = given.error.clone().unwrap_or_else(|| "the session was not set".to_owned());
        return StepReport::flawed(STEP, Status::Failed, detail, error);
    }
    match held(context, &names).await {
        Ok(probe) => StepReport::success(STEP, detail, probe),
        Err(error) => StepReport::flawed(STEP, Status::Failed, detail, error),
    }
    .with_duration(begun.elapsed())
}

async fn held(context: &StepContext, names: &[&str]) -> Result<&'static str, String> {
    let words = ["/bin/sh", "-c", NOT_EMPTY].map(str::to_owned).to_vec();
    let exec = context.exec(Command::Argv(words), &context.home, Duration::from_secs(10));
    let output = context.link.exec(exec).await.map_err(|it| it.to_string())?;
    let printed = output.stdout.text();
    match output.exit {
        Exit::Code(126 | 127) => Ok("PID 1 accepted it for every command, and it is not empty"),
        Exit::Code(0) if names.iter().all(|name| printed.lines().any(|it| it == *name)) => {
            Ok("a command of the exec user has it, and it is not empty")
        }
        exit => Err(format!("a command of the exec user does not have it ({exit:?})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_word() {
        for (printed, expected) in [
            (&b"gho_abc\n"[..], Some(&b"gho_abc"[..])),
            (b"x", Some(b"x")),
            (b"", None),
            (b"\n", None),
            (b"no oauth token found", None),
            (b"a\nb", None),
            (b"a\x1bb", None),
        ] {
            assert_eq!(token(printed).as_ref().map(Secret::reveal), expected);
        }
        assert!(token(&[b'x'; MAX_TOKEN + 1]).is_none());
    }

    #[test]
    fn a_host_is_neither_a_path_nor_an_option() {
        for host in ["github.com", "ghe.corp.example:8443", "localhost"] {
            assert!(is_host(host), "{host}");
        }
        for host in ["", "-x", ".x", "a/b", "a@b", "a b", "a\nb", "a\"b"] {
            assert!(!is_host(host), "{host}");
        }
    }
}
