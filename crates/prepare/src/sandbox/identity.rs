//! The identity for commits in a sandbox: that of the user, as `create` forwards it.

use coracle_context::context::Context;
use coracle_context::host_identity::user_git;
use coracle_host::git::HostGit as _;
use coracle_provision::git::Identity;
use coracle_sandbox::GitIdentity;
use coracle_worktrees::remove::Author;

/// Returns the identity of the host's git, or a fallback, since commits fail without one. The text is the git
/// configuration.
pub(super) async fn git_identity(cx: &Context) -> (GitIdentity, String) {
    let printed = user_git(cx).await.global_config(&cx.host.home, Some(&cx.host.config_home)).await;
    let found = printed.ok().and_then(|it| Identity::read(&it));
    let is_fallback = found.is_none();
    let identity = found.unwrap_or_else(Identity::fallback);
    let config = identity.config();
    let Identity { name, email } = identity;
    (GitIdentity { author: Author { name, email }, is_fallback }, config)
}
