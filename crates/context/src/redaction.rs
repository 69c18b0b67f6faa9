//! Redacts live secrets from the output of commands, if configured (`exec.redact`).
//!
//! It prevents accidental leaks. A command that means to reveal a secret can always encode it in another way.

use std::collections::BTreeMap;

use coracle_client::Link;
use coracle_jobs::{Format, MAX_PAGE, Page, PageRequest, Position, StreamSelector};
use coracle_lifecycle::{Record, guided_session};
use coracle_provision::env::is_plain;
use coracle_runtime::ExecTarget;
use coracle_types::{Chunk, Command, EngineKind, Exit, JobId, Redactor, Secret, Stream};
use tokio::sync::mpsc;

use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::session_env;

/// The path of the guest's own program.
const GUEST: &str = "/.coracle/guest";

/// Maximum size of the variables: a session has at most 1 MiB, and the start and end of each is retained.
const MAX_SESSION: usize = 4 << 20;

/// Number of buffered chunks.
const CHUNKS: usize = 8;

/// Returns the redactor for commands in that container, which also get `given`. Fails if the secrets are not known:
/// then no command may run.
pub async fn redactor(
    cx: &Context,
    record: &Record,
    inside: &ExecTarget,
    given: &BTreeMap<String, String>,
) -> Result<Redactor, Failure> {
    // A container without a guest has no live secret.
    let ExecTarget::Guest(link) = inside else { return Ok(Redactor::default()) };
    of_link(cx, record, link, given).await
}

/// Returns the redactor, over a link.
pub async fn of_link(
    cx: &Context,
    record: &Record,
    link: &Link,
    given: &BTreeMap<String, String>,
) -> Result<Redactor, Failure> {
    if !cx.config.exec.redact {
        return Ok(Redactor::default());
    }
    let live = session_env::live(cx, record).await;
    let of_host = live.variables.iter().filter_map(|it| Some((it.clone(), cx.host.env.get(it.as_str())?.clone())));
    let mut secrets: Vec<(String, Secret)> = of_host.collect();
    let inside = variables(record, link).await?;
    let held = |(name, _): &(String, String)| live.variables.contains(name);
    secrets.extend(inside.into_iter().filter(held).map(|(name, value)| (name, Secret::from(value))));
    let secret = |name: &&String| !is_plain(name, "", std::iter::empty());
    secrets.extend(given.keys().filter(secret).map(|name| (name.clone(), Secret::from(given[name].clone()))));
    secrets.extend(live.values.into_iter().map(|it| ("file".to_owned(), it)));
    Ok(Redactor::new(secrets))
}

/// Returns the session's variables. Only the guest knows the values of `env` and of tokens.
async fn variables(record: &Record, link: &Link) -> Result<Vec<(String, String)>, Failure> {
    let words = [GUEST, "env"].map(str::to_owned);
    let mut exec = guided_session(record, false)?.exec(Command::Argv(words.into()));
    exec.keep_bytes = MAX_SESSION;
    let output = link.exec(exec).await?;
    match output.exit {
        Exit::Code(0) => {}
        // A fake guest has no program.
        _ if record.engine == EngineKind::Fake => return Ok(Vec::new()),
        _ => {
            let message = "the guest does not report the secrets to redact";
            return Err(Failure::new(Code::GuestFailed, message).hint("`destroy` the container and `create` another"));
        }
    }
    let bytes = output.stdout.bytes();
    let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
    let pair = |it: &[u8]| text(it).split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    Ok(bytes.split(|it| *it == 0).filter_map(pair).collect())
}

/// Redacts output while it is printed.
pub fn live(listener: Option<mpsc::Sender<Chunk>>, redactor: &Redactor) -> Option<mpsc::Sender<Chunk>> {
    let listener = listener?;
    if redactor.is_empty() {
        return Some(listener);
    }
    let (sender, mut chunks) = mpsc::channel::<Chunk>(CHUNKS);
    let mut sieves = [Stream::Stdout, Stream::Stderr].map(|stream| (stream, redactor.sieve(), 0));
    tokio::spawn(async move {
        while let Some(Chunk { stream, bytes, offset }) = chunks.recv().await {
            let Some((_, sieve, end)) = sieves.iter_mut().find(|it| it.0 == stream) else { continue };
            *end = offset.saturating_add(bytes.len() as u64);
            let bytes = sieve.push(&bytes);
            if !bytes.is_empty() && listener.send(Chunk { stream, bytes, offset }).await.is_err() {
                return;
            }
        }
        for (stream, sieve, offset) in sieves {
            let bytes = sieve.end();
            if !bytes.is_empty() && listener.send(Chunk { stream, bytes, offset }).await.is_err() {
                return;
            }
        }
    });
    Some(sender)
}

/// Redacts output that begins in the middle and may continue.
pub fn clean(redactor: &Redactor, bytes: &[u8]) -> Vec<u8> {
    let from = redactor.left_over(bytes);
    let to = (bytes.len() - redactor.unfinished(bytes)).max(from);
    redactor.clean_between(&[], &bytes[from..to], &[])
}

/// Redacts a text.
pub fn clean_text(redactor: &Redactor, bytes: &[u8]) -> String {
    if redactor.is_empty() {
        return String::from_utf8_lossy(bytes).into_owned();
    }
    String::from_utf8_lossy(&clean(redactor, bytes)).into_owned()
}

/// One stream of a job's output.
#[derive(Clone, Copy, Debug)]
pub struct JobStream<'a> {
    pub job: &'a JobId,
    pub part: StreamSelector,
}

/// Returns a redacted page of a job's output. The bytes around it are read too, since a value may begin or end there.
pub async fn page(
    redactor: &Redactor,
    link: &Link,
    JobStream { job, part }: JobStream<'_>,
    mut page: Page,
) -> Result<Page, Failure> {
    let margin = (redactor.longest().saturating_sub(1) as u64).min(MAX_PAGE);
    if margin == 0 || page.bytes.is_empty() {
        return Ok(page);
    }
    let piece = async |from: u64, limit: u64| -> Result<Vec<u8>, Failure> {
        let from = Position::Offset(i64::try_from(from).unwrap_or(i64::MAX));
        let page_request = PageRequest { job: job.clone(), part, from, limit, format: Format::Bytes };
        Ok(coracle_jobs::read(link, page_request).await?.bytes)
    };
    let begin = page.offset.saturating_sub(margin).max(page.first);
    let before = if begin < page.offset { piece(begin, page.offset - begin).await? } else { Vec::new() };
    let after = if page.next < page.total { piece(page.next, margin).await? } else { Vec::new() };
    page.bytes = redactor.clean_between(&before, &page.bytes, &after);
    Ok(page)
}
