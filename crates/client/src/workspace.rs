//! The files of a workspace inside.

use coracle_protocol::UserSpec;
use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply, WorkspaceRequest};
use coracle_types::{ContainerPath, Ids, Result};

use crate::link::Link;

impl Link {
    /// Does something with the files below `root`, as `user`.
    ///
    /// What only looks is asked again when the connection breaks; what changes something is not, once it was sent.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused) for what makes no sense. What can be wrong with files is
    /// [`WorkspaceReply::Not`].
    pub async fn space(&self, user: Ids, root: &ContainerPath, act: WorkspaceOp) -> Result<WorkspaceReply> {
        let user = UserSpec::Ids { uid: user.uid, gid: Some(user.gid) };
        self.call(&WorkspaceRequest { user, root: root.to_string(), act }).await
    }
}
