//! Differences between the engines are a `match` over this, in `args.rs` and `read.rs` only.

use coracle_types::EngineKind;

/// An engine that is driven through its own program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Docker's words.
    Docker,
    /// Podman's words.
    Podman,
}

impl Dialect {
    /// The engine it speaks to.
    #[must_use]
    pub fn kind(self) -> EngineKind {
        match self {
            Self::Docker => EngineKind::Docker,
            Self::Podman => EngineKind::Podman,
        }
    }
}
