//! Waiting for a job is one question, and its answer has the last lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Dial, GuestStream, Link, LinkSettings, Transport};
use coracle_guest::codec::{Frame, read};
use coracle_guest::protocol::body::{Bytes, decode, encode};
use coracle_guest::protocol::{
    ExecState, ExecStatus, FirstMessage, GuestMessage, Hello, HostMessage, JobInfo, OutputPage, WaitOutcome,
    WaitRequest, WaitResult,
};
use coracle_jobs::{Wait, wait};
use coracle_types::{JobId, Result};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};

/// A guest that answers waits, and counts its requests.
#[derive(Debug, Default)]
struct Counting {
    count: Arc<AtomicUsize>,
}

#[async_trait]
impl Dial for Counting {
    async fn dial(&self) -> Result<GuestStream> {
        let (ours, theirs) = duplex(64 << 10);
        tokio::spawn(answer(theirs, Arc::clone(&self.count)));
        let (reader, writer) = split(ours);
        Ok(GuestStream::plain(reader, writer, Transport::InProcess))
    }
}

const PRINTED: &[u8] = b"one\ntwo\n";

async fn answer(stream: DuplexStream, count: Arc<AtomicUsize>) {
    let (mut from, mut to) = split(stream);
    let Ok(Some(Frame { head: FirstMessage::Hello(it), .. })) = read::<FirstMessage>(&mut from).await else { return };
    let mut bytes = Vec::new();
    Frame::new(0, FirstMessage::Hello(Hello::of_guest(it.nonce, "a run".into()))).write_to(&mut bytes);
    to.write_all(&bytes).await.unwrap();
    while let Ok(Some(Frame { channel, head, payload })) = read::<HostMessage>(&mut from).await {
        if !matches!(head, HostMessage::Open { .. }) {
            continue;
        }
        count.fetch_add(1, Ordering::Relaxed);
        let request: WaitRequest = decode(&payload).unwrap();
        assert!(request.tail.is_some_and(|it| it.lines == 2), "{request:?}");
        let length = PRINTED.len() as u64;
        let page = OutputPage { offset: 0, next: length, first: 0, total: length, running: true };
        let reason = WaitOutcome::Limit;
        let waited = WaitResult { reason, found: None, job: job(request.job), ms: 1, tail: Some(page) };
        let payload = encode(&(waited, Bytes::from(PRINTED)));
        let head = GuestMessage::Reply { bytes: u32::try_from(payload.len()).unwrap() };
        let mut bytes = Vec::new();
        Frame { channel, head, payload }.write_to(&mut bytes);
        to.write_all(&bytes).await.unwrap();
    }
}

fn job(id: String) -> JobInfo {
    let end = ExecStatus {
        state: ExecState::Running,
        code: None,
        signal: None,
        stdout: PRINTED.len() as u64,
        stderr: 0,
        dropped: 0,
        left: 0,
        tree_ended: None,
        oom: false,
        ms: 1,
        kept: true,
    };
    let command = "print".into();
    JobInfo { job: id, pid: 2, command, root: false, foreground: false, began_ms: 0, ended_ms: None, end }
}

#[tokio::test]
async fn a_wait_is_one_question() {
    let count = Arc::<AtomicUsize>::default();
    let link = Link::new(Arc::new(Counting { count: Arc::clone(&count) }), LinkSettings::default());
    let ask = Wait { job: JobId::random(), events: Vec::new(), limit: Duration::from_secs(1), lines: 2 };
    let waited = wait(&link, ask).await.unwrap();
    assert_eq!((waited.tail.bytes.as_slice(), waited.tail.total), (PRINTED, PRINTED.len() as u64));
    assert_eq!(count.load(Ordering::Relaxed), 1);
}
