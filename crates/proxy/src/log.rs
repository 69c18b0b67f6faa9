//! One log line per request, without body, headers, tokens, keys or query; and events for the user.

use std::io;
use std::path::Path;
use std::time::Instant;

use coracle_host::rotating_log::RotatingLog;
use coracle_types::is_deceptive;
use serde::Serialize;

/// Size at which a log file is rotated.
const ROTATED_AT: u64 = 16 << 20;

/// Number of rotated files to keep.
const ROTATED_FILES: u32 = 1;

/// Maximum length in characters of a text from the container.
const LONGEST: usize = 256;

/// A logged request.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RequestLogLine {
    pub(crate) ts: String,
    pub(crate) container: String,
    /// `llm` or `net`
    pub(crate) scope: Option<&'static str>,
    pub(crate) route: &'static str,
    pub(crate) host: Option<String>,
    /// Method and path, where the proxy sees them.
    pub(crate) request: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) status: u16,
    pub(crate) code: Option<&'static str>,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) duration_ms: u64,
    pub(crate) tokens: Option<u64>,
    pub(crate) policy_generation: u64,
}

/// An event for the user: a refusal, or too many bad tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProxyEvent {
    /// `host_not_allowed`, `proxy_abuse`, …
    pub code: &'static str,
    /// The container of the proxy.
    pub container: String,
    /// The destination with its port, if it has a name.
    pub target: Option<String>,
    /// The rule of `egress.allow` that would allow it, if one can.
    pub rule: Option<String>,
    /// The version of the policy.
    pub policy_generation: u64,
}

/// The log file. Proxies of several processes append to the same file.
#[derive(Debug)]
pub(crate) struct ProxyLog(Option<RotatingLog>);

impl ProxyLog {
    /// # Errors
    /// If the file cannot be opened: no request may remain unlogged.
    pub(crate) fn open(path: Option<&Path>) -> io::Result<Self> {
        let log = path.map(|path| RotatingLog::new(path.to_owned(), ROTATED_AT, ROTATED_FILES));
        log.as_ref().map(RotatingLog::open).transpose()?;
        Ok(Self(log))
    }

    pub(crate) fn write(&self, line: &RequestLogLine) {
        let Some(log) = &self.0 else { return };
        let Ok(mut bytes) = serde_json::to_vec(line) else { return };
        bytes.push(b'\n');
        if let Err(err) = log.append(&bytes) {
            tracing::warn!(%err, "cannot write the proxy's log");
        }
    }
}

/// Makes a text from the container safe for a log.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(LONGEST).map(|it| if is_deceptive(it) { '\u{fffd}' } else { it }).collect()
}

/// Returns the current time as in logs.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// Returns the elapsed whole milliseconds.
pub(crate) fn ms_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_and_a_long_file_is_rotated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("proxy.jsonl");
        let line = |route| RequestLogLine { route, status: 200, ..RequestLogLine::default() };
        ProxyLog::open(Some(&path)).unwrap().write(&line("one"));
        let log = ProxyLog::open(Some(&path)).unwrap();
        log.write(&line("two"));
        assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2);
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(ROTATED_AT).unwrap();
        let log = ProxyLog::open(Some(&path)).unwrap();
        log.write(&line("three"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() == 1 && text.contains("\"route\":\"three\""), "{text}");
        assert_eq!(dir.path().join("proxy.jsonl.1").metadata().unwrap().len(), ROTATED_AT);
        ProxyLog::open(None).unwrap().write(&line("nowhere"));
        assert_eq!(shown("a\nb\u{1b}"), "a\u{fffd}b\u{fffd}");
    }
}
