//! What Pods cannot do.

use coracle_types::{Capability, EngineKind, Error};

pub(crate) fn unsupported(capability: Capability) -> Error {
    Error::Unsupported { engine: EngineKind::Kubernetes, capability }
}
