//! Who commits in a sandbox: the person, as `create` forwards it.

use coracle_provision::git::Identity;
use coracle_runtime::host::git::{Git, HostGit as _};
use coracle_sandbox::Warning;

use crate::context::Context;

/// The identity that git inside has unless the repository sets another.
#[derive(Clone, Debug)]
pub(crate) struct GitIdentity {
    pub(crate) identity: Identity,
    /// The host has none.
    is_fallback: bool,
}

impl GitIdentity {
    /// The identity of this host's git, or a fallback: without one nobody could commit inside.
    pub(crate) async fn of_host(cx: &Context) -> Self {
        let printed = Git::of_this_host().global_config(&cx.host.home, Some(&cx.host.config_home)).await;
        let found = printed.ok().and_then(|it| Identity::read(&it));
        Self { is_fallback: found.is_none(), identity: found.unwrap_or_else(Identity::fallback) }
    }

    /// States the fallback.
    pub(crate) fn warning(&self) -> Option<Warning> {
        let Identity { name, email } = &self.identity;
        let message = format!(
            "this host's git has no `user.name` and `user.email`, so commits inside are by `{name} <{email}>`; \
             `git config --global` sets them for the next sandbox"
        );
        self.is_fallback.then(|| Warning::new("git_identity_missing", message))
    }
}
