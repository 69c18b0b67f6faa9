//! `exec`: a command in a container, waited for.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_lifecycle::session;
use coracle_runtime::{
    ByteSize, Capture, ContainerPath, Exec as RuntimeExec, ExecLimits, ExecOutput, Exit, Handle, Ids, LimitKind,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::{Name, Script, Seconds, Size};
use crate::config::Config;
use crate::context::{Context, Mouth};
use crate::failure::{Code, Failure};
use crate::op::Operation;
use crate::reach::{Warning, reach_running};
use crate::resolve::plain_env;

/// Run a command in a container and wait for it. A command that fails or is ended at a limit is a successful call: see
/// `exit_code` and `timed_out`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exec {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// What to run: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    command: Script,
    /// Seconds (or `90s`, `10m`) before the command and everything it started is ended.
    #[schemars(extend("default" = 300))]
    timeout: Option<Seconds>,
    /// Seconds without any output before the command is ended; 0 is off.
    #[schemars(extend("default" = 0))]
    silence_timeout: Option<Seconds>,
    /// What to do at a limit: `kill`.
    #[schemars(with = "Option<String>", extend("default" = "kill"))]
    on_timeout: Option<OnTimeout>,
    /// Where commands run, and where the working directory is mounted. Made if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    workdir: Option<String>,
    /// Variables for the command or commands: names and plain values, no secrets.
    env: Option<BTreeMap<String, Value>>,
    /// Text for the command's standard input. Without it there is an end of file at once.
    stdin: Option<String>,
    /// The same as base64, for any bytes.
    stdin_base64: Option<String>,
    /// Run as root inside.
    #[schemars(extend("default" = false))]
    as_root: Option<bool>,
    /// Bytes of each stream that are answered; of more, the first and the last half.
    #[schemars(with = "Option<Size>")]
    max_output: Option<ByteSize>,
    /// `text` (what is not UTF-8 becomes U+FFFD) or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "text"))]
    encoding: Option<Encoding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum OnTimeout {
    Kill,
    Keep,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[default]
    Text,
    Base64,
}

/// The answer of `exec` (containers.md 9.2).
#[derive(Debug, Serialize)]
pub(crate) struct Ran {
    returncode: Option<u8>,
    exit_code: Option<u8>,
    stdout: String,
    stderr: String,
    timed_out: bool,
    timeout_kind: Option<LimitKind>,
    signal: Option<&'static str>,
    truncated: bool,
    stdout_bytes: u64,
    stderr_bytes: u64,
    job_id: Option<String>,
    running: bool,
    left_running: u32,
    tree_ended: Option<bool>,
    container: String,
    user: Ids,
    workdir: ContainerPath,
    encoding: Encoding,
    duration_ms: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<Warning>,
}

/// The kernel takes no single argument above 128 KiB, and without a guest the command is arguments.
const MAX_WORD: usize = 90 << 10;

/// A call takes at most this much input.
const MAX_STDIN: usize = 4 << 20;

impl Operation for Exec {
    const NAME: &'static str = "exec";
    type Answer = Ran;

    async fn run(self, cx: &Context) -> Result<Ran, Failure> {
        self.check(&cx.config)?;
        let env = plain_env(&self.env)?;
        let stdin = self.stdin()?;
        let as_root = self.as_root.unwrap_or(false);
        if as_root && !cx.config.security.allow_root {
            return Err(super::root_refused("root.exec", "commands as root are not granted"));
        }
        let (found, mut warnings) = reach_running(cx, &self.container).await?;
        let session = session(&found, as_root)?;
        let mut exec: RuntimeExec = session.exec(self.command.0.clone());
        if let Some(workdir) = &self.workdir {
            exec.workdir = session.workdir.join(workdir)?;
        }
        exec.env.extend(env);
        exec.stdin = stdin;
        exec.limits = self.limits(&cx.config);
        exec.keep_bytes = usize::try_from(self.max_output(cx).0).unwrap_or(usize::MAX);
        exec.cancel = cx.cancel.clone();
        exec.live = cx.progress.live();
        let workdir = exec.workdir.clone();
        let _place = cx.place().await?;
        let output = found.runtime.exec(&found.present()?.id, exec).await;
        let output = output.map_err(|err| failed(err, found.record.name.as_str()))?;
        if output.exit == Exit::Cancelled {
            return Err(Failure::cancelled()
                .known("container", &found.record.name)
                .detail("tree_ended", output.tree_ended));
        }
        if output.tree_ended == Some(false) {
            warnings.push(Warning::new("left_running", "some of the command's processes could not be ended"));
        }
        let encoding = self.encoding.unwrap_or_default();
        Ok(Ran { workdir, warnings, ..ran(&output, encoding, found.record.name.to_string(), session.user) })
    }
}

impl Exec {
    fn check(&self, config: &Config) -> Result<(), Failure> {
        if self.on_timeout == Some(OnTimeout::Keep) {
            return Err(Failure::new(Code::Unsupported, "a command without a guest cannot be kept as a job")
                .detail("capability", "guest")
                .hint("leave `on_timeout` out and give a longer `timeout`"));
        }
        if self.command.0.clone().into_argv().iter().any(|it| it.len() > MAX_WORD) {
            let message = "a word of the command is longer than 90 KiB, which a container without a guest cannot take";
            return Err(Failure::new(Code::Unsupported, message)
                .detail("capability", "guest")
                .hint("copy a script in with `copy_in`, or give the data as `stdin`"));
        }
        if self.timeout.is_some_and(|it| it.0 < Duration::from_millis(100)) {
            return Err(Failure::invalid("timeout", "at least 0.1 s").hint("leave it out for the configured time"));
        }
        if let Some(timeout) = self.timeout.filter(|it| *it > config.exec.timeout_max) {
            let message = format!("timeout {timeout} is above {}", config.exec.timeout_max);
            let problem = coracle_runtime::Problem {
                rule: "limit.timeout",
                setting: Some("exec.timeout_max"),
                value: timeout.to_string(),
                message,
            };
            return Err(coracle_runtime::Refused { problems: vec![problem] }.into());
        }
        if self.max_output.is_some_and(|it| !(1 << 10..=4 << 20).contains(&it.0)) {
            return Err(Failure::invalid("max_output", "from 1k to 4m"));
        }
        Ok(())
    }

    fn stdin(&self) -> Result<Option<Vec<u8>>, Failure> {
        let bytes = match (&self.stdin, &self.stdin_base64) {
            (Some(_), Some(_)) => {
                return Err(Failure::conflicting(&["stdin", "stdin_base64"], "there is one standard input"));
            }
            (Some(text), None) => Some(text.clone().into_bytes()),
            (None, Some(text)) => {
                let decoded = STANDARD.decode(text).map_err(|err| Failure::invalid("stdin_base64", err.to_string()))?;
                Some(decoded)
            }
            (None, None) => None,
        };
        match bytes {
            Some(bytes) if bytes.len() > MAX_STDIN => {
                Err(Failure::invalid("stdin", "at most 4 MiB")
                    .hint("copy the data in with `copy_in` and read the file"))
            }
            other => Ok(other),
        }
    }

    fn limits(&self, config: &Config) -> ExecLimits {
        ExecLimits {
            total: Some(self.timeout.unwrap_or(config.exec.timeout).0),
            silence: self.silence_timeout.unwrap_or(config.exec.silence_timeout).unless_zero(),
            grace: config.exec.grace.0,
        }
    }

    fn max_output(&self, cx: &Context) -> ByteSize {
        let default = if cx.mouth == Mouth::Mcp { cx.config.exec.inline_mcp } else { cx.config.exec.inline };
        self.max_output.unwrap_or(default)
    }
}

/// What a command had printed when its container ended is still the caller's.
fn failed(err: coracle_runtime::Error, container: &str) -> Failure {
    let so_far = match &err {
        coracle_runtime::Error::NotRunning { output: Some(output), .. } => {
            Some((shown(&output.stdout, Encoding::Text), shown(&output.stderr, Encoding::Text)))
        }
        _ => None,
    };
    let failure = Failure::from(err).known("container", container);
    match so_far {
        Some((stdout, stderr)) => failure.known("stdout", stdout).known("stderr", stderr),
        None => failure,
    }
}

fn ran(output: &ExecOutput, encoding: Encoding, container: String, user: Ids) -> Ran {
    let (code, kind) = match output.exit {
        Exit::Code(code) => (code, None),
        // What `timeout` of coreutils exits with; `timed_out` tells it from a command's own 124.
        Exit::TimedOut(kind) => (124, Some(kind)),
        Exit::Cancelled => (130, None),
    };
    Ran {
        returncode: Some(code),
        exit_code: Some(code),
        stdout: shown(&output.stdout, encoding),
        stderr: shown(&output.stderr, encoding),
        timed_out: kind.is_some(),
        timeout_kind: kind,
        signal: None,
        truncated: output.stdout.left_out() + output.stderr.left_out() > 0,
        stdout_bytes: output.stdout.total_bytes(),
        stderr_bytes: output.stderr.total_bytes(),
        job_id: None,
        running: false,
        left_running: 0,
        tree_ended: output.tree_ended,
        container,
        user,
        workdir: ContainerPath::root(),
        encoding,
        duration_ms: super::millis(output.duration),
        warnings: Vec::new(),
    }
}

/// A stream as it is answered: whole, or both ends with a line between them that counts what is missing. Base64 gives
/// the start alone, since two ends would not decode as one.
fn shown(capture: &Capture, encoding: Encoding) -> String {
    match (encoding, capture.left_out()) {
        (Encoding::Text, 0) => capture.text(),
        (Encoding::Text, left_out) => {
            let (head, tail) = (whole_start(capture.head()), capture.tail());
            let tail = whole_end(&tail);
            format!(
                "{}\n[… {left_out} bytes left out …]\n{}",
                String::from_utf8_lossy(head),
                String::from_utf8_lossy(tail)
            )
        }
        (Encoding::Base64, 0) => STANDARD.encode(capture.bytes()),
        (Encoding::Base64, _) => STANDARD.encode(capture.head()),
    }
}

/// Without the character that was cut at the end.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.utf8_chunks().last().map_or(0, |it| it.invalid().len());
    if cut < 4 { &bytes[..bytes.len() - cut] } else { bytes }
}

/// Without the rest of a character that was cut at the start.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|it| **it & 0b1100_0000 == 0b1000_0000).count();
    &bytes[rest..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(keep_bytes: usize, bytes: &[u8]) -> Capture {
        let mut it = Capture::new(keep_bytes);
        it.push(bytes);
        it
    }

    #[test]
    fn a_stream_within_its_limit_is_given_whole() {
        assert_eq!(shown(&capture(10, b"a\xffb"), Encoding::Text), "a\u{fffd}b");
        assert_eq!(shown(&capture(10, b"a\xffb"), Encoding::Base64), "Yf9i");
    }

    #[test]
    fn a_cut_stream_has_both_ends_cut_between_characters() {
        let text = "ä".repeat(50);
        assert_eq!(shown(&capture(10, text.as_bytes()), Encoding::Text), "ää\n[… 90 bytes left out …]\nää");
    }
}
