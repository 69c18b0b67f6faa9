//! Errors for users and agents: a stable code, one sentence, and a hint.
//!
//! **Invariant:** hints are written in `failure` and its submodules, and in no lower crate.

mod disk_full;
mod from_compose;
mod from_jobs;
mod from_mounts;
mod from_policy;
mod from_runtime;
mod from_sandbox;
mod from_siblings;
mod from_slots;
mod from_snapshots;
mod from_tools;
mod reader;

use coracle_runtime::{PolicyRefusal, Problem};
use coracle_types::failure;
pub use coracle_types::failure::Code;
use serde::Serialize;
use serde_json::{Map, Value, json};

pub use self::disk_full::is_full;
pub use self::from_runtime::{StoppedContainer, code as code_of};
pub use self::from_slots::slot_failure;
pub use self::from_tools::tool_hint;
pub use self::reader::HintReader;
pub use self::reader::SETTINGS;

/// A failure with its hints, and result fields that are known in spite of it.
///
/// The `From` implementations of this module add the hints, so that lower crates know neither operations nor settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    failure: failure::Failure,
    /// Result fields of the operation that are known although it failed, such as `container`.
    pub known: Map<String, Value>,
}

impl std::ops::Deref for Failure {
    type Target = failure::Failure;

    fn deref(&self) -> &Self::Target {
        &self.failure
    }
}

impl std::ops::DerefMut for Failure {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.failure
    }
}

/// A failure of a library gets the hint of its code. An internal error gets an id, under which its cause is logged.
impl From<failure::Failure> for Failure {
    fn from(failure: failure::Failure) -> Self {
        if failure.code == Code::Internal && !failure.details.contains_key("id") {
            return Self::internal(failure);
        }
        let hint = failure.hint.or_else(|| from_sandbox::hint(failure.code).map(str::to_owned));
        Self { failure: failure::Failure { hint, ..failure }, known: Map::new() }
    }
}

impl Failure {
    /// A failure without a hint.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { failure: failure::Failure::new(code, message), known: Map::new() }
    }

    /// Returns the failure without the known result fields.
    #[must_use]
    pub fn into_inner(self) -> failure::Failure {
        self.failure
    }

    fn map(self, change: impl FnOnce(failure::Failure) -> failure::Failure) -> Self {
        Self { failure: change(self.failure), known: self.known }
    }

    /// Replaces the code. Whether the call may be repeated does not change.
    pub(crate) fn with_code(self, code: Code) -> Self {
        self.map(|it| failure::Failure { code, ..it })
    }

    /// Replaces the message.
    pub fn with_message(self, message: impl Into<String>) -> Self {
        self.map(|it| failure::Failure { message: message.into(), ..it })
    }

    /// An internal error. The log contains the cause with the same id.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let id = coracle_types::random_hex::<4>();
        tracing::error!(id, "internal: {cause}");
        Self::new(Code::Internal, format!("a fault of coracle's own: {cause}"))
            .detail("id", id)
            .hint("try once more; if it stays, report it with the id and the log")
    }

    /// The caller cancelled.
    #[must_use]
    pub fn cancelled() -> Self {
        failure::Failure::cancelled().into()
    }

    /// A file that only a newer version can read.
    pub fn newer_version(message: impl Into<String>) -> Self {
        Self::new(Code::NewerVersion, message)
            .hint("update this program; a server that runs since before an update has to be started again")
    }

    /// An invalid value.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        let (field, message) = (field.into(), message.into());
        let problem = json!({ "field": field, "message": message });
        Self::new(Code::InvalidInput, format!("`{field}`: {message}"))
            .detail("field", field)
            .detail("problems", vec![problem])
    }

    /// Fields that exclude each other.
    #[must_use]
    pub fn conflicting(fields: &[&str], message: &str) -> Self {
        Self::new(Code::ConflictingFields, message)
            .detail("fields", fields)
            .hint(format!("give only one of {}", listed(fields)))
    }

    /// An invalid configuration.
    pub fn config(key: impl Into<String>, line: Option<usize>, message: impl Into<String>) -> Self {
        Self::new(Code::ConfigInvalid, message)
            .detail("key", key.into())
            .detail("line", line)
            .hint("correct the configuration file; `preflight` shows what is wrong with it")
    }

    /// Coracle has no object of that name. `near` are similar names.
    #[must_use]
    pub fn not_found(kind: &str, name: &str, near: &[String]) -> Self {
        let all = match kind {
            "network" => "`networks` shows the networks there are",
            "snapshot" => "`snapshots` shows the snapshots there are",
            "image" => "`images` shows the cached images",
            "compose project" => "`list` shows the stacks of containers",
            _ => "`list` shows the containers there are",
        };
        let hint = match near.first() {
            Some(name) => format!("did you mean `{name}`? {all}"),
            None => all.to_owned(),
        };
        Self::new(Code::NotFound, format!("no {kind} `{}`", name.escape_debug()))
            .detail("kind", kind)
            .detail("name", name)
            .detail("near", near)
            .hint(hint)
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.map(|it| it.hint(hint))
    }

    /// Sets the hint for each kind of reader.
    #[must_use]
    pub fn hint_for(self, agent: impl Into<String>, person: impl Into<String>) -> Self {
        self.map(|it| it.hint_for(agent, person))
    }

    /// Adds to `details`.
    #[must_use]
    pub fn detail(self, key: &str, value: impl Serialize) -> Self {
        self.map(|it| it.detail(key, value))
    }

    /// Adds a result field that is known although the call failed.
    #[must_use]
    pub fn known(mut self, key: &str, value: impl Serialize) -> Self {
        self.known.insert(key.to_owned(), serde_json::to_value(value).unwrap_or(Value::Null));
        self
    }

    /// Returns the complete answer.
    #[must_use]
    pub fn answer(&self, operation: Option<&str>) -> Map<String, Value> {
        let mut answer = self.known.clone();
        let own = json!({
            "success": false,
            "operation": operation,
            "error": self.message,
            "message": self.message,
            "code": self.code,
            "hint": self.hint,
            "retryable": self.retryable,
            "details": self.details,
        });
        let Value::Object(own) = own else { return answer };
        answer.extend(own);
        answer
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The refusal of root inside, which only the user can grant.
pub fn root_refused(rule: &'static str, message: &str) -> Failure {
    let setting = Some("security.allow_root");
    PolicyRefusal { problems: vec![Problem { rule, setting, value: "root".into(), message: message.into() }] }.into()
}

/// Joins words as "`a`, `b` and `c`".
fn listed(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|it| format!("`{it}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_json_snapshot;

    use super::{Code, Failure, listed};

    #[test]
    fn an_answer_has_every_field_and_the_known_ones() {
        let failure = Failure::new(Code::NotRunning, "`web` is stopped").hint("destroy it").known("container", "web");
        assert_json_snapshot!(failure.answer(Some("exec")), @r#"
        {
          "code": "not_running",
          "container": "web",
          "details": {},
          "error": "`web` is stopped",
          "hint": "destroy it",
          "message": "`web` is stopped",
          "operation": "exec",
          "retryable": false,
          "success": false
        }
        "#);
    }

    #[test]
    fn lists_read_like_a_sentence() {
        assert_eq!(listed(&["a"]), "`a`");
        assert_eq!(listed(&["a", "b", "c"]), "`a`, `b` and `c`");
    }

    #[test]
    fn an_unknown_name_is_answered_with_similar_ones() {
        let failure = Failure::not_found("container", "wbe", &["web".into()]);
        assert_eq!(failure.into_inner().hint.unwrap(), "did you mean `web`? `list` shows the containers there are");
        let hint = |kind| Failure::not_found(kind, "x", &[]).into_inner().hint.unwrap();
        for (kind, operation) in
            [("network", "`networks`"), ("snapshot", "`snapshots`"), ("image", "`images`"), ("container", "`list`")]
        {
            assert!(hint(kind).starts_with(operation), "{kind}: {}", hint(kind));
        }
    }
}
