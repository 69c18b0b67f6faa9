//! Failures of Podman that pass when a call is repeated, because another process changed something meanwhile.

use coracle_types::{Error, Excerpt, Result};

const TRIES: usize = 4;

/// Podman walks the interfaces of the host for a free subnet, and fails if one of them disappears concurrently, as
/// those of other containers do.
pub(super) fn is_interface_gone(message: &Excerpt) -> bool {
    message.as_str().contains("no such network interface")
}

/// Podman lists objects and then reads each of them, and fails if one was removed between.
pub(super) fn is_listed_object_gone<T>(listed: &Result<T>) -> bool {
    const GONE: [&str; 3] = ["no such volume", "no such container", "no such network"];
    let is_gone = |it: &Excerpt| GONE.iter().any(|what| it.as_str().contains(what));
    matches!(listed, Err(Error::Engine { excerpt, .. }) if is_gone(excerpt))
}

/// Repeats a call while it fails for such a reason.
pub(super) async fn retry<T, F: Future<Output = Result<T>>>(
    mut call: impl FnMut() -> F,
    is_transient: impl Fn(&Result<T>) -> bool,
) -> Result<T> {
    let mut called = call().await;
    for _ in 1..TRIES {
        if !is_transient(&called) {
            break;
        }
        called = call().await;
    }
    called
}
