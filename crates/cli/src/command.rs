//! The command line, built from the table of operations.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, value_parser};
use coracle::{Audience, OperationEntry, tools};
use coracle_context::config::{Engine, Toolset};

use super::named_commands::NamedCommands;
use super::operation_args::{COMMAND, callable, option, word};
use super::{
    admin, agent, approvals, attach, completions, container_proxy, copy, doctor, help, init, logs, operation, top,
    worktree,
};
#[cfg(feature = "serve")]
use super::{metrics, serve, ui};
#[cfg(feature = "ssh")]
use super::{open_editor, ssh_config};

/// Names of an operation in other tools.
fn aliases(operation: &str) -> &'static [&'static str] {
    match operation {
        "list" => &["ps", "ls"],
        "destroy" => &["rm"],
        "status" => &["inspect"],
        _ => &[],
    }
}

/// Builds the whole command line.
///
/// `words` are the arguments of the process. To save time, only commands that they name get their options. If there are no
/// arguments, all commands do.
pub(super) fn command(table: &[OperationEntry], words: &[OsString]) -> Command {
    let named = NamedCommands::new(words);
    let mut root = Command::new("coracle")
        .about("Gives each AI agent a Linux machine of its own in a container")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .args(global());
    let row = |entry: &OperationEntry| {
        let (name, aliases) = (word(entry.name), aliases(entry.name));
        let command = if !named.have(&name) && !aliases.iter().any(|it| named.have(it)) {
            Command::new(name)
        } else {
            let start = format!("coracle {name}");
            let command = with_more(callable(entry.name, &start, &entry.arguments()), named);
            operation::with_own_options(entry.name, command)
        };
        command.visible_aliases(aliases.iter().copied())
    };
    let others = [
        shell(),
        attach::command(),
        #[cfg(feature = "ssh")]
        open_editor::command(),
        #[cfg(feature = "ssh")]
        ssh_config::command(),
        #[cfg(feature = "ssh")]
        ssh_config::proxy_command(),
        container_proxy::command(),
        logs::command(),
        copy::command(),
        workspace(named),
        run(named),
        worktree::command(named),
        agent::command(),
        worker(),
        sandbox(named),
        top::command(),
        doctor::command(),
        setup(),
        init::command(),
        completions::command(),
        completions::man_command(),
        call(),
        mcp(),
        #[cfg(feature = "serve")]
        serve::command(),
        #[cfg(feature = "serve")]
        ui::command(),
    ];
    let admin = ["start", "stop", "adopt"].map(|it| admin::command(it, named));
    let admin = admin.into_iter().chain([approvals::command(named), saved(named), recorded(named), audit(named)]);
    let shown = table.iter().filter(|it| it.audience != Audience::Session);
    for command in shown.map(row).chain(others).chain(admin) {
        let word = command.get_name().to_owned();
        root = root.subcommand(command.display_order(help::order(&word)).after_help(help::examples(&word)));
    }
    help::with_root_help(root, false)
}

/// Adds subcommands for users to an operation.
fn with_more(operation: Command, named: NamedCommands<'_>) -> Command {
    let verbs: &[&'static str] = match operation.get_name() {
        "images" => &["images trust", "images load", "images save", "images verify"],
        "timeline" => &["timeline delete"],
        _ => return operation,
    };
    let verbs = verbs.iter().map(|it| admin::command(it, named));
    operation.subcommands(verbs).args_conflicts_with_subcommands(true)
}

/// Values of `--engine`.
const ENGINES: [&str; 6] = ["auto", "docker", "podman", "container", "embedded", "kubernetes"];

fn global() -> [Arg; 5] {
    // Hidden from the help: it is for tests, and its containers end with the process.
    let fake = PossibleValue::new("fake").hide(true);
    let engine =
        PossibleValuesParser::new(ENGINES.map(PossibleValue::new).into_iter().chain([fake])).map(|it| {
            match it.as_str() {
                "docker" => Engine::Docker,
                "podman" => Engine::Podman,
                "container" => Engine::Container,
                "embedded" => Engine::Embedded,
                "kubernetes" => Engine::Kubernetes,
                "fake" => Engine::Fake,
                _ => Engine::Auto,
            }
        });
    [
        option("config", "FILE", "Configuration to read instead of the default one")
            .value_parser(value_parser!(PathBuf)),
        option("state-dir", "DIR", "Directory of the records").value_parser(value_parser!(PathBuf)),
        option("engine", "NAME", "Engine to create containers with").value_parser(engine),
        option("session", "NAME", "Session that the containers belong to"),
        Arg::new("timings").long("timings").action(ArgAction::SetTrue).help("Show where the time went, afterwards"),
    ]
    .map(|it| it.global(true).help_heading("Everywhere"))
}

fn shell() -> Command {
    let name = Arg::new("name").value_name("CONTAINER").required(true).help("Its name, or an id of at least 12 digits");
    let root = Arg::new("as-root").long("as-root").action(ArgAction::SetTrue).help("As root inside");
    let words = Arg::new(COMMAND).value_name("WORDS").last(true).num_args(1..);
    let words = words.help("A program and its arguments, run instead of the shell");
    let about = "Open a shell in a container, or run a command there on your terminal";
    Command::new("shell").about(about).args([name, root, words])
}

fn saved(named: NamedCommands<'_>) -> Command {
    let about = "Show and restore the work that was saved when containers were removed";
    let verbs = ["saved list", "saved restore"].map(|it| admin::command(it, named));
    Command::new("saved").about(about).subcommand_required(true).subcommands(verbs)
}

fn recorded(named: NamedCommands<'_>) -> Command {
    let about = "Show requests that proxies recorded, and what a container that replays them requested";
    let verbs = ["recorded list", "recorded show", "recorded report"].map(|it| admin::command(it, named));
    Command::new("recorded").about(about).subcommand_required(true).subcommands(verbs)
}

fn audit(named: NamedCommands<'_>) -> Command {
    let verbs = ["audit log", "audit summary", "audit verify"].map(|it| admin::command(it, named));
    Command::new("audit").about("Show and verify the audit trail").subcommand_required(true).subcommands(verbs)
}

fn setup() -> Command {
    let yes = Arg::new("yes").long("yes").short('y').action(ArgAction::SetTrue).help("Do not ask for confirmation");
    Command::new("setup")
        .about("Install and prepare an engine: Podman from the system's packages; shows each command first")
        .arg(yes)
}

fn call() -> Command {
    let text = Arg::new("text").value_name("JSON").help("The call; from standard input when missing or `-`");
    let stream = Arg::new("stream").long("stream").action(ArgAction::SetTrue).help("Print events line by line as JSON");
    let schema = Arg::new("schema").long("schema").action(ArgAction::SetTrue).help("Print the tool's name and schema");
    Command::new("call").about("Make a call as JSON; prints one answer as JSON").args([text, stream, schema])
}

fn mcp() -> Command {
    let sets = option("toolsets", "SETS", "Tools to serve: agent (the default), classic, workspace, code, worktrees");
    let sets = sets.value_delimiter(',').value_parser(|it: &str| it.parse::<Toolset>());
    let about = "Serve the tools to an agent, by the Model Context Protocol on standard input and output";
    let command = Command::new("mcp").about(about).arg(sets);
    #[cfg(feature = "serve")]
    let command = {
        let http = "Serve clients of this machine over HTTP instead, at 127.0.0.1:PORT; each is a session of its own";
        command.args([option("http", "ADDRESS:PORT", http), serve::token_file("http")]).arg(metrics::arg())
    };
    command
}

/// The session tools of a workspace, and commands for users.
fn workspace(named: NamedCommands<'_>) -> Command {
    let is_named = named.have("workspace");
    let callable_here = tools::ALL.iter().chain([&tools::SNAPSHOT]);
    let tools = callable_here.filter(|it| is_named && it.sets.contains(&Toolset::Workspace)).map(|it| {
        let command = callable(it.name, &format!("coracle workspace {}", word(it.name)), &it.arguments());
        let command = it
            .aliases
            .iter()
            .filter(|it| it.name != "timeout_ms") // has another unit
            .fold(command, |command, it| command.mut_arg(it.of, |arg| arg.alias(word(it.name))));
        // The name that agents use.
        if word(it.name) == it.name { command } else { command.alias(it.name) }
    });
    let verbs = ["show", "prompt", "diff", "export", "apply", "end"];
    let verbs = verbs.map(|it| admin::command(&format!("workspace {it}"), named));
    Command::new("workspace")
        .about("List, read, write, search and run in a container of the session")
        .subcommand_required(true)
        .subcommands(tools)
        .subcommands(verbs)
}

fn worker() -> Command {
    let prompt = option("prompt", "TEXT", "What to do; `-` is standard input").required(true);
    let worktree = option("worktree", "WORKFLOW", "The workflow to do it in").required(true);
    let model = option("model", "NAME", "The model [default: `worker.model` of the configuration]");
    let instructions = option("instructions", "TEXT", "Further instructions for the model");
    let schema =
        option("schema", "FILE", "The result is JSON that fits this schema").value_parser(value_parser!(PathBuf));
    let profile = option("profile", "NAME", "The kind of sandbox [default: the one that has the workflow]");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print its events as lines of JSON");
    let about = "Let the agent in a workflow's sandbox work, and print what it does";
    let run = Command::new("run").about(about).args([prompt, worktree, model, instructions, schema, profile, json]);
    Command::new("worker").about("Run the agent of a sandbox").subcommand_required(true).subcommand(run)
}

/// Sandboxes; only `forward` is not an operation.
fn sandbox(named: NamedCommands<'_>) -> Command {
    let workflow = Arg::new("workflow").value_name("WORKFLOW").required(true).help("Its id");
    let profile = option("profile", "NAME", "The kind of sandbox [default: the one that has the workflow]");
    let port = Arg::new("inside").value_name("PORT").required(true).value_parser(value_parser!(u16).range(1..));
    let at = option("port", "PORT", "The port of this host [default: a free one]").value_parser(value_parser!(u16));
    let about = "Forward a port of this host to one inside, until Ctrl-C";
    let forward = Command::new("forward").about(about);
    let forward = forward.args([workflow, port.help("The port inside"), at, profile, admin::json()]);
    let verbs = ["sandbox list", "sandbox remove", "sandbox review"];
    let [list, remove, review] = verbs.map(|it| admin::command(it, named));
    Command::new("sandbox")
        .about("List and remove sandboxes, reach their ports, review what they share with you")
        .subcommand_required(true)
        .subcommands([list, remove, forward, review])
}

fn run(named: NamedCommands<'_>) -> Command {
    let file = Arg::new("file").value_name("FILE").required(true).help("The snippet; `-` is standard input");
    let language = option("language", "NAME", "typescript, javascript, python or bash; by the file's name without it");
    let timeout = option("timeout", "TIME", "Seconds, or `90s`, `2m`, before it is ended [default: 30]");
    let timeout_ms = option("timeout-ms", "MS", "The same in milliseconds").conflicts_with("timeout");
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let timeout_ms = timeout_ms.value_parser(value_parser!(u64)).hide(true);
    Command::new("run")
        .about("Run a snippet in an isolated container")
        .args([file, language, timeout, timeout_ms, json])
        .subcommand(packages(named))
        .args_conflicts_with_subcommands(true)
        .subcommand_negates_reqs(true)
}

fn packages(named: NamedCommands<'_>) -> Command {
    let verbs = ["run packages add", "run packages list", "run packages clear"];
    let verbs = verbs.map(|it| admin::command(it, named));
    Command::new("packages")
        .about("Manage packages that the snippets of all sessions can use")
        .subcommand_required(true)
        .subcommands(verbs)
}

#[cfg(test)]
mod tests {
    use coracle::operations;

    #[test]
    fn the_command_line_fits_together() {
        super::command(operations::ALL, &[]).debug_assert();
    }
}
