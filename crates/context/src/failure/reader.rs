//! Hints for two readers: an agent reads about the field and the next call, a user about the command and the setting
//! with its file.
//!
//! A failure contains the agent's hint, and the user's if it differs. [`Failure::for_reader`] chooses. The command line
//! replaces fields by options, since it knows their syntax.

use std::path::{Path, PathBuf};

use super::Failure;

/// The placeholder for the settings file in a hint.
pub const SETTINGS: &str = "{settings}";

/// The reader of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintReader {
    /// A program or a model.
    Agent,
    /// A user at the command line, whose settings are in that file.
    Person(PathBuf),
}

impl Failure {
    /// A hint with an alternative that needs no setting, and the setting that lifts the refusal, which only the user
    /// changes.
    #[must_use]
    pub fn hint_setting(self, instead: &str, key: &str) -> Self {
        self.hint_for(
            format!("{instead}; only the user can change `{key}` in the configuration"),
            format!("{instead}, or change `{key}` in {SETTINGS}"),
        )
    }

    /// A hint to change a setting, which only the user does: `raise`, `set`, `add the directory to`.
    #[must_use]
    pub fn hint_only_setting(self, verb: &str, key: &str) -> Self {
        self.hint_for(
            format!("only the user can {verb} `{key}` in the configuration"),
            format!("{verb} `{key}` in {SETTINGS}"),
        )
    }

    /// Returns the failure with the hint for its reader.
    #[must_use]
    pub fn for_reader(mut self, reader: &HintReader) -> Self {
        let person = self.person_hint.take();
        if let (HintReader::Person(settings), Some(hint)) = (reader, person) {
            self.hint = Some(hint.replace(SETTINGS, &shown(settings)));
        }
        self
    }
}

/// Formats a path for pasting.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{Failure, HintReader};
    use crate::failure::Code;

    fn check(failure: &Failure, agent: &str, user: &str) {
        let hint = |reader: &HintReader| failure.clone().for_reader(reader).into_inner().hint.unwrap();
        assert_eq!(hint(&HintReader::Agent), agent);
        assert_eq!(hint(&HintReader::Person("/home/kim/.config/coracle/config.toml".into())), user);
    }

    #[test]
    fn each_reader_gets_a_hint_that_it_can_follow() {
        let failure = || Failure::new(Code::PolicyDenied, "no");
        check(
            &failure().hint_setting("leave `host` out", "security.port_min"),
            "leave `host` out; only the user can change `security.port_min` in the configuration",
            "leave `host` out, or change `security.port_min` in /home/kim/.config/coracle/config.toml",
        );
        check(
            &failure().hint_only_setting("raise", "max_containers"),
            "only the user can raise `max_containers` in the configuration",
            "raise `max_containers` in /home/kim/.config/coracle/config.toml",
        );
        check(&failure().hint("use `list`"), "use `list`", "use `list`");
        // The later hint replaces both.
        check(&failure().hint_setting("a", "b").hint("c"), "c", "c");
    }

    /// The page is generated from the hints of the code.
    #[test]
    fn no_hint_advises_to_remove_protection() {
        let page = include_str!("../../../../docs/reference/errors.md");
        let weaker = [
            "guest = \"never\"",
            "policy = \"standard\"",
            "network = \"open\"",
            "network = \"bridge\"",
            "`exec.redact` off",
            "allow_root = true",
            "fsck = false",
            "protected = []",
            "protected: true",
        ];
        let found: Vec<_> = weaker.iter().filter(|it| page.contains(**it)).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}
