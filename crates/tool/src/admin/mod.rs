//! Operations that only the person at the command line may call; front ends of agents do not have them.

mod audit_log;
mod power;
mod saves;
mod trust_image;

use crate::dispatch::Entry;

/// All of them, by their words at the command line.
pub static ALL: &[Entry] = &[
    Entry::of::<power::StartContainer>(),
    Entry::of::<power::StopContainer>(),
    Entry::of::<power::AdoptContainer>(),
    Entry::of::<trust_image::TrustImage>(),
    Entry::of::<saves::ListSaves>(),
    Entry::of::<saves::RestoreSave>(),
    Entry::of::<audit_log::ReadAuditLog>(),
    Entry::of::<audit_log::VerifyAuditLog>(),
];
