//! Operations that only the user may call, at the command line; front ends of agents do not have them.

mod approvals;
mod audit_log;
mod audit_summary;
mod checkpoints;
mod copy_image;
mod packages;
mod power;
mod recorded;
mod sandboxes;
mod saves;
mod trust_image;
mod verify_images;
mod workspace;

pub use self::approvals::{ApprovalScope, decide_request};
use crate::dispatch::OperationEntry;

/// All of them, by their words at the command line.
pub static ALL: &[OperationEntry] = &[
    OperationEntry::for_operation::<power::StartContainer>().for_person(),
    OperationEntry::for_operation::<power::StopContainer>().for_person(),
    OperationEntry::for_operation::<power::AdoptContainer>().for_person(),
    OperationEntry::for_operation::<trust_image::TrustImage>().for_person(),
    OperationEntry::for_operation::<copy_image::LoadImage>().for_person(),
    OperationEntry::for_operation::<copy_image::SaveImage>().for_person(),
    OperationEntry::for_operation::<verify_images::VerifyImages>().for_person(),
    OperationEntry::for_operation::<saves::ListSaves>().for_person(),
    OperationEntry::for_operation::<saves::RestoreSave>().for_person(),
    OperationEntry::for_operation::<approvals::ListApprovals>().for_person(),
    OperationEntry::for_operation::<approvals::AllowRequest>().for_person(),
    OperationEntry::for_operation::<approvals::DenyRequest>().for_person(),
    OperationEntry::for_operation::<approvals::RevokeRule>().for_person(),
    OperationEntry::for_operation::<checkpoints::DeleteCheckpoint>().for_person(),
    OperationEntry::for_operation::<recorded::ListRecords>().for_person(),
    OperationEntry::for_operation::<recorded::ShowRecord>().for_person(),
    OperationEntry::for_operation::<recorded::ReportReplay>().for_person(),
    OperationEntry::for_operation::<audit_log::ReadAuditLog>().for_person(),
    OperationEntry::for_operation::<audit_summary::SummarizeAuditLog>().for_person(),
    OperationEntry::for_operation::<audit_log::VerifyAuditLog>().for_person(),
    OperationEntry::for_operation::<packages::AddPackages>().for_person(),
    OperationEntry::for_operation::<packages::ListPackages>().for_person(),
    OperationEntry::for_operation::<packages::ClearPackages>().for_person(),
    OperationEntry::for_process::<sandboxes::ListSandboxes>().for_person(),
    OperationEntry::for_process::<sandboxes::RemoveSandboxes>().for_person(),
    OperationEntry::for_process::<sandboxes::ReviewSandbox>().for_person(),
    OperationEntry::for_operation::<workspace::ShowSession>().for_person(),
    OperationEntry::for_operation::<workspace::ShowPrompt>().for_person(),
    OperationEntry::for_operation::<workspace::DiffWorkspace>().for_person(),
    OperationEntry::for_operation::<workspace::ExportWorkspace>().for_person(),
    OperationEntry::for_operation::<workspace::ApplyWorkspace>().for_person(),
    OperationEntry::for_operation::<workspace::EndSession>().for_person(),
];
