//! Runs file operations off the async threads.

use coracle_types::{Error, Result};

/// Runs `work` on a thread for blocking operations.
pub(crate) async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|err| Err(Error::Host { what: what.to_owned(), source: std::io::Error::other(err) }))
}
