//! Terminals of commands that go on without a caller, which a person joins and leaves.

use coracle_protocol::body::decode;
use coracle_protocol::call::Call as _;
use coracle_protocol::{
    self as protocol, AttachTerminal, ErrorCode, ExecStarted, ExecStatus, GuestMessage, HostMessage, TerminalInfo,
    TerminalSize,
};
use coracle_types::{Error, Exec, JobId, Result};
use tokio::sync::{mpsc, watch};

use crate::call::{encoded, not_understood, refused};
use crate::channels::ReplyShape;
use crate::command::EncodedExec;
use crate::connection::{Channel, Sender};
use crate::input::InputSource;
use crate::link::Link;

/// How a caller attaches to a terminal.
#[derive(Debug)]
pub struct AttachOptions {
    /// The command.
    pub job: JobId,
    /// Sizes of the caller's terminal; the first one is in force at once.
    pub sizes: watch::Receiver<TerminalSize>,
    /// Bytes of its latest output that come first.
    pub replay: u64,
    /// What is typed. When it ends, the caller has left.
    pub keys: mpsc::Receiver<Vec<u8>>,
    /// Output as it comes. It waits while this is not read.
    pub output: mpsc::Sender<TerminalOutputPiece>,
}

/// Output of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TerminalOutputPiece {
    /// Bytes that the terminal printed before it.
    pub offset: u64,
    /// What was printed.
    pub bytes: Vec<u8>,
}

impl Link {
    /// The commands that run on a terminal, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn terminals(&self) -> Result<Vec<TerminalInfo>> {
        self.call(&protocol::ListTerminals).await
    }

    /// Begins a command on a terminal, as a job. It goes on until it ends, and is typed into by [`attach`](Self::attach).
    /// Refused when `most` jobs run.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on_terminal(&self, exec: Exec, most: Option<u32>) -> Result<ExecStarted> {
        self.connection_for::<AttachTerminal>().await?;
        let request = EncodedExec::job(&exec, true, most)?;
        self.start_encoded(request, exec, InputSource::input(None)).await
    }

    /// Joins a command on its terminal. `None`: the caller has left, and the command goes on.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`] for a command that has ended or has no terminal; [`Error::GuestLost`] when the connection
    /// breaks, which does not end the command.
    pub async fn attach(&self, options: AttachOptions) -> Result<Option<ExecStatus>> {
        let AttachOptions { job, mut sizes, replay, mut keys, output } = options;
        let connection = self.connection_for::<AttachTerminal>().await?;
        let size = *sizes.borrow_and_update();
        let call = AttachTerminal { job: job.to_string(), size, replay };
        let opened = connection.open(AttachTerminal::NAME, &encoded(&call)?, ReplyShape::new(&call)).await;
        let mut channel = opened.map_err(|it| it.into_error(AttachTerminal::NAME))?;
        let to = channel.sender();
        let typing = async {
            while let Some(typed) = keys.recv().await {
                if !send_keys(&to, &typed).await {
                    std::future::pending::<()>().await;
                }
            }
        };
        let sizing = async {
            while sizes.changed().await.is_ok() {
                let size = *sizes.borrow_and_update();
                to.send(HostMessage::Resize(size), Vec::new()).await;
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            end = receive(&mut channel, &job, output) => end.map(Some),
            () = typing => Ok(None),
            () = sizing => Ok(None),
        }
    }
}

/// Passes output on until the command ends.
async fn receive(channel: &mut Channel, job: &JobId, output: mpsc::Sender<TerminalOutputPiece>) -> Result<ExecStatus> {
    loop {
        match channel.next().await.map_err(|it| it.into_error(AttachTerminal::NAME))? {
            (GuestMessage::Event, _) => {}
            (GuestMessage::Output { offset, .. }, bytes) => {
                let room = bytes.len();
                // Who does not read has left, and says so by the keys.
                let _ = output.send(TerminalOutputPiece { offset, bytes }).await;
                channel.release(room);
            }
            (GuestMessage::Reply { .. }, body) => return decode(&body).map_err(|_| not_understood()),
            (GuestMessage::Failed(fault), _) if fault.code == ErrorCode::NoJob => {
                return Err(Error::NoSuchJob(job.clone()));
            }
            (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
            _ => return Err(not_understood()),
        }
    }
}

/// Sends what was typed; `false` when nothing reads it any more.
async fn send_keys(to: &Sender, mut typed: &[u8]) -> bool {
    while !typed.is_empty() {
        let room = to.reserve().await;
        if room == 0 {
            return false;
        }
        let count = room.min(typed.len());
        to.unreserve(room - count);
        if !to.send(HostMessage::Data { last: false }, typed[..count].to_vec()).await {
            return false;
        }
        typed = &typed[count..];
    }
    true
}
