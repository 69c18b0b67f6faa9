//! Files by SFTP, version 3: each request is a call to the container's guest, as the container's user.

mod attributes;
mod handler;
mod reading;
mod status;
mod writing;

use coracle::{Context, Failure, PersonSession};
use russh::ChannelWriteHalf;
use russh::server::Msg;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::handler::SftpHandler;
use crate::audited;
use crate::channel_input::ChannelInput;
use crate::command_channel::{STDERR, failed_text};
use crate::input_gate::ChannelWriter;

/// Serves files on a channel until the client ends it.
pub(crate) async fn run(
    cx: Context,
    session: Result<PersonSession, Failure>,
    input: ChannelInput,
    write: ChannelWriteHalf<Msg>,
    cancel: CancellationToken,
) {
    let served: Result<(), Failure> = async {
        let session = session?;
        let intent = audited::intent(&cx, &session, json!({ "channel": "sftp" })).await?;
        let over = CancellationToken::new();
        let handler = SftpHandler::new(session, over.clone().drop_guard());
        let output = ChannelWriter::new(Box::pin(write.make_writer()), input.gate());
        russh_sftp::server::run(tokio::io::join(input, output), handler).await;
        // The library drops the handler when the client's input ends.
        let _ = cancel.run_until_cancelled(over.cancelled()).await;
        audited::finish(intent, Ok(None)).await;
        Ok(())
    }
    .await;
    if let Err(failure) = &served {
        let _ = write.extended_data_bytes(STDERR, failed_text(failure).into_bytes()).await;
    }
    let _ = write.exit_status(u32::from(served.is_err())).await;
    let _ = write.eof().await;
    let _ = write.close().await;
}
