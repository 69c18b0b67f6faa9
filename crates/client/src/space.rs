//! The files of a workspace inside.

use std::time::Duration;

use coracle_protocol::workspace::{MAX_TOLD, WorkspaceOp, WorkspaceReply, WorkspaceRequest};
use coracle_protocol::{self as protocol, CallReply, Request, UserSpec};
use coracle_types::{ContainerPath, Error, Ids, Result};

use crate::call::{Retry, attempt, refused, sendable};
use crate::channels::ReplyShape;
use crate::connection::ConnectionLost;
use crate::link::Link;

/// What a guest may take altogether: a walk or a removal ends itself long before.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(180);

impl Link {
    /// Does something with the files below `root`, as `user`. `content` is what the act takes.
    ///
    /// What only looks is asked again when the connection breaks; what changes something is not, once it was sent.
    ///
    /// # Errors
    /// [`Error::Refused`] for what makes no sense. What can be wrong with files is [`WorkspaceReply::Not`].
    pub async fn space(
        &self,
        user: Ids,
        root: &ContainerPath,
        act: WorkspaceOp,
        content: &[u8],
    ) -> Result<WorkspaceReply> {
        let too_long = || {
            let message = "the content is too long".to_owned();
            refused(protocol::RpcError::new(protocol::ErrorCode::TooLong, message))
        };
        let bytes = u32::try_from(content.len()).map_err(|_| too_long())?;
        let act_reads = act.is_read_only();
        let user = UserSpec::Ids { uid: user.uid, gid: Some(user.gid) };
        let ask = sendable(Request::Space(WorkspaceRequest { user, root: root.to_string(), act, bytes }))?;
        let again = if act_reads { Retry::Once } else { Retry::Never };
        attempt("space", TRANSFER_TIMEOUT, again, || self.space_once(ask.clone(), content)).await
    }

    async fn space_once(&self, ask: Request, content: &[u8]) -> Result<Result<WorkspaceReply, ConnectionLost>> {
        let connection = self.connection().await?;
        let talk = ReplyShape::Content { fits: |it| matches!(it, CallReply::Space), most: MAX_TOLD as u64 };
        let mut channel = match connection.open_with_payload(ask, content, talk).await {
            Ok(channel) => channel,
            Err(broken) => return Ok(Err(broken)),
        };
        let json = match channel.content().await? {
            Ok((_, json)) => json,
            Err(broken) => return Ok(Err(broken)),
        };
        let unreadable = |err: serde_json::Error| Error::Unreadable { verb: "space", detail: err.to_string() };
        serde_json::from_slice(&json).map(Ok).map_err(unreadable)
    }
}
