//! `shell_expect`: a shell is read until a pattern comes.

use coracle_context::arg_types::Seconds;
use coracle_context::failure::Failure;
use coracle_prepare::process::Process;
use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{ShellResponse, find, until};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Wait until a shell prints what matches `pattern`, and answer all up to it. `reason` is `match`, `timeout` (the output so
/// far stays unread) or `ended`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellExpect {
    /// The shell, from `shell_open`.
    shell: String,
    /// Regular expression that a line has to match, at most 1 KiB.
    pattern: String,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 30))]
    timeout: Option<Seconds>,
}

const USUAL: Seconds = Seconds::new(30);

/// Bytes of a pattern.
const MAX_PATTERN: usize = 1 << 10;

/// Bytes of a pattern that was compiled.
const MAX_COMPILED: usize = 1 << 20;

impl Operation<Process> for ShellExpect {
    const NAME: &'static str = "shell_expect";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ShellResponse>;
    type Response = ShellResponse;

    async fn run(self, process: &Process) -> Result<ShellResponse, Failure> {
        let cx = &process.context;
        let pattern = compiled(&self.pattern)?;
        let shell = find(process, &self.shell)?;
        let until = until(cx, self.timeout, USUAL)?;
        let (reason, output) = cx.unless_cancelled(async { Ok(shell.wait_for(&pattern, until).await) }).await?;
        Ok(ShellResponse::new(self.shell, Some(reason), output))
    }
}

fn compiled(pattern: &str) -> Result<Regex, Failure> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN {
        return Err(Failure::invalid("pattern", "from 1 byte to 1 KiB"));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.multi_line(true).size_limit(MAX_COMPILED).dfa_size_limit(MAX_COMPILED);
    builder.build().map_err(|err| Failure::invalid("pattern", err.to_string()))
}

#[cfg(test)]
mod tests {
    use super::compiled;

    #[test]
    fn a_pattern_is_for_lines_and_bounded() {
        let prompt = compiled(r"^\(Pdb\) $").unwrap();
        assert!(prompt.is_match("> a.py(1)\n(Pdb) ") && !prompt.is_match("x (Pdb) "));
        for pattern in ["", "(", &"x".repeat(1025), r"(\w{1000}){1000}"] {
            assert_eq!(compiled(pattern).unwrap_err().code.word(), "invalid_input", "{pattern}");
        }
    }
}
