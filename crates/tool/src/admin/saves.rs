//! `saved`: work that was saved when containers were removed, and how it comes back.

use std::collections::BTreeSet;
use std::path::PathBuf;

use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, StyledText, shell_word};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes, count};
use coracle_context::suggest;
use coracle_context::warning::Warning;
use coracle_lifecycle::{
    Commits, ExecContext, RestoreTarget, RestoredItem, Save, SavedKind, StoreError, guided_session,
    session as plain_session,
};
use coracle_runtime::ExecTarget;
use coracle_types::{ContainerName, ContainerPath, Handle};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::dispatch::{Effect, Operation};
use crate::target::reach_running;

/// List what was saved of containers that are gone.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct ListSaves {
    /// Only of this container.
    name: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ListSavesResponse {
    saves: Vec<SaveRow>,
    count: usize,
}

#[derive(Debug, Serialize)]
struct SaveRow {
    name: String,
    time: String,
    container: ContainerName,
    session: String,
    bytes: u64,
    items: Vec<SavedItemRow>,
    location: PathBuf,
}

#[derive(Debug, Serialize)]
struct SavedItemRow {
    path: ContainerPath,
    kind: SavedKind,
    files: u64,
    bytes: u64,
    left_out: u64,
}

impl Operation for ListSaves {
    const NAME: &'static str = "saved list";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ListSavesResponse;

    async fn run(self, cx: &Context) -> Result<ListSavesResponse, Failure> {
        let name = self.name.map(|it| it.to_ascii_lowercase());
        let (mut saves, newer) = cx.store()?.all_saves()?;
        saves.retain(|it| name.as_ref().is_none_or(|name| *name == it.name));
        let saves: Vec<_> = saves.into_iter().map(SaveRow::from).collect();
        cx.warn(newer.into_iter().map(|file| {
            Warning::new("newer_version", format!("{}; the save is left as it is", StoreError::Newer(file)))
        }));
        Ok(ListSavesResponse { count: saves.len(), saves })
    }
}

impl From<Save> for SaveRow {
    fn from(save: Save) -> Self {
        let Save { name, time, location, manifest } = save;
        let bytes = manifest.bytes();
        let items = manifest.items.into_iter().map(|it| SavedItemRow {
            path: it.path,
            kind: it.kind,
            files: it.files,
            bytes: it.bytes,
            left_out: it.left_out.count,
        });
        let items = items.collect();
        Self { name, time, container: manifest.container, session: manifest.session, bytes, items, location }
    }
}

const COLUMNS: [Column; 4] = [
    Column::fixed("SAVE"),
    Column::fixed("SAVED").or_left_out(1),
    Column::fixed("SIZE").or_left_out(2),
    Column::flexible("WHAT"),
];

impl Render for ListSavesResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &SaveRow| {
            let paths = it.items.iter().map(|it| it.path.to_string()).collect::<Vec<_>>().join(" ");
            let saved = ago(&saved_at(&it.time), now);
            vec![format!("{}/{}", it.name, it.time).into(), saved.into(), bytes(it.bytes).into(), paths.into()]
        };
        Document::rows(&COLUMNS, &self.saves, row, "nothing is saved")
    }
}

/// The time in the name of a save's directory.
fn saved_at(name: &str) -> String {
    let parsed = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%S%.fZ", name);
    let time = parsed.ok().and_then(|it| it.to_zoned(jiff::tz::TimeZone::UTC).ok());
    time.map_or_else(|| name.to_owned(), |it| it.timestamp().to_string())
}

/// Put saved work back.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct RestoreSave {
    /// What to restore; without a time the newest of that container.
    save: String,
    /// A container, or a directory (written with a `/`) that is empty.
    into: String,
}

#[derive(Debug, Serialize)]
pub(super) struct RestoreSaveResponse {
    save: String,
    restored: Vec<RestoredItem>,
    into: String,
}

impl Operation for RestoreSave {
    const NAME: &'static str = "saved restore";
    const EFFECT: Effect = Effect::Mutating;
    type Response = RestoreSaveResponse;

    async fn run(self, cx: &Context) -> Result<RestoreSaveResponse, Failure> {
        let Self { save, into } = self;
        let save = find_save(cx, &save)?;
        let restored = match into.contains('/') || into == "." {
            true => save.unpack(&cx.host.path(into.as_ref()))?,
            false => cx.unless_cancelled(Box::pin(restore_into_container(cx, &save, &into))).await?,
        };
        Ok(RestoreSaveResponse { save: format!("{}/{}", save.name, save.time), restored, into })
    }
}

/// The save `NAME/TIME`, or the newest of `NAME`.
fn find_save(cx: &Context, save: &str) -> Result<Save, Failure> {
    let (name, time) = save.split_once('/').map_or((save, None), |it| (it.0, Some(it.1)));
    let name = name.to_ascii_lowercase();
    let (mut saves, newer) = cx.store()?.all_saves()?;
    let known: BTreeSet<String> = match time {
        Some(_) if saves.iter().any(|it| it.name == name) => {
            saves.iter().filter(|it| it.name == name).map(|it| format!("{}/{}", it.name, it.time)).collect()
        }
        _ => saves.iter().map(|it| it.name.clone()).collect(),
    };
    saves.retain(|it| it.name == name && time.is_none_or(|time| it.time == time));
    let is_meant = |file: &&PathBuf| {
        let mut parts = file.iter().rev().skip(1);
        let found_time = parts.next();
        parts.next().is_some_and(|it| it == name.as_str()) && time.is_none_or(|it| found_time == Some(it.as_ref()))
    };
    if saves.is_empty()
        && let Some(file) = newer.iter().find(is_meant)
    {
        return Err(StoreError::Newer(file.clone()).into());
    }
    saves.pop().ok_or_else(|| {
        let known = Vec::from_iter(known);
        let hint = suggest::hint(save, &known, "`coracle saved list` shows what there is");
        Failure::not_found("save", save, &[]).detail("near", known).hint(hint)
    })
}

async fn restore_into_container(cx: &Context, save: &Save, container: &str) -> Result<Vec<RestoredItem>, Failure> {
    let handle = Handle::parse(container).map_err(|err| Failure::name("into", err))?;
    let mut found = reach_running(cx, &handle).await?;
    let inside = cx.links().inside(&cx.store()?, &mut found).await?;
    let session: ExecContext = match &inside {
        ExecTarget::Guest(_) => guided_session(&found.record, false)?,
        ExecTarget::Plain(..) => plain_session(&found, false)?,
    };
    let target = RestoreTarget { found: &found, inside: &inside, session: &session, scratch: cx.state()?.scratch() };
    Ok(target.put_back(save).await?)
}

impl Render for RestoreSaveResponse {
    fn render(&self, _: Timestamp) -> Document {
        Document::default().and_lines(self.restored.iter().flat_map(restored_lines))
    }
}

fn restored_lines(item: &RestoredItem) -> Vec<StyledText> {
    let files = count(item.files, "file", "files");
    let mut lines = vec![StyledText::new().name(&item.path).plain(format!(" {files}"))];
    match &item.commits {
        Commits::None => {}
        Commits::Fetched => lines.push("  commits are below refs/coracle/saved of the repository there".into()),
        Commits::CheckedOut => lines.push("  cloned, and its branch is checked out".into()),
        Commits::Bundle(bundle) => {
            lines.push(format!("  commits are in {bundle}: `git clone` it,").into());
            let word = shell_word(bundle);
            lines.push(format!("  or in a clone `git fetch {word} '+refs/*:refs/coracle/saved/*'`").into());
        }
    }
    let staged = item.staged.as_ref().filter(|it| !it.is_empty());
    lines.extend(staged.map(|it| format!("  what was staged is the patch {it}: `git apply --cached` takes it").into()));
    if item.inert {
        lines.push("  its repositories are inert (`.git.inert`): look at their `config` and `hooks` first".into());
        lines.extend(item.activate.as_ref().map(|it| format!("  then activate them with: {it}").into()));
    }
    lines.extend(
        item.skipped
            .iter()
            .map(|it| StyledText::from("  ").doubtful("left out").plain(format!(" `{}`: {}", it.path, it.reason))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use coracle_archive::transfer::SkippedEntry;
    use coracle_context::document::rendered;
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn saves_are_a_table() {
        let item = |path: &str| SavedItemRow {
            path: ContainerPath::parse(path).unwrap(),
            kind: SavedKind::Files,
            files: 1,
            bytes: 1024,
            left_out: 0,
        };
        let save = SaveRow {
            name: "web".into(),
            time: "20261122T101500.000Z".into(),
            container: ContainerName::parse("web").unwrap(),
            session: "default".into(),
            bytes: 2048,
            items: vec![item("/workspace/app"), item("/workspace")],
            location: "/state/saved/web".into(),
        };
        assert_snapshot!(rendered(&ListSavesResponse { saves: vec![save], count: 1 }, "2026-11-22T12:15:00Z"), @r"
        SAVE                      SAVED    SIZE   WHAT
        web/20261122T101500.000Z  2 h ago  2 KiB  /workspace/app /workspace
        ");
        let none = ListSavesResponse { saves: Vec::new(), count: 0 };
        assert_snapshot!(rendered(&none, "2026-11-22T12:15:00Z"), @"nothing is saved");
    }

    #[test]
    fn a_restore_names_what_is_left_to_do() {
        let item = |path: &str, files, commits, staged: Option<&str>| RestoredItem {
            from: ContainerPath::parse("/workspace/app").unwrap(),
            path: path.into(),
            kind: SavedKind::Files,
            files,
            skipped: Vec::new(),
            commits,
            staged: staged.map(str::to_owned),
            inert: false,
            activate: None,
        };
        let bundle = Commits::Bundle("/d/app.saved.bundle".into());
        let skipped = vec![SkippedEntry { path: "x".into(), reason: "the link leads out of the tree" }];
        let activate = Some("mv -- /d/app/.git.inert /d/app/.git".to_owned());
        let by_hand = RestoredItem {
            skipped,
            inert: true,
            activate,
            ..item("/d/app", 0, bundle, Some("/d/app.saved.staged.patch"))
        };
        let restored = vec![item("/workspace/app", 2, Commits::Fetched, None), by_hand];
        let response = RestoreSaveResponse { save: "web/x".into(), restored, into: "web2".into() };
        assert_snapshot!(rendered(&response, "2026-11-22T12:15:00Z"), @r"
        /workspace/app 2 files
          commits are below refs/coracle/saved of the repository there
        /d/app 0 files
          commits are in /d/app.saved.bundle: `git clone` it,
          or in a clone `git fetch /d/app.saved.bundle '+refs/*:refs/coracle/saved/*'`
          what was staged is the patch /d/app.saved.staged.patch: `git apply --cached` takes it
          its repositories are inert (`.git.inert`): look at their `config` and `hooks` first
          then activate them with: mv -- /d/app/.git.inert /d/app/.git
          left out `x`: the link leads out of the tree
        ");
    }
}
