//! Pods of a Kubernetes cluster as containers: [`KubeRuntime`] is the `ContainerRuntime` over a cluster's API server.
//!
//! A container is one Pod with one container, `main`, which is never restarted. Its guest is sent to an init container
//! over `attach`, and is reached by one `exec` that stays open.
//!
//! **Invariant:** no secret is in a Pod, in an annotation or in the URL of a request. Secrets are sent over the link.
//! **Invariant:** all state of a container is in its Pod; two processes with the same configuration see the same.
//! **Invariant:** a Pod that is being deleted counts as removed. No call waits for the end of a deletion.
//! **Invariant:** data for a command contains its own end, since servers before 1.30 cannot close a single stream.
//! **Invariant:** no type of the client library is in the public interface.

#![warn(missing_docs)]

mod client;
mod cluster;
mod create;
mod download;
mod error;
mod exec;
mod find;
mod guest;
mod images;
mod info;
mod link;
mod list;
mod logs;
mod lost_nodes;
mod names;
mod network;
mod pod;
mod preflight;
mod push;
mod registry;
mod remove;
mod retry;
mod runtime;
mod settings;
mod start;
mod stop;
mod unsupported;
mod upload;
mod usage;
mod wait;
mod warm_pool;
mod watchdog;

pub use preflight::{KubePreflight, MissingRight, PoolReadiness};
pub use runtime::KubeRuntime;
pub use settings::{KubeSettings, KubeToleration};
