//! Compares the types on the wire with those of live containers.
//!
//! A container outlives the version of Coracle that created it, so a newer host meets older guests, and an older host newer
//! ones. They understand each other as long as no type on the wire changes: `wire_2.txt` records those of version 2, as
//! [`VERSION`] says. A call that needs another request gets a new name; a host uses it if the guest's capabilities include
//! it, and otherwise uses the old one.

#![expect(clippy::unwrap_used, reason = "a test ends where its expectation is not met")]

use std::net::SocketAddr;

use coracle_protocol::call::Call;
use coracle_protocol::calls::*;
use coracle_protocol::workspace::{EntryKind, LineEnding, OpenMode, WorkspaceErrorCode, WorkspaceOp};
use coracle_protocol::{
    ErrorCode, ExecState, FileKind, GuestMessage, HostMessage, Lifetime, OutputMode, Position, Stream, StreamSelector,
    UserSpec, VERSION, WaitOutcome, for_each_call,
};
use serde::Serialize;
use serde_reflection::{ContainerFormat, Samples, Tracer, TracerConfig};

const RECORDED: &str = include_str!("wire_2.txt");

/// One line for each call, type and variant of an enum, so that additions change no line.
fn lines() -> Vec<String> {
    let mut tracer = Tracer::new(TracerConfig::default());
    let samples = Samples::new();
    let mut lines = Vec::new();
    macro_rules! trace {
        ($($type:ty),*) => { ($(tracer.trace_type::<$type>(&samples).unwrap().0),*) };
    }
    macro_rules! of_calls {
        ($([$call:ident $streams:ident])*) => {
            $(
                let formats = trace!($call, <$call as Call>::Event, <$call as Call>::Reply);
                lines.push(format!("call {} {}", <$call as Call>::NAME, json(&formats)));
            )*
        };
    }
    trace!(HostMessage, GuestMessage);
    // The tracer finds only the first variant of an enum within another type.
    trace!(ErrorCode, ExecState, FileKind, Lifetime, OutputMode, Position);
    trace!(Stream, StreamSelector, UserSpec, WaitOutcome);
    trace!(EntryKind, LineEnding, OpenMode, SocketAddr, WorkspaceErrorCode, WorkspaceOp);
    for_each_call!(of_calls);
    for (name, format) in tracer.registry().unwrap() {
        match format {
            ContainerFormat::Enum(mut variants) => {
                // The variant for unknown codes is never sent, and stays after new codes.
                variants.retain(|_, it| name != "ErrorCode" || it.name != "other");
                lines.extend(variants.iter().map(|(at, it)| format!("enum {name} {at} {}", json(it))));
            }
            other => lines.push(format!("type {name} {}", json(&other))),
        }
    }
    lines
}

fn json(format: &impl Serialize) -> String {
    serde_json::to_string(format).unwrap()
}

#[test]
fn the_types_of_live_containers_do_not_change() {
    assert_eq!(VERSION, 2, "a guest of a live container speaks version 2");
    let now = lines();
    let missing: Vec<_> = RECORDED.lines().filter(|line| !now.iter().any(|it| it == line)).collect();
    assert!(missing.is_empty(), "give the changed call a new name and keep the old one:\n{}", missing.join("\n"));
    let added: Vec<_> = now.iter().filter(|line| !RECORDED.lines().any(|it| it == *line)).collect();
    let added: String = added.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
    assert!(added.is_empty(), "add the new lines to `tests/wire_2.txt`:\n{added}");
}
