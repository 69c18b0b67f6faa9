//! A repository's `devcontainer.json`: an untrusted request, validated completely before any of it is applied.
//!
//! [`read`](file::read) parses a file to a [`Devcontainer`](file::Devcontainer), or returns what is refused. The caller
//! that builds images and creates containers applies it; [`hooks::run`] runs its commands as the exec user, in the
//! container.
//!
//! **Invariant:** nothing of a refused file is applied: all refusals are known before the first act.
//! **Invariant:** no command of a file runs on the host, and none runs as root except while an image is built.
//!
//! ```
//! use coracle_devcontainer::file::{Variables, read};
//! use coracle_types::failure::{Code, Failure};
//!
//! # fn main() -> Result<(), Failure> {
//! let file = br#"{ "image": "debian:13", "postCreateCommand": "make" /* comments are allowed */ }"#;
//! assert!(read(file, &Variables::default())?.image.is_some());
//!
//! let refused = read(br#"{ "image": "debian:13", "privileged": true }"#, &Variables::default());
//! assert_eq!(refused.unwrap_err().code, Code::DevcontainerRefused);
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

mod artifact;
mod context;
mod definition;
pub mod dockerfile;
mod feature;
pub mod hooks;
mod json;
pub mod mounts;
mod properties;
pub mod refusal;
mod registry;
mod search;
mod value;
mod variables;

/// The file: its path, its content, and the values of its variables.
pub mod file {
    pub use crate::context::{is_excluded, relative};
    pub use crate::definition::{Build, Devcontainer, Hook, HostRequirements, LifecycleStage, MAX_BYTES};
    pub use crate::properties::read;
    pub use crate::search::{DevcontainerSearch, find};
    pub use crate::variables::Variables;
}

/// Features: their options, their descriptions, their order, and their registry.
pub mod features {
    pub use crate::artifact::Artifact;
    pub use crate::feature::{
        ALLOWED_FEATURES, Feature, FeatureFile, FeatureLocation, feature_file, in_order, variable_of,
    };
    pub use crate::registry::{Manifest, Registries};
}
