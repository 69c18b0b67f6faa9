//! Consent of the user at the terminal to copy a path outside the allowed directories.
//!
//! **Invariant:** paths that are never shared cannot be allowed. Other front ends cannot ask.

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;

use coracle_context::{Context, Failure};
use coracle_host::fs::HostPath;
use coracle_prepare::{copyable, host_path};
use serde_json::{Map, Value};

use super::operation_call::ALLOW;
use super::stdio::STDOUT;

/// The rule that the user can lift for one copy.
pub(super) const RULE: &str = "copy.root";

/// The hint for the user.
pub(super) const HINT: &str = "`--allow` copies it all the same, this once; `workspace.allow_roots` in the configuration \
    allows a directory for good";

/// Asks the user, and adds the path to the process if allowed. Without consent, the call is refused and recorded like
/// any other.
pub(super) async fn given(
    cx: Context,
    operation: &str,
    object: &Map<String, Value>,
    flags: &[&str],
) -> Result<Context, Failure> {
    let Some(path) = outside(&cx, operation, object) else { return Ok(cx) };
    let asks = cx.host.stdin_is_terminal && cx.host.stderr_is_terminal && !flags.contains(&"json");
    let allowed = flags.contains(&ALLOW) || asks && confirmed(&cx, &path).await?;
    Ok(if allowed { cx.with_consent(path) } else { cx })
}

/// The path of the host, if only its location is refused.
fn outside(cx: &Context, operation: &str, object: &Map<String, Value>) -> Option<PathBuf> {
    let text = object.get("host_path").and_then(Value::as_str).filter(|it| *it != STDOUT)?;
    let path = host_path(text, cx);
    // A copy to a new name writes to the parent directory.
    let path = match operation {
        "copy_out" if !text.ends_with('/') && !path.is_dir() => path.parent()?.to_owned(),
        _ => path,
    };
    let refused = copyable(&path, cx).err()?;
    let real = || HostPath::open(&path).ok().map(|it| it.real().to_owned());
    if refused.details.get("rule").is_some_and(|it| it == RULE) { real() } else { None }
}

async fn confirmed(cx: &Context, path: &std::path::Path) -> Result<bool, Failure> {
    let shown = path.display().to_string();
    let question = format!("{} is outside the allowed directories; copy anyway? [y/N] ", shown.escape_debug());
    let answer = tokio::task::spawn_blocking(move || is_confirmed(&question));
    cx.unless_cancelled(async { answer.await.map_err(Failure::internal) }).await
}

/// Asks at the terminal and reads one line. Everything but yes means no.
pub(super) fn is_confirmed(question: &str) -> bool {
    let mut err = io::stderr().lock();
    let mut line = String::new();
    let printed = err.write_all(question.as_bytes()).and_then(|()| err.flush());
    printed
        .and_then(|()| io::stdin().lock().read_line(&mut line))
        .is_ok_and(|_| ["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()))
}
