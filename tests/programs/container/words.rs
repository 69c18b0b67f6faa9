//! The arguments of a call, read as strictly as the real program reads them.

use std::collections::VecDeque;
use std::fmt;

use anyhow::Result;

/// Wrong usage, which has another exit status than a failure.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The arguments of a call that are not parsed yet.
#[derive(Debug)]
pub(crate) struct Words {
    verb: String,
    rest: VecDeque<String>,
}

/// Arguments of a verb.
#[derive(Debug, Default)]
pub(crate) struct ParsedArgs {
    options: Vec<(String, String)>,
    flags: Vec<String>,
    /// Positional arguments.
    pub(crate) names: Vec<String>,
}

/// Verbs that consist of two arguments.
const GROUPS: &[&str] = &["system", "image", "network", "volume"];

impl Words {
    pub(crate) fn new(words: Vec<String>) -> Self {
        let mut rest = VecDeque::from(words);
        let mut verb = rest.pop_front().unwrap_or_default();
        if GROUPS.contains(&verb.as_str()) {
            verb = format!("{verb} {}", rest.pop_front().unwrap_or_default());
        }
        Self { verb, rest }
    }

    pub(crate) fn verb(&self) -> String {
        self.verb.clone()
    }

    /// All remaining arguments.
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.rest.iter()
    }

    /// Parses options with a value, options without, and names. After `own` names, all arguments belong to the command.
    pub(crate) fn read(mut self, valued: &[&str], flags: &[&str], own: usize) -> Result<ParsedArgs> {
        let mut args = ParsedArgs::default();
        while let Some(word) = self.rest.pop_front() {
            if !word.starts_with('-') {
                args.names.push(word);
                if args.names.len() == own {
                    args.names.extend(self.rest.drain(..));
                }
            } else if flags.contains(&word.as_str()) {
                args.flags.push(word);
            } else if valued.contains(&word.as_str()) {
                let missing = || Usage(format!("Missing value for '{word} <value>'"));
                // A text that looks like an option is not a value.
                let value = self.rest.pop_front().filter(|it| !it.starts_with("--")).ok_or_else(missing)?;
                args.options.push((word, value));
            } else {
                return Err(Usage(format!("Unknown option '{word}'")).into());
            }
        }
        Ok(args)
    }

    /// As [`read`](Self::read), for a verb on names alone.
    pub(crate) fn names(self) -> Result<Vec<String>> {
        Ok(self.read(&[], &[], usize::MAX)?.names)
    }

    /// Parses the options of a listing.
    pub(crate) fn listing(self, flags: &[&str]) -> Result<()> {
        let args = self.read(&["--format"], flags, usize::MAX)?;
        match args.one("--format") {
            Some("json") if args.names.is_empty() => Ok(()),
            _ => Err(Usage("only `--format json` is played".into()).into()),
        }
    }
}

impl ParsedArgs {
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    pub(crate) fn all(&self, option: &str) -> impl Iterator<Item = &str> {
        self.options.iter().filter(move |it| it.0 == option).map(|it| it.1.as_str())
    }

    pub(crate) fn one(&self, option: &str) -> Option<&str> {
        self.all(option).last()
    }

    /// `KEY=VALUE` each.
    pub(crate) fn pairs(&self, option: &str) -> std::collections::BTreeMap<String, String> {
        let pair =
            |it: &str| it.split_once('=').map_or((it.to_owned(), String::new()), |it| (it.0.into(), it.1.into()));
        self.all(option).map(pair).collect()
    }

    /// The one name that there has to be.
    pub(crate) fn name(&self) -> Result<&str> {
        match self.names.as_slice() {
            [name] => Ok(name),
            _ => Err(Usage("one name is needed".into()).into()),
        }
    }
}
