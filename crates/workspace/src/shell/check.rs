//! The arguments of a command, held against the rules. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::request::Shell;
use crate::paths::MAX_DEPTH;
use crate::response::{Result, fail};
use crate::time_limit::{TimeBounds, given_twice};
use crate::{Code, EnvKeys, PathRoot};

/// A command that may run.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShellRequest {
    pub(super) command: Vec<String>,
    /// Path from the workspace.
    pub(super) cwd: String,
    pub(super) env: BTreeMap<String, String>,
    pub(super) stdin: Option<String>,
    pub(super) timeout: Duration,
    pub(super) capture: bool,
}

/// Bytes of all words.
const MAX_COMMAND: usize = 4096;

/// Variables.
const MAX_ENV: usize = 64;

/// Characters of a variable's name, and of its value.
const MAX_KEY: usize = 80;
const MAX_VALUE: usize = 512;

/// Characters of input.
pub(crate) const MAX_STDIN: usize = 48_000;

/// Time limits of a command.
const TIME: TimeBounds = TimeBounds { default: 30.0, least: 1.0, most: 120.0 };

pub(super) fn check(shell: &Shell, keys: EnvKeys, root: &PathRoot) -> Result<ShellRequest> {
    Ok(ShellRequest {
        command: command(&shell.command)?,
        cwd: cwd(shell.cwd.as_deref().unwrap_or_default(), root)?,
        env: env(&shell.env, keys)?,
        stdin: stdin(shell.stdin.as_deref())?,
        timeout: timeout(shell)?,
        capture: shell.capture_output.unwrap_or(true),
    })
}

fn command(given: &Value) -> Result<Vec<String>> {
    let invalid = |message: String| fail(Code::InvalidCommand, message);
    let array = "command must be an array of strings; for a shell line use [\"sh\", \"-c\", \"…\"].";
    let Value::Array(items) = given else { return invalid(array.to_owned()) };
    if items.is_empty() {
        return invalid("command must contain at least one entry.".to_owned());
    }
    let mut words = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        match item.as_str() {
            None => return invalid(array.to_owned()),
            Some("") => return invalid(format!("command[{index}] must not be empty.")),
            Some(word) if word.contains('\0') => return invalid(format!("command[{index}] must not contain NUL.")),
            Some(word) => words.push(word.to_owned()),
        }
    }
    if words.iter().map(String::len).sum::<usize>() > MAX_COMMAND {
        return invalid("command is too long (limit 4,096 characters).".to_owned());
    }
    Ok(words)
}

fn cwd(text: &str, root: &PathRoot) -> Result<String> {
    let invalid = |message: String| fail(Code::InvalidCwd, message);
    let text = text.trim();
    let relative = match root.strip(text) {
        Some(rest) => rest,
        None if text.starts_with('/') => return invalid(format!("cwd must be relative to {}.", root.as_str())),
        None => text,
    };
    let segments: Vec<&str> = relative.split('/').filter(|it| !it.is_empty()).collect();
    if segments.iter().any(|it| *it == "." || *it == "..") {
        return invalid("cwd must not contain '.' or '..' segments.".to_owned());
    }
    if segments.iter().any(|it| it.contains('\0')) {
        return invalid("cwd must not contain NUL.".to_owned());
    }
    if segments.len() > MAX_DEPTH {
        return invalid(format!("cwd exceeds maximum depth of {MAX_DEPTH} segments."));
    }
    Ok(segments.join("/"))
}

fn env(given: &BTreeMap<String, String>, keys: EnvKeys) -> Result<BTreeMap<String, String>> {
    let invalid = |message: String| fail(Code::InvalidEnv, message);
    if given.len() > MAX_ENV {
        return invalid(format!("env contains too many entries (max {MAX_ENV})."));
    }
    let mut env: BTreeMap<String, (&String, &String)> = BTreeMap::new();
    for (name, value) in given {
        let key = if keys == EnvKeys::Upper { name.to_ascii_uppercase() } else { name.clone() };
        if !is_key(&key) {
            return invalid(format!("env key '{name}' is invalid."));
        }
        if !value.is_ascii() || value.contains('\0') || value.len() > MAX_VALUE {
            return invalid(format!("env value for '{name}' exceeds {MAX_VALUE} characters."));
        }
        if let Some((other, _)) = env.insert(key, (name, value)) {
            let (first, second) = if other < name { (other, name) } else { (name, other) };
            return invalid(format!("env keys '{first}' and '{second}' collide."));
        }
    }
    Ok(env.into_iter().map(|(key, (_, value))| (key, value.clone())).collect())
}

fn is_key(key: &str) -> bool {
    let mut letters = key.bytes();
    let begins = letters.next().is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
    begins && key.len() <= MAX_KEY && letters.all(|it| it.is_ascii_alphanumeric() || it == b'_')
}

fn stdin(given: Option<&str>) -> Result<Option<String>> {
    let Some(text) = given else { return Ok(None) };
    if text.chars().count() > MAX_STDIN {
        return fail(Code::InvalidStdin, "stdin exceeds 48,000 characters.");
    }
    if text.contains('\0') {
        return fail(Code::InvalidStdin, "stdin must not contain NUL.");
    }
    Ok(Some(text.to_owned()))
}

fn timeout(shell: &Shell) -> Result<Duration> {
    match (&shell.timeout, shell.timeout_seconds.as_ref().filter(|it| !it.is_null())) {
        (Some(_), Some(_)) => given_twice("timeout_seconds"),
        (Some(given), None) => TIME.read(given, None),
        (None, None) => Ok(TIME.clamped(TIME.default)),
        (None, Some(given)) => match given.as_f64().filter(|it| it.is_finite()) {
            Some(seconds) => Ok(TIME.clamped(seconds)),
            None => fail(Code::InvalidTimeout, "timeout_seconds must be a real number."),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::check;
    use crate::{EnvKeys, PathRoot, Shell};

    fn described(args: serde_json::Value) -> String {
        let shell: Shell = serde_json::from_value(args).unwrap();
        match check(&shell, EnvKeys::Upper, &PathRoot::Workspace) {
            Ok(checked) => {
                format!("{:?} in `{}` with {:?} for {:?}", checked.command, checked.cwd, checked.env, checked.timeout)
            }
            Err(failure) => format!("{}: {}", failure.code.word(), failure.message),
        }
    }

    fn shell(mut args: serde_json::Value) -> String {
        args["command"] = json!(["true"]);
        described(args)
    }

    #[test]
    fn w36_commands_are_words() {
        for (command, expected) in [
            (json!([]), "invalid_command: command must contain at least one entry."),
            (json!(["a", ""]), "invalid_command: command[1] must not be empty."),
            (
                json!("ls -l"),
                "invalid_command: command must be an array of strings; for a shell line use [\"sh\", \"-c\", \"…\"].",
            ),
            (
                json!(["a", 1]),
                "invalid_command: command must be an array of strings; for a shell line use [\"sh\", \"-c\", \"…\"].",
            ),
            (json!(["x".repeat(4097)]), "invalid_command: command is too long (limit 4,096 characters)."),
            (json!(["a\u{0}"]), "invalid_command: command[0] must not contain NUL."),
        ] {
            assert_eq!(described(json!({ "command": command })), expected);
        }
        assert!(described(json!({ "command": ["x".repeat(4096)] })).ends_with("in `` with {} for 30s"));
    }

    #[test]
    fn w30_directories_are_those_of_the_workspace() {
        let deep = ["a"; 17].join("/");
        for (cwd, expected) in [
            ("src", "[\"true\"] in `src` with {} for 30s"),
            ("/workspace/src/", "[\"true\"] in `src` with {} for 30s"),
            ("/workspace", "[\"true\"] in `` with {} for 30s"),
            ("/etc", "invalid_cwd: cwd must be relative to /workspace."),
            ("/workspaces", "invalid_cwd: cwd must be relative to /workspace."),
            ("a/../b", "invalid_cwd: cwd must not contain '.' or '..' segments."),
            (&deep, "invalid_cwd: cwd exceeds maximum depth of 16 segments."),
        ] {
            assert_eq!(shell(json!({ "cwd": cwd })), expected, "{cwd}");
        }
    }

    #[test]
    fn w36_variables_have_names_of_their_own_and_values_of_a_length() {
        let many: serde_json::Map<String, serde_json::Value> =
            (0..65).map(|it| (format!("a{it}"), json!("x"))).collect();
        for (env, expected) in [
            (json!({ "a": "1" }), "[\"true\"] in `` with {\"A\": \"1\"} for 30s"),
            (json!({ "a": "1", "A": "2" }), "invalid_env: env keys 'A' and 'a' collide."),
            (json!({ "1a": "1" }), "invalid_env: env key '1a' is invalid."),
            (json!({ "a-b": "1" }), "invalid_env: env key 'a-b' is invalid."),
            (json!({ "a": "x".repeat(513) }), "invalid_env: env value for 'a' exceeds 512 characters."),
            (json!({ "a": "ä" }), "invalid_env: env value for 'a' exceeds 512 characters."),
            (json!(many), "invalid_env: env contains too many entries (max 64)."),
        ] {
            assert_eq!(shell(json!({ "env": env })), expected);
        }
    }

    #[test]
    fn w36_input_has_a_length_and_time_its_bounds() {
        assert!(shell(json!({ "stdin": "ü".repeat(48_000) })).starts_with("[\"true\"]"));
        assert_eq!(shell(json!({ "stdin": "ü".repeat(48_001) })), "invalid_stdin: stdin exceeds 48,000 characters.");
        assert!(shell(json!({ "timeout_seconds": 0.1 })).ends_with("for 1s"));
        assert!(shell(json!({ "timeout_seconds": 1e9 })).ends_with("for 120s"));
        let real = "invalid_timeout: timeout_seconds must be a real number.";
        assert_eq!(shell(json!({ "timeout_seconds": "soon" })), real);
        assert!(shell(json!({ "timeout": "2m" })).ends_with("for 120s"));
        assert!(shell(json!({ "timeout": 0.1 })).ends_with("for 1s"));
        let most = "invalid_timeout: timeout is 30000 s, and the most is 120 s.";
        assert_eq!(shell(json!({ "timeout": 30_000 })), most);
        let twice = "invalid_timeout: timeout and timeout_seconds are the same limit; give one of them.";
        assert_eq!(shell(json!({ "timeout": 1, "timeout_seconds": 1 })), twice);
    }
}
