//! The fields that every command has, whether the call waits for it or not.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_context::arg_types::{Name, Pairs, Script, Seconds, pairs};
use coracle_context::failure::Failure;
use coracle_lifecycle::ExecContext;
use coracle_prepare::resolve::plain_env;
use coracle_types::{Exec, Handle};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// A call takes at most this much input.
const MAX_BYTES: usize = 4 << 20;

/// The command, and what it is given.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CommandRequest {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    pub(crate) container: Handle,
    /// What to run: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    pub(crate) command: Script,
    /// Seconds without any output before the command is ended; 0 is off.
    #[schemars(extend("default" = 0))]
    pub(crate) silence_timeout: Option<Seconds>,
    /// Where commands run, and where the working directory is mounted. Created if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    pub(crate) workdir: Option<String>,
    /// Variables for commands. Their values are never written to disk.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    pub(crate) env: Option<BTreeMap<String, Value>>,
    /// Text for the command's standard input. Without it there is an end of file at once.
    pub(crate) stdin: Option<String>,
    /// The same as base64, for any bytes.
    pub(crate) stdin_base64: Option<String>,
    /// Run as root inside.
    #[schemars(extend("default" = false))]
    pub(crate) as_root: Option<bool>,
}

impl CommandRequest {
    pub(super) fn as_root(&self) -> bool {
        self.as_root.unwrap_or(false)
    }

    /// Its variables.
    pub(super) fn env(&self) -> Result<BTreeMap<String, String>, Failure> {
        plain_env(&self.env)
    }

    /// Its input.
    pub(super) fn stdin(&self) -> Result<Option<Vec<u8>>, Failure> {
        bytes(self.stdin.as_deref(), self.stdin_base64.as_deref())
    }

    /// The command in a container, with its variables.
    pub(super) fn exec(&self, session: &ExecContext, env: BTreeMap<String, String>) -> Result<Exec, Failure> {
        let mut exec = session.exec(self.command.0.clone());
        if let Some(workdir) = &self.workdir {
            exec.workdir = session.workdir.join(workdir)?;
        }
        exec.env.extend(env);
        Ok(exec)
    }
}

/// The bytes of `stdin` or `stdin_base64`; none when neither is given.
fn bytes(text: Option<&str>, base64: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = match (text, base64) {
        (Some(_), Some(_)) => {
            return Err(Failure::conflicting(&["stdin", "stdin_base64"], "there is one standard input"));
        }
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|err| Failure::invalid("stdin_base64", err.to_string()))?,
        (None, None) => return Ok(None),
    };
    if bytes.len() > MAX_BYTES {
        return Err(
            Failure::invalid("stdin", "at most 4 MiB").hint("copy the data in with `copy_in` and read the file")
        );
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, bytes};

    #[test]
    fn input_is_text_or_base64_and_not_both() {
        assert_eq!(bytes(Some("hi"), None).unwrap(), Some(b"hi".to_vec()));
        assert_eq!(bytes(None, Some("/wA=")).unwrap(), Some(vec![0xff, 0]));
        assert_eq!(bytes(None, None).unwrap(), None);
        assert_eq!(bytes(Some("hi"), Some("/wA=")).unwrap_err().code.word(), "conflicting_fields");
        assert_eq!(bytes(None, Some("?")).unwrap_err().code.word(), "invalid_input");
        assert_eq!(bytes(Some(&"x".repeat(MAX_BYTES + 1)), None).unwrap_err().code.word(), "invalid_input");
    }
}
