//! Arguments of `create` that `policy = "strict"` does not allow. All of them are reported at once, before anything is
//! created; none is ignored silently.

use coracle_context::arg_types::Passthrough;
use coracle_context::config::Config;
use coracle_context::failure::Failure;
use coracle_context::strict::{TMP, USER, WORKSPACE};
use coracle_provision::UserRequest;
use coracle_provision::env::is_plain;
use coracle_runtime::{Capabilities, CreateSpec, NetworkRequest, PolicyRefusal, Problem, Tmpfs};
use coracle_types::{ByteSize, ContainerPath};
use serde_json::Value;

use super::inside_path::PathInside;
use super::network;
use crate::requests::Create;

/// Size of `/tmp`.
const TMP_SIZE: ByteSize = ByteSize::mib(512);

/// A refused field, the reason, and what to do instead.
struct Row {
    field: &'static str,
    rule: &'static str,
    value: String,
    why: &'static str,
    instead: &'static str,
}

/// Refuses all arguments that a container of `strict` cannot have.
pub(super) fn check(args: &Create, config: &Config) -> Result<(), Failure> {
    // Networks that no engine supports are refused whatever the policy.
    network::resolve(args.network.as_deref(), config)?;
    let rows: Vec<Row> = [rooms(args), brought(args)?, of_person(args), beside(args)].into_iter().flatten().collect();
    if rows.is_empty() {
        return Ok(());
    }
    let problem = |it: &Row| Problem {
        rule: it.rule,
        setting: Some("policy"),
        value: it.value.clone(),
        message: format!("`{}`: {}", it.field, it.why),
    };
    let refused = PolicyRefusal { problems: rows.iter().map(problem).collect() };
    let fields: Vec<_> = rows.iter().map(|it| it.field).collect();
    let hints: Vec<_> = rows.iter().map(|it| format!("`{}`: {}", it.field, it.instead)).collect();
    let failure = Failure::from(refused).detail("field", fields[0]).detail("fields", fields);
    Err(failure.hint_setting(&hints.join("; "), "policy"))
}

/// Arguments for the container itself.
fn rooms(args: &Create) -> Vec<Row> {
    let (root, other) = match &args.user {
        None => (None, None),
        Some(UserRequest::Ids(ids)) if *ids == USER => (None, None),
        Some(UserRequest::Uid(uid)) if *uid == USER.uid => (None, None),
        Some(UserRequest::Ids(ids)) if ids.is_root() => (Some(ids.to_string()), None),
        Some(other) => (None, Some(String::from(other.clone()))),
    };
    let of_image = args.main.as_ref().filter(|it| it.0 == coracle_types::Command::Shell("image".into()));
    let elsewhere = args.workdir.as_ref().filter(|it| !it.is_beneath(WORKSPACE));
    let network = args.network.as_deref().filter(|it| !["none", network::PROXY].contains(it));
    rows([
        (("user", "root.exec", root), ("no process inside is root", "leave it out: commands run as 1000:1000")),
        (
            ("user", "user.other", other),
            (
                "PID 1 runs as 1000:1000 and cannot start processes as another user",
                "leave it out: commands run as 1000:1000",
            ),
        ),
        (
            ("main", "root.init", of_image.map(|_| "image".to_owned())),
            ("an image's own program runs as the image's user", "give the words of a program, which runs as 1000:1000"),
        ),
        (
            ("workdir", "root.files", elsewhere.map(ToString::to_string)),
            (
                "only `/workspace`, `/tmp` and the home can be written",
                "leave it out, or name a directory in `/workspace`",
            ),
        ),
        (
            ("network", "network.open", network.map(str::to_owned)),
            ("there is no network but the proxy", "leave it out, or say `proxy` or `none`"),
        ),
        (
            ("ports", "port.open", counted(args.ports.as_deref())),
            ("there is no network, and so no port", "run server and client in the container"),
        ),
        (("add_hosts", "network.open", counted(args.add_hosts.as_deref())), ("there is no network", "leave it out")),
        (
            ("mounts", "mount.bind", counted(args.mounts.as_deref())),
            ("nothing of the host is mounted", "copy what is needed with `copy_in`"),
        ),
        (
            ("gpu", "gpu", args.gpu.filter(|it| *it).map(|it| it.to_string())),
            ("no device of the host goes in", "leave it out"),
        ),
    ])
}

/// Arguments that need a download, or root.
fn brought(args: &Create) -> Result<Vec<Row>, Failure> {
    let outside = |path: &&String| match PathInside::parse("config_files", path) {
        // The image decides where the home directory is.
        Ok(PathInside::Absolute(at)) => Ok(![WORKSPACE, TMP, "/home"].iter().any(|it| at.is_beneath(it))),
        Ok(_) => Ok(false),
        Err(failure) => Err(failure),
    };
    let mut beyond = Vec::new();
    for path in args.config_files.iter().flat_map(|it| it.keys()) {
        if outside(&path)? {
            beyond.push(path.clone());
        }
    }
    let given = |it: &Option<String>| it.clone();
    Ok(rows([
        (
            ("config_files", "root.files", beyond.into_iter().next()),
            ("files lie in `/workspace`, `/tmp` and the home, and nowhere else", "give a path in one of these"),
        ),
        (
            ("devcontainer", "mount.bind", given(&args.devcontainer)),
            (
                "its user, mounts, ports and commands are not for a container without network and root",
                "use a sandbox, which honours the file of its repository",
            ),
        ),
        (
            ("setup_commands", "root.setup", counted(args.setup_commands.as_deref())),
            (
                "they run as root, and no process inside is root",
                "run them with `exec` afterwards; what needs root is for `packages`, or the `setup` of a profile of the \
                 person's, which make the image",
            ),
        ),
        (
            ("repos", "network.open", counted(args.repos.as_deref())),
            (
                "there is no network to clone over",
                "copy a clone of the host in with `copy_in`, or use a sandbox, which clones through the proxy",
            ),
        ),
        (
            ("repo_url", "network.open", given(&args.repo_url)),
            ("what a repository is tried with is fetched, and there is no network", "use a sandbox"),
        ),
        (
            ("dotfiles_repo", "network.open", given(&args.dotfiles_repo)),
            ("there is no network to clone over", "give the files by `dotfiles_inline`"),
        ),
        (
            ("amplifier_bundle", "network.open", given(&args.amplifier_bundle)),
            ("there is no network to fetch it over", "leave it out"),
        ),
    ]))
}

/// Arguments that pass data of the user: only the identity for git is no secret.
fn of_person(args: &Create) -> Vec<Row> {
    let requested = |it: Option<bool>| it.filter(|it| *it).map(|it| it.to_string());
    let passed = args.env_passthrough.as_ref().and_then(|it| match it {
        Passthrough::None => None,
        Passthrough::Auto => Some("auto".to_owned()),
        Passthrough::All => Some("all".to_owned()),
        Passthrough::Names(names) => names.first().cloned(),
    });
    let is_secret = |(name, value): &(&String, &Value)| !value.is_null() && !is_plain(name, "", std::iter::empty());
    let secret = args.env.iter().flatten().find(is_secret).map(|it| it.0.clone());
    let no_secret = "no secret goes in";
    rows([
        (("forward_gh", "identity.gh", requested(args.forward_gh)), (no_secret, "leave it out")),
        (("forward_ssh", "identity.ssh", requested(args.forward_ssh)), (no_secret, "leave it out")),
        (
            ("env_passthrough", "env.name", passed),
            ("no variable of the host goes in", "say `none`, and give what is no secret in `env`"),
        ),
        (
            ("env", "env.name", secret),
            ("a variable with the name of a secret does not go in", "leave it out; a sandbox asks models by the proxy"),
        ),
    ])
}

/// Arguments for a stack.
fn beside(args: &Create) -> Vec<Row> {
    let stack = "a container of `strict` has no stack";
    let leave = "leave it out, or use `policy = \"standard\"`";
    let given = |it: bool| it.then(|| "given".to_owned());
    rows([
        (("compose_content", "compose.enabled", given(args.compose_content.is_some())), (stack, leave)),
        (("compose_file", "compose.enabled", args.compose_file.clone()), (stack, leave)),
        (
            ("compose_project", "compose.enabled", args.compose_project.as_ref().map(ToString::to_string)),
            (stack, leave),
        ),
    ])
}

type RefusedField = ((&'static str, &'static str, Option<String>), (&'static str, &'static str));

/// Keeps the fields that were given.
fn rows<const N: usize>(all: [RefusedField; N]) -> Vec<Row> {
    let row =
        |((field, rule, value), (why, instead)): RefusedField| Some(Row { field, rule, value: value?, why, instead });
    all.into_iter().filter_map(row).collect()
}

fn counted<T>(given: Option<&[T]>) -> Option<String> {
    given.filter(|it| !it.is_empty()).map(|it| it.len().to_string())
}

/// Shapes the spec of such a container, without its volume and its home, which depend on the image.
pub(super) fn shaped(spec: CreateSpec) -> CreateSpec {
    let at = ContainerPath::parse(TMP).expect("a plain path");
    CreateSpec {
        exec_user: USER,
        capabilities: Capabilities::None,
        read_only: true,
        network: NetworkRequest::None,
        tmpfs: vec![Tmpfs { at, size: TMP_SIZE, mode: 0o1777 }],
        ..spec
    }
}
