//! Failures of the containers of sessions and sandboxes.

use coracle_lifecycle::SlotError;
use coracle_runtime::failure;

use super::{Code, Failure};
use crate::humanize::millis;

/// Why there is no container.
pub(crate) fn slot_failure(err: SlotError) -> Failure {
    match err {
        SlotError::Ended(session) => Failure::new(Code::SessionEnded, format!("the session `{session}` has ended")),
        SlotError::CrashLoop { reason, retry_after } => {
            let why = format!("The container failed again and again, most recently: {}.", reason.as_str());
            Failure::new(Code::CrashLoop, why).detail("retry_after_ms", millis(retry_after))
        }
        SlotError::NotReady(why) => {
            Failure::new(Code::ReadinessFailed, "Workspace failed readiness checks.").detail("why", why.to_string())
        }
        SlotError::NotMade(err) => {
            let failure = Failure::from(err);
            let why = failure.code.word();
            failure.with_code(Code::CreateFailed).detail("why", why)
        }
        err @ SlotError::OtherUser { .. } => Failure::new(Code::Unsupported, err.to_string())
            .detail("capability", "volume_owner")
            .detail("setting", "policy")
            .hint(
                "go on with the user and the `policy` that it was made with, or end it, which saves its files: \
                   `coracle workspace end`, or `coracle sandbox remove`",
            ),
        SlotError::Plan(err) | SlotError::VolumeInit(err) => match err.downcast::<Failure>() {
            Ok(failure) => *failure,
            Err(err) => match err.downcast::<failure::Failure>() {
                Ok(failure) => Failure::from(*failure),
                Err(err) => Failure::internal(err),
            },
        },
        SlotError::Lifecycle(err) => Failure::from(err),
        other => Failure::internal(other),
    }
}
