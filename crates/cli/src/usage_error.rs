//! A command line that was not understood, told like every other failure.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use coracle::{Code, Failure, operations, suggest};
use serde_json::{Map, Value};

use super::command::command;

/// What clap found, as a failure; `None` for what is no failure, such as `--help`.
pub(super) fn failure(err: &clap::Error, words: &[OsString]) -> Option<Failure> {
    if !err.use_stderr() || err.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let code = match err.kind() {
        ErrorKind::InvalidSubcommand => Code::UnknownOperation,
        ErrorKind::UnknownArgument => Code::UnknownField,
        ErrorKind::MissingRequiredArgument => Code::MissingField,
        _ => Code::InvalidInput,
    };
    let text = err.render().to_string();
    let lines = text.lines().take_while(|it| !it.is_empty()).map(str::trim);
    let message = lines.collect::<Vec<_>>().join(" ");
    let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
    Some(Failure::new(code, message).hint(hint(err, words)))
}

/// Whether the caller wants JSON, as far as that can be said of words that were not understood.
pub(super) fn wants_json(words: &[OsString]) -> bool {
    ours(words).any(|it| it == "--json") || subcommand(words) == Some("call")
}

/// The answer for a program.
pub(super) fn answer(failure: &Failure, words: &[OsString]) -> Map<String, Value> {
    let operation = subcommand(words).map(|it| it.replace('-', "_"));
    failure.answer(operation.as_deref())
}

fn hint(err: &clap::Error, words: &[OsString]) -> String {
    let near = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand].iter().find_map(|it| err.get(*it));
    let near = match near {
        _ if err.kind() == ErrorKind::InvalidSubcommand && subcommand(words) == typed(err) => meant(err),
        Some(ContextValue::String(one)) => Some(one.clone()),
        Some(ContextValue::Strings(several)) => nearest(err, several),
        _ => None,
    };
    let help = format!("`{} --help`", path(words).join(" "));
    let bare = err.kind() == ErrorKind::UnknownArgument && !words.iter().any(|it| it == "--");
    match near {
        _ if bare && subcommand(words).is_some_and(|it| RUNNING.contains(&it)) => match near {
            Some(near) => format!("did you mean `{near}`? Words of the command stand behind `--`: {EXAMPLE}"),
            None => format!("a program and its words stand behind `--`: {EXAMPLE}"),
        },
        Some(near) => format!("did you mean `{near}`? {help} has them all"),
        None => format!("see {help}"),
    }
}

/// The program and the subcommands that were understood.
fn path(words: &[OsString]) -> Vec<String> {
    let mut command = &command(operations::ALL, words);
    let mut path = vec![command.get_name().to_owned()];
    let mut words = ours(words).skip(1);
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if let Some(next) = command.find_subcommand(word) {
            path.push(next.get_name().to_owned());
            command = next;
        } else if !word.starts_with('-') {
            break;
        }
    }
    path
}

/// What other tools call ours.
const SAME: &[(&str, &str)] = &[
    ("inspect", "status"),
    ("info", "preflight"),
    ("doctor", "preflight"),
    ("version", "--version"),
    ("kill", "stop"),
    ("delete", "destroy"),
    ("remove", "destroy"),
    ("down", "destroy"),
    ("new", "create"),
    ("up", "create"),
    ("attach", "logs"),
    ("log", "logs"),
    ("ssh", "shell"),
    ("enter", "shell"),
    ("wait", "job-wait"),
    ("commit", "snapshot"),
    ("save", "snapshot"),
    ("network", "networks"),
    ("image", "images"),
    ("clean", "prune"),
    ("ls", "list"),
    ("install", "setup"),
    ("init", "setup"),
];

fn typed(err: &clap::Error) -> Option<&str> {
    match err.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// The command that a word stands for, or is most like.
fn meant(err: &clap::Error) -> Option<String> {
    let typed = typed(err)?;
    if let Some((_, ours)) = SAME.iter().find(|it| it.0 == typed) {
        return Some((*ours).to_owned());
    }
    let known: Vec<String> =
        command(operations::ALL, &[]).get_subcommands().map(|it| it.get_name().to_owned()).collect();
    suggest::nearest(typed, &known).map(str::to_owned)
}

/// Of several words that begin alike, the one that is most like what was typed.
fn nearest(err: &clap::Error, several: &[String]) -> Option<String> {
    let typed = match err.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => word.as_str(),
        _ => return several.first().cloned(),
    };
    let alike = |it: &String| strsim::jaro_winkler(typed, it);
    several.iter().max_by(|a, b| alike(a).total_cmp(&alike(b))).cloned()
}

/// Subcommands that run a command.
const RUNNING: &[&str] = &["exec", "exec-background"];

const EXAMPLE: &str = "`coracle exec web -- ls -l`";

/// Options with a value that may stand before the subcommand.
const WITH_VALUE: &[&str] = &["--config", "--state-dir", "--engine", "--session"];

fn subcommand(words: &[OsString]) -> Option<&str> {
    let mut words = ours(words).skip(1);
    while let Some(word) = words.next() {
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if !word.starts_with('-') {
            return Some(word);
        }
    }
    None
}

/// The words before `--`. Behind it they are a command's own.
fn ours(words: &[OsString]) -> impl Iterator<Item = &str> {
    words.iter().map(|it| it.to_str().unwrap_or_default()).take_while(|it| *it != "--")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use coracle::operations;
    use insta::assert_snapshot;

    use crate::command::command;

    fn check(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
        let err = command(operations::ALL, &words).try_get_matches_from(&words).unwrap_err();
        let failure = super::failure(&err, &words).unwrap();
        format!("{} {}\n{}", failure.code.word(), failure.message, failure.hint.as_deref().unwrap())
    }

    #[test]
    fn what_is_near_is_told() {
        assert_snapshot!(check("coracle --engine podman exce web"), @r"
        unknown_operation unrecognized subcommand 'exce'
        did you mean `exec`? `coracle --help` has them all
        ");
        assert_snapshot!(check("coracle create --nam web"), @r"
        unknown_field unexpected argument '--nam' found
        did you mean `--name`? `coracle create --help` has them all
        ");
        assert_snapshot!(check("coracle exec --timeot 3 web ls"), @r"
        unknown_field unexpected argument '--timeot' found
        did you mean `--timeout`? Words of the command stand behind `--`: `coracle exec web -- ls -l`
        ");
        assert_snapshot!(check("coracle exec web ls -l"), @r"
        unknown_field unexpected argument '-l' found
        a program and its words stand behind `--`: `coracle exec web -- ls -l`
        ");
        assert_snapshot!(check("coracle exec web make test"), @r"
        unknown_field unexpected argument 'test' found
        a program and its words stand behind `--`: `coracle exec web -- ls -l`
        ");
        assert_snapshot!(check("coracle create --ports web"), @r"
        invalid_input invalid value 'web' for '--ports <[HOST:]CONTAINER>': it is not [HOST:]CONTAINER[/udp]
        see `coracle create --help`
        ");
        assert_snapshot!(check("coracle create --env TOKEN"), @r"
        invalid_input invalid value 'TOKEN' for '--env <KEY=VALUE>': it is not KEY=VALUE
        see `coracle create --help`
        ");
        assert_snapshot!(check("coracle --engine warp list"), @r"
        invalid_input invalid value 'warp' for '--engine <NAME>' [possible values: auto, docker, podman, container, embedded, kubernetes]
        see `coracle list --help`
        ");
        assert_snapshot!(check("coracle shell"), @r"
        missing_field the following required arguments were not provided: <CONTAINER>
        see `coracle shell --help`
        ");
    }

    #[test]
    fn the_help_is_that_of_the_command_that_was_meant() {
        assert_snapshot!(check("coracle worktree create --qqq"), @r"
        unknown_field unexpected argument '--qqq' found
        see `coracle worktree create --help`
        ");
        assert_snapshot!(check("coracle workspace write-file --qqq"), @r"
        unknown_field unexpected argument '--qqq' found
        see `coracle workspace write-file --help`
        ");
        assert_snapshot!(check("coracle --engine docker worktree list --qqq"), @r"
        unknown_field unexpected argument '--qqq' found
        see `coracle worktree list --help`
        ");
    }

    #[test]
    fn words_of_other_tools_lead_to_ours() {
        for (typed, ours) in
            [("stat", "status"), ("inspect", "status"), ("destory", "destroy"), ("kill", "stop"), ("cerate", "create")]
        {
            let told = check(&format!("coracle {typed} web"));
            assert!(told.ends_with(&format!("did you mean `{ours}`? `coracle --help` has them all")), "{told}");
        }
        let told = check("coracle xyzzy");
        assert!(!told.contains("did you mean"), "{told}");
    }

    #[test]
    fn help_is_no_failure() {
        let words: Vec<OsString> = vec!["coracle".into(), "--help".into()];
        let err = command(operations::ALL, &words).try_get_matches_from(&words).unwrap_err();
        assert!(super::failure(&err, &words).is_none());
    }

    #[test]
    fn json_is_wanted_where_it_is_ours() {
        let wants = |line: &str| super::wants_json(&line.split(' ').map(Into::into).collect::<Vec<_>>());
        assert!(wants("coracle list --json --x"));
        assert!(!wants("coracle exec web -- ls --json"));
    }
}
