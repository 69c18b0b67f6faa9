//! The event log of a session: one JSON object per line, stored beside the audit trail.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use coracle_host::rotating_log::RotatingLog;
use coracle_lifecycle::{ContainerEvent, EndReason, SlotEvent, SlotId, SlotObserver, SlotRole};
use coracle_runtime::{ContainerRuntime, EngineCall, ObservedRuntime};
use coracle_types::{ContainerName, Error};
use serde_json::{Map, Value, json};

use crate::failure;
use crate::humanize::millis;
use crate::state::StateDir;

/// Size at which a file is rotated.
const MAX_BYTES: u64 = 16 << 20;

/// Number of rotated files to keep.
const ROTATED_FILES: u32 = 4;

/// Maximum size of a line.
const MAX_LINE: usize = 4 << 10;

/// Increases within a process, and from one process to the next if the clock does.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()));

/// Observes events of the session's containers.
pub fn slot_observer(state: Option<&StateDir>, own: &ContainerName) -> Box<SlotObserver<'static>> {
    let (state, own) = (state.cloned(), own.clone());
    Box::new(move |event: SlotEvent| {
        if let (ContainerEvent::Ended { reason }, Some(state)) = (&event.what, &state)
            // The session continues, and its next container uses the same proxy.
            && *reason != EndReason::Lifetime
        {
            state.forget_session_proxy(&event.session, event.role);
        }
        // A search for unused slots also finds those of other sessions. A sandbox is not a session.
        let session = if event.role == SlotRole::Sandbox { &own } else { &event.session };
        if let Some(log) = EventLog::for_session(state.as_ref(), session) {
            log.slot(&event);
        }
    })
}

/// Wraps the engine, so that each call for a session's container is recorded in the session's log.
pub fn observe(
    state: Option<&StateDir>,
    runtime: Arc<dyn ContainerRuntime>,
    slot: SlotId<'_>,
) -> Arc<dyn ContainerRuntime> {
    let SlotId { role, generation, session } = slot;
    match EventLog::for_session(state, session).filter(|_| role != SlotRole::Sandbox) {
        Some(log) => Arc::new(ObservedRuntime::new(runtime, Arc::new(move |call| log.engine(call, role, generation)))),
        None => runtime,
    }
}

#[derive(Debug)]
pub struct EventLog {
    file: PathBuf,
    session: String,
}

impl EventLog {
    pub fn for_session(state: Option<&StateDir>, session: &ContainerName) -> Option<Self> {
        let dir = state?.session(session);
        Some(Self { file: dir.join("events.jsonl"), session: session.to_string() })
    }

    fn engine(&self, call: &EngineCall<'_>, role: SlotRole, generation: u32) {
        let exit = match call.failed {
            None => Some(0),
            Some(Error::Engine { exit, .. }) => Some(*exit),
            // The engine's program did not answer, or did not fail.
            Some(_) => None,
        };
        let event = json!({
            "event": "engine",
            "method": call.verb,
            "role": role.as_str(),
            "generation": generation,
            "path": call.object,
            "duration_ms": millis(call.took),
            "exit_status": exit,
            "code": call.failed.map(|err| failure::code_of(err).word()),
        });
        self.add(event.as_object().cloned().unwrap_or_default());
    }

    fn slot(&self, event: &SlotEvent) {
        let mut fields =
            serde_json::to_value(&event.what).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
        fields.insert("role".into(), event.role.as_str().into());
        fields.insert("generation".into(), event.generation.into());
        fields.insert("container_id".into(), event.container_id.as_ref().map(ToString::to_string).into());
        self.add(fields);
    }

    pub fn add(&self, fields: Map<String, Value>) {
        let mut line = json!({
            "v": 1,
            "ts": format!("{:.3}", jiff::Timestamp::now()),
            "seq": NEXT.fetch_add(1, Ordering::Relaxed),
            "ns": "coracle.workspace",
            "session_id": self.session,
        });
        if let Some(object) = line.as_object_mut() {
            object.extend(fields);
        }
        let mut text = line.to_string();
        if text.len() >= MAX_LINE {
            // Only these can be that long, and a log can do without them.
            for long in ["stdout_preview", "stderr_preview", "path", "error", "env", "mounts", "location"] {
                if let Some(value) = line.get_mut(long) {
                    *value = Value::Null;
                }
            }
            text = line.to_string();
        }
        text.push('\n');
        if let Err(err) = append(&self.file, text.as_bytes()) {
            tracing::warn!(%err, "cannot write the event log");
        }
    }
}

fn append(file: &Path, line: &[u8]) -> std::io::Result<()> {
    let log = RotatingLog::new(file.to_owned(), MAX_BYTES, ROTATED_FILES);
    match log.append(line) {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {
            let dir = file.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(dir)?;
            std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
            log.append(line)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, append};

    #[test]
    fn a_full_log_is_rotated_and_few_files_are_retained() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("s/events.jsonl");
        append(&file, b"first\n").unwrap();
        for _ in 0..6 {
            std::fs::File::options().write(true).open(&file).unwrap().set_len(MAX_BYTES).unwrap();
            append(&file, b"next\n").unwrap();
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"next\n");
        assert_eq!(dir.path().join("s").read_dir().unwrap().count(), 5);
    }
}
