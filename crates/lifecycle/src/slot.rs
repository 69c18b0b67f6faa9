//! Which container of a session.

use coracle_types::ContainerName;
pub use coracle_types::SlotRole;

use crate::record::Role;

impl From<SlotRole> for Role {
    fn from(role: SlotRole) -> Self {
        match role {
            SlotRole::Workspace => Self::Workspace,
            SlotRole::Run => Self::Run,
            SlotRole::Sandbox => Self::Sandbox,
        }
    }
}

/// Which slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotKey<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its slots.
    pub role: SlotRole,
}

impl<'a> SlotKey<'a> {
    /// The slot of that role.
    #[must_use]
    pub fn new(session: &'a ContainerName, role: SlotRole) -> Self {
        Self { session, role }
    }
}

/// Which container of which slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotId<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its slots.
    pub role: SlotRole,
    /// The generation of its container.
    pub generation: u32,
}
