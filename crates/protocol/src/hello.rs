//! The greeting: the first message of both sides, in JSON, which every version can read.

use serde::{Deserialize, Serialize};

use crate::RpcError;
#[cfg(doc)]
use crate::VERSION;
use crate::calls::CALLS;

/// The first message of a connection, on channel 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstMessage {
    /// The properties of a side.
    Hello(Hello),
    /// Why the guest closes the connection, after its greeting or instead of it.
    Failed(RpcError),
}

/// The properties of a side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`]
    pub version: u32,
    /// 32 hex digits that the host chose; the guest returns them.
    pub nonce: String,
    /// Random, of this run of the guest: a restarted container has another one. Empty from the host.
    #[serde(default)]
    pub run: String,
    /// The retention of output. Only the host sends it.
    #[serde(default)]
    pub keep: Option<Retention>,
    /// Names of the calls that the guest supports. Empty from the host, and from a guest of version 1.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// From a guest that waits for [`Unlock`](crate::Unlock): the boot id of its kernel. Device and inode numbers can be
    /// compared only under the same kernel.
    #[serde(default)]
    pub locked: Option<String>,
}

impl Hello {
    /// The greeting of a guest of this version.
    #[must_use]
    pub fn of_guest(nonce: String, run: String) -> Self {
        let capabilities = CALLS.iter().map(|it| it.name.to_owned()).collect();
        Self { version: crate::VERSION, nonce, run, keep: None, capabilities, locked: None }
    }

    /// The greeting of a host of this version.
    #[must_use]
    pub fn of_host(nonce: String, keep: Retention) -> Self {
        let (run, capabilities) = (String::new(), Vec::new());
        Self { version: crate::VERSION, nonce, run, keep: Some(keep), capabilities, locked: None }
    }
}

/// How much output of commands is retained, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Bytes of each job.
    pub bytes: u64,
    /// Bytes of all jobs together; the output of the oldest finished one is evicted first.
    pub total: u64,
    /// Seconds after the end of a job.
    pub for_s: u64,
}

impl Default for Retention {
    fn default() -> Self {
        Self { bytes: 64 << 20, total: 512 << 20, for_s: 3600 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Frame, Head as _, take};

    /// Recorded from a host and a guest of version 1.
    const HOST_1: &str = r#"{"hello":{"version":1,"nonce":"00112233445566778899aabbccddeeff","run":"","keep":{"bytes":67108864,"total":536870912,"for_s":3600}}}"#;
    const GUEST_1: &str =
        r#"{"hello":{"version":1,"nonce":"00112233445566778899aabbccddeeff","run":"8f14e45fceea167a","keep":null}}"#;
    const FAILED_1: &str = r#"{"failed":{"code":"invalid","message":"the host speaks version 2 of the protocol, this guest 1: make the container anew, or use the program that made it"}}"#;

    #[test]
    fn greetings_of_version_1_are_read() {
        for (recorded, run) in [(HOST_1, ""), (GUEST_1, "8f14e45fceea167a")] {
            let Ok(FirstMessage::Hello(hello)) = FirstMessage::from_bytes(recorded.as_bytes()) else {
                panic!("{recorded}")
            };
            assert_eq!((hello.version, hello.run.as_str(), hello.capabilities.len()), (1, run, 0));
        }
        assert!(matches!(FirstMessage::from_bytes(FAILED_1.as_bytes()), Ok(FirstMessage::Failed(_))));
    }

    /// The types of version 1, as far as they occur in a greeting.
    mod version_1 {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub(super) enum FirstMessage {
            Hello(Hello),
            Failed(Failed),
        }

        #[derive(Debug, serde::Deserialize)]
        pub(super) struct Hello {
            pub(super) version: u32,
            pub(super) nonce: String,
            #[serde(default)]
            pub(super) run: String,
            #[serde(default)]
            pub(super) keep: Option<crate::Retention>,
        }

        #[derive(Debug, serde::Deserialize)]
        pub(super) struct Failed {
            pub(super) code: crate::ErrorCode,
            pub(super) message: String,
        }
    }

    #[test]
    fn version_1_can_read_current_greetings() {
        let (nonce, run) = ("ab".repeat(16), "a run".to_owned());
        for ours in [Hello::of_guest(nonce.clone(), run.clone()), Hello::of_host(nonce.clone(), Retention::default())] {
            let mut bytes = Vec::new();
            Frame::new(0, FirstMessage::Hello(ours.clone())).write_to(&mut bytes);
            assert_eq!(take::<FirstMessage>(&mut &bytes[..]).unwrap().unwrap().head, FirstMessage::Hello(ours.clone()));
            // The prelude is that of version 1.
            let header = u32::from_be_bytes(bytes[4..8].try_into().unwrap()) as usize;
            assert_eq!(bytes.len(), 12 + header);
            let theirs = serde_json::from_slice(&bytes[12..]).unwrap();
            let version_1::FirstMessage::Hello(theirs) = theirs else { panic!("{theirs:?}") };
            assert_eq!((theirs.version, theirs.nonce, theirs.run), (crate::VERSION, nonce.clone(), ours.run));
            assert_eq!(theirs.keep, ours.keep);
        }
        let failed =
            serde_json::to_vec(&FirstMessage::Failed(RpcError::new(crate::ErrorCode::Invalid, "why"))).unwrap();
        let version_1::FirstMessage::Failed(theirs) = serde_json::from_slice(&failed).unwrap() else { panic!() };
        assert_eq!((theirs.code, theirs.message.as_str()), (crate::ErrorCode::Invalid, "why"));
    }
}
