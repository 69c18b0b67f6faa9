//! A command, a shell or the SFTP server on a channel: runs in the container, with or without a terminal.

use std::collections::BTreeMap;
use std::future::ready;
use std::pin::pin;
use std::sync::Arc;

use coracle::{PersonSession, audited};
use coracle_context::{Context, Failure};
use coracle_protocol::paths::PROGRAM;
use coracle_types::{Chunk, Command, ExecOutput, Exit, Input, Stream, TerminalSize};
use russh::server::{Handle, Msg};
use russh::{ChannelWriteHalf, Sig};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::channel_input::ChannelInput;
use crate::input_gate::InputGate;

/// Maximum number of output pieces in transit.
const CHUNKS: usize = 16;

/// Bytes of output that are retained in addition to being passed on.
const RETAINED_OUTPUT: usize = 4 << 10;

/// The channel's number for standard error.
const STDERR: u32 = 1;

/// The exit status of a program that could not be started, as that of `ssh` itself.
const NOT_RUN: u32 = 255;

/// A client's request to run something.
pub(crate) enum ChannelProgram {
    /// The shell of the container's user.
    Shell,
    /// A script for that shell.
    Script(String),
    /// The SFTP server that is part of the guest's program.
    Sftp,
}

impl ChannelProgram {
    fn argv(&self, shell: &str) -> Vec<String> {
        let argv: &[&str] = match self {
            Self::Shell => &[shell],
            Self::Script(script) => &[shell, "-c", script],
            Self::Sftp => &[PROGRAM, "sftp"],
        };
        argv.iter().map(|argument| (*argument).to_owned()).collect()
    }

    /// The arguments of the audit record.
    fn audited(&self) -> Value {
        match self {
            Self::Shell => json!({ "channel": "shell" }),
            Self::Script(script) => json!({ "channel": "exec", "command": script }),
            Self::Sftp => json!({ "channel": "sftp" }),
        }
    }
}

/// A program on a channel, and the channel's ends.
pub(crate) struct CommandChannel {
    pub(crate) cx: Context,
    pub(crate) session: Result<PersonSession, Failure>,
    pub(crate) program: ChannelProgram,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) terminal: Option<watch::Receiver<TerminalSize>>,
    pub(crate) input: ChannelInput,
    pub(crate) write: ChannelWriteHalf<Msg>,
    pub(crate) handle: Handle,
    pub(crate) gate: Arc<InputGate>,
    pub(crate) cancel: CancellationToken,
}

impl CommandChannel {
    /// Runs the program to its end, and closes the channel.
    pub(crate) async fn run(self) {
        let Self { cx, session, program, env, terminal, input, write, handle, gate, cancel } = self;
        let ran = async {
            let session = session?;
            let intent = audited::intent(&cx, "ssh", &session, program.audited()).await?;
            let mut exec = session.exec(Command::Argv(program.argv(&session.shell)));
            let (live, chunks) = mpsc::channel(CHUNKS);
            exec.env.extend(env);
            exec.stdin = Some(Input::Stream(Box::new(input)));
            exec.terminal = terminal;
            (exec.live, exec.cancel) = (Some(live), cancel.clone());
            (exec.keep_bytes, exec.passes_on) = (RETAINED_OUTPUT, Some(usize::MAX));
            let passing = pass_on(chunks, &write, &gate, &cancel);
            let (output, ()) = tokio::join!(Box::pin(session.link.exec(exec)), passing);
            let output = output.map_err(Failure::from);
            intent.finish_program(output.as_ref().map(exit_code)).await;
            output
        };
        match ran.await {
            Ok(output) => send_exit(&output, &write, &handle).await,
            Err(failure) => {
                let _ = write.extended_data_bytes(STDERR, failed_text(&failure).into_bytes()).await;
                let _ = write.exit_status(NOT_RUN).await;
            }
        }
        // Errors are ignored, because the client may have disconnected.
        let _ = write.eof().await;
        let _ = write.close().await;
    }
}

/// The text of a failure for the client.
fn failed_text(failure: &Failure) -> String {
    let hint = failure.hint.as_deref().map(|it| format!("\nhint: {it}")).unwrap_or_default();
    format!("coracle: {}{hint}\n", failure.message)
}

fn exit_code(output: &ExecOutput) -> Option<u8> {
    match output.exit {
        Exit::Code(code) => Some(code),
        _ => None,
    }
}

async fn send_exit(output: &ExecOutput, write: &ChannelWriteHalf<Msg>, handle: &Handle) {
    if let Some(signal) = output.signal {
        let _ = handle.exit_signal_request(write.id(), signal_of(signal), false, String::new(), String::new()).await;
        return;
    }
    let _ = write.exit_status(exit_code(output).map_or(NOT_RUN, u32::from)).await;
}

/// The protocol's name for a Linux signal.
fn signal_of(number: i32) -> Sig {
    match number {
        1 => Sig::HUP,
        2 => Sig::INT,
        3 => Sig::QUIT,
        4 => Sig::ILL,
        6 => Sig::ABRT,
        8 => Sig::FPE,
        9 => Sig::KILL,
        10 => Sig::USR1,
        11 => Sig::SEGV,
        13 => Sig::PIPE,
        14 => Sig::ALRM,
        15 => Sig::TERM,
        other => Sig::Custom(format!("{other}@coracle")),
    }
}

/// Passes output on as fast as the client accepts it.
async fn pass_on(
    mut chunks: mpsc::Receiver<Chunk>,
    write: &ChannelWriteHalf<Msg>,
    gate: &Arc<InputGate>,
    cancel: &CancellationToken,
) {
    while let Some(Chunk { stream, bytes, .. }) = chunks.recv().await {
        let sending = async {
            match stream {
                Stream::Stdout => write.data_bytes(bytes).await,
                Stream::Stderr => write.extended_data_bytes(STDERR, bytes).await,
            }
        };
        let mut sending = pin!(sending);
        let at_once = tokio::select! {
            biased;
            sent = &mut sending => Some(sent),
            () = ready(()) => None,
        };
        if at_once.is_none() {
            let _blocked = gate.block_output();
            let _ = cancel.run_until_cancelled(sending).await;
        }
    }
}
