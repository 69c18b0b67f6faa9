//! Words of one invocation of an engine's program, and those that every engine gets.

use std::ffi::OsString;

use coracle_runtime::CreateSpec;

/// The words of one invocation, each free value behind `--flag=` or `--`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineArgs(pub Vec<OsString>);

impl EngineArgs {
    pub fn verb(words: &str) -> Self {
        Self(words.split(' ').map(OsString::from).collect())
    }

    pub fn word(mut self, word: impl Into<OsString>) -> Self {
        self.0.push(word.into());
        self
    }

    pub fn words(self, words: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        words.into_iter().fold(self, Self::word)
    }

    pub fn flag(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.word(format!("--{name}={value}"))
    }

    pub fn flags(self, name: &str, values: impl IntoIterator<Item = impl std::fmt::Display>) -> Self {
        values.into_iter().fold(self, |it, value| it.flag(name, value))
    }

    /// `--name value`, for engines that do not know `--name=value`.
    pub fn pair(self, name: &str, value: impl std::fmt::Display) -> Self {
        self.word(name).word(value.to_string())
    }

    pub fn pairs(self, name: &str, values: impl IntoIterator<Item = impl std::fmt::Display>) -> Self {
        values.into_iter().fold(self, |arguments, value| arguments.pair(name, value))
    }

    pub fn option(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        self.flags(name, value)
    }

    pub fn labels<'a>(self, labels: impl IntoIterator<Item = (&'a String, &'a String)>) -> Self {
        self.flags("label", labels.into_iter().map(|(key, value)| format!("{key}={value}")))
    }
}

/// Longer than any container lives. `infinity` is not known to every `sleep`.
pub const SLEEP_SECONDS: &str = "2147483647";

/// The guest's arguments as PID 1.
pub fn init(it: EngineArgs, spec: &CreateSpec) -> EngineArgs {
    spec.lifeline.iter().fold(it.word("init"), |it, wait| it.flag("lifeline", wait.as_secs().max(1)))
}

/// A value of a Dockerfile instruction.
pub fn dockerfile_value(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$"))
}
