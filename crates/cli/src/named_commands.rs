//! The commands that the arguments name. Only these get options, because building all of them takes longer than most
//! calls.

use std::ffi::OsString;

/// The arguments of the process, with the program's name first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedCommands<'a> {
    words: &'a [OsString],
    /// The help of all commands may be printed.
    all: bool,
}

impl<'a> NamedCommands<'a> {
    /// Without arguments, all commands are named.
    pub(crate) fn new(words: &'a [OsString]) -> Self {
        let is_help = |it: &OsString| ["help", "--help", "-h"].iter().any(|help| it == help);
        let first = words.get(1);
        let is_option = first.is_some_and(|it| it.as_encoded_bytes().starts_with(b"-"));
        let all = first.is_none_or(|it| it == "help") || is_option && words.iter().any(is_help);
        Self { words, all }
    }

    /// Whether the arguments may mean that command.
    pub(crate) fn have(self, command: &str) -> bool {
        self.all || self.words.iter().skip(1).any(|it| it == command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_are_not_named_are_left_out_unless_help_shows_them() {
        let has_list = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            NamedCommands::new(&words).have("list")
        };
        assert!(NamedCommands::new(&[]).have("list"));
        for line in ["coracle", "coracle --help", "coracle --state-dir s -h", "coracle help exec", "coracle list"] {
            assert!(has_list(line), "{line}");
        }
        assert!(has_list("coracle --session list exec web"), "a value may be the same");
        for line in ["coracle exec web -- git help", "coracle --version", "coracle destroy --help"] {
            assert!(!has_list(line), "{line}");
        }
    }
}
