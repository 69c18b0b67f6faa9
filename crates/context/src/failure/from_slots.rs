//! Failures of the containers of sessions and sandboxes.

use coracle_lifecycle::{BoxError, SlotError};
use coracle_types::failure;

use super::{Code, Failure};
use crate::humanize::millis;

/// Converts the reason why there is no container.
pub fn slot_failure(err: SlotError) -> Failure {
    match err {
        SlotError::Ended(session) => Failure::new(Code::SessionEnded, format!("the session `{session}` has ended"))
            .hint("where its work could not be saved in time: `coracle workspace end`, with the same `--session`"),
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
        SlotError::Plan(err) | SlotError::VolumeInit(err) => of_caller(err),
        SlotError::Lifecycle(err) => Failure::from(err),
        other => Failure::internal(other),
    }
}

/// Converts a failure of the plan or the volume of a container, which may be that of its network.
fn of_caller(err: BoxError) -> Failure {
    let err = match err.downcast::<Failure>() {
        Ok(failure) => return *failure,
        Err(err) => err,
    };
    let err = match err.downcast::<failure::Failure>() {
        Ok(failure) => return Failure::from(*failure),
        Err(err) => err,
    };
    err.downcast::<coracle_lifecycle::Error>().map_or_else(Failure::internal, |err| Failure::from(*err))
}

#[cfg(test)]
mod tests {
    use coracle_lifecycle::Error;
    use coracle_types::{Capability, EngineKind};

    use super::*;

    #[test]
    fn an_engine_without_networks_is_no_internal_error() {
        let missing =
            coracle_types::Error::Unsupported { engine: EngineKind::Embedded, capability: Capability::NamedNetwork };
        let failure = slot_failure(SlotError::Plan(Error::from(missing).into()));
        assert_eq!((failure.code, &failure.details["capability"]), (Code::Unsupported, &"named_network".into()));
    }
}
