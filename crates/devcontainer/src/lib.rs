//! A repository's `devcontainer.json`: the request of a stranger, read whole before anything is done.
//!
//! [`read`](file::read) makes a [`Devcontainer`](file::Devcontainer) of a file, or says what cannot be granted. The caller
//! that makes images and containers applies it; its commands run by [`hooks::run`], as the exec user, in the container.
//!
//! **Invariant:** nothing of a file that is refused is done: every refusal is known before the first act.
//! **Invariant:** no command of a file runs on the host, and none runs as root but while an image is built.
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

/// The file: where it lies, what it says, and what its variables stand for.
pub mod file {
    pub use crate::context::{is_kept_out, relative};
    pub use crate::definition::{Build, Devcontainer, Hook, HostRequirements, LifecycleStage, MAX_BYTES};
    pub use crate::properties::read;
    pub use crate::search::{DevcontainerSearch, find};
    pub use crate::variables::Variables;
}

/// Features: what the file says of each, its own description, its order, and its registry.
pub mod features {
    pub use crate::artifact::Artifact;
    pub use crate::feature::{
        ALLOWED_FEATURES, Feature, FeatureFile, FeatureLocation, feature_file, in_order, variable_of,
    };
    pub use crate::registry::{Manifest, Registries};
}
