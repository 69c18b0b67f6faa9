//! Acts that wait, beside others on the same connection.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::fs::{fstat, open};
use rustix::process::{getegid, geteuid};
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

use super::*;
use crate::Container;
use crate::protocol::body::{decode, encode};
use crate::protocol::call::Call as _;
use crate::protocol::{FirstMessage, GuestMessage, Hello, HostMessage, Ping, Retention, UserSpec};
use crate::server::codec::{self, Frame};
use crate::server::connection::serve_socket;
use crate::server::dispatch::Caller;
use crate::server::services::Supervisor;

/// A guest whose workspace is `/ws`, and a host that is connected to its socket.
struct Call {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    supervisor: Arc<Supervisor>,
    world: World,
}

impl Call {
    async fn begin() -> Self {
        let world = World::new();
        let (container, reaper) = Container::new(world.dir.path(), Vec::new()).unwrap();
        tokio::spawn(reaper.run());
        let supervisor = Supervisor::new(Arc::new(container), world.dir.path());
        let (ours, theirs) = UnixStream::pair().unwrap();
        tokio::spawn(serve_socket(supervisor.clone(), theirs, Caller::Host));
        let (reader, writer) = ours.into_split();
        let mut call = Self { reader: BufReader::new(reader), writer, supervisor, world };
        let mut bytes = Vec::new();
        let hello = Hello::of_host("n".into(), Retention::default());
        Frame::new(0, FirstMessage::Hello(hello)).write_to(&mut bytes);
        call.writer.write_all(&bytes).await.unwrap();
        assert!(codec::read::<FirstMessage>(&mut call.reader).await.unwrap().is_some());
        call
    }

    async fn ask(&mut self, channel: u32, head: HostMessage, payload: &[u8]) {
        let mut bytes = Vec::new();
        Frame { channel, head, payload: payload.to_vec() }.write_to(&mut bytes);
        self.writer.write_all(&bytes).await.unwrap();
    }

    async fn ping(&mut self, channel: u32) {
        self.ask(channel, HostMessage::Open { call: Ping::NAME.into(), bytes: 0 }, b"").await;
    }

    async fn act(&mut self, channel: u32, act: WorkspaceOp) {
        let user = UserSpec::Ids { uid: geteuid().as_raw(), gid: Some(getegid().as_raw()) };
        let body = encode(&WorkspaceRequest { user, root: "/ws".into(), act });
        let bytes = u32::try_from(body.len()).unwrap();
        self.ask(channel, HostMessage::Open { call: WorkspaceRequest::NAME.into(), bytes }, &body).await;
    }

    async fn write(&mut self, channel: u32, path: &str) {
        let (how, executable, seen, tool) = (OpenMode::Overwrite, None, false, "write_file".into());
        let (path, content) = (path.into(), (*b"new").into());
        self.act(channel, WorkspaceOp::Write { path, content, how, executable, seen, tool }).await;
    }

    async fn read(&mut self, channel: u32, path: &str) {
        self.act(channel, WorkspaceOp::Lines { path: path.into(), offset: 0, limit: 10, most: 60_000 }).await;
    }

    async fn hear(&mut self) -> Frame<GuestMessage> {
        let heard = timeout(Duration::from_secs(20), codec::read::<GuestMessage>(&mut self.reader));
        heard.await.expect("somebody is held up").unwrap().unwrap()
    }

    /// The last words on so many channels, by channel: what was done, or nothing for a fault.
    async fn last_words(&mut self, count: usize) -> BTreeMap<u32, Option<WorkspaceReply>> {
        let mut over = BTreeMap::new();
        while over.len() < count {
            let Frame { channel, head, payload } = self.hear().await;
            assert!(!over.contains_key(&channel), "another message after the last on {channel}: {head:?}");
            match head {
                // The reply to a ping has no bytes.
                GuestMessage::Reply { bytes: 0 } => drop(over.insert(channel, None)),
                GuestMessage::Reply { .. } => drop(over.insert(channel, Some(decode(&payload).unwrap()))),
                GuestMessage::Failed(_) => drop(over.insert(channel, None)),
                other => panic!("{other:?}"),
            }
        }
        over
    }

    /// Locks a file of that name until the sender is dropped.
    fn hold(&self, name: &'static str) -> (mpsc::Sender<()>, JoinHandle<()>) {
        let dir = open(self.world.path(""), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
        let stat = fstat(dir).unwrap();
        let key = (stat.st_dev, stat.st_ino, name.as_bytes().to_vec());
        let (supervisor, (ready, held), (end, until)) = (self.supervisor.clone(), mpsc::channel(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            supervisor.spaces.locks.with(key, || {
                ready.send(()).unwrap();
                let _ = until.recv();
            });
        });
        held.recv().unwrap();
        (end, thread)
    }
}

/// With fewer threads than a guest has, so that few acts occupy them all.
fn with_threads(count: usize, test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(count).build().unwrap().block_on(test);
}

#[test]
fn an_act_that_waits_holds_up_neither_another_nor_a_ping() {
    with_threads(2, async {
        let mut call = Call::begin().await;
        call.world.file("slow", "old");
        let (end, held) = call.hold("slow");
        call.write(1, "slow").await;
        call.write(2, "quick").await;
        call.read(3, "slow").await;
        call.ping(4).await;
        let over = call.last_words(3).await;
        assert!(
            matches!(over[&2], Some(WorkspaceReply::Written(_))) && matches!(over[&3], Some(WorkspaceReply::Text(_))),
            "{over:?}"
        );
        assert_eq!(over[&4], None);
        // When all threads wait, what needs none is answered all the same.
        for channel in 5..20 {
            call.write(channel, "slow").await;
        }
        call.ping(20).await;
        assert!(call.last_words(1).await.contains_key(&20));
        drop(end);
        held.join().unwrap();
        let over = call.last_words(16).await;
        assert!(over.values().all(|it| matches!(it, Some(WorkspaceReply::Written(_)))), "{over:?}");
    });
}

#[test]
fn a_channel_that_is_left_while_its_act_waits_has_one_last_word() {
    with_threads(1, async {
        let mut call = Call::begin().await;
        // There whether the act has begun by the time its caller leaves, or is never begun.
        call.world.file("slow", "old");
        let (end, held) = call.hold("slow");
        call.write(1, "slow").await;
        call.ask(1, HostMessage::CloseChannel, b"").await;
        assert_eq!(call.last_words(1).await[&1], None);
        drop(end);
        held.join().unwrap();
        // The only thread is free again when the request was answered.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        call.ping(2).await;
        assert!(call.last_words(1).await.contains_key(&2));
        call.read(3, "slow").await;
        assert!(matches!(call.last_words(1).await[&3], Some(WorkspaceReply::Text(_))));
    });
}

#[tokio::test]
async fn answers_that_a_host_does_not_take_at_once_arrive_whole() {
    const CALLS: u32 = 60;
    let mut call = Call::begin().await;
    let text = "x".repeat(50_000);
    call.world.file("large", &text);
    for channel in 1..=CALLS {
        call.read(channel, "large").await;
    }
    let over = call.last_words(CALLS as usize).await;
    for done in over.values() {
        assert!(matches!(done, Some(WorkspaceReply::Text(it)) if it.lines == [text.clone()]), "a text differs");
    }
}
