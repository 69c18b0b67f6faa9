//! Builds an engine's arguments from our types. Pure.

mod create;
mod exec;

use std::ffi::OsString;
use std::time::Duration;

use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{ImageBuild, ImageCommit, ImageConfig, LabelFilter, NetworkCreate};
use coracle_types::{ContainerId, ContainerPath, Handle, ImageId, ImageRef, VolumeName};
use serde_json::{Value, json};

use super::Dialect;

pub(super) use self::create::create;
pub(super) use self::exec::{connect, constant_program, exec};
pub(super) use coracle_engine_program::EngineArgs;
use coracle_engine_program::argv::dockerfile_value;

/// Facts of the machine that change the words.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EngineFacts {
    pub(super) rootless: bool,
    pub(super) selinux: bool,
    /// Podman can pause a container: it freezes a control group, and without root only version 2 has one for it.
    pub(super) pauses: bool,
    /// Open files and processes, where Podman may not have the defaults that it asks for. Those of its configuration
    /// are gone as soon as one limit is named.
    pub(super) bounds: Option<(u64, u64)>,
    /// The program of Podman's user-mode network that is installed.
    pub(super) user_network: Option<&'static str>,
    /// The address for `host-gateway` where the engine does not know the word.
    pub(super) host_gateway: Option<std::net::IpAddr>,
}

pub(super) fn inspect(id: &str) -> EngineArgs {
    on("container inspect", [id])
}

pub(super) fn stop(id: &ContainerId, grace: Duration) -> EngineArgs {
    on(&format!("stop --time={}", grace.as_secs()), [id.as_str()])
}

pub(super) fn logs(id: &ContainerId, lines: usize) -> EngineArgs {
    on(&format!("logs --tail={lines}"), [id.as_str()])
}

/// All ids, or those of one handle, or those that carry labels.
pub(super) fn ids() -> EngineArgs {
    EngineArgs::verb("ps --all --quiet --no-trunc")
}

pub(super) fn ids_of(handle: &Handle) -> EngineArgs {
    let (name, value) = handle_filter(handle);
    ids().flag("filter", format_args!("{name}={value}"))
}

/// Name and value of the filter that lists one container.
pub(super) fn handle_filter(handle: &Handle) -> (&'static str, String) {
    match handle {
        // The filter is a regular expression; a dot is the only character of a name that means something in one.
        Handle::Name(name) => ("name", format!("^/?{}$", name.as_str().replace('.', "\\."))),
        Handle::IdPrefix(digits) => ("id", digits.clone()),
    }
}

pub(super) fn with_labels(it: EngineArgs, filter: &LabelFilter) -> EngineArgs {
    filter.0.iter().fold(it, |it, (key, value)| match value {
        Some(value) => it.flag("filter", format_args!("label={key}={value}")),
        None => it.flag("filter", format_args!("label={key}")),
    })
}

pub(super) fn on(verb: &str, subjects: impl IntoIterator<Item = impl Into<OsString>>) -> EngineArgs {
    EngineArgs::verb(verb).word("--").words(subjects)
}

/// An image as an archive on standard output.
pub(super) fn save_image(dialect: Dialect, image: &ImageId) -> EngineArgs {
    match dialect {
        Dialect::Docker => on("image save", [image.as_str()]),
        // Its own format of a layout would compress each layer.
        Dialect::Podman => on("image save --quiet --format=docker-archive", [image.as_str()]),
    }
}

/// The archive comes on standard input.
pub(super) fn load_image() -> EngineArgs {
    EngineArgs::verb("image load --quiet")
}

/// Another name for an image.
pub(super) fn tag(image: &ImageId, tag: &ImageRef) -> EngineArgs {
    on("tag", [image.as_str(), tag.as_str()])
}

/// `inspect` with the size of the container's own layer, which the engine counts file by file.
pub(super) fn sized(id: &ContainerId) -> EngineArgs {
    on("container inspect --size", [id.as_str()])
}

pub(super) fn remove(dialect: Dialect, id: &ContainerId) -> EngineArgs {
    match dialect {
        Dialect::Docker => on("rm --force --volumes", [id.as_str()]),
        // Podman waits ten seconds for a process that ignores TERM, even with --force.
        Dialect::Podman => on("rm --force --volumes --time=0", [id.as_str()]),
    }
}

pub(super) fn upload(dialect: Dialect, id: &ContainerId, at: &ContainerPath) -> EngineArgs {
    let target = format!("{id}:{at}");
    match dialect {
        Dialect::Docker => EngineArgs::verb("cp").words(["--", "-", &target]),
        // Podman's "archive" mode means the container's own user, not the owners in the archive.
        Dialect::Podman => EngineArgs::verb("cp --archive=false").words(["--", "-", &target]),
    }
}

pub(super) fn download(id: &ContainerId, path: &ContainerPath) -> EngineArgs {
    EngineArgs::verb("cp").words(["--", &format!("{id}:{path}"), "-"])
}

/// The root file system comes on standard input.
pub(super) fn import(
    dialect: Dialect,
    tag: &ImageRef,
    env: &[(String, String)],
    labels: &[(String, String)],
) -> EngineArgs {
    let env = env.iter().map(|(name, value)| format!("ENV {name}={}", instruction(dialect, value)));
    let labels = labels.iter().map(|(key, value)| format!("LABEL {key}={}", instruction(dialect, value)));
    EngineArgs::verb("import").flags("change", env.chain(labels)).words(["--", "-", tag.as_str()])
}

/// An image of a container. The engine prints its id and nothing else.
pub(super) fn commit(dialect: Dialect, facts: EngineFacts, commit: &ImageCommit) -> EngineArgs {
    let it = match dialect {
        // Docker pauses by default; the flag against it has another name in each version.
        Dialect::Docker => EngineArgs::verb("commit"),
        Dialect::Podman => EngineArgs::verb("commit --quiet").flag("pause", facts.pauses),
    };
    let labels = commit.labels.iter().map(|(key, value)| format!("LABEL {key}={}", instruction(dialect, value)));
    let it = it.flags("change", starting(dialect, &commit.config).into_iter().chain(labels));
    it.word("--").word(commit.container.as_str()).words(commit.tag.as_ref().map(ImageRef::as_str))
}

/// An image by a Dockerfile. Nothing of this host's environment gets in, and no image is fetched.
pub(super) fn build(dialect: Dialect, facts: EngineFacts, build: &ImageBuild) -> EngineArgs {
    let it = match dialect {
        Dialect::Docker => EngineArgs::verb("build --quiet --pull=false --force-rm"),
        Dialect::Podman => EngineArgs::verb("build --quiet --pull=never --force-rm --http-proxy=false"),
    };
    let it =
        it.flag("file", build.dockerfile.display()).flag("tag", &build.tag).option("target", build.target.as_ref());
    let it = if build.offline { it.flag("network", "none") } else { it };
    // Without root there may be no control group to hold it.
    let memory = build.memory.filter(|_| !facts.rootless).map(|it| it.0);
    let it = it.option("memory", memory).option("memory-swap", memory);
    let it = it.flags("build-arg", build.args.iter().map(|(name, value)| format!("{name}={value}")));
    it.labels(build.labels.iter().map(|(key, value)| (key, value))).word("--").word(&build.context)
}

/// The instructions that set how an image starts. Neither engine takes an empty user or directory.
fn starting(dialect: Dialect, config: &ImageConfig) -> Vec<String> {
    let words = |words: &[String]| match (words, dialect) {
        // An empty list leaves the container's value; one empty word is Docker's own notation for "none".
        ([], Dialect::Docker) => r#"[""]"#.to_owned(),
        _ => serde_json::json!(words).to_string(),
    };
    let text = |text: &str, none: &str| match dialect {
        _ if text.is_empty() => none.to_owned(),
        Dialect::Docker => instruction(dialect, text),
        Dialect::Podman => text.to_owned(),
    };
    let mut changes = vec![
        format!("ENTRYPOINT {}", words(&config.entrypoint)),
        format!("CMD {}", words(&config.cmd)),
        format!("USER {}", text(&config.user, "0:0")),
        format!("WORKDIR {}", text(&config.workdir, "/")),
    ];
    if dialect == Dialect::Podman {
        // It writes the container's own into the image, from where every container made of it would have it.
        changes.push("ENV HOSTNAME=".into());
    }
    changes
}

/// A value of a Dockerfile instruction.
fn instruction(dialect: Dialect, value: &str) -> String {
    match dialect {
        Dialect::Docker => dockerfile_value(value),
        // It takes one pair of quotes away and knows no escapes.
        Dialect::Podman => format!("\"{value}\""),
    }
}

pub(super) fn create_volume(name: &VolumeName, labels: &[(String, String)]) -> EngineArgs {
    let it = EngineArgs::verb("volume create --driver=local").labels(labels.iter().map(|(key, value)| (key, value)));
    it.word("--").word(name.as_str())
}

pub(super) fn pull(image: &ImageRef) -> EngineArgs {
    on("pull --quiet", [image.completed().as_str()])
}

pub(super) fn create_network(dialect: Dialect, network: &NetworkCreate) -> EngineArgs {
    let labels = network.labels.iter().map(|(key, value)| (key, value));
    let it = EngineArgs::verb("network create --driver=bridge").labels(labels);
    let it = if network.internal { it.word("--internal") } else { it };
    let it = match (dialect, network.reach) {
        (Dialect::Docker, true) => it,
        (Dialect::Docker, false) => it.flag("opt", "com.docker.network.bridge.enable_icc=false"),
        // Without it the networks of one Podman are routed to each other.
        (Dialect::Podman, _) => it.flag("opt", "isolate=true"),
    };
    it.word("--").word(network.name.as_str())
}

/// A model as a file for the engine's Compose, which takes a `$` for the begin of a variable.
pub(super) fn stack_file(dialect: Dialect, model: &StackModel) -> Value {
    let mut model = model.clone();
    if dialect == Dialect::Podman {
        for check in model.services.values_mut().filter_map(|service| service.healthcheck.as_mut()) {
            keep_words(&mut check.test);
        }
    }
    let mut file = serde_json::to_value(&model).expect("a model has texts for keys");
    for (name, network) in file["networks"].as_object_mut().into_iter().flatten() {
        if dialect == Dialect::Podman && !model.networks[name].external {
            // As for networks that we make ourselves.
            network["driver_opts"] = json!({ "isolate": "true" });
        }
    }
    escape_dollars(&mut file);
    file
}

/// Doubles each `$` of all texts; keys stay.
fn escape_dollars(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace('$', "$$"),
        Value::Array(items) => items.iter_mut().for_each(escape_dollars),
        Value::Object(fields) => fields.values_mut().for_each(escape_dollars),
        _ => {}
    }
}

/// Podman's interface for Compose splits the words of a check again at each space (seen with 4.3.1, its issue 26519): a
/// shell keeps them, where one is needed.
fn keep_words(test: &mut Vec<String>) {
    let Some((kind, words)) = test.split_first().filter(|(kind, _)| *kind == "CMD") else { return };
    if words.iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace)) {
        return;
    }
    if let Ok(line) = shlex::try_join(words.iter().map(String::as_str)) {
        *test = vec![format!("{kind}-SHELL"), format!("exec {line}")];
    }
}

#[cfg(test)]
mod tests;
