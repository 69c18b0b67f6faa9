//! What has to hold for every byte that either side of a link may receive.

use std::fmt::Debug;

use coracle_protocol::MAX_PAYLOAD;
use coracle_protocol::body::{decode, encode};
use coracle_protocol::call::Call;
use coracle_protocol::calls::*;
use coracle_protocol::codec::{Frame, Head, take};
use coracle_protocol::{FirstMessage, GuestMessage, HostMessage, for_each_call};

/// Reads frames to the end or to the first that is none. What was read can be written again and means the same, and nothing
/// was allocated beyond the limits.
///
/// # Panics
/// When that does not hold.
fn all<T: Head + Debug + PartialEq>(mut bytes: &[u8], each: impl Fn(&Frame<T>)) {
    while let Ok(Some(frame)) = take::<T>(&mut bytes) {
        assert!(frame.payload.capacity() <= MAX_PAYLOAD, "{} bytes of payload", frame.payload.capacity());
        each(&frame);
        let mut written = Vec::new();
        // A header may be longer when it is written again.
        if frame.try_write_to(&mut written).is_err() {
            continue;
        }
        let mut rest = written.as_slice();
        let again = take::<T>(&mut rest).expect("what we write is a frame").expect("and not the end");
        assert_eq!(again, frame);
        assert!(rest.is_empty(), "{} bytes too many", rest.len());
    }
}

/// A body that can be read is the same when it is written and read again.
fn body<T: serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) {
    if let Ok(body) = decode::<T>(bytes) {
        let written = encode(&body);
        let again: T = decode(&written).expect("what we write is a body");
        assert_eq!(encode(&again), written);
    }
}

macro_rules! requests {
    (($name:ident, $bytes:ident) $([$call:ident $streams:ident])*) => {
        match $name { $(<$call as Call>::NAME => body::<$call>($bytes),)* _ => {} }
    };
}

macro_rules! replies {
    (($bytes:ident) $([$call:ident $streams:ident])*) => {
        $(body::<<$call as Call>::Reply>($bytes); body::<<$call as Call>::Event>($bytes);)*
    };
}

/// What a guest may receive.
///
/// # Panics
/// When a frame or a request does not mean the same when it is written again.
pub fn requests(bytes: &[u8]) {
    all::<FirstMessage>(bytes, |_| {});
    all::<HostMessage>(bytes, |frame| {
        if let HostMessage::Open { call, .. } = &frame.head {
            let (name, bytes) = (call.as_str(), frame.payload.as_slice());
            for_each_call!(requests (name, bytes));
        }
    });
}

/// What a host may receive.
///
/// # Panics
/// When a frame, an event or a reply does not mean the same when it is written again.
pub fn responses(bytes: &[u8]) {
    all::<FirstMessage>(bytes, |_| {});
    all::<GuestMessage>(bytes, |frame| {
        let bytes = frame.payload.as_slice();
        for_each_call!(replies (bytes));
    });
}
