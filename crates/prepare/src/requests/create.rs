//! What `create` takes.

use std::collections::BTreeMap;

use coracle_context::arg_types::{Name, Pairs, Passthrough, Script, Size, pairs};
use coracle_context::config::Pull;
use coracle_images::profile::Purpose;
use coracle_provision::UserRequest;
use coracle_runtime::{Access, Protocol};
use coracle_types::{ByteSize, ContainerName, ContainerPath, ImageRef, ProjectName};
use schemars::{JsonSchema, Schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::Content;
use super::short_forms;

/// Make a container: the image, the person's working directory, limits, ports, setup commands; answered with a report of
/// what was done and seen to work.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Create {
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a fresh name.
    #[schemars(with = "Option<Name>")]
    pub name: Option<ContainerName>,
    /// When a container of ours has that name: `error`, or `reuse`, which returns the existing container if its options are
    /// the same.
    #[schemars(with = "Option<String>", extend("default" = "error", "enum" = ["error", "reuse"]))]
    pub if_exists: Option<IfExists>,
    /// What it is for: `python`, `node`, `bun`, `rust`, `go`, `general`, `browser`, `desktop`, `clean`, `amplifier`,
    /// `try-repo`, or one that the person configured. It decides image, packages and setup, which are kept as an image for
    /// the next time.
    #[schemars(with = "Option<String>")]
    pub purpose: Option<Purpose>,
    /// With `try-repo`: the repository to try, by its https URL, or a directory of the host.
    pub repo_url: Option<String>,
    /// Image to start from. Without one it is the configured default; where no registry answers, a Debian made here.
    #[schemars(with = "Option<String>")]
    pub image: Option<ImageRef>,
    /// A `devcontainer.json` to make it by: `auto` for that of the working directory, or a path.
    pub devcontainer: Option<String>,
    /// System packages to install (Debian's names), beside those of the purpose.
    pub packages: Option<Vec<String>>,
    /// Build the image of the purpose anew.
    #[schemars(extend("default" = false))]
    pub cache_bust: Option<bool>,
    /// When to fetch the image: `missing`, `always` or `never`. Where the configuration has `images.pull = "never"`, only
    /// that.
    #[schemars(with = "Option<String>", extend("enum" = ["missing", "always", "never"]))]
    pub pull: Option<Pull>,
    /// Where commands run, and where the working directory is mounted. Made if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    pub workdir: Option<ContainerPath>,
    /// Mount the person's working directory at `workdir`. The default is to, if the policy allows it. Its `.git/config` and
    /// `.git/hooks` are read-only inside: use `git config --global`.
    pub mount_cwd: Option<bool>,
    /// Further host directories or files to mount, each as `"HOST:CONTAINER"`, `"HOST:CONTAINER:ro"` or an object. Host
    /// paths lie beneath directories that the person allows.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub mounts: Option<Vec<MountArg>>,
    /// Ports to publish on the host's loopback address, each as `8080`, `"HOST:CONTAINER"`, `"HOST:CONTAINER/udp"` or an
    /// object.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub ports: Option<Vec<PortArg>>,
    /// Variables for the command or commands. Their values are kept in memory alone.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    pub env: Option<BTreeMap<String, Value>>,
    /// Which variables of the host go in: `auto` (by the person's patterns), `all`, `none`, or a list of names.
    #[schemars(with = "Option<Script>")]
    pub env_passthrough: Option<Passthrough>,
    /// Give it the person's git configuration, without anything secret. The default is the person's to set, mostly yes.
    pub forward_git: Option<bool>,
    /// Give it GitHub's token. The default is the person's to set, mostly yes.
    pub forward_gh: Option<bool>,
    /// Give it keys for ssh. The person has to allow it.
    pub forward_ssh: Option<bool>,
    /// Repository with dotfiles, cloned and set up in the home.
    pub dotfiles_repo: Option<String>,
    /// Script in it that sets them up; else the usual names are looked for.
    pub dotfiles_script: Option<String>,
    /// Branch of it.
    pub dotfiles_branch: Option<String>,
    /// Where it goes; `~/.dotfiles`.
    pub dotfiles_target: Option<String>,
    /// Files below the home: path to content.
    pub dotfiles_inline: Option<BTreeMap<String, Content>>,
    /// No dotfiles of either kind.
    #[schemars(extend("default" = false))]
    pub dotfiles_skip: Option<bool>,
    /// Repositories to clone, each as a URL, `"URL=PATH"` or an object.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub repos: Option<Vec<RepoArg>>,
    /// Files to write: path (absolute, `~/…`, or relative to `workdir`) to content: a text, or an object of `content` or
    /// `content_base64`, and `mode`. At most 200 files of 1 MiB, and 8 MiB in a call; `copy_in` takes more.
    pub config_files: Option<BTreeMap<String, Content>>,
    /// Commands that make the container ready, run in order as root in `workdir`. A failure is reported and does not
    /// stop the next.
    pub setup_commands: Option<Vec<Script>>,
    /// A program that the container runs, as job `main`: `image` for what the image itself starts, as its user (for an image
    /// that is a service), or a list of words.
    pub main: Option<Script>,
    /// Who runs commands: a name, a uid, or `uid:gid`. The default is the person's uid when a host directory is mounted,
    /// else root.
    #[schemars(with = "Option<String>")]
    pub user: Option<UserRequest>,
    /// Memory, in bytes or as `512m`, `4g`. No swap is added.
    #[schemars(with = "Option<Size>")]
    pub memory_limit: Option<ByteSize>,
    /// Cores, also parts of one.
    pub cpu_limit: Option<f64>,
    /// Processes and threads.
    pub pids_limit: Option<u32>,
    /// Give all GPUs of the host.
    pub gpu: Option<bool>,
    /// `bridge` (a way out, no other container in reach), `none`, or the name of a network of ours.
    #[schemars(extend("default" = "bridge"))]
    pub network: Option<String>,
    /// Lines for the hosts file: `name:ip` or `name:host-gateway`.
    pub add_hosts: Option<Vec<String>>,
    /// It outlives the session, and is started again when it stopped.
    #[schemars(extend("default" = false))]
    pub persistent: Option<bool>,
    /// Labels of the caller's own.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    pub labels: Option<BTreeMap<String, String>>,
    /// A stack of services beside it: the text of a Compose file.
    pub compose_content: Option<String>,
    /// The same from a file of the host.
    pub compose_file: Option<String>,
    /// The stack's project. With a file it is the name that it gets, without one a running project that the container
    /// joins; to `destroy`, the stack that goes with the container.
    #[schemars(with = "Option<String>")]
    pub compose_project: Option<ProjectName>,
    /// Every published port of the stack gets a free host port: one file runs many times side by side. Without it only
    /// those that are taken are moved.
    #[schemars(extend("default" = false))]
    pub namespace: Option<bool>,
    /// With `amplifier`: its version.
    pub amplifier_version: Option<String>,
    /// With `amplifier`: the bundle to add.
    pub amplifier_bundle: Option<String>,
}

/// Fields of `create` that say what the image is.
const OF_IMAGE: [&str; 6] = ["image", "devcontainer", "packages", "pull", "cache_bust", "repo_url"];

/// The schema of a request that has a source of its own in place of an image.
pub fn without_image(schema: &mut Schema) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !OF_IMAGE.contains(&name.as_str()));
    }
}

/// What to do with a name that a container of ours has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum IfExists {
    Error,
    Reuse,
}

/// A host path to mount.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("type" = ["string", "object"]))]
#[serde(deny_unknown_fields)]
pub struct MountArg {
    /// Path on the host: absolute, `~/…`, or relative to the working directory.
    pub host: String,
    /// Path inside.
    #[schemars(with = "String")]
    pub container: ContainerPath,
    /// `rw` (default) or `ro`.
    #[schemars(with = "Option<String>", extend("enum" = ["rw", "ro"]))]
    pub mode: Option<Access>,
}

/// A port to publish.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("type" = ["integer", "string", "object"]))]
#[serde(deny_unknown_fields)]
pub struct PortArg {
    /// Port inside.
    pub container: u16,
    /// Port on the host; 0 or absent for a free one.
    pub host: Option<u16>,
    /// `tcp` (default) or `udp`.
    #[schemars(with = "Option<String>", extend("enum" = ["tcp", "udp"]))]
    pub protocol: Option<Protocol>,
}

/// A repository to clone.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(extend("type" = ["string", "object"]))]
#[serde(deny_unknown_fields)]
pub struct RepoArg {
    /// Its URL: https, or ssh with `forward_ssh`. Or a git repository of the host, as a directory that the person allows: what
    /// is committed there is cloned.
    pub url: String,
    /// Where it goes: absolute, `~/…`, or relative to `workdir`. The default is its name there, or in the home when
    /// `workdir` is the person's directory.
    pub path: Option<String>,
    /// Branch or tag.
    pub branch: Option<String>,
    /// Command to run in it.
    pub install: Option<Script>,
    /// Run that as root.
    pub as_root: Option<bool>,
}
