//! A person's way to a terminal in a container, for `coracle shell`, `coracle attach` and the page.

use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::{ManagedContainer, Record, find};
use coracle_runtime::ExecTarget;
use coracle_types::{Capability, Error, Handle, Ids};

use crate::target::{Access, check_policy, stopped};

/// A running container that a person may enter, of every session.
///
/// # Errors
/// An unknown or stopped container, and what the policy refuses.
pub async fn enter(cx: &Context, handle: &Handle, as_root: bool) -> Result<ManagedContainer, Failure> {
    let found = find(cx.engines(), &cx.store()?, handle).await?;
    check_policy(cx, &found.record, Access::Use)?;
    if as_root && !cx.config.security.allow_root {
        return Err(no_root("commands as root are not granted").hint_setting("leave `--as-root` out", ALLOW_ROOT));
    }
    let container = found.present()?;
    if !container.running() {
        return Err(stopped(container, &found.record));
    }
    Ok(found)
}

/// The connection to its guest.
///
/// # Errors
/// `unsupported` for a container without a guest, and what the engine reports.
pub async fn guest_link(cx: &Context, found: &mut ManagedContainer) -> Result<Link, Failure> {
    let engine = found.record.engine;
    match cx.links().inside(&cx.store()?, found).await? {
        ExecTarget::Guest(link) => Ok(link),
        _ => Err(Error::Unsupported { engine, capability: Capability::Guest }.into()),
    }
}

/// Whether a person may join what runs as root, in a container whose commands do not.
///
/// # Errors
/// `policy_denied` if they may not.
pub fn may_join_root(cx: &Context, record: &Record, terminal: &str) -> Result<(), Failure> {
    if cx.config.security.allow_root || record.exec_user.is_some_and(Ids::is_root) {
        return Ok(());
    }
    let failure = no_root(&format!("the terminal {terminal} is root's, and commands as root are not granted"));
    Err(failure.hint_setting("open one of your own", ALLOW_ROOT))
}

const ALLOW_ROOT: &str = "security.allow_root";

fn no_root(message: &str) -> Failure {
    Failure::new(Code::PolicyDenied, message).detail("rule", "root.exec").detail("setting", ALLOW_ROOT)
}
