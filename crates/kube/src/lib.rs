//! Pods of a Kubernetes cluster as containers.

#![warn(missing_docs)]

mod settings;

pub use settings::{KubeSettings, KubeToleration};
