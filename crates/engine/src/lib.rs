//! The embedded engine: containers made by this process and the kernel, without a daemon or another program.
//!
//! A container is a directory: a record, an upper layer over an image's unpacked layers, and what the engine binds into
//! it. To start it, a child enters the control groups and the user namespace and clones PID 1 there with the other
//! namespaces; PID 1 builds its own file system, gives up privileges and executes its program. Beside PID 1 only the
//! helpers of its network stay, such as `pasta` or the forwarder of published ports. Records, start times and control
//! groups tell any later process what runs.
//!
//! | module | content |
//! |---|---|
//! | `runtime` | [`EmbeddedRuntime`], one file for each trait of `coracle-runtime`: only translates |
//! | `config`, `health_check` | what a container is made of, decided at its creation |
//! | `oci`, `oci_runtime` | containers whose process a runtime such as gVisor makes |
//! | `container` | its directory, start and end, commands and files |
//! | `exec_record` | which commands run where no control group tells it |
//! | `isolation` | system call filter, capabilities, masked paths: tables, pure |
//! | `cgroup` | limits and usage by control groups of both versions |
//! | `network` | loopback, user-mode and routed networks, published ports, names |
//! | `digest` | SHA-256 digests |
//! | `archive` | the tar format, hostile and canonical |
//! | `file_archive` | files of a container as a tar archive, in and out |
//! | `store` | images: unpacked layers by digest, import, commit, garbage collection |
//! | `source` | images that are copied into the store: layouts, archives, other engines; what all sources have in common |
//! | `registry` | images from registries |
//! | `service` | services of a Compose file: its model, their containers, order and health |
//! | [`preflight`] | what this machine offers: read from files, nothing is changed |
//! | `ids` | who root inside is on the host, and acting as that user |
//! | `volume` | named volumes |
//! | `pending`, `repair` | operations in progress; what is left of one whose process died |
//! | `uninterrupted` | operations that go on when their caller stops waiting |
//! | `owner`, `trash` | which process a file belongs to; directories that are about to be deleted |
//! | `checkpoint` | saves the state of a container's files, and goes back to it |
//! | `tree_history` | saved states of an upper directory, with one copy of each version of a file |
//! | `shared_mappings` | files that processes write to through shared mappings |
//! | `tree_copy`, `tree_size` | an upper directory copied or counted while it may change |
//! | `usage` | what a container uses now |
//! | `process_table` | the processes of the machine |
//! | `cancel`, `write_guard` | blocking work that is given up; disks that large writes do not fill |
//! | `sys` | system calls; the only module with `unsafe` code |
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use coracle_engine::{EmbeddedRuntime, EngineOptions};
//! use coracle_runtime::{ContainerRuntime as _, CreateSpec, NetworkAttachment, Policy, admit, find_or_pull};
//! use coracle_types::{Command, ContainerName, ContainerPath, Exec, Ids, ImageRef};
//!
//! # async fn example(home: std::path::PathBuf) -> Result<(), Box<dyn std::error::Error>> {
//! let engine = EmbeddedRuntime::open(EngineOptions::new(home.join(".local/share/my-engine"), &home))?;
//! let name = ImageRef::parse("docker.io/library/alpine:3")?;
//! let image = find_or_pull(&engine, &name, Duration::from_secs(300)).await?;
//! let admitted = admit(CreateSpec::new(ContainerName::parse("web")?, name), &Policy::permissive(home))?;
//! let id = engine.create(&admitted.with_image(image.id, NetworkAttachment::None)).await?;
//! engine.start(&id).await?;
//! let output = engine.exec(&id, Exec::new(Command::shell("id"), Ids::ROOT, ContainerPath::root())).await?;
//! println!("{}", output.stdout.text());
//! engine.remove(&id).await?;
//! # Ok(())
//! # }
//! ```
//!
//! **Invariant:** everything is reconstructed from files, `/proc` and control groups; no process of the engine has to stay
//! for a container without a network.
//! **Invariant:** a directory becomes visible by one rename when it is complete, and is renamed into `trash` before it is
//! deleted: whatever step a process dies at, the next one finds a whole thing or garbage.
//! **Invariant:** what an operation changes outside of such directories (control groups, processes, networks, a container
//! that stands still) is recorded in `pending` before, and repaired by the next process should this one die.
//! **Invariant:** paths that come from images, archives or containers are only used beneath a directory handle, without
//! following links out of it.
//! **Invariant:** a limit or guard that cannot be set is an error or is reported; none is skipped silently.

#![warn(missing_docs)]
#![cfg(target_os = "linux")]

mod blocking;
mod cancel;
mod cgroup;
mod checkpoint;
mod config;
mod container;
mod directories;
mod engine;
mod error;
mod exchange;
mod exec_record;
mod file_archive;
mod health_check;
mod ids;
mod info;
mod isolation;
mod network;
mod oci;
mod oci_runtime;
mod options;
mod owner;
mod pending;
pub mod preflight;
mod process_table;
mod registry;
mod repair;
mod runtime;
mod service;
mod shared_mappings;
mod source;
mod store;
mod sys;
mod trash;
mod tree_copy;
mod tree_history;
mod tree_size;
mod uninterrupted;
mod usage;
mod volume;
mod write_guard;

pub use oci_runtime::OciRuntime;
pub use options::{EngineOptions, ProxyOptions, RegistryOptions};
pub use runtime::{EmbeddedRuntime, ImageDamage, ImageOrigin, ImageVerification};
pub use sys::close_inherited_on_exec;
