//! `copy_in` and `copy_out`: two directions of one act.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_archive::transfer::SkippedEntry;
use coracle_context::arg_types::Name;
use coracle_context::context::Context;
use coracle_context::document::{Document, Render, StyledText, Symbol};
use coracle_context::failure::Failure;
use coracle_context::git_programs;
use coracle_context::humanize::{bytes, count};
use coracle_context::progress::Amount;
use coracle_host::fs::HostPath;
use coracle_lifecycle::{CopyAmount, CopyMeter, CopyReport, CopyRequest, copy_in, copy_out};
use coracle_prepare::resolve::{container_path, copy_request, copyable, host_path};
use coracle_types::{ContainerPath, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::shapes::SkippedShape;
use crate::target::reach_running;

/// How often a copy tells how far it is.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Copy a file or directory of the host into a container.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CopyIn {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Path on the host: absolute, `~/…`, or relative to the working directory. It lies beneath a directory that the
    /// user allows.
    host_path: String,
    /// Path in the container: absolute, `~/…`, or relative to its `workdir`.
    container_path: String,
    /// Replace files that exist.
    #[schemars(extend("default" = true))]
    overwrite: Option<bool>,
}

/// Copy a file or directory of a container to the host.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct CopyOut {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// Path in the container: absolute, `~/…`, or relative to its `workdir`.
    container_path: String,
    /// Path on the host: absolute, `~/…`, or relative to the working directory. It lies beneath a directory that the
    /// user allows.
    host_path: String,
    /// Replace files that exist.
    #[schemars(extend("default" = true))]
    overwrite: Option<bool>,
}

/// The answer of both.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct CopyResponse {
    detail: &'static str,
    files: u64,
    dirs: u64,
    bytes: u64,
    #[schemars(with = "Vec<SkippedShape>")]
    skipped: Vec<SkippedEntry>,
    #[schemars(with = "String")]
    host_path: PathBuf,
    #[schemars(with = "String")]
    container_path: ContainerPath,
    /// The container, as the caller named it.
    #[serde(skip)]
    container: Handle,
    #[serde(skip)]
    direction: Direction,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

impl Operation for CopyIn {
    const NAME: &'static str = "copy_in";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<CopyResponse>;
    type Response = CopyResponse;

    async fn run(self, cx: &Context) -> Result<CopyResponse, Failure> {
        let host = copyable(&host_path(&self.host_path, cx), cx)?;
        let mut found = reach_running(cx, &self.container).await?;
        let container = container_path(&self.container_path, &found.record)?;
        let into_directory = self.container_path.ends_with('/');
        let overwrite = self.overwrite.unwrap_or(true);
        let request = CopyRequest { into_directory, overwrite, ..copy_request(cx, host, container)? };
        let meter = request.meter.clone();
        let inside = cx.links().inside(&cx.store()?, &mut found).await?;
        let copied = Box::pin(metered(cx, &meter, copy_in(&found, &inside, request))).await?;
        Ok(response(copied, self.container, Direction::In))
    }
}

impl Operation for CopyOut {
    const NAME: &'static str = "copy_out";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<CopyResponse>;
    type Response = CopyResponse;

    async fn run(self, cx: &Context) -> Result<CopyResponse, Failure> {
        let (host, host_name) = target(&self.host_path, cx)?;
        let mut found = reach_running(cx, &self.container).await?;
        let container = container_path(&self.container_path, &found.record)?;
        if container.file_name().is_empty() {
            return Err(Failure::invalid("container_path", "the whole container cannot be copied"));
        }
        let overwrite = self.overwrite.unwrap_or(true);
        let protected = git_programs::protected(cx, [host.real()]).await;
        let request = CopyRequest { host_name, overwrite, protected, ..copy_request(cx, host, container)? };
        let meter = request.meter.clone();
        let inside = cx.links().inside(&cx.store()?, &mut found).await?;
        let copied = Box::pin(metered(cx, &meter, copy_out(&found, &inside, request))).await?;
        Ok(response(copied, self.container, Direction::Out))
    }
}

/// Reports the progress of a copy. A cancelled copy does not replace its target, unless the replacement has begun.
async fn metered(
    cx: &Context,
    meter: &CopyMeter,
    copy: impl Future<Output = coracle_lifecycle::Result<CopyReport>>,
) -> Result<CopyReport, Failure> {
    let copied = async { Ok(reporting(cx, meter, copy).await?) };
    cx.unless_cancelled(copied).await
}

async fn reporting<T>(cx: &Context, meter: &CopyMeter, copy: impl Future<Output = T>) -> T {
    let mut copy = std::pin::pin!(copy);
    let mut ticks = interval_at(Instant::now() + REPORT_INTERVAL, REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            done = &mut copy => return done,
            _ = ticks.tick() => if let Some(CopyAmount { bytes, total }) = meter.read() {
                let done_what = if total.is_some() { "copied" } else { "read" };
                cx.call.progress.amount(Amount { done_what, done: bytes, total });
            },
        }
    }
}

fn response(copied: CopyReport, container: Handle, direction: Direction) -> CopyResponse {
    let moved = copied.moved;
    CopyResponse {
        detail: "Copied",
        files: moved.files,
        dirs: moved.dirs,
        bytes: moved.bytes,
        skipped: moved.skipped,
        host_path: copied.host_path,
        container_path: copied.container_path,
        container,
        direction,
    }
}

/// The existing directory that is copied into, and the new name in it, if one is given.
fn target(text: &str, cx: &Context) -> Result<(HostPath, Option<String>), Failure> {
    let path = host_path(text, cx);
    if text.ends_with('/') || path.is_dir() {
        return Ok((copyable(&path, cx)?, None));
    }
    let name = path.file_name().and_then(|it| it.to_str()).map(str::to_owned);
    let parent = path.parent().unwrap_or(Path::new("/"));
    match name {
        Some(_) => Ok((copyable(parent, cx)?, name)),
        None => Err(Failure::invalid("host_path", "it names no file")),
    }
}

/// Parts of a copy that are named when they were left out.
const SHOWN: usize = 5;

impl Render for CopyResponse {
    fn render(&self, _: Timestamp) -> Document {
        let inside = format!("{}:{}", self.container, self.container_path);
        let to = match self.direction {
            Direction::In => inside,
            Direction::Out => format!("{} from {inside}", self.host_path.display()),
        };
        let mut what = count(self.files, "file", "files");
        if self.dirs > 0 {
            what = format!("{what} and {}", count(self.dirs, "directory", "directories"));
        }
        let line = format!("copied {what} ({}) to {to}", bytes(self.bytes));
        Document::line(line).and_lines(left_out(&self.skipped)).timed()
    }
}

/// What was not copied: the first few, and how many there are.
fn left_out(skipped: &[SkippedEntry]) -> Vec<StyledText> {
    let line = |words: String| StyledText::new().symbol(Symbol::Partial).plain(words);
    let named = skipped.iter().take(SHOWN).map(|it| line(format!(" left out `{}`: {}", it.path, it.reason)));
    let more = skipped.len().saturating_sub(SHOWN);
    let more = (more > 0).then(|| line(format!(" left out {more} more; `--json` names them all")));
    named.chain(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(direction: Direction) -> CopyResponse {
        CopyResponse {
            detail: "Copied",
            files: 1,
            dirs: 0,
            bytes: 3,
            skipped: Vec::new(),
            host_path: "/h/zz".into(),
            container_path: ContainerPath::parse("/tmp/zz").unwrap(),
            container: Handle::parse("web").unwrap(),
            direction,
        }
    }

    #[test]
    fn copies_say_how_much_and_where() {
        let text = |it: &CopyResponse| coracle_context::document::rendered(it, "2026-11-21T12:30:00Z");
        insta::assert_snapshot!(text(&response(Direction::In)), @"copied 1 file (3 bytes) to web:/tmp/zz");
        let skipped = vec![SkippedEntry { path: "l".into(), reason: "the link leads out of the tree" }];
        let tree = CopyResponse { files: 12, dirs: 2, bytes: 5000, skipped, ..response(Direction::Out) };
        insta::assert_snapshot!(text(&tree), @r"
        copied 12 files and 2 directories (4.9 KiB) to /h/zz from web:/tmp/zz
        ! left out `l`: the link leads out of the tree
        ");
    }

    #[test]
    fn many_that_were_left_out_are_counted() {
        let skipped: Vec<_> = (0..160).map(|it| SkippedEntry { path: format!("l{it}"), reason: "a link" }).collect();
        let lines = left_out(&skipped);
        assert_eq!(lines.len(), 6);
        assert_eq!(lines[5].to_string(), "! left out 155 more; `--json` names them all");
        assert_eq!(left_out(&skipped[..5]).len(), 5);
    }
}
