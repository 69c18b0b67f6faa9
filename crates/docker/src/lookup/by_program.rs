//! Reads by the engine's program.

use std::time::Duration;

use coracle_engine_program::{EngineProgram, deadline};
use coracle_host::process::ProgramOutput;
use coracle_runtime::{Container, EngineInfo, Image, LabelFilter, Network, Volume};
use coracle_types::{ContainerId, Error, Handle, Result};

use super::super::args::{self, EngineArgs};
use super::super::dialect::Dialect;
use super::super::read;
use super::super::transient::{is_listed_object_gone, retry};

/// Inspect calls take many ids, and argument lists have an end.
const INSPECT_AT_ONCE: usize = 100;

/// Number of containers that are inspected in the time of another program start.
const MAX_SINGLE_CALL: usize = 32;

/// How often a list is retried while images are being removed.
const ATTEMPTS: usize = 5;

/// Time for a removal to end that is under way.
const REMOVAL_INTERVAL: Duration = Duration::from_millis(100);

/// Whether Podman tells of no container since one of them was removed only in part: it is in the list of all, and its storage
/// is gone. So it is for a moment in each removal, and from then on after a `podman rm` that was killed.
fn is_half_removed(ended: &ProgramOutput) -> bool {
    is_silent(&ended.stdout.bytes()) && ended.stderr.text().contains("container not known")
}

#[derive(Debug)]
pub(super) struct ProgramLookup {
    dialect: Dialect,
    client: EngineProgram,
}

impl ProgramLookup {
    pub(super) fn new(dialect: Dialect, client: EngineProgram) -> Self {
        Self { dialect, client }
    }

    pub(super) fn dialect(&self) -> Dialect {
        self.dialect
    }

    pub(super) fn endpoint(&self) -> &str {
        self.client.endpoint()
    }

    pub(super) async fn container(&self, handle: &Handle) -> Result<Option<Container>> {
        let words = args::inspect(handle.as_str());
        let ended = self.client.run("inspect", words, deadline::READ).await?;
        if ended.ok() {
            return read::container_of(handle, &ended.stdout.bytes());
        }
        if is_half_removed(&ended) {
            // As in a list. Its removal by its id ends what is left of it.
            return Ok(None);
        }
        // Exit code and text of a failed call do not show whether it is missing.
        if self.ids_of(handle).await?.is_empty() {
            return Ok(None);
        }
        Err(self.client.failed("inspect", &ended))
    }

    pub(super) async fn ids_of(&self, handle: &Handle) -> Result<Vec<String>> {
        self.ids("ps", args::ids_of(handle), deadline::READ).await
    }

    pub(super) async fn container_ids(&self, filter: &LabelFilter) -> Result<Vec<String>> {
        self.ids("ps", args::with_labels(args::ids(), filter), deadline::READ).await
    }

    /// The program inspects one after the other, so two programs take half as long for many.
    pub(super) async fn containers(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        let ids = self.container_ids(filter).await?;
        let mut found = Vec::with_capacity(ids.len());
        for some in ids.chunks(2 * INSPECT_AT_ONCE) {
            let (one, other) = some.split_at(if some.len() > MAX_SINGLE_CALL { some.len() / 2 } else { some.len() });
            let (one, other) = tokio::try_join!(self.inspect_some(one), self.inspect_some(other))?;
            found.extend(one.into_iter().chain(other));
        }
        Ok(found)
    }

    async fn inspect_some(&self, ids: &[String]) -> Result<Vec<Container>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ended = self.client.run("inspect", args::on("container inspect", ids), deadline::READ).await?;
        if ended.ok() || !is_half_removed(&ended) {
            // A container that was removed concurrently makes the exit status 1; the others are listed all the same.
            return read::containers(&ended.stdout.bytes());
        }
        let [id] = ids else {
            let (one, other) = ids.split_at(ids.len() / 2);
            let (one, other) = (Box::pin(self.inspect_some(one)).await?, Box::pin(self.inspect_some(other)).await?);
            return Ok(one.into_iter().chain(other).collect());
        };
        tokio::time::sleep(REMOVAL_INTERVAL).await;
        let ended = self.client.run("inspect", args::inspect(id), deadline::READ).await?;
        if is_half_removed(&ended) {
            tracing::warn!(
                "a container is left out, since its removal was broken off: `podman rm --force {id}` ends it"
            );
            return Ok(Vec::new());
        }
        read::containers(&ended.stdout.bytes())
    }

    pub(super) async fn wanted_ports(&self, id: &ContainerId) -> Result<Vec<u16>> {
        let words = args::on("container inspect", [id.as_str()]);
        read::wanted_ports(&self.client.query("inspect", words, deadline::READ).await?.stdout.bytes())
    }

    pub(super) async fn written_bytes(&self, id: &ContainerId) -> Result<Option<u64>> {
        read::written_bytes(&self.client.query("inspect", args::sized(id), deadline::SIZE).await?.stdout.bytes())
    }

    pub(super) async fn images(&self, names: &[String]) -> Result<Vec<Image>> {
        let look = || self.client.run("image inspect", args::on("image inspect", names), deadline::READ);
        let tells_none = |it: &ProgramOutput| !it.ok() && is_silent(&it.stdout.bytes());
        let mut ended = look().await?;
        if self.dialect == Dialect::Podman && names.len() > 1 && tells_none(&ended) {
            // The list is empty if one of them is removed at that moment. On the second try that one is missing, and
            // the others are listed.
            ended = look().await?;
        }
        if tells_none(&ended) {
            // The image does not exist, or the engine does not respond: the engine's own list distinguishes the two.
            // The filter by a nonexistent name keeps that list short.
            self.image_ids(EngineArgs::verb("image ls --quiet --filter=reference=none")).await?;
            return Ok(Vec::new());
        }
        read::images(&ended.stdout.bytes())
    }

    pub(super) async fn images_with(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        let words = args::with_labels(EngineArgs::verb("image ls --quiet --no-trunc"), filter);
        let mut ids = self.image_ids(words).await?;
        ids.sort();
        ids.dedup();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        self.images(&ids).await
    }

    /// Podman fails to list images while one of them is being removed: a read is retried.
    async fn image_ids(&self, words: EngineArgs) -> Result<Vec<String>> {
        for _ in 1..ATTEMPTS {
            match self.ids("image ls", words.clone(), deadline::READ).await {
                Err(Error::Engine { .. }) => tokio::time::sleep(Duration::from_millis(50)).await,
                other => return other,
            }
        }
        self.ids("image ls", words, deadline::READ).await
    }

    pub(super) async fn networks(&self, names: &[String]) -> Result<Vec<Network>> {
        let ended = self.client.run("network inspect", args::on("network inspect", names), deadline::NETWORK).await?;
        if !ended.ok() && is_silent(&ended.stdout.bytes()) {
            self.client.query("network ls", EngineArgs::verb("network ls --quiet"), deadline::NETWORK).await?;
            return Ok(Vec::new());
        }
        read::networks(&ended.stdout.bytes())
    }

    pub(super) async fn networks_with(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        let words = args::with_labels(EngineArgs::verb("network ls --quiet --no-trunc"), filter);
        match self.ids("network ls", words, deadline::NETWORK).await?[..] {
            [] => Ok(Vec::new()),
            ref ids => self.networks(ids).await,
        }
    }

    pub(super) async fn volumes(&self, names: &[String]) -> Result<Vec<Volume>> {
        let ended = self.client.run("volume inspect", args::on("volume inspect", names), deadline::READ).await?;
        if !ended.ok() && is_silent(&ended.stdout.bytes()) {
            self.client.query("volume ls", EngineArgs::verb("volume ls --quiet"), deadline::READ).await?;
            return Ok(Vec::new());
        }
        read::volumes(&ended.stdout.bytes())
    }

    pub(super) async fn volumes_with(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        let words = args::with_labels(EngineArgs::verb("volume ls --quiet"), filter);
        match self.ids("volume ls", words, deadline::READ).await?[..] {
            [] => Ok(Vec::new()),
            ref names => self.volumes(names).await,
        }
    }

    pub(super) async fn info(&self) -> Result<EngineInfo> {
        let format = if self.dialect == Dialect::Docker { "--format={{json .}}" } else { "--format=json" };
        let words = EngineArgs::verb("info").word(format);
        let ended = self.client.run("info", words, deadline::READ).await?;
        let info = read::info(self.dialect, &ended.stdout.bytes(), self.client.endpoint());
        // `docker info` without a daemon exits 0 in some versions, with an answer that lacks the server's half.
        info.map_err(|_| self.client.unavailable(&ended))
    }

    async fn ids(&self, verb: &'static str, words: EngineArgs, within: Duration) -> Result<Vec<String>> {
        let list = || self.client.query(verb, words.clone(), within);
        Ok(read::ids(&retry(list, is_listed_object_gone).await?.stdout.bytes()))
    }
}

/// Whether the output is that of an engine that found nothing: empty or `[]`.
fn is_silent(output: &[u8]) -> bool {
    matches!(output.trim_ascii(), b"" | b"[]")
}
