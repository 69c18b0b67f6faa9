//! One remedy, two readers: an agent reads the field and the next call, a person the command and the setting with its
//! file.
//!
//! A failure carries the agent's words; where a person needs others, it carries those as well. [`Failure::for_reader`]
//! chooses. Options in place of fields are put in by the command line, which knows how its words are written.

use std::path::{Path, PathBuf};

use super::Failure;

/// Where a remedy names the settings file in use.
pub const SETTINGS: &str = "{settings}";

/// Who reads an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HintReader {
    /// A program or a model.
    Agent,
    /// Somebody at the command line, whose settings are in that file.
    Person(PathBuf),
}

impl Failure {
    /// What to do without more rights, or the setting that lifts the refusal, which only a person changes.
    #[must_use]
    pub fn hint_setting(self, instead: &str, key: &str) -> Self {
        self.hint_for(
            format!("{instead}; only the person can change `{key}` in the configuration"),
            format!("{instead}, or change `{key}` in {SETTINGS}"),
        )
    }

    /// What to change in the settings, which only a person does: `raise`, `set`, `add the directory to`.
    #[must_use]
    pub fn hint_only_setting(self, verb: &str, key: &str) -> Self {
        self.hint_for(
            format!("only the person can {verb} `{key}` in the configuration"),
            format!("{verb} `{key}` in {SETTINGS}"),
        )
    }

    /// The same failure, in the words of its reader.
    #[must_use]
    pub fn for_reader(mut self, reader: &HintReader) -> Self {
        let person = self.person_hint.take();
        if let (HintReader::Person(settings), Some(hint)) = (reader, person) {
            self.hint = Some(hint.replace(SETTINGS, &shown(settings)));
        }
        self
    }
}

/// As it can be pasted.
fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::{Failure, HintReader};
    use crate::failure::Code;

    fn check(failure: &Failure, agent: &str, person: &str) {
        let told = |reader: &HintReader| failure.clone().for_reader(reader).into_inner().hint.unwrap();
        assert_eq!(told(&HintReader::Agent), agent);
        assert_eq!(told(&HintReader::Person("/home/kim/.config/coracle/config.toml".into())), person);
    }

    #[test]
    fn each_reader_is_told_what_it_can_do() {
        let failure = || Failure::new(Code::PolicyDenied, "no");
        check(
            &failure().hint_setting("leave `host` out", "security.port_min"),
            "leave `host` out; only the person can change `security.port_min` in the configuration",
            "leave `host` out, or change `security.port_min` in /home/kim/.config/coracle/config.toml",
        );
        check(
            &failure().hint_only_setting("raise", "max_containers"),
            "only the person can raise `max_containers` in the configuration",
            "raise `max_containers` in /home/kim/.config/coracle/config.toml",
        );
        check(&failure().hint("use `list`"), "use `list`", "use `list`");
        // The later word holds for both.
        check(&failure().hint_setting("a", "b").hint("c"), "c", "c");
    }

    /// The page is generated from the hints of the code.
    #[test]
    fn no_hint_advises_to_take_protection_away() {
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
