//! Operations that wait must not block others on the same connection.

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

/// A guest with the workspace `/ws`, and a host connected to its socket.
struct Call {
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    supervisor: Arc<Supervisor>,
    world: World,
}

impl Call {
    async fn start() -> Self {
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

    async fn request(&mut self, channel: u32, head: HostMessage, payload: &[u8]) {
        let mut bytes = Vec::new();
        Frame { channel, head, payload: payload.to_vec() }.write_to(&mut bytes);
        self.writer.write_all(&bytes).await.unwrap();
    }

    async fn ping(&mut self, channel: u32) {
        self.request(channel, HostMessage::Open { call: Ping::NAME.into(), bytes: 0 }, b"").await;
    }

    async fn execute(&mut self, channel: u32, operation: WorkspaceOp) {
        let user = UserSpec::Ids { uid: geteuid().as_raw(), gid: Some(getegid().as_raw()) };
        let body = encode(&WorkspaceRequest { user, root: "/ws".into(), act: operation });
        let bytes = u32::try_from(body.len()).unwrap();
        self.request(channel, HostMessage::Open { call: WorkspaceRequest::NAME.into(), bytes }, &body).await;
    }

    async fn write(&mut self, channel: u32, path: &str) {
        let (how, executable, seen, tool) = (OpenMode::Overwrite, None, false, "write_file".into());
        let (path, content) = (path.into(), (*b"new").into());
        self.execute(channel, WorkspaceOp::Write { path, content, how, executable, seen, tool }).await;
    }

    async fn read(&mut self, channel: u32, path: &str) {
        self.execute(channel, WorkspaceOp::Lines { path: path.into(), offset: 0, limit: 10, most: 60_000 }).await;
    }

    async fn receive(&mut self) -> Frame<GuestMessage> {
        let received = timeout(Duration::from_secs(20), codec::read::<GuestMessage>(&mut self.reader));
        received.await.expect("a task must not be blocked").unwrap().unwrap()
    }

    /// The last message on each of `count` channels: the reply, or `None` for an error.
    async fn last_messages(&mut self, count: usize) -> BTreeMap<u32, Option<WorkspaceReply>> {
        let mut over = BTreeMap::new();
        while over.len() < count {
            let Frame { channel, head, payload } = self.receive().await;
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
            supervisor.workspaces.locks.with(key, || {
                ready.send(()).unwrap();
                let _ = until.recv();
            });
        });
        held.recv().unwrap();
        (end, thread)
    }
}

/// Runs a test with few threads, so that few operations occupy all of them.
fn with_threads(count: usize, test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(count).build().unwrap().block_on(test);
}

#[test]
fn a_waiting_operation_blocks_neither_another_nor_a_ping() {
    with_threads(2, async {
        let mut call = Call::start().await;
        call.world.file("slow", "old");
        let (end, holder) = call.hold("slow");
        call.write(1, "slow").await;
        call.write(2, "quick").await;
        call.read(3, "slow").await;
        call.ping(4).await;
        let over = call.last_messages(3).await;
        assert!(
            matches!(over[&2], Some(WorkspaceReply::Written(_))) && matches!(over[&3], Some(WorkspaceReply::Text(_))),
            "{over:?}"
        );
        assert_eq!(over[&4], None);
        // While all threads wait, a call that needs none still gets a reply.
        for channel in 5..20 {
            call.write(channel, "slow").await;
        }
        call.ping(20).await;
        assert!(call.last_messages(1).await.contains_key(&20));
        drop(end);
        holder.join().unwrap();
        let over = call.last_messages(16).await;
        assert!(over.values().all(|it| matches!(it, Some(WorkspaceReply::Written(_)))), "{over:?}");
    });
}

#[test]
fn a_channel_that_is_closed_while_its_operation_waits_gets_one_last_message() {
    with_threads(1, async {
        let mut call = Call::start().await;
        // The file exists whether or not the operation has started when the channel is closed.
        call.world.file("slow", "old");
        let (end, holder) = call.hold("slow");
        call.write(1, "slow").await;
        call.request(1, HostMessage::CloseChannel, b"").await;
        assert_eq!(call.last_messages(1).await[&1], None);
        drop(end);
        holder.join().unwrap();
        // The only thread is free once the operation has ended.
        tokio::task::spawn_blocking(|| ()).await.unwrap();
        call.ping(2).await;
        assert!(call.last_messages(1).await.contains_key(&2));
        call.read(3, "slow").await;
        assert!(matches!(call.last_messages(1).await[&3], Some(WorkspaceReply::Text(_))));
    });
}

#[tokio::test]
async fn replies_to_a_slow_host_arrive_completely() {
    const CALLS: u32 = 60;
    let mut call = Call::start().await;
    let text = "x".repeat(50_000);
    call.world.file("large", &text);
    for channel in 1..=CALLS {
        call.read(channel, "large").await;
    }
    let over = call.last_messages(CALLS as usize).await;
    for done in over.values() {
        assert!(matches!(done, Some(WorkspaceReply::Text(it)) if it.lines == [text.clone()]), "a text differs");
    }
}
