//! Accesses the files of a workspace in the container.

use coracle_protocol::UserSpec;
use coracle_protocol::workspace::{WorkspaceOp, WorkspaceReply, WorkspaceRequest};
use coracle_types::{ContainerPath, Ids, Result};

use crate::link::Link;

impl Link {
    /// Executes an operation on the files below `root`, as `user`.
    ///
    /// A read-only operation is repeated if the connection breaks; another one is not, once it was sent.
    ///
    /// # Errors
    /// [`Error::Refused`](coracle_types::Error::Refused) for an invalid request. Errors of file operations are
    /// [`WorkspaceReply::Not`].
    pub async fn space(&self, user: Ids, root: &ContainerPath, act: WorkspaceOp) -> Result<WorkspaceReply> {
        let user = UserSpec::Ids { uid: user.uid, gid: Some(user.gid) };
        self.call(&WorkspaceRequest { user, root: root.to_string(), act }).await
    }
}
