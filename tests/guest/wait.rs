//! Waiting for a job is one question, and its answer has the last lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use coracle_guest::codec::{Frame, read};
use coracle_guest::protocol::{
    CallReply, ExecState, ExecStatus, GuestMessage, Hello, JobInfo, OutputPage, Request, VERSION, WaitOutcome,
    WaitResult,
};
use coracle_jobs::{Wait, wait};
use coracle_runtime::link::{Dial, GuestStream, Transport};
use coracle_runtime::{JobId, Link, LinkSettings, Result};
use tokio::io::{AsyncWriteExt, DuplexStream, duplex, split};

/// A guest that answers waits, and counts what it is asked.
#[derive(Debug, Default)]
struct Counting {
    asked: Arc<AtomicUsize>,
    /// It is too old to add lines to its answer.
    is_old: bool,
}

#[async_trait]
impl Dial for Counting {
    async fn dial(&self) -> Result<GuestStream> {
        let (ours, theirs) = duplex(64 << 10);
        tokio::spawn(answer(theirs, Arc::clone(&self.asked), self.is_old));
        let (reader, writer) = split(ours);
        Ok(GuestStream::plain(reader, writer, Transport::InProcess))
    }
}

const PRINTED: &[u8] = b"one\ntwo\n";

async fn answer(stream: DuplexStream, asked: Arc<AtomicUsize>, is_old: bool) {
    let (mut from, mut to) = split(stream);
    while let Ok(Some(Frame { channel, head, .. })) = read::<Request>(&mut from).await {
        let bytes = PRINTED.len() as u64;
        let page = OutputPage { offset: 0, next: bytes, first: 0, total: bytes, running: true };
        let (head, payload) = match head {
            Request::Hello(it) => (
                GuestMessage::Hello(Hello { version: VERSION, nonce: it.nonce, run: "a run".into(), keep: None }),
                vec![],
            ),
            Request::Wait(it) => {
                asked.fetch_add(1, Ordering::Relaxed);
                let wanted = it.tail.filter(|_| !is_old);
                assert!(is_old || wanted.is_some_and(|it| it.lines == 2), "{wanted:?}");
                let waited = WaitResult {
                    reason: WaitOutcome::Limit,
                    found: None,
                    job: job(it.job),
                    ms: 1,
                    tail: wanted.map(|_| page),
                };
                (GuestMessage::Answer(CallReply::Waited(waited)), wanted.map(|_| PRINTED.to_vec()).unwrap_or_default())
            }
            Request::Tail { .. } => {
                asked.fetch_add(1, Ordering::Relaxed);
                (GuestMessage::Answer(CallReply::Page(page)), PRINTED.to_vec())
            }
            _ => continue,
        };
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
async fn a_wait_is_one_question_and_an_older_guest_is_asked_for_the_lines_alone() {
    for (is_old, questions) in [(false, 1), (true, 2)] {
        let asked = Arc::<AtomicUsize>::default();
        let dial = Counting { asked: Arc::clone(&asked), is_old };
        let link = Link::new(Arc::new(dial), LinkSettings::default());
        let ask = Wait { job: JobId::random(), events: Vec::new(), limit: Duration::from_secs(1), lines: 2 };
        let waited = wait(&link, ask).await.unwrap();
        assert_eq!((waited.tail.bytes.as_slice(), waited.tail.total), (PRINTED, PRINTED.len() as u64));
        assert_eq!(asked.load(Ordering::Relaxed), questions);
    }
}
