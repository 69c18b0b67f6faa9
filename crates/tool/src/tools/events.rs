//! The event log of a session (workspace.md 5.2): one JSON object a line, beside the audit trail.

use std::fs::{OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use coracle_lifecycle::{EndReason, RoomDeed, RoomEvent, RoomRole, RoomTag, Tell};
use coracle_runtime::{ContainerName, ContainerRuntime, EngineCall, Error, Heard, Redactor};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Said, ToolEntry, way_out};
use crate::context::Context;
use crate::failure;

/// A file of more bytes is put aside.
const MAX_BYTES: u64 = 16 << 20;

/// Files put aside that are kept.
const KEPT: u32 = 4;

/// Bytes of a line.
const MAX_LINE: usize = 4 << 10;

/// Characters of a preview.
const PREVIEW: usize = 200;

/// Grows in a process, and from one to the next as far as clocks go.
static NEXT: LazyLock<AtomicU64> =
    LazyLock::new(|| AtomicU64::new(u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default()));

/// What hears of what is done to the session's containers.
pub(crate) fn teller(cx: &Context) -> Box<Tell<'static>> {
    let own = cx.clone();
    let state = cx.state().ok().map(|it| it.root().to_owned());
    Box::new(move |event: RoomEvent| {
        if let (RoomDeed::Ended { reason }, Some(state)) = (&event.what, &state)
            // The session goes on, and its next container has the same way out.
            && *reason != EndReason::Lifetime
        {
            way_out::forget(state, &event.session, event.role);
        }
        // Whoever looks for rooms that nobody uses meets those of other sessions. A sandbox is no session.
        let session = if event.role == RoomRole::Sandbox { &own.session } else { &event.session };
        if let Some(log) = Log::of(&own, session) {
            log.room(&event);
        }
    })
}

/// The engine, with each call for a container of a session in the log of that session.
pub(crate) fn heard(cx: &Context, runtime: Arc<dyn ContainerRuntime>, room: RoomTag<'_>) -> Arc<dyn ContainerRuntime> {
    let RoomTag { role, generation, session } = room;
    match Log::of(cx, session).filter(|_| role != RoomRole::Sandbox) {
        Some(log) => Arc::new(Heard::new(runtime, Arc::new(move |call| log.engine(call, (role, generation))))),
        None => runtime,
    }
}

/// Notes that a tool was called. A log that cannot be written fails no call.
pub(super) fn called(cx: &Context, entry: &ToolEntry, args: &Map<String, Value>, (said, took): (&Said, Duration)) {
    if let Some(log) = Log::of(cx, &cx.session) {
        log.add(tool(cx, entry, args, (said, took)));
    }
}

struct Log {
    file: PathBuf,
    session: String,
}

impl Log {
    fn of(cx: &Context, session: &ContainerName) -> Option<Self> {
        let dir = cx.state().ok()?.root().join("sessions").join(session.as_str());
        Some(Self { file: dir.join("events.jsonl"), session: session.to_string() })
    }

    fn engine(&self, call: &EngineCall<'_>, (role, generation): (RoomRole, u32)) {
        let exit = match call.failed {
            None => Some(0),
            Some(Error::Engine { exit, .. }) => Some(*exit),
            // It did not come to an answer of the engine's program, or that was no failure of the program.
            Some(_) => None,
        };
        let event = json!({
            "event": "engine",
            "method": call.verb,
            "role": role.as_str(),
            "generation": generation,
            "path": call.object,
            "duration_ms": u64::try_from(call.took.as_millis()).unwrap_or(u64::MAX),
            "exit_status": exit,
            "code": call.failed.map(|err| failure::code_of(err).word()),
        });
        self.add(event.as_object().cloned().unwrap_or_default());
    }

    fn room(&self, event: &RoomEvent) {
        let mut fields =
            serde_json::to_value(&event.what).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
        fields.insert("role".into(), event.role.as_str().into());
        fields.insert("generation".into(), event.generation.into());
        fields.insert("container_id".into(), event.container_id.as_ref().map(ToString::to_string).into());
        self.add(fields);
    }

    fn add(&self, fields: Map<String, Value>) {
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
            // Only these can be that long, and they are no loss in a log.
            for long in ["stdout_preview", "stderr_preview", "path", "error", "env", "mounts", "location"] {
                if let Some(value) = line.get_mut(long) {
                    *value = Value::Null;
                }
            }
            text = line.to_string();
        }
        text.push('\n');
        if let Err(err) = append(&self.file, text.as_bytes()) {
            tracing::warn!(%err, "the event log cannot be written");
        }
    }
}

fn append(file: &Path, line: &[u8]) -> std::io::Result<()> {
    let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(file);
    let mut log = match open() {
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {
            let dir = file.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(dir)?;
            std::fs::set_permissions(dir, Permissions::from_mode(0o700))?;
            open()?
        }
        opened => opened?,
    };
    if log.metadata()?.len() + line.len() as u64 > MAX_BYTES {
        put_aside(file)?;
        log = open()?;
    }
    log.write_all(line)
}

fn put_aside(file: &Path) -> std::io::Result<()> {
    let numbered = |number: u32| file.with_extension(format!("jsonl.{number}"));
    for number in (1..KEPT).rev() {
        let _ = std::fs::rename(numbered(number), numbered(number + 1));
    }
    std::fs::rename(file, numbered(1))
}

fn tool(
    cx: &Context,
    entry: &ToolEntry,
    args: &Map<String, Value>,
    (said, took): (&Said, Duration),
) -> Map<String, Value> {
    let answer = &said.answer;
    let value = answer.get("value").and_then(Value::as_object).unwrap_or(answer);
    let place = answer.get("workspace");
    let redactor = cx.own_secrets();
    let path = ["file_path", "path", "cwd"].iter().find_map(|it| args.get(*it)).and_then(Value::as_str);
    let path = path.map(|it| shown(redactor, it));
    let exit = value.get("exit_code").or_else(|| value.get("exitCode")).cloned().unwrap_or_default();
    let mut event = json!({
        "event": "tool",
        "method": entry.name,
        "role": if entry.name == coracle_workspace::RunCode::NAME { "run" } else { "workspace" },
        "generation": place.and_then(|it| it.get("generation")).or_else(|| answer.get("generation")),
        "path": path,
        "duration_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "exit_status": exit,
        "success": said.success(),
        "code": answer.get("code"),
        "bytes_out": said.text.len(),
    });
    let words: Vec<&str> =
        args.get("command").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    if let Some((program, rest)) = words.split_first() {
        event["program"] = shown(redactor, program).into();
        event["args_count"] = rest.len().into();
        event["args_sha256"] = hex::encode(Sha256::digest(rest.join("\0"))).into();
    }
    if let Some(stdout) = value.get("stdout").or_else(|| value.get("output")).and_then(Value::as_str) {
        let stderr = value.get("stderr").and_then(Value::as_str).unwrap_or_default();
        event["stdout_preview"] = preview(cx, redactor, stdout);
        event["stderr_preview"] = preview(cx, redactor, stderr);
    }
    if args.contains_key("stdin") || args.contains_key("command") {
        let stdin = args.get("stdin").and_then(Value::as_str);
        event["stdin"] = stdin.map(|it| format!("<redacted {} bytes>", it.len())).into();
    }
    event.as_object().cloned().unwrap_or_default()
}

fn preview(cx: &Context, redactor: &Redactor, text: &str) -> Value {
    if !cx.config.workspace.event_previews {
        return json!({ "bytes": text.len(), "sha256": hex::encode(Sha256::digest(text)) });
    }
    shown(redactor, text).into()
}

/// The first characters of a text, without secrets and without what would do something to who reads them.
fn shown(redactor: &Redactor, text: &str) -> String {
    // A secret that the cut would halve is found before it.
    let begin: String = text.chars().take(8 * PREVIEW).collect();
    let (mut shown, mut left) = (String::new(), PREVIEW);
    for c in redactor.clean_strictly(&begin).chars() {
        let length = if is_harmless(c) { 1 } else { c.escape_unicode().len() };
        if length > left {
            break;
        }
        left -= length;
        if is_harmless(c) { shown.push(c) } else { shown.extend(c.escape_unicode()) }
    }
    shown
}

fn is_harmless(c: char) -> bool {
    !c.is_control() && !is_bidirectional(c)
}

/// Characters that change the order in which others are shown.
pub(crate) fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, append, preview};
    use crate::context::Context;

    #[test]
    fn w41_previews_are_short_escaped_and_without_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(dir.path());
        let mut host = (*cx.host).clone();
        host.env.insert("API_TOKEN".into(), "hunter2hunter2".to_owned().into());
        cx.host = host.into();
        let redactor = &cx.own_secrets().clone();
        let shown = preview(&cx, redactor, "a\u{1b}]52;c;x\u{7}\u{202e} hunter2hunter2");
        assert_eq!(shown, "a\\u{1b}]52;c;x\\u{7}\\u{202e} [redacted:API_TOKEN]");
        assert!(preview(&cx, redactor, &"x".repeat(1000)).as_str().unwrap().len() == 200);
        assert!(preview(&cx, redactor, &"\u{7}".repeat(1000)).as_str().unwrap().len() <= 200);
        let mut config = (*cx.config).clone();
        config.workspace.event_previews = false;
        cx.config = config.into();
        assert_eq!(preview(&cx, redactor, "abc")["bytes"], 3);
    }

    #[test]
    fn a_log_that_is_full_is_put_aside_and_few_are_kept() {
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
