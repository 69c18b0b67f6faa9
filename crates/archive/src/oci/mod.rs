//! Documents of images: manifests, indexes, configurations and platforms, of OCI and of Docker.
//!
//! The types are our own and not those of `oci-spec`, which are stricter than what registries and Docker serve: they demand
//! media types in descriptors, and drop what Docker adds to a configuration (`Healthcheck`, `Shell`), although an image's id
//! is the digest of those very bytes.

mod configuration;
mod document;
mod error;
mod platform;
mod resolve;
mod write;

pub use configuration::{Configuration, RootFs, StartConfiguration};
pub use document::{
    Descriptor, ImageManifest, LayerEncoding, MANIFEST_TYPES, MAX_CONFIG, MAX_LAYER, MAX_LAYERS, MAX_MANIFEST,
    ManifestDocument, OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, SavedImage, parse_json,
};
pub use error::ImageError;
pub use platform::Platform;
pub use resolve::{DocumentKind, ImageResolver, LayerContent, ResolvedImage, ResolvedLayer};
pub use write::{ImageDocuments, ImageName, WrittenLayer, blob_path};

/// The result of reading or writing an image.
pub type Result<T, E = ImageError> = std::result::Result<T, E>;

/// The file that marks an image layout.
pub const LAYOUT_MARKER: &str = "oci-layout";

/// The index of an image layout.
pub const LAYOUT_INDEX: &str = "index.json";

/// The list of images of `docker save`.
pub const DOCKER_MANIFEST_FILE: &str = "manifest.json";
