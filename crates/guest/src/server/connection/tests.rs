//! What a connection answers to what it should not be sent.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::*;
use crate::Container;
use crate::protocol::workspace::{OpenMode, WorkspaceOp, WorkspaceRequest};
use crate::protocol::{CallReply, FileRef, MAX_PAYLOAD, UserSpec, WINDOW};

/// A caller of a guest in an empty directory that has one file, `large`.
struct Call {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    served: JoinHandle<Result<(), codec::Error>>,
    supervisor: Arc<Supervisor>,
    _dir: TempDir,
}

impl Call {
    async fn begin(caller: Caller) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; 4 * WINDOW as usize]).unwrap();
        let (container, reaper) = Container::new(dir.path(), Vec::new()).unwrap();
        tokio::spawn(reaper.run());
        let supervisor = Supervisor::new(Arc::new(container), dir.path());
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let ((reader, writer), (from, to)) = (tokio::io::split(ours), tokio::io::split(theirs));
        let served = tokio::spawn(serve_caller(supervisor.clone(), (from, to), Arc::default(), caller));
        Self { reader, writer, served, supervisor, _dir: dir }
    }

    async fn greeted(caller: Caller) -> Self {
        let mut call = Self::begin(caller).await;
        call.ask(0, hello(VERSION), b"").await;
        assert!(matches!(call.hear().await, Some((0, GuestMessage::Hello(_)))));
        call
    }

    /// What is not taken any more is let go.
    async fn ask(&mut self, channel: u32, head: Request, payload: &[u8]) {
        let mut bytes = Vec::new();
        Frame { channel, head, payload: payload.to_vec() }.write_to(&mut bytes);
        let _ = self.writer.write_all(&bytes).await;
    }

    async fn ask_raw(&mut self, channel: u32, header: &str) {
        let length = u32::try_from(header.len()).unwrap().to_be_bytes();
        let bytes = [&length, &length, &channel.to_be_bytes(), header.as_bytes()].concat();
        self.writer.write_all(&bytes).await.unwrap();
    }

    async fn hear(&mut self) -> Option<(u32, GuestMessage)> {
        codec::read::<GuestMessage>(&mut self.reader).await.ok().flatten().map(|it| (it.channel, it.head))
    }

    /// What is said on a channel next that is no data.
    async fn answer(&mut self, channel: u32) -> GuestMessage {
        loop {
            match self.hear().await.expect("the connection stands") {
                (_, GuestMessage::Data { .. } | GuestMessage::Credit(_)) => {}
                (number, say) if number == channel => return say,
                _ => {}
            }
        }
    }

    async fn fault(&mut self, channel: u32) -> RpcError {
        match self.answer(channel).await {
            GuestMessage::Failed(fault) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// Why it was cut off.
    async fn end(mut self) -> String {
        let last = self.fault(0).await.message;
        // What was being answered may still come.
        while self.hear().await.is_some() {}
        assert_eq!(self.served.await.unwrap().unwrap_err().to_string(), last);
        last
    }
}

fn hello(version: u32) -> Request {
    Request::Hello(Hello { version, nonce: "00".repeat(16), run: String::new(), keep: None })
}

fn at(path: &str) -> FileRef {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), Some(rustix::process::getegid().as_raw()));
    FileRef { user: UserSpec::Ids { uid, gid }, path: path.into(), follow: true }
}

/// Its channel stays open for as long as it is given no room.
fn get() -> Request {
    Request::Get { at: at("/large"), offset: 0, limit: u64::MAX }
}

fn write(bytes: usize) -> Request {
    let act = WorkspaceOp::Write {
        path: "file".into(),
        how: OpenMode::Overwrite,
        executable: None,
        seen: false,
        tool: String::new(),
    };
    Request::Space(WorkspaceRequest { user: at("/").user, root: "/".into(), act, bytes: u32::try_from(bytes).unwrap() })
}

#[tokio::test]
async fn a_request_that_is_not_known_is_answered_and_the_next_one_too() {
    for caller in [Caller::Host, Caller::Root] {
        let mut call = Call::greeted(caller).await;
        for channel in 1..=2 * u32::try_from(MAX_UNKNOWN).unwrap() {
            call.ask_raw(channel, r#"{"hum":{"x":1}}"#).await;
            let fault = call.fault(channel).await;
            assert_eq!(fault.code, ErrorCode::Unsupported);
            assert!(fault.message.contains(env!("CARGO_PKG_VERSION")), "{}", fault.message);
        }
        call.ask(900, Request::Jobs, b"").await;
        assert_eq!(call.answer(900).await, GuestMessage::Answer(CallReply::Jobs(Vec::new())));
    }
}

#[tokio::test]
async fn unknown_words_that_open_nothing_end_the_connection_when_they_are_many() {
    let mut call = Call::greeted(Caller::Host).await;
    for _ in 0..=MAX_UNKNOWN {
        call.ask_raw(0, r#""hum""#).await;
    }
    assert!(call.end().await.contains("does not know"));
}

#[tokio::test]
async fn a_host_of_another_version_is_told_both_and_what_to_do() {
    let mut call = Call::begin(Caller::Host).await;
    call.ask(0, hello(VERSION + 1), b"").await;
    assert!(matches!(call.hear().await, Some((0, GuestMessage::Hello(Hello { version: VERSION, .. })))));
    let why = call.end().await;
    for part in [format!("version {}", VERSION + 1), format!("guest {VERSION}"), "make the container anew".into()] {
        assert!(why.contains(&part), "{why}");
    }
}

#[tokio::test]
async fn whoever_sends_more_than_it_may_is_cut_off_and_told_why() {
    type Sent = Vec<(u32, Request, Vec<u8>)>;
    let data = |bytes: usize| (1, Request::Data { last: false }, vec![0; bytes]);
    let cases: [(&str, Sent); 7] = [
        ("than its window has", vec![(1, get(), vec![]), data(WINDOW as usize), data(1)]),
        ("than its window has", vec![(1, get(), vec![]), data(MAX_PAYLOAD)]),
        ("than were announced", vec![(1, Request::Session { bytes: 10 }, vec![0; 4]), (1, Request::More, vec![0; 7])]),
        ("than were announced", vec![(1, get(), vec![]), (1, Request::More, vec![0; 1])]),
        ("that has none", vec![(1, get(), vec![]), (1, Request::Cancel, vec![0; 1])]),
        ("opened again", vec![(1, get(), vec![]), (1, get(), vec![])]),
        ("wait on channel", [vec![(1, get(), vec![])], vec![(1, Request::Cancel, vec![]); 300]].concat()),
    ];
    for (reason, sent) in cases {
        let mut call = Call::greeted(Caller::Root).await;
        for (channel, ask, payload) in sent {
            call.ask(channel, ask, &payload).await;
        }
        let why = call.end().await;
        assert!(why.contains(reason), "{reason}: {why}");
    }
}

#[tokio::test]
async fn what_is_announced_beyond_the_quota_is_refused_and_the_rest_goes_on() {
    const ANNOUNCED: usize = 32 << 20;
    let mut call = Call::greeted(Caller::Root).await;
    for channel in 1..=20 {
        call.ask(channel, write(ANNOUNCED), b"x").await;
    }
    // Refused are those that came last.
    for channel in 4..=20 {
        assert_eq!(call.fault(channel).await.code, ErrorCode::Busy, "{channel}");
    }
    // What follows for one that was refused is let go.
    call.ask(20, Request::More, &[0; 1000]).await;
    call.ask(900, Request::Jobs, b"").await;
    assert_eq!(call.answer(900).await, GuestMessage::Answer(CallReply::Jobs(Vec::new())));
    // What is left is free again.
    for channel in 1..=3 {
        call.ask(channel, Request::Leave, b"").await;
        call.fault(channel).await;
    }
    call.ask(901, write(1), b"x").await;
    assert_eq!(call.answer(901).await, GuestMessage::Answer(CallReply::Space));
    call.ask(902, write(ANNOUNCED << 2), b"x").await;
    assert_eq!(call.fault(902).await.code, ErrorCode::TooLong);
}

#[tokio::test]
async fn a_caller_that_goes_leaves_nothing_behind() {
    let mut call = Call::greeted(Caller::Root).await;
    for channel in 1..=100 {
        call.ask(channel, get(), b"").await;
        assert!(matches!(call.answer(channel).await, GuestMessage::Answer(CallReply::File(_))));
    }
    let quota = call.supervisor.quotas.root();
    let Call { reader, writer, served, .. } = call;
    drop((reader, writer));
    let ended = timeout(Duration::from_secs(10), served).await;
    ended.expect("whoever waits for room does not wait for ever").unwrap().ok();
    let free = async {
        while !quota.is_all_free() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), free).await.expect("nothing is held any more");
}
