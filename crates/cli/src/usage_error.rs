//! Errors of the command line, in the form of every other failure.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use coracle::operations;
use coracle_context::{Code, Failure, suggest};
use serde_json::{Map, Value};

use super::command::command;

/// The failure for an error of clap; `None` if it is not a failure, such as `--help`.
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

/// Whether the caller wants JSON, as far as the invalid arguments show it.
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
    if let Some(hint) = hint_for_docker_option(err, words) {
        return hint;
    }
    let help = format!("`{} --help`", path(words).join(" "));
    let is_text = err.kind() == ErrorKind::UnknownArgument && !words.iter().any(|it| it == "--");
    match near {
        Some(near) => format!("did you mean `{near}`? {help} has them all"),
        None if is_text && subcommand(words).is_some_and(|it| RUNNING.contains(&it)) => {
            format!("give one text for `/bin/sh`, or a program and its arguments: {EXAMPLE}")
        }
        None => format!("see {help}"),
    }
}

/// Options of `docker` with another form here: the subcommand, its options, and the alternative.
const OPTIONS_OF_DOCKER: &[(&str, &[&str], &str)] = &[
    (
        "create",
        &["-i", "-t", "--interactive", "--tty"],
        "leave it out; `coracle shell NAME` opens a terminal afterwards",
    ),
    ("create", &["--rm"], "leave it out; `coracle destroy NAME` removes the container"),
    ("create", &["--entrypoint"], "`--main` takes the program that the container runs"),
    ("create", &["--env-file"], "give each variable as `--env KEY=VALUE`"),
    ("create", &["--restart"], "`--persistent` starts the container again when it stopped"),
    ("create", &["--gpus"], "`--gpu` gives it all GPUs"),
    (
        "create",
        &["--privileged", "--cap-add"],
        "no container is privileged; what it needs as root goes into `--setup-command`",
    ),
    ("create", &["--hostname"], "its host name is that of `--name`"),
    ("create", &["-P", "--publish-all"], "`--port PORT` publishes a port at a free one of this machine"),
    ("create", &["--net"], "did you mean `--network`?"),
    ("exec", &["-u", "--user", "--privileged"], "commands run as the container's user; `--as-root` runs one as root"),
    ("exec", &["-d", "--detach"], "`coracle exec-background` starts a command without waiting for it"),
    ("exec", &["--rm"], "leave it out; the container stays until `coracle destroy NAME`"),
    ("exec", &["--env-file"], "give each variable as `--env KEY=VALUE`"),
    (
        "exec-background",
        &["-u", "--user", "--privileged"],
        "commands run as the container's user; `--as-root` runs one as root",
    ),
    ("exec-background", &["-d", "--detach"], "leave it out; it never waits"),
    ("exec-background", &["-i", "-t", "--interactive", "--tty"], "`coracle attach` opens a terminal that stays"),
    ("destroy", &["-v", "--volumes"], "leave it out; what only the container used goes with it"),
    ("rm", &["-v", "--volumes"], "leave it out; what only the container used goes with it"),
    ("list", &["-q", "--quiet", "--format", "--filter", "--no-trunc"], "`coracle list --json` has every field"),
    ("ps", &["-q", "--quiet", "--format", "--filter", "--no-trunc"], "`coracle list --json` has every field"),
    ("ls", &["-q", "--quiet", "--format", "--filter", "--no-trunc"], "`coracle list --json` has every field"),
    ("inspect", &["-f", "--format"], "`coracle status NAME --json` has every field"),
    ("logs", &["-t", "--timestamps", "--since", "--until"], "`--tail LINES` begins near the end"),
    (
        "run",
        &["-d", "-i", "-t", "-e", "-p", "-v", "-w", "-u", "-m", "--rm", "--name", "--env", "--publish", "--volume"],
        "`coracle run` runs a snippet; `coracle create --image IMAGE` makes a container, and `coracle exec` runs a command in it",
    ),
];

fn hint_for_docker_option(err: &clap::Error, words: &[OsString]) -> Option<String> {
    let Some(ContextValue::String(option)) = err.get(ContextKind::InvalidArg) else { return None };
    let option = option.split_once('=').map_or(option.as_str(), |(name, _)| name);
    let command = subcommand(words).filter(|_| err.kind() == ErrorKind::UnknownArgument)?;
    if command == "create" && !option.starts_with('-') {
        return Some(format!("an image is `--image {option}`, a name is `--name {option}`"));
    }
    let found = OPTIONS_OF_DOCKER.iter().find(|(name, options, _)| *name == command && options.contains(&option));
    found.map(|(.., hint)| (*hint).to_owned())
}

/// The program and the valid subcommands.
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

/// Names of other tools, and Coracle's.
const SAME: &[(&str, &str)] = &[
    ("build", "create"),
    ("clean", "prune"),
    ("commit", "snapshot"),
    ("compose", "create --compose-file"),
    ("container", "list"),
    ("delete", "destroy"),
    ("diff", "workspace diff"),
    ("down", "destroy"),
    ("enter", "shell"),
    ("events", "audit log"),
    ("history", "audit log"),
    ("image", "images"),
    ("info", "preflight"),
    ("install", "setup"),
    ("kill", "stop"),
    ("load", "images load"),
    ("log", "logs"),
    ("network", "networks"),
    ("new", "create"),
    ("port", "status"),
    ("pull", "create --image"),
    ("remove", "destroy"),
    ("restart", "start"),
    ("rmi", "cache-clear"),
    ("save", "snapshot"),
    ("ssh", "shell"),
    ("stats", "top"),
    ("system", "prune"),
    ("up", "create"),
    ("version", "--version"),
    ("volume", "create --mount"),
    ("wait", "job-wait"),
];

fn typed(err: &clap::Error) -> Option<&str> {
    match err.get(ContextKind::InvalidSubcommand) {
        Some(ContextValue::String(word)) => Some(word),
        _ => None,
    }
}

/// The command that a word means or resembles.
fn meant(err: &clap::Error) -> Option<String> {
    let typed = typed(err)?;
    if let Some((_, ours)) = SAME.iter().find(|it| it.0 == typed) {
        return Some((*ours).to_owned());
    }
    let known: Vec<String> =
        command(operations::ALL, &[]).get_subcommands().map(|it| it.get_name().to_owned()).collect();
    suggest::nearest(typed, &known).map(str::to_owned)
}

/// The word that resembles the input most, of several with the same start.
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

const EXAMPLE: &str = "`coracle exec web ls -l`";

/// Options with a value that can precede the subcommand.
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

/// The arguments before `--`. Those after it belong to a command.
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
        let root = command(operations::ALL, &words);
        let words = crate::command_words::with_escape(&root, &words);
        let err = root.try_get_matches_from(&words).unwrap_err();
        let failure = super::failure(&err, &words).unwrap();
        format!("{} {}\n{}", failure.code.word(), failure.message, failure.hint.as_deref().unwrap())
    }

    #[test]
    fn the_nearest_name_is_suggested() {
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
        did you mean `--timeout`? `coracle exec --help` has them all
        ");
        assert_snapshot!(check("coracle exec web -x ls"), @r"
        unknown_field unexpected argument '-x' found
        give one text for `/bin/sh`, or a program and its arguments: `coracle exec web ls -l`
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
            [("stat", "status"), ("stats", "top"), ("destory", "destroy"), ("kill", "stop"), ("cerate", "create")]
        {
            let message = check(&format!("coracle {typed} web"));
            assert!(message.ends_with(&format!("did you mean `{ours}`? `coracle --help` has them all")), "{message}");
        }
        let message = check("coracle xyzzy");
        assert!(!message.contains("did you mean"), "{message}");
    }

    #[test]
    fn options_of_docker_work_or_lead_to_ours() {
        for line in [
            "coracle exec web ls -la",
            "coracle exec -it web sh",
            "coracle exec -w /tmp -e A=1 -e B=2 web env",
            "coracle exec-background -w /tmp -e A=1 web sleep 9",
            "coracle create -d --name web -e A=1 -p 8080:80 -v ./data:/data:ro -w /src -u 1000 -m 4g -l a=b",
            "coracle create --volume ./data:/data --publish 8080:80 --memory 4gb --cpus 2",
            "coracle ps -a",
            "coracle ls",
            "coracle rm -f web db",
            "coracle destroy web db",
            "coracle stop -t 5 web db",
            "coracle start web db",
            "coracle inspect web db",
            "coracle logs -f -n 20 web",
            "coracle cp a web:/b",
        ] {
            let words: Vec<OsString> = line.split(' ').map(Into::into).collect();
            let root = command(operations::ALL, &words);
            let words = crate::command_words::with_escape(&root, &words);
            root.try_get_matches_from(&words).unwrap_or_else(|err| panic!("{line}: {err}"));
        }
        for (command, options, hint) in super::OPTIONS_OF_DOCKER {
            for option in *options {
                let shown = check(&format!("coracle {command} {option}"));
                assert!(shown.ends_with(hint), "{command} {option}: {shown}");
            }
        }
        assert!(check("coracle create ubuntu").ends_with("an image is `--image ubuntu`, a name is `--name ubuntu`"));
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
