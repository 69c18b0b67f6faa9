//! The author of commits: the part of a git configuration without which git refuses to commit.

use super::file;
use super::settings::{Setting, Settings};

/// `user.name` and `user.email`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `user.name`
    pub name: String,
    /// `user.email`
    pub email: String,
}

impl Identity {
    /// Reads the identity from the output of `git config --global --list --includes -z`; none unless both parts are
    /// set.
    #[must_use]
    pub fn read(printed: &[u8]) -> Option<Self> {
        let settings = Settings::read(printed, &[]);
        let value = |key: &str| {
            let found = settings.forwarded.iter().rev().find(|it| it.key() == key)?;
            let text = String::from_utf8(found.value.clone()?).ok()?;
            Some(text.trim().to_owned()).filter(|it| !it.is_empty())
        };
        Some(Self { name: value("user.name")?, email: value("user.email")? })
    }

    /// The identity of agents if the host has none. The domain can never exist (RFC 2606).
    #[must_use]
    pub fn fallback() -> Self {
        Self { name: "Coracle agent".to_owned(), email: "agent@coracle.invalid".to_owned() }
    }

    /// Renders a git configuration file that sets it.
    #[must_use]
    pub fn config(&self) -> String {
        let set = |name: &str, value: &str| Setting {
            section: "user".to_owned(),
            sub: None,
            name: name.to_owned(),
            value: Some(value.as_bytes().to_vec()),
        };
        let settings = Settings::from_entries(vec![set("name", &self.name), set("email", &self.email)]);
        String::from_utf8_lossy(&file::written(Some(&settings), &[], None)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_make_an_identity_and_the_last_one_counts() {
        let read = |printed: &str| Identity::read(printed.as_bytes()).map(|it| format!("{} <{}>", it.name, it.email));
        assert_eq!(read("user.name\nA\0user.email\na@x\0user.name\nB \"C\"\0").as_deref(), Some("B \"C\" <a@x>"));
        for without in [
            "",
            "user.name\nA\0",
            "user.email\na@x\0",
            "user.name\n \0user.email\na@x\0",
            "user.name\0user.email\na@x\0",
        ] {
            assert_eq!(read(without), None, "{without:?}");
        }
    }

    #[test]
    fn its_configuration_is_quoted() {
        let identity = Identity { name: "A \"B\" # \\".into(), email: "a@x".into() };
        assert_eq!(identity.config(), "[user]\n\tname = \"A \\\"B\\\" # \\\\\"\n\temail = \"a@x\"\n");
    }
}
