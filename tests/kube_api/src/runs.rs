//! The running parts of a Pod.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coracle_types::{Chunk, ContainerId, ContainerPath, Ids};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, broadcast, watch};

/// Retained output of an init container, in bytes.
const LOG: usize = 1 << 20;

/// Bytes of input under way.
const INPUT: usize = 256 << 10;

/// The status of a container when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunOptions {
    pub(crate) is_init: bool,
    pub(crate) has_stdin: bool,
}

/// The containers of a Pod that were started.
#[derive(Debug, Default)]
pub(crate) struct PodRun {
    containers: Mutex<BTreeMap<String, Arc<ContainerRun>>>,
    /// The node is short of something.
    pub(crate) evict: Notify,
}

impl PodRun {
    pub(crate) fn get(&self, name: &str) -> Option<Arc<ContainerRun>> {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(crate) fn add(&self, name: &str, run: Arc<ContainerRun>) {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), run);
    }
}

/// One container that was started.
#[derive(Debug)]
pub(crate) struct ContainerRun {
    pub(crate) id: ContainerId,
    pub(crate) user: Ids,
    pub(crate) workdir: ContainerPath,
    /// Whether it is an init container, whose output is retained here.
    pub(crate) is_init: bool,
    /// Its input: an end for who attaches, and one for its command. Both are there before it can be attached to, as on a
    /// node.
    stdin: Mutex<(Option<DuplexStream>, Option<DuplexStream>)>,
    log: Mutex<Vec<u8>>,
    live: broadcast::Sender<Chunk>,
    /// Its exit code, once it has ended.
    pub(crate) exit: watch::Sender<Option<u8>>,
}

impl ContainerRun {
    pub(crate) fn new(id: ContainerId, user: Ids, workdir: ContainerPath, options: RunOptions) -> Self {
        let (attached, read) = options.has_stdin.then(|| tokio::io::duplex(INPUT)).unzip();
        let (live, exit) = (broadcast::channel(64).0, watch::channel(None).0);
        let (stdin, log, is_init) = (Mutex::new((attached, read)), Mutex::default(), options.is_init);
        Self { id, user, workdir, is_init, stdin, log, live, exit }
    }

    pub(crate) fn print(&self, chunk: Chunk) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let room = LOG.saturating_sub(log.len()).min(chunk.bytes.len());
        log.extend_from_slice(&chunk.bytes[..room]);
        drop(log);
        // There may be no listener.
        let _ = self.live.send(chunk);
    }

    pub(crate) fn log(&self) -> Vec<u8> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn listen(&self) -> broadcast::Receiver<Chunk> {
        self.live.subscribe()
    }

    /// The end of its input that who attaches first writes to.
    pub(crate) fn take_attached(&self) -> Option<DuplexStream> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).0.take()
    }

    /// The end of its input that its command reads.
    pub(crate) fn take_input(&self) -> Option<DuplexStream> {
        self.stdin.lock().unwrap_or_else(PoisonError::into_inner).1.take()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.exit.borrow().is_some()
    }
}
