//! What differs between the engines is a `match` over this, in `args.rs` and `read.rs` and nowhere else.

use crate::EngineKind;

/// An engine that is driven through its own program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Docker's words.
    Docker,
    /// Podman's words.
    Podman,
    /// The words of Apple's `container`.
    Apple,
}

impl Dialect {
    /// The name of its program.
    #[must_use]
    pub fn program(self) -> &'static str {
        self.kind().as_str()
    }

    /// Whether its containers run on the kernel that the engine runs on, so that files and sockets are shared with them.
    #[must_use]
    pub fn shares_kernel(self) -> bool {
        self != Self::Apple
    }

    /// The engine it speaks to.
    #[must_use]
    pub fn kind(self) -> EngineKind {
        match self {
            Self::Docker => EngineKind::Docker,
            Self::Podman => EngineKind::Podman,
            Self::Apple => EngineKind::Container,
        }
    }
}
