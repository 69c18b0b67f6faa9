//! What only a person at the command line may do: an agent's call has no such operation.

mod audit_log;
mod power;
mod saves;

pub(super) use self::audit_log::{ReadAuditLog, VerifyAuditLog};
pub(super) use self::power::{AdoptContainer, StartContainer, StopContainer};
pub(super) use self::saves::{ListSaves, RestoreSave};
