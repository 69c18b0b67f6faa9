//! Renders answers for a model: output unchanged, then notes in brackets. No nulls, and nothing twice.

use serde_json::Value;

use crate::failure::Failure;
use crate::humanize::duration;

/// The output of a command, and how it ended.
#[derive(Debug, Default)]
pub struct CommandText<'a> {
    pub stdout: String,
    pub stderr: &'a str,
    pub exit_code: Option<u8>,
    pub signal: Option<&'a str>,
    pub timed_out: bool,
    /// The job that continues to run it.
    pub running_as: Option<String>,
    pub duration_ms: u64,
}

impl CommandText<'_> {
    /// Renders the output, and how the command ended unless it succeeded.
    pub fn render(self) -> String {
        let mut text = self.stdout;
        if !self.stderr.is_empty() {
            end_line(&mut text);
            if !text.is_empty() {
                text.push_str("[stderr]\n");
            }
            text.push_str(self.stderr);
        }
        let after = || duration(self.duration_ms);
        let end = match (self.running_as, self.exit_code) {
            (Some(job), _) => format!("[still running after {} as job {job}]", after()),
            _ if self.timed_out => format!("[ended at its time limit, after {}]", after()),
            (None, Some(0)) if !text.is_empty() => return text,
            (None, Some(code)) => {
                let signal = self.signal.map(|signal| format!(", {signal}")).unwrap_or_default();
                format!("[exit {code}{signal}]")
            }
            (None, None) => return text,
        };
        push_line(&mut text, &end);
        text
    }
}

/// Renders a failed call: the reason, the hint, and the output of its command until then.
pub fn of_failure(failure: &Failure) -> String {
    let mut text = failure.message.clone();
    if let Some(hint) = &failure.hint {
        text.push_str(&format!("\n{hint}"));
    }
    for stream in ["stdout", "stderr"] {
        let printed = failure.known.get(stream).and_then(Value::as_str).unwrap_or_default();
        if !printed.is_empty() {
            push_line(&mut text, &format!("[{stream} until then]\n{printed}"));
        }
    }
    text
}

/// Renders JSON without unset fields.
pub fn of_json(value: &Value) -> String {
    fn without_nulls(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let set = fields.iter().filter(|(_, value)| !value.is_null());
                Value::Object(set.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
            }
            Value::Array(items) => items.iter().map(without_nulls).collect(),
            other => other.clone(),
        }
    }
    without_nulls(value).to_string()
}

/// Appends a part on a new line. An empty one is left out.
pub fn push_line(text: &mut String, part: &str) {
    if !part.is_empty() {
        end_line(text);
        text.push_str(part);
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Code;

    fn ended(exit_code: Option<u8>) -> CommandText<'static> {
        CommandText { exit_code, duration_ms: 50_000, ..CommandText::default() }
    }

    #[test]
    fn a_command_shows_its_output_and_how_it_ended_unless_it_succeeded() {
        assert_eq!(ended(Some(0)).render(), "[exit 0]");
        assert_eq!(CommandText { stdout: "hello\n".into(), ..ended(Some(0)) }.render(), "hello\n");
        let failed = CommandText { stderr: "no such file", ..ended(Some(1)) };
        assert_eq!(failed.render(), "no such file\n[exit 1]");
        let both = CommandText { stdout: "out".into(), stderr: "err\n", ..ended(Some(2)) };
        assert_eq!(both.render(), "out\n[stderr]\nerr\n[exit 2]");
        assert_eq!(CommandText { signal: Some("SIGKILL"), ..ended(Some(137)) }.render(), "[exit 137, SIGKILL]");
        let running = CommandText { running_as: Some("1f0c9a2e".into()), timed_out: true, ..ended(None) };
        assert_eq!(running.render(), "[still running after 50.0 s as job 1f0c9a2e]");
        let late = CommandText { timed_out: true, ..ended(Some(124)) };
        assert_eq!(late.render(), "[ended at its time limit, after 50.0 s]");
    }

    #[test]
    fn a_failed_call_shows_the_output_of_its_command() {
        let failure = Failure::new(Code::NotRunning, "`web` has ended").hint("start it");
        assert_eq!(of_failure(&failure), "`web` has ended\nstart it");
        let failure = failure.known("container", "web").known("stdout", "half\n").known("stderr", "");
        assert_eq!(of_failure(&failure), "`web` has ended\nstart it\n[stdout until then]\nhalf\n");
    }
}
