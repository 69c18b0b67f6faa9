//! The seam between Coracle and a container engine.
//!
//! [`ContainerRuntime`] is the one trait, with the plain data that its methods take and return. The crates `coracle-docker`,
//! `coracle-apple`, `coracle-engine` and `coracle-kube` implement it, and so does `FakeRuntime` (feature `fake`) for tests,
//! with a real guest and no engine. `MockRuntime` (feature `mock`) returns what a test expects. [`admit`] decides what may be
//! created, and only its result can be.
//!
//! ```
//! use coracle_runtime::{CreateSpec, Policy, admit};
//! use coracle_types::{ByteSize, ContainerName, ImageRef};
//!
//! let policy = Policy { memory_max: ByteSize::mib(4096), ..Policy::permissive("/home/me".into()) };
//! let mut spec = CreateSpec::new(ContainerName::parse("web")?, ImageRef::parse("debian:13")?);
//! spec.limits.memory = Some(ByteSize::mib(512));
//! assert!(admit(spec.clone(), &policy).is_ok());
//!
//! spec.limits.memory = Some(ByteSize::mib(8192));
//! let refusal = admit(spec, &policy).unwrap_err();
//! assert_eq!(refusal.problems[0].rule, "limit.memory");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! **Invariant:** a command that exits non-zero is a *result*, not an [`Error`](coracle_types::Error).
//! **Invariant:** a container is created from a [`Placed`] only, and only [`admit`] leads to one.
//! **Invariant:** nothing in this crate knows MCP, the configuration file or the home directory.

#![warn(missing_docs)]

mod api;
mod baseline;
mod checkpoints;
mod exec_target;
mod exit;
#[cfg(all(target_os = "linux", any(test, feature = "fake")))]
pub mod fake;
mod images;
mod info;
pub mod labels;
mod limits;
#[cfg(feature = "mock")]
#[expect(missing_docs, reason = "mockall generates methods without documentation")]
pub mod mock;
mod mounts;
mod networks;
mod observe;
mod path_kind;
pub mod plain_exec;
mod policy;
mod protect;
mod shell_word;
mod spec;
pub mod stack_model;
mod stacks;
mod volumes;

pub use api::{ContainerRuntime, Endpoint, RemovalOutcome};
pub use baseline::{Baseline, BaselineFile, BaselineMount, SkippedCounts};
pub use checkpoints::{ChangeKind, Checkpoint, CheckpointChange, CheckpointOutcome, CheckpointRequest, Checkpoints};
pub use exec_target::ExecTarget;
pub use exit::ended;
#[cfg(all(target_os = "linux", any(test, feature = "fake")))]
pub use fake::FakeRuntime;
pub use images::{ImageBuild, ImageCommit, ImageImport, ImageStore, created_image, find_or_pull};
pub use info::{Container, EngineInfo, Image, ImageConfig, MountPoint, Network, PublishedPort};
pub use labels::LabelFilter;
pub use limits::{LEAST_MEMORY, Limits, UnenforcedLimit, whole_cpus};
#[cfg(feature = "mock")]
pub use mock::MockRuntime;
pub use mounts::{ContainerMounts, mount_identities};
pub use networks::{NetworkCreate, Networks};
pub use observe::{CallObserver, EngineCall, ObservedRuntime};
pub use path_kind::{PathKind, path_kind};
pub use policy::{Admitted, PatternSet, Placed, Policy, PolicyRefusal, Problem, admit, check_mounts};
pub use protect::{
    git_dirs, git_files, guarded_paths, hold_in_place, is_trusted_by_tools, leads_to_protected, mounts_over,
};
pub use shell_word::shell_word;
pub use spec::{
    Access, Capabilities, CreateSpec, GuestDelivery, HostEntry, Mount, NetworkAttachment, NetworkRequest, Port,
    Protocol, Tmpfs, Ulimits, VolumeMount,
};
pub use stacks::{ContainerUsage, Health, StackUp, Stacks};
pub use volumes::{Volume, VolumeCreate, Volumes};
