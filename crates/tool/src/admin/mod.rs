//! Operations that only the person at the command line may call; front ends of agents do not have them.

mod audit_log;
mod packages;
mod power;
mod sandboxes;
mod saves;
mod trust_image;
mod workspace;

use crate::dispatch::Entry;

/// All of them, by their words at the command line.
pub static ALL: &[Entry] = &[
    Entry::of::<power::StartContainer>().for_person(),
    Entry::of::<power::StopContainer>().for_person(),
    Entry::of::<power::AdoptContainer>().for_person(),
    Entry::of::<trust_image::TrustImage>().for_person(),
    Entry::of::<saves::ListSaves>().for_person(),
    Entry::of::<saves::RestoreSave>().for_person(),
    Entry::of::<audit_log::ReadAuditLog>().for_person(),
    Entry::of::<audit_log::VerifyAuditLog>().for_person(),
    Entry::of::<packages::AddPackages>().for_person(),
    Entry::of::<packages::ListPackages>().for_person(),
    Entry::of::<packages::ClearPackages>().for_person(),
    Entry::of_process::<sandboxes::ListSandboxes>().for_person(),
    Entry::of_process::<sandboxes::RemoveSandboxes>().for_person(),
    Entry::of_process::<sandboxes::ReviewSandbox>().for_person(),
    Entry::of::<workspace::ShowSession>().for_person(),
    Entry::of::<workspace::ShowPrompt>().for_person(),
    Entry::of::<workspace::DiffWorkspace>().for_person(),
    Entry::of::<workspace::ExportWorkspace>().for_person(),
    Entry::of::<workspace::ApplyWorkspace>().for_person(),
    Entry::of::<workspace::EndSession>().for_person(),
];
