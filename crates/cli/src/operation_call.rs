//! An operation with its fields, and flags of the command line.

use clap::{Arg, ArgAction, ArgMatches};
use coracle::{CallInput, CallResponse, OperationEntry, frontend};
use coracle_prepare::Process;
use serde_json::{Map, Value};

use super::matches_to_json;
use super::operation_args::as_word;
use super::output::Present;

/// The field that names the container.
pub(super) const CONTAINER: &str = "container";

/// Subcommands that take several containers.
pub(super) const FOR_SEVERAL: &[&str] = &["destroy", "status", "start", "stop"];

/// `exec -t`: the command gets the user's terminal.
pub(super) const TERMINAL: &str = "tty";

/// `exec -i`: passes any standard input to the command.
pub(super) const INTERACTIVE: &str = "interactive";

/// `copy-in --allow`: consent of the user.
pub(super) const ALLOW: &str = "allow";

/// `create --strict`: a failed step sets the exit code.
pub(super) const STRICT: &str = "strict";

/// The option that replaces the answer at a prompt.
pub(super) fn allow() -> Arg {
    let help = "Copy a path outside the allowed directories without asking";
    Arg::new(ALLOW).long(ALLOW).action(ArgAction::SetTrue).help(help)
}

/// An operation with its fields, and flags of the command line.
pub(super) struct OperationCall {
    pub(super) table: &'static [OperationEntry],
    pub(super) entry: OperationEntry,
    pub(super) object: Map<String, Value>,
    /// The given flags that are not fields.
    pub(super) flags: Vec<&'static str>,
}

/// The given flags that are not fields. A command may lack some of them.
pub(super) fn flags(matches: &ArgMatches) -> Vec<&'static str> {
    let given = |it: &&str| matches.try_get_one::<bool>(it).ok().flatten() == Some(&true);
    ["json", INTERACTIVE, ALLOW, STRICT].into_iter().filter(given).collect()
}

impl OperationCall {
    /// The call for a subcommand's arguments.
    pub(super) fn from_matches(table: &'static [OperationEntry], entry: &OperationEntry, matches: &ArgMatches) -> Self {
        Self { table, entry: *entry, object: matches_to_json::object(entry, matches), flags: flags(matches) }
    }

    /// One call for each named container, if a subcommand takes several.
    pub(super) fn each_from_matches(
        table: &'static [OperationEntry],
        entry: &OperationEntry,
        matches: &ArgMatches,
    ) -> Vec<Self> {
        let id = [as_word(CONTAINER), CONTAINER.to_owned()].into_iter().find(|id| matches.try_contains_id(id).is_ok());
        let names = id.and_then(|id| matches.try_get_many::<String>(&id).ok().flatten());
        let names: Vec<String> = names.into_iter().flatten().cloned().collect();
        let call = || Self::from_matches(table, entry, matches);
        if names.len() < 2 {
            return vec![call()];
        }
        let call_for = |name: String| {
            let mut call = call();
            call.object.insert(CONTAINER.to_owned(), name.into());
            call
        };
        names.into_iter().map(call_for).collect()
    }

    /// Whether a flag was given that is not a field.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Executes the call. Shows progress meanwhile, if `present` is given.
    pub(super) async fn answer(&self, process: &Process, present: Option<&mut Present>) -> CallResponse {
        let input = CallInput::Object(self.object.clone());
        match present {
            None => frontend::execute(self.table, process, input, None).await,
            Some(present) => {
                let mut on_event = |event| present.on_event(event, &process.context.call.cancel);
                frontend::execute(self.table, process, input, Some(&mut on_event)).await
            }
        }
    }
}
