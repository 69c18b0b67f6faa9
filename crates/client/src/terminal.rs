//! Terminals of commands that run without a caller, to which a user can attach.

use coracle_protocol::body::decode;
use coracle_protocol::call::Call as _;
use coracle_protocol::{
    self as protocol, AttachTerminal, ErrorCode, ExecStarted, ExecStatus, GuestMessage, HostMessage, TerminalInfo,
    TerminalSize,
};
use coracle_types::{Error, Exec, JobId, Result};
use tokio::sync::{mpsc, watch};

use crate::call::{encoded, refused, unknown_message};
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
    /// Sizes of the caller's terminal; the first one is set at once.
    pub sizes: watch::Receiver<TerminalSize>,
    /// How many bytes of the latest output are repeated first.
    pub replay: u64,
    /// The input. When it ends, the caller detaches.
    pub keys: mpsc::Receiver<Vec<u8>>,
    /// Receives output. The transfer waits while this is not read.
    pub output: mpsc::Sender<TerminalOutputPiece>,
}

/// Output of a terminal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TerminalOutputPiece {
    /// Offset of the first byte in the terminal's output.
    pub offset: u64,
    /// The output.
    pub bytes: Vec<u8>,
}

impl Link {
    /// Lists the commands that run on a terminal, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn terminals(&self) -> Result<Vec<TerminalInfo>> {
        self.call(&protocol::ListTerminals).await
    }

    /// Starts a command on a terminal, as a job. It runs until it ends; [`attach`](Self::attach) sends its input. Refused if
    /// `most` jobs run.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_on_terminal(&self, exec: Exec, most: Option<u32>) -> Result<ExecStarted> {
        self.connection_for::<AttachTerminal>().await?;
        let request = EncodedExec::job(&exec, true, most)?;
        self.start_encoded(request, exec, InputSource::input(None)).await
    }

    /// Attaches to a command on its terminal. `None`: the caller detached, and the command continues.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`] for a command that has ended or has no terminal; [`Error::GuestLost`] if the connection breaks,
    /// which does not end the command.
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
                // A receiver that was dropped belongs to a caller that detaches.
                let _ = output.send(TerminalOutputPiece { offset, bytes }).await;
                channel.release(room);
            }
            (GuestMessage::Reply { .. }, body) => return decode(&body).map_err(|_| unknown_message()),
            (GuestMessage::Failed(fault), _) if fault.code == ErrorCode::NoJob => {
                return Err(Error::NoSuchJob(job.clone()));
            }
            (GuestMessage::Failed(fault), _) => return Err(refused(fault)),
            _ => return Err(unknown_message()),
        }
    }
}

/// Sends typed bytes; `false` if the channel has ended.
async fn send_keys(to: &Sender, mut typed: &[u8]) -> bool {
    while !typed.is_empty() {
        let window = to.reserve().await;
        if window == 0 {
            return false;
        }
        let count = window.min(typed.len());
        to.unreserve(window - count);
        if !to.send(HostMessage::Data { last: false }, typed[..count].to_vec()).await {
            return false;
        }
        typed = &typed[count..];
    }
    true
}
