//! `prune`: what of ours nothing needs any more.

use coracle_context::arg_types::Seconds;
use coracle_context::config::CrossSession;
use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText, word};
use coracle_context::failure::Failure;
use coracle_context::humanize::bytes;
use coracle_context::recorded;
use coracle_context::removal::removing;
use coracle_images::cache::CachedImageInfo;
use coracle_lifecycle::{ClockReading, Error, PruneItem, PruneKind, PruneScope, prunable};
use coracle_prepare::image_build::cache;
use coracle_prepare::session_tools;
use coracle_runtime::{Image, LabelFilter};
use coracle_types::ImageId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Remove unused resources of Coracle: containers whose session has ended or whose time is over, half-made ones, and
/// unused networks, volumes and images.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct PruneAll {
    /// List what would be removed, and remove nothing. `prune` does no more unless this is false, `cache_clear` unless
    /// it is true.
    dry_run: Option<bool>,
    /// Of `containers`, `networks`, `volumes`, `images`, `snapshots`, `records`, `saved`, `recorded`, `temporary`; all
    /// but `snapshots` unless given.
    #[schemars(with = "Option<Vec<String>>")]
    kinds: Option<Vec<PruneTarget>>,
    /// Only what is older: seconds, or `90s`, `10m`, `24h`, `7d`.
    #[schemars(extend("default" = 0))]
    older_than: Option<Seconds>,
    /// Also containers unused for so long, and their jobs; not persistent ones.
    idle_for: Option<Seconds>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum PruneTarget {
    Containers,
    Networks,
    Volumes,
    Images,
    Snapshots,
    Records,
    Saved,
    Recorded,
    Temporary,
}

const USUAL: [PruneTarget; 8] = [
    PruneTarget::Containers,
    PruneTarget::Networks,
    PruneTarget::Volumes,
    PruneTarget::Images,
    PruneTarget::Records,
    PruneTarget::Saved,
    PruneTarget::Recorded,
    PruneTarget::Temporary,
];

/// The answer.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct PruneResponse {
    dry_run: bool,
    items: Vec<PrunedItem>,
    reclaimed_bytes: u64,
    kept: Vec<KeptItem>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct PrunedItem {
    #[schemars(with = "String")]
    kind: PruneTarget,
    name: String,
    id: Option<String>,
    reason: String,
    bytes: Option<u64>,
    removed: bool,
    error: Option<String>,
}

#[derive(Debug, JsonSchema, Serialize)]
struct KeptItem {
    #[schemars(with = "String")]
    kind: PruneTarget,
    name: String,
    id: Option<String>,
    reason: String,
}

impl Operation for PruneAll {
    const NAME: &'static str = "prune";
    const EFFECT: Effect = Effect::Irreversible;
    const RESULT: fn() -> Value = result_schema::<PruneResponse>;
    type Response = PruneResponse;

    async fn run(self, cx: &Context) -> Result<PruneResponse, Failure> {
        let mut pruning = PruneRun {
            cx,
            kinds: self.kinds.unwrap_or_else(|| USUAL.to_vec()),
            older_than: self.older_than.unwrap_or(Seconds::new(0)),
            idle_for: self.idle_for,
            answer: PruneResponse {
                dry_run: self.dry_run.unwrap_or(true),
                items: Vec::new(),
                reclaimed_bytes: 0,
                kept: Vec::new(),
            },
        };
        pruning.things().await?;
        pruning.images().await?;
        pruning.saved()?;
        pruning.recorded()?;
        Ok(pruning.answer)
    }
}

struct PruneRun<'a> {
    cx: &'a Context,
    kinds: Vec<PruneTarget>,
    older_than: Seconds,
    idle_for: Option<Seconds>,
    answer: PruneResponse,
}

impl PruneRun<'_> {
    fn wants(&self, kind: PruneTarget) -> bool {
        self.kinds.contains(&kind)
    }

    fn is_young(&self, made: Option<Timestamp>) -> bool {
        let Some(made) = made.filter(|_| !self.older_than.0.is_zero()) else { return false };
        let age: std::time::Duration = Timestamp::now().duration_since(made).try_into().unwrap_or_default();
        self.older_than.0 > age
    }

    fn keep(&mut self, kind: PruneTarget, name: String, id: Option<String>, reason: impl Into<String>) {
        self.answer.kept.push(KeptItem { kind, name, id, reason: reason.into() });
    }

    fn report(&mut self, item: PrunedItem) {
        if item.removed || (self.answer.dry_run && item.error.is_none()) {
            self.answer.reclaimed_bytes += item.bytes.unwrap_or(0);
        }
        self.answer.items.push(item);
    }

    /// All but images.
    async fn things(&mut self) -> Result<(), Failure> {
        let cx = self.cx;
        let (store, terms) = (cx.store()?, cx.config.lifecycle.terms());
        let kinds: Vec<_> = PruneKind::ALL.into_iter().filter(|it| self.wants(kind(*it))).collect();
        let temp_dirs = [cx.host.temp_dir.clone(), cx.state()?.scratch()];
        let now = ClockReading::now();
        let scope = PruneScope {
            kinds: &kinds,
            terms: &terms,
            idle_for: self.idle_for.map(|time| time.0),
            now: &now,
            temp_dirs: &temp_dirs,
        };
        let (removing, observer) = (removing(cx, false, false)?, cx.slot_observer());
        let reader = match self.answer.dry_run {
            true => None,
            false => session_tools::volume_reader(cx, &cx.session_containers()?).await,
        };
        let reader = reader.as_ref().map(|(program, policy)| (program, policy));
        let found = prunable(cx.engines(), &store, cx.links(), &scope).await?;
        let kept: Vec<_> = found.retained.into_iter().filter(|it| self.sees(it)).collect();
        for it in kept {
            self.keep(kind(it.kind), it.name, it.id, it.reason);
        }
        for it in found.candidates {
            if !self.may(&it) {
                if self.sees(&it) {
                    let session = it.session.unwrap_or_default();
                    self.keep(kind(it.kind), it.name, it.id, format!("it belongs to session `{session}`"));
                }
                continue;
            }
            if self.is_young(it.made) {
                self.keep(kind(it.kind), it.name, it.id, format!("it is younger than {}", self.older_than));
                continue;
            }
            let removed = match self.answer.dry_run {
                true => None,
                false => Some(it.remove(cx.engines(), &store, &removing, reader, &*observer).await),
            };
            let (kind, done) = (kind(it.kind), matches!(removed, Some(Ok(()))));
            let error = removed.and_then(Result::err).map(|err: Error| Failure::from(err).into_inner().message);
            let PruneItem { name, id, reason, bytes, .. } = it;
            self.report(PrunedItem { kind, name, id, reason, bytes, removed: done, error });
        }
        Ok(())
    }

    /// Whether this session may know of it.
    fn sees(&self, it: &PruneItem) -> bool {
        let own = it.session.as_deref().is_none_or(|session| session == self.cx.call.session.as_str());
        own || self.cx.cross_session() != CrossSession::None
    }

    /// What a session that lives has is its own to remove.
    fn may(&self, it: &PruneItem) -> bool {
        let own = it.session.as_deref().is_none_or(|session| session == self.cx.call.session.as_str());
        own || self.cx.cross_session() == CrossSession::All
    }

    /// Saved work and records of requests of before that time are older than the user wants.
    fn retained_from(&self) -> Timestamp {
        let keep = self.cx.config.lifecycle.save_keep.0.max(self.older_than.0);
        let before = jiff::SignedDuration::try_from(keep).ok().and_then(|it| Timestamp::now().checked_sub(it).ok());
        before.unwrap_or(Timestamp::MIN)
    }

    /// Records of requests that no container writes or replays.
    fn recorded(&mut self) -> Result<(), Failure> {
        if !self.wants(PruneTarget::Recorded) {
            return Ok(());
        }
        let unused = recorded::unused_before(self.cx, self.retained_from())?;
        let sized = unused.into_iter().map(|it| (it.bytes(), it));
        for (bytes, record) in sized.collect::<Vec<_>>() {
            let name = format!("{}/{}", record.container, record.id);
            let removed = !self.answer.dry_run && !recorded::remove(vec![record]).is_empty();
            self.report(PrunedItem {
                kind: PruneTarget::Recorded,
                name,
                id: None,
                reason: "it is older than `lifecycle.save_keep`".to_owned(),
                bytes: Some(bytes),
                removed,
                error: None,
            });
        }
        Ok(())
    }

    /// What was saved of containers and is older than the user wants.
    fn saved(&mut self) -> Result<(), Failure> {
        if !self.wants(PruneTarget::Saved) {
            return Ok(());
        }
        let (store, before) = (self.cx.store()?, self.retained_from());
        let dry_run = self.answer.dry_run;
        let saves = if dry_run { store.saves_before(before) } else { store.forget_saved(before) };
        for it in saves.map_err(Error::from)? {
            self.report(PrunedItem {
                kind: PruneTarget::Saved,
                name: format!("{}/{}", it.name, it.time),
                id: None,
                reason: "it is older than `lifecycle.save_keep`".to_owned(),
                bytes: Some(it.manifest.bytes()),
                removed: !dry_run,
                error: None,
            });
        }
        Ok(())
    }

    /// Of cached images those that another one has taken the name of; of snapshots those that no container is made of.
    async fn images(&mut self) -> Result<(), Failure> {
        let runtime = self.cx.runtime().await?;
        if self.wants(PruneTarget::Images) {
            for it in cache(self.cx, &self.cx.store()?)?.list(&*runtime).await? {
                let nameless = it.image.as_str() == it.image_id.as_str();
                let CachedImageInfo { image, image_id, size_bytes, created, in_use, .. } = it;
                let stays = match (in_use, nameless) {
                    (true, _) => Ok("a container is made of it"),
                    (false, false) => Ok("the next container may be made of it"),
                    (false, true) => Err("another one has taken its name"),
                };
                self.image(PruneTarget::Images, (image.to_string(), image_id, size_bytes, created), stays).await?;
            }
        }
        if self.wants(PruneTarget::Snapshots) {
            for (image, in_use) in self.snapshots().await? {
                let name = image.tags.first().cloned().unwrap_or_else(|| image.id.to_string());
                let stays = if in_use { Ok("a container is made of it") } else { Err("no container is made of it") };
                self.image(PruneTarget::Snapshots, (name, image.id, image.size_bytes, image.created), stays).await?;
            }
        }
        Ok(())
    }

    /// Coracle's snapshots, and whether a container of each exists.
    async fn snapshots(&self) -> Result<Vec<(Image, bool)>, Failure> {
        let (runtime, store) = (self.cx.runtime().await?, self.cx.store()?);
        let signer = store.signer();
        let filter = LabelFilter(vec![(signer.key("kind"), Some("snapshot".to_owned()))]);
        let mut images = runtime.list_images(&filter).await?;
        images.retain(|it| signer.verify(runtime.kind(), &it.labels));
        let users = runtime.list(&LabelFilter::default()).await?;
        Ok(images
            .into_iter()
            .map(|it| (users.iter().any(|user| user.image == it.id), it))
            .map(|it| (it.1, it.0))
            .collect())
    }

    async fn image(
        &mut self,
        kind: PruneTarget,
        (name, id, size, created): (String, ImageId, u64, String),
        stays: Result<&str, &str>,
    ) -> Result<(), Failure> {
        let reason = match stays {
            Ok(why) => {
                self.keep(kind, name, Some(id.to_string()), why);
                return Ok(());
            }
            Err(why) => why.to_owned(),
        };
        if self.is_young(created.parse().ok()) {
            self.keep(kind, name, Some(id.to_string()), format!("it is younger than {}", self.older_than));
            return Ok(());
        }
        let (mut removed, mut error) = (false, None);
        if !self.answer.dry_run {
            match self.cx.runtime().await?.remove_image(&id).await {
                Ok(_) => removed = true,
                Err(err) => error = Some(Failure::from(err).into_inner().message),
            }
        }
        self.report(PrunedItem { kind, name, id: Some(id.to_string()), reason, bytes: Some(size), removed, error });
        Ok(())
    }
}

fn kind(it: PruneKind) -> PruneTarget {
    match it {
        PruneKind::Containers => PruneTarget::Containers,
        PruneKind::Networks => PruneTarget::Networks,
        PruneKind::Volumes => PruneTarget::Volumes,
        PruneKind::Records => PruneTarget::Records,
        PruneKind::Temporary => PruneTarget::Temporary,
    }
}

const COLUMNS: [Column; 4] =
    [Column::fixed("KIND"), Column::flexible("NAME"), Column::fixed("SIZE").or_left_out(1), Column::flexible("WHY")];

impl Render for PruneResponse {
    fn render(&self, _: Timestamp) -> Document {
        let kept = match self.kept.len() {
            0 => String::new(),
            kept => format!("; {kept} kept, `--json` says why"),
        };
        if self.items.is_empty() {
            return Document::line(format!("nothing to prune{kept}")).timed_at_the_end();
        }
        let row = |it: &PrunedItem| {
            let reason = match &it.error {
                None => it.reason.as_str().into(),
                Some(error) => StyledText::new().bad("stays").plain(format!(": {error}")),
            };
            let size = it.bytes.map(bytes).unwrap_or_default();
            vec![word(it.kind).into(), it.name.as_str().into(), size.into(), reason]
        };
        let freed = bytes(self.reclaimed_bytes);
        let total = match self.dry_run {
            true => format!("{freed} would be freed{kept}; `--dry-run=false` removes it"),
            false => format!("{freed} freed{kept}"),
        };
        Document::table(&COLUMNS, self.items.iter().map(row).collect()).then(total).timed_at_the_end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_resources_are_a_table_with_reasons() {
        let item = |kind, bytes, error: Option<&str>| PrunedItem {
            kind,
            name: "x".into(),
            id: None,
            reason: "it is unused".into(),
            bytes,
            removed: false,
            error: error.map(str::to_owned),
        };
        let items = vec![
            item(PruneTarget::Containers, Some(1 << 20), None),
            item(PruneTarget::Networks, None, Some("it is used")),
        ];
        let kept = vec![KeptItem { kind: PruneTarget::Images, name: String::new(), id: None, reason: String::new() }];
        let pruned = PruneResponse { dry_run: true, items, reclaimed_bytes: 1 << 20, kept };
        insta::assert_snapshot!(coracle_context::document::rendered(&pruned, "2026-11-21T12:30:00Z"), @r"
        KIND        NAME  SIZE   WHY
        containers  x     1 MiB  it is unused
        networks    x            stays: it is used
        1 MiB would be freed; 1 kept, `--json` says why; `--dry-run=false` removes it
        ");
        let none = PruneResponse { dry_run: true, items: vec![], reclaimed_bytes: 0, kept: vec![] };
        assert_eq!(coracle_context::document::rendered(&none, "2026-11-21T12:30:00Z"), "nothing to prune");
    }
}
