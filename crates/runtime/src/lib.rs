//! The seam between Coracle and a container engine.
//!
//! [`ContainerRuntime`] is the one trait: about a dozen verbs in our words. [`CliRuntime`] speaks them to Docker and
//! Podman: it acts through their own programs, and reads over their API where its socket answers. `FakeRuntime` (feature `fake`)
//! keeps real state in memory. What may be made at all is decided by [`admit`], and only its result can be created.
//!
//! **Invariant:** a command that exits non-zero is a *result*, not an [`Error`].
//! **Invariant:** a container is created from a [`Placed`] only, and only [`admit`] leads to one.
//! **Invariant:** what is built from input travels as one `--flag=value` word or behind `--`; nothing is shell text.
//! **Invariant:** engines are read through `inspect` and JSON, never through columns or the wording of an error.
//! **Invariant:** an engine's API is only read, its peer is root or the same user, and the program can answer in its place.
//! **Invariant:** one file, `host/process.rs`, starts programs on the host.
//! **Invariant:** nothing in this crate knows MCP, the configuration file or the home directory.

#![warn(missing_docs)]

mod address;
mod api;
pub mod archive;
mod baseline;
mod branch;
mod capture;
pub mod cli;
mod ended;
mod error;
mod exec;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod git;
mod git_url;
mod heard;
pub mod host;
mod info;
mod inside;
pub mod labels;
pub mod link;
mod name;
mod path;
mod policy;
mod process;
mod protect;
mod redact;
mod secret;
mod size;
mod spec;
mod stacks;
mod user;

pub use address::{Unresolved, addresses_public, is_public};
pub use api::{ContainerRuntime, Endpoint, ImageAct, ImageBuild, LabelFilter, NetworkAct, Removed};
pub use baseline::{Baseline, BaselineFile, BaselineMount, LeftOut};
pub use branch::{BranchName, InvalidBranch};
pub use capture::Capture;
pub use cli::CliRuntime;
pub use coracle_protocol::patterns::Pattern as PathPattern;
pub use ended::ended;
pub use error::{Capability, Error, Excerpt, Result};
pub use exec::{AtLimit, Chunk, Command, Exec, ExecLimits, ExecOutput, Exit, Input, LimitKind, Stream};
#[cfg(any(test, feature = "fake"))]
pub use fake::FakeRuntime;
pub use git_url::{GitRules, GitUrl, InvalidGitUrl};
pub use heard::{EngineCall, Hear, Heard};
pub use info::{Container, EngineInfo, EngineKind, Image, ImageConfig, MountPoint, Network, PublishedPort, Status};
pub use inside::Inside;
pub use ipnet::IpNet;
pub use link::{Link, LinkSettings, SocketAt, Transport};
pub use name::{
    ContainerId, ContainerName, Handle, ImageId, ImageRef, InvalidName, JobId, LabelNamespace, NetworkName,
    ProjectName, RecordId, SnapshotName, VolumeName, random_hex,
};
pub use path::{ContainerPath, InvalidPath};
pub use policy::{Admitted, PatternSet, Placed, Policy, Problem, Refused, admit};
pub use process::{ProcessId, boot_id};
pub use protect::{git_files, is_acted_on, leads_to_protected, mounts_over};
pub use redact::{Redactor, Sieve};
pub use secret::Secret;
pub use size::{ByteSize, InvalidSize};
pub use spec::{
    Access, Capabilities, CreateSpec, GuestOn, HostEntry, Limits, Mount, NetworkAsk, NetworkOn, Port, Protocol, Tmpfs,
    Ulimits, Unkept, VolumeMount,
};
pub use stacks::{Health, StackSource, StackUp, Stacks, Usage, Volume, VolumeAct};
pub use user::Ids;
