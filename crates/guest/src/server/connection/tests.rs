//! How a connection responds to invalid messages.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::task::JoinHandle;

use super::*;
use crate::Container;
use crate::protocol::body::{decode, encode};
use crate::protocol::call::Call as _;
use crate::protocol::workspace::{OpenMode, WorkspaceOp, WorkspaceRequest};
use crate::protocol::{
    CHUNK, FileRef, GetFile, JobInfo, ListJobs, MAX_PAYLOAD, MountIdentity, Ping, PutFile, Retention, SetSession,
    Unlock, UserSpec,
};

/// A client of a guest in an empty directory with one file, `large`.
struct Call {
    reader: ReadHalf<DuplexStream>,
    writer: WriteHalf<DuplexStream>,
    server: JoinHandle<Result<(), codec::Error>>,
    supervisor: Arc<Supervisor>,
    _dir: TempDir,
}

impl Call {
    async fn start(caller: Caller) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; 4 * WINDOW as usize]).unwrap();
        let (container, reaper) = Container::new(dir.path(), Vec::new()).unwrap();
        tokio::spawn(reaper.run());
        let supervisor = Supervisor::new(Arc::new(container), dir.path());
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let ((reader, writer), (from, to)) = (tokio::io::split(ours), tokio::io::split(theirs));
        let server = tokio::spawn(serve_caller(supervisor.clone(), (from, to), Arc::default(), caller));
        Self { reader, writer, server, supervisor, _dir: dir }
    }

    async fn connected(caller: Caller) -> Self {
        let mut call = Self::start(caller).await;
        call.greet(FirstMessage::Hello(hello(VERSION))).await;
        assert!(matches!(call.greeting().await, Some(FirstMessage::Hello(_))));
        call
    }

    /// Write errors are ignored: the guest may have closed the connection.
    async fn send(&mut self, frame: Vec<u8>) {
        let _ = self.writer.write_all(&frame).await;
    }

    async fn greet(&mut self, greeting: FirstMessage) {
        let mut bytes = Vec::new();
        Frame::new(0, greeting).write_to(&mut bytes);
        self.send(bytes).await;
    }

    async fn greeting(&mut self) -> Option<FirstMessage> {
        codec::read::<FirstMessage>(&mut self.reader).await.ok().flatten().map(|it| it.head)
    }

    async fn request(&mut self, channel: u32, head: HostMessage, payload: &[u8]) {
        let mut bytes = Vec::new();
        Frame { channel, head, payload: payload.to_vec() }.write_to(&mut bytes);
        self.send(bytes).await;
    }

    async fn call<C: crate::protocol::call::Call>(&mut self, channel: u32, call: &C) {
        let (head, body) = opening(call);
        self.request(channel, head, &body[..body.len().min(CHUNK)]).await;
        for piece in body.chunks(CHUNK).skip(1) {
            self.request(channel, HostMessage::PayloadChunk, piece).await;
        }
    }

    async fn receive(&mut self) -> Option<(u32, GuestMessage, Vec<u8>)> {
        let frame = codec::read::<GuestMessage>(&mut self.reader).await.ok().flatten();
        frame.map(|it| (it.channel, it.head, it.payload))
    }

    /// The next message on a channel that is neither data nor a window update.
    async fn reply(&mut self, channel: u32) -> (GuestMessage, Vec<u8>) {
        loop {
            match self.receive().await.expect("the connection is open") {
                (_, GuestMessage::Data { .. } | GuestMessage::WindowUpdate(_), _) => {}
                (number, message, payload) if number == channel => return (message, payload),
                _ => {}
            }
        }
    }

    async fn jobs(&mut self, channel: u32) -> usize {
        self.call(channel, &ListJobs).await;
        match self.reply(channel).await {
            (GuestMessage::Reply { .. }, body) => decode::<Vec<JobInfo>>(&body).unwrap().len(),
            other => panic!("{other:?}"),
        }
    }

    async fn fault(&mut self, channel: u32) -> RpcError {
        match self.reply(channel).await {
            (GuestMessage::Failed(fault), _) => fault,
            other => panic!("{other:?}"),
        }
    }

    /// Returns why the connection was closed.
    async fn end(mut self) -> String {
        let last = self.fault(0).await.message;
        // Replies that were in progress may still arrive.
        while self.receive().await.is_some() {}
        assert_eq!(self.server.await.unwrap().unwrap_err().to_string(), last);
        last
    }
}

fn hello(version: u32) -> Hello {
    Hello { version, ..Hello::of_host("00".repeat(16), Retention::default()) }
}

fn opening<C: crate::protocol::call::Call>(call: &C) -> (HostMessage, Vec<u8>) {
    let body = encode(call);
    (HostMessage::Open { call: C::NAME.into(), bytes: u32::try_from(body.len()).unwrap() }, body)
}

fn at(path: &str) -> FileRef {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), Some(rustix::process::getegid().as_raw()));
    FileRef { user: UserSpec::Ids { uid, gid }, path: path.into(), follow: true }
}

/// Its channel stays open as long as it gets no window.
fn get() -> GetFile {
    GetFile { at: at("/large"), offset: 0, limit: u64::MAX }
}

/// Its channel stays open until its content ends.
fn put() -> PutFile {
    PutFile { at: at("/put"), mode: None, exact: false, parents: false, replace: true }
}

fn write(content: Vec<u8>) -> WorkspaceRequest {
    let act = WorkspaceOp::Write {
        path: "file".into(),
        content: content.into(),
        how: OpenMode::Overwrite,
        executable: None,
        seen: false,
        tool: String::new(),
    };
    WorkspaceRequest { user: at("/").user, root: "/".into(), act }
}

#[tokio::test]
async fn an_unknown_request_fails_and_the_connection_continues() {
    for caller in [Caller::Host, Caller::Root] {
        let mut call = Call::connected(caller).await;
        for channel in 1..=50 {
            call.request(channel, HostMessage::Open { call: "hum".into(), bytes: 1 << 20 }, b"x").await;
            let fault = call.fault(channel).await;
            assert_eq!(fault.code, ErrorCode::Unsupported);
            assert!(fault.message.contains(env!("CARGO_PKG_VERSION")), "{}", fault.message);
            // The rest of the request is discarded.
            call.request(channel, HostMessage::PayloadChunk, b"y").await;
        }
        assert_eq!(call.jobs(900).await, 0);
    }
}

#[tokio::test]
async fn a_request_with_another_body_is_invalid() {
    let mut call = Call::connected(Caller::Host).await;
    for (channel, body) in [(1, &b""[..]), (2, b"\xff\xff"), (3, &encode(&(get(), 7u8)))] {
        let bytes = u32::try_from(body.len()).unwrap();
        call.request(channel, HostMessage::Open { call: GetFile::NAME.into(), bytes }, body).await;
        assert_eq!(call.fault(channel).await.code, ErrorCode::Invalid);
    }
    assert_eq!(call.jobs(900).await, 0);
}

#[tokio::test]
async fn an_invalid_header_ends_the_connection() {
    let mut call = Call::connected(Caller::Host).await;
    let head = [0xff, 0xff];
    let bytes = [&2u32.to_be_bytes()[..], &2u32.to_be_bytes(), &1u32.to_be_bytes(), &head].concat();
    call.send(bytes).await;
    assert!(call.end().await.contains("header"));
}

/// The greeting of a host of version 1.
const HELLO_1: &str = r#"{"hello":{"version":1,"nonce":"00112233445566778899aabbccddeeff","run":"","keep":{"bytes":67108864,"total":536870912,"for_s":3600}}}"#;

#[tokio::test]
async fn the_error_for_another_version_names_both_versions_and_a_fix() {
    let later = serde_json::to_string(&FirstMessage::Hello(hello(VERSION + 1))).unwrap();
    for (version, greeting) in [(1, HELLO_1), (VERSION + 1, &later)] {
        let mut call = Call::start(Caller::Host).await;
        let length = u32::try_from(greeting.len()).unwrap().to_be_bytes();
        call.send([&length, &length, &[0; 4], greeting.as_bytes()].concat()).await;
        assert!(matches!(call.greeting().await, Some(FirstMessage::Hello(Hello { version: VERSION, .. }))));
        let Some(FirstMessage::Failed(why)) = call.greeting().await else { panic!("the guest must report the reason") };
        assert_eq!(call.server.await.unwrap().unwrap_err().to_string(), why.message);
        for part in [format!("version {version}"), format!("guest {VERSION}"), "create the container again".into()] {
            assert!(why.message.contains(&part), "{}", why.message);
        }
    }
}

#[tokio::test]
async fn a_caller_that_exceeds_its_limits_is_disconnected_with_the_reason() {
    type Sent = Vec<(HostMessage, Vec<u8>)>;
    let data = |bytes: usize| (HostMessage::Data { last: false }, vec![0; bytes]);
    let chunk = |bytes: usize| (HostMessage::PayloadChunk, vec![0; bytes]);
    let session = |bytes| (HostMessage::Open { call: SetSession::NAME.into(), bytes }, vec![0; 4]);
    let cases: [(&str, Sent); 9] = [
        ("than its window allows", vec![opening(&put()), data(MAX_PAYLOAD)]),
        ("without a data stream", vec![opening(&get()), data(1)]),
        ("after its end", vec![opening(&put()), (HostMessage::Data { last: true }, vec![]), data(1)]),
        ("than were announced", vec![session(10), chunk(7)]),
        ("than were announced", vec![session(3)]),
        ("than were announced", vec![opening(&get()), chunk(1)]),
        ("that must have none", vec![opening(&get()), (HostMessage::Cancel, vec![0; 1])]),
        ("opened again", vec![opening(&get()), opening(&get())]),
        ("wait on channel", [vec![opening(&get())], vec![(HostMessage::Cancel, vec![]); 300]].concat()),
    ];
    for (reason, sent) in cases {
        let mut call = Call::connected(Caller::Root).await;
        // This test does not yield while it writes, so the guest cannot return credit in between.
        let mut bytes = Vec::new();
        for (head, payload) in sent {
            Frame { channel: 1, head, payload }.write_to(&mut bytes);
        }
        call.send(bytes).await;
        let why = call.end().await;
        assert!(why.contains(reason), "{reason}: {why}");
    }
}

#[tokio::test]
async fn requests_beyond_the_quota_are_refused_and_others_continue() {
    const ANNOUNCED: u32 = 32 << 20;
    let large = |bytes| HostMessage::Open { call: WorkspaceRequest::NAME.into(), bytes };
    let mut call = Call::connected(Caller::Root).await;
    for channel in 1..=20 {
        call.request(channel, large(ANNOUNCED), b"x").await;
    }
    // The last requests are refused.
    for channel in 4..=20 {
        assert_eq!(call.fault(channel).await.code, ErrorCode::Busy, "{channel}");
    }
    // The rest of a refused request is discarded.
    call.request(20, HostMessage::PayloadChunk, &[0; 1000]).await;
    assert_eq!(call.jobs(900).await, 0);
    // Closed channels free their quota.
    for channel in 1..=3 {
        call.request(channel, HostMessage::CloseChannel, b"").await;
        call.fault(channel).await;
    }
    call.call(901, &write(vec![b'x'; 3 * CHUNK])).await;
    assert!(matches!(call.reply(901).await.0, GuestMessage::Reply { .. }));
    call.request(902, large(ANNOUNCED << 2), b"x").await;
    assert_eq!(call.fault(902).await.code, ErrorCode::TooLong);
}

#[tokio::test]
async fn a_disconnected_caller_holds_no_quota() {
    let mut call = Call::connected(Caller::Root).await;
    for channel in 1..=100 {
        call.call(channel, &get()).await;
        assert!(matches!(call.reply(channel).await.0, GuestMessage::Event));
    }
    let quota = call.supervisor.quotas.root();
    let Call { reader, writer, server, .. } = call;
    drop((reader, writer));
    let ended = timeout(Duration::from_secs(10), server).await;
    ended.expect("tasks that wait for window must end with the connection").unwrap().ok();
    let free = async {
        while !quota.is_all_free() {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), free).await.expect("all quota must be free");
}

#[tokio::test]
async fn a_locked_guest_refuses_calls_until_its_mounts_are_verified() {
    let mut call = Call::start(Caller::Host).await;
    call.supervisor.lock();
    call.greet(FirstMessage::Hello(hello(VERSION))).await;
    let Some(FirstMessage::Hello(guest)) = call.greeting().await else { panic!("the guest must greet") };
    assert!(guest.locked.is_some_and(|boot_id| boot_id.len() == 36));
    call.call(1, &ListJobs).await;
    assert_eq!(call.fault(1).await.code, ErrorCode::Locked);
    call.call(2, &Ping).await;
    assert!(matches!(call.reply(2).await.0, GuestMessage::Reply { .. }));

    let wrong = MountIdentity { target: "/proc".into(), device: 0, inode: 0 };
    call.call(3, &Unlock { mounts: vec![wrong] }).await;
    let (_, differing) = call.reply(3).await;
    assert_eq!(decode::<Vec<String>>(&differing).unwrap(), ["/proc"]);
    call.call(4, &ListJobs).await;
    assert_eq!(call.fault(4).await.code, ErrorCode::Locked);

    call.call(5, &Unlock { mounts: Vec::new() }).await;
    assert!(matches!(call.reply(5).await.0, GuestMessage::Reply { .. }));
    assert_eq!(call.jobs(6).await, 0);
}
