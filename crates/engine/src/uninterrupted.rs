//! Operations that continue when their caller stops waiting.

use std::future::Future;

use coracle_types::{Error, Result};
use tracing::Instrument as _;

/// Runs `work` in a task of its own. Otherwise, a dropped caller would release the locks of an operation whose thread still
/// runs, and leave it half done.
pub(crate) async fn uninterrupted<T: Send + 'static>(
    what: &'static str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let done = tokio::spawn(Box::pin(work).in_current_span()).await;
    done.unwrap_or_else(|err| Err(Error::Host { what: what.to_owned(), source: std::io::Error::other(err) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_begun_ends_though_nothing_waits_for_it() {
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let (ended, has_ended) = tokio::sync::oneshot::channel();
        let waiting = tokio::spawn(uninterrupted("work", async {
            begun.send(()).unwrap();
            tokio::task::yield_now().await;
            ended.send(()).unwrap();
            Ok(())
        }));
        has_begun.await.unwrap();
        waiting.abort();
        has_ended.await.unwrap();
    }
}
