//! Downloads blobs to files, and resumes interrupted transfers.

use std::time::Duration;

use coracle_archive::oci::{Descriptor, ImageError};
use hyper::StatusCode;
use hyper::header::{CONTENT_LENGTH, CONTENT_RANGE};

use super::client::{RegistryRequest, RegistryResponse, RepositoryClient};
use crate::source::{BlobWriter, LayerBlob, Result, Scratch, SourceError};

/// How often a transfer is resumed without progress.
const MAX_RESUMES: u32 = 3;

/// The pause before a transfer is resumed. It is multiplied by the number of the attempt.
const PAUSE: Duration = Duration::from_millis(200);

/// How a transfer ended.
enum TransferEnd {
    Complete,
    /// It was interrupted, for this reason.
    Cut(String),
    /// The blob could not be written.
    DiskFailed,
}

/// Downloads a blob to a nameless file in `scratch`.
///
/// # Errors
/// [`SourceError::CutTransfer`] after several attempts without progress, [`SourceError::Image`], and those of the
/// request.
pub(super) async fn download(client: &RepositoryClient, blob: &Descriptor, scratch: &Scratch) -> Result<LayerBlob> {
    let mut writer = BlobWriter::begin(scratch.clone());
    let (mut attempts, mut is_first) = (0, true);
    loop {
        attempts += 1;
        let before = writer.size();
        let reason = match transfer(client, blob, &mut writer).await {
            Ok(TransferEnd::Complete | TransferEnd::DiskFailed) => return writer.finish().await?.check(blob),
            Ok(TransferEnd::Cut(reason)) => reason,
            // If the first request fails, its error is returned. If a later one fails, the network may return.
            Err(err @ (SourceError::Unreachable { .. } | SourceError::Silent { .. })) if !is_first => err.to_string(),
            Err(err) => return Err(err),
        };
        is_first = false;
        if writer.size() > before {
            attempts = 1;
        }
        if attempts > MAX_RESUMES {
            let (host, what) = (client.name.registry.clone(), format!("layer {}", blob.digest));
            return Err(SourceError::CutTransfer { host, what, attempts, reason });
        }
        tracing::debug!(registry = %client.name.registry, digest = %blob.digest, reason, "resume a transfer");
        tokio::time::sleep(PAUSE * attempts).await;
    }
}

async fn transfer(client: &RepositoryClient, blob: &Descriptor, writer: &mut BlobWriter) -> Result<TransferEnd> {
    let from = writer.size();
    let request = RegistryRequest { kind: "blobs", reference: blob.digest.as_str(), accept: None, from };
    let response = client.get(&request).await?;
    let begins = begin_of(&response, from)?;
    check_length(&response, blob, begins)?;
    let RegistryResponse { mut body, http, .. } = response;
    // A server without range requests starts from the beginning, so what is already written is skipped.
    let mut skip = from - begins;
    loop {
        let mut part = match http.next_part(&mut body).await {
            Ok(Some(part)) => part,
            Ok(None) if writer.size() == blob.size => return Ok(TransferEnd::Complete),
            Ok(None) => return Ok(TransferEnd::Cut("it ended early".into())),
            Err(err) => return Ok(TransferEnd::Cut(err.to_string())),
        };
        let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(part.len());
        skip -= skipped as u64;
        let part = part.split_off(skipped);
        let found = writer.size() + part.len() as u64;
        if found > blob.size {
            return Err(wrong_size(blob, found));
        }
        if !part.is_empty() && !writer.push(part).await {
            return Ok(TransferEnd::DiskFailed);
        }
    }
}

/// The offset at which a response begins.
fn begin_of(response: &RegistryResponse, from: u64) -> Result<u64> {
    if response.status != StatusCode::PARTIAL_CONTENT {
        return Ok(0);
    }
    let range = response.headers.get(CONTENT_RANGE).and_then(|it| it.to_str().ok());
    let begin = range.and_then(|it| it.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok());
    match begin {
        Some(begin) if begin <= from => Ok(begin),
        _ => Err(SourceError::malformed("transfer", &"its range is not the requested one")),
    }
}

/// Refuses a response whose `Content-Length` does not match the missing part.
fn check_length(response: &RegistryResponse, blob: &Descriptor, begins: u64) -> Result<()> {
    let length = response.headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
    match length {
        Some(length) if begins.saturating_add(length) != blob.size => {
            let found = begins.saturating_add(length);
            Err(wrong_size(blob, found))
        }
        _ => Ok(()),
    }
}

fn wrong_size(blob: &Descriptor, found: u64) -> SourceError {
    ImageError::WrongSize { what: format!("layer {}", blob.digest), expected: blob.size, found }.into()
}
