//! The arguments of `create`.

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

/// Create a container: image, the user's working directory, limits, ports and setup commands. The answer is a report of
/// what was done and verified.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Create {
    /// Its own name: letters, digits, `_`, `.`, `-`. A container without one gets a generated name.
    #[schemars(with = "Option<Name>")]
    pub name: Option<ContainerName>,
    /// If a managed container has that name: `error`, or `reuse`, which returns the existing container if
    /// its options are the same.
    #[schemars(with = "Option<String>", extend("default" = "error", "enum" = ["error", "reuse"]))]
    pub if_exists: Option<IfExists>,
    /// What the container is for: `python`, `node`, `bun`, `rust`, `go`, `general`, `browser`, `desktop`, `clean`,
    /// `amplifier`, `try-repo`, or a configured purpose. It decides image, packages and setup, which are cached as an
    /// image.
    #[schemars(with = "Option<String>")]
    pub purpose: Option<Purpose>,
    /// With `try-repo`: the repository to try, by its https URL, or a directory of the host.
    pub repo_url: Option<String>,
    /// Image to start from. The default is configured; if no registry answers, Coracle builds a Debian image.
    #[schemars(with = "Option<String>")]
    pub image: Option<ImageRef>,
    /// A `devcontainer.json` to create the container from: `auto` for that of the working directory, or a path.
    pub devcontainer: Option<String>,
    /// System packages to install (Debian's names), in addition to those of the purpose.
    pub packages: Option<Vec<String>>,
    /// Build the image of the purpose again.
    #[schemars(extend("default" = false))]
    pub cache_bust: Option<bool>,
    /// When to pull the image: `missing`, `always` or `never`. With `images.pull = "never"` in the configuration,
    /// only `never`.
    #[schemars(with = "Option<String>", extend("enum" = ["missing", "always", "never"]))]
    pub pull: Option<Pull>,
    /// Where commands run, and where the working directory is mounted. Created if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    pub workdir: Option<ContainerPath>,
    /// Mount the user's working directory at `workdir`. The default is yes, if the policy allows it. Its `.git/config`
    /// and `.git/hooks` are read-only inside: use `git config --global`.
    pub mount_cwd: Option<bool>,
    /// Further host directories or files to mount, each as `"HOST:CONTAINER"`, `"HOST:CONTAINER:ro"` or an object. Host
    /// paths must lie in directories that the user allows.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub mounts: Option<Vec<MountArg>>,
    /// Ports to publish on the host's loopback address, each as `8080`, `"HOST:CONTAINER"`, `"HOST:CONTAINER/udp"` or an
    /// object.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub ports: Option<Vec<PortArg>>,
    /// Variables for commands. Their values are never written to disk.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    pub env: Option<BTreeMap<String, Value>>,
    /// Which host variables to pass: `auto` (by the user's patterns), `all`, `none`, or a list of names.
    #[schemars(with = "Option<Script>")]
    pub env_passthrough: Option<Passthrough>,
    /// Pass the user's git configuration without secrets (default: configured, usually on).
    pub forward_git: Option<bool>,
    /// Pass the user's GitHub token to the container (default: configured, usually on).
    pub forward_gh: Option<bool>,
    /// Pass SSH keys to the container. The user has to allow it.
    pub forward_ssh: Option<bool>,
    /// Repository with dotfiles, cloned and set up in the home directory.
    pub dotfiles_repo: Option<String>,
    /// Script in that repository that sets them up (default: found by its usual names).
    pub dotfiles_script: Option<String>,
    /// Branch of that repository.
    pub dotfiles_branch: Option<String>,
    /// Where to clone it (default: `~/.dotfiles`).
    pub dotfiles_target: Option<String>,
    /// Files below the home directory: path to content.
    pub dotfiles_inline: Option<BTreeMap<String, Content>>,
    /// Set up no dotfiles.
    #[schemars(extend("default" = false))]
    pub dotfiles_skip: Option<bool>,
    /// Repositories to clone, each as a URL, `"URL=PATH"` or an object.
    #[serde(default, deserialize_with = "short_forms::list")]
    pub repos: Option<Vec<RepoArg>>,
    /// Files to write: path (absolute, `~/…`, or relative to `workdir`) to content: a text, or an object of `content`
    /// or `content_base64`, and `mode`. At most 200 files of 1 MiB, and 8 MiB in a call; `copy_in` takes more.
    pub config_files: Option<BTreeMap<String, Content>>,
    /// Commands that prepare the container, run in order as root in `workdir`. A failure is reported, and the next
    /// command still runs.
    pub setup_commands: Option<Vec<Script>>,
    /// A program that the container runs, as job `main`: `image` for the image's own command, as its user (for an image
    /// that is a service), or a list of arguments.
    pub main: Option<Script>,
    /// Exec user that runs commands: a name, a uid, or `uid:gid`. The default is the user's uid if a host directory is
    /// mounted, else root.
    #[schemars(with = "Option<String>")]
    pub user: Option<UserRequest>,
    /// Memory, in bytes or as `512m`, `4g`. No swap is added.
    #[schemars(with = "Option<Size>")]
    pub memory_limit: Option<ByteSize>,
    /// CPU cores, also fractions.
    pub cpu_limit: Option<f64>,
    /// Maximum number of processes and threads.
    pub pids_limit: Option<u32>,
    /// Pass all GPUs of the host.
    pub gpu: Option<bool>,
    /// `bridge` (outbound access, no other container reachable), `proxy` (only the hosts that the user allows), `none`,
    /// or the name of a network created by Coracle.
    #[schemars(extend("default" = "bridge"))]
    pub network: Option<String>,
    /// A record of requests, as `CONTAINER` or `CONTAINER/ID`: the proxy answers from it, and sends nothing outside.
    pub replay: Option<String>,
    /// Lines for the hosts file: `name:ip` or `name:host-gateway`.
    pub add_hosts: Option<Vec<String>>,
    /// Keep the container after the session, and restart it when it stops.
    #[schemars(extend("default" = false))]
    pub persistent: Option<bool>,
    /// Labels of the caller.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    pub labels: Option<BTreeMap<String, String>>,
    /// A stack of services beside the container: the text of a Compose file.
    pub compose_content: Option<String>,
    /// A stack of services from a Compose file on the host.
    pub compose_file: Option<String>,
    /// Project of the stack: with a Compose file, the name of the new one; without, a running one to join; for `destroy`,
    /// the one to remove with the container.
    #[schemars(with = "Option<String>")]
    pub compose_project: Option<ProjectName>,
    /// Publish all ports of the stack on free host ports, so that one file can run many times. By default only taken
    /// ports are replaced.
    #[schemars(extend("default" = false))]
    pub namespace: Option<bool>,
    /// With `amplifier`: its version.
    pub amplifier_version: Option<String>,
    /// With `amplifier`: the bundle to add.
    pub amplifier_bundle: Option<String>,
}

/// Fields of `create` that choose the image.
const OF_IMAGE: [&str; 6] = ["image", "devcontainer", "packages", "pull", "cache_bust", "repo_url"];

/// Removes these fields from the schema of a request that does not start from an image.
pub fn without_image(schema: &mut Schema) {
    if let Some(fields) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        fields.retain(|name, _| !OF_IMAGE.contains(&name.as_str()));
    }
}

/// What to do if a container of Coracle already has the name.
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
    /// Path in the container.
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
    /// Port in the container.
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
    /// Its URL: https, or ssh with `forward_ssh`; or a git repository on the host, in a directory that the user allows,
    /// of which the commits are cloned.
    pub url: String,
    /// Where to clone it: absolute, `~/…`, or relative to `workdir`. The default is a directory of its name there, or
    /// in the home directory if `workdir` is the user's directory.
    pub path: Option<String>,
    /// Branch or tag.
    pub branch: Option<String>,
    /// Command to run in it.
    pub install: Option<Script>,
    /// Run the command as root.
    pub as_root: Option<bool>,
}
