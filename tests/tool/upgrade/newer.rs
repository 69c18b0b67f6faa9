//! Records of a newer version work if it only added fields. Otherwise they stay unchanged and are reported.

use std::fs;
use std::path::{Path, PathBuf};

use coracle_lifecycle::summed_bytes;
use serde_json::{Value, json};

use super::checks::damaged;
use super::{Client, archive, with_a_client};
use crate::engines::is_root;

/// The kind of a file of a state directory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// One JSON object, which is lost if it is. The named field has a value that a newer version may add to.
    Record(&'static str),
    /// Like a record, but written again at each start of a sandbox: it has only decisions of that start.
    OfStart(&'static str),
    /// Can be rebuilt from other data, so it may be replaced.
    Cache,
    /// JSON lines, of which only complete ones are added.
    Lines,
    /// Not one of Coracle's formats: keys, names, locks, archives, git's files.
    Opaque,
}

impl Kind {
    fn field(self) -> Option<&'static str> {
        match self {
            Self::Record(field) | Self::OfStart(field) => Some(field),
            Self::Cache | Self::Lines | Self::Opaque => None,
        }
    }
}

use Kind::{Cache, Lines, OfStart, Opaque, Record};

/// The first pattern that a path fits decides. A `*` is any text, and may be any number of directories.
const FILES: &[(&str, Kind)] = &[
    ("containers/*/metadata.json", Record("role")),
    ("sessions/*/baseline.json", Record("paths")),
    ("sessions/*.json", Record("role")),
    ("saved/*/manifest.json", Record("engine")),
    ("saved/*", Opaque),
    ("recorded/*/bodies/*", Opaque),
    ("sandboxes/*/workflows/*.json", Record("compose_project")),
    ("sandboxes/*/workflows/*", Opaque),
    ("sandboxes/*/record.json", OfStart("profile")),
    ("sandboxes/*/repo.json", Record("url")),
    ("sandboxes/*/metered.json", OfStart("requests")),
    ("sandboxes/*/authority.json", OfStart("pem")),
    // It is removed and written again before each use.
    ("sandboxes/*/wanted.json", Cache),
    // It is written again at each start of the process.
    ("proxy/*/process.json", Cache),
    ("gone/*.json", Record("name")),
    ("looked.json", Cache),
    ("preflight.json", Cache),
    ("images/*", Cache),
    ("*.jsonl", Lines),
    ("pins/*", Opaque),
    ("git/*", Opaque),
    ("audit/lock", Opaque),
    ("locks/*", Opaque),
    ("link/*", Opaque),
    ("*.lock", Opaque),
    ("key", Opaque),
    ("CORACLE_STATE", Opaque),
];

fn fits(pattern: &str, path: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(before) else { return false };
    (0..=rest.len()).any(|at| rest.is_char_boundary(at) && fits(after, &rest[at..]))
}

fn kind_of(path: &str) -> Option<Kind> {
    FILES.iter().find(|(pattern, _)| fits(pattern, path)).map(|it| it.1)
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.symlink_metadata().unwrap() {
            meta if meta.is_dir() => files.extend(files_below(&path)),
            meta if meta.is_file() => files.push(path),
            _ => {}
        }
    }
    files.sort();
    files
}

/// A change by a newer version to a file.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Field,
    Value,
    Schema,
}

const LATER: &str = "invented_later";

impl Change {
    fn apply(self, file: &Path, field: &str) {
        let mut record: Value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        let fields = record.as_object_mut().unwrap();
        match self {
            Self::Field => fields.insert(LATER.into(), json!({ "a": [1] })),
            Self::Value => {
                assert!(fields.contains_key(field), "{}: no `{field}` in {fields:?}", file.display());
                fields.insert(field.into(), json!({ LATER: true }))
            }
            Self::Schema => fields.insert("schema".into(), 99.into()),
        };
        let is_summed = fields.remove("sum").is_some();
        let bytes = if is_summed { summed_bytes(&record) } else { serde_json::to_vec(&record).unwrap() };
        fs::write(file, bytes).unwrap();
    }
}

impl Client<'_> {
    /// Calls every operation that reads or changes stored data, and returns all answers.
    async fn use_everything(&self) -> Vec<(String, Value)> {
        let mut answers = Vec::new();
        let operations = [
            json!({ "operation": "list" }),
            json!({ "operation": "status", "container": "web" }),
            json!({ "operation": "exec", "container": "web", "command": "true" }),
            json!({ "operation": "jobs", "container": "web" }),
            json!({ "operation": "networks" }),
            json!({ "operation": "images" }),
            json!({ "operation": "snapshots" }),
            json!({ "operation": "create", "name": "other", "image": super::LOCAL_IMAGE, "mount_cwd": false }),
            json!({ "operation": "destroy", "container": "other" }),
            json!({ "operation": "destroy", "container": "gone" }),
            json!({ "operation": "destroy", "container": "tiny" }),
            json!({ "operation": "prune", "dry_run": false }),
            json!({ "operation": "worktree_list", "start": true }),
            json!({ "operation": "worktree_diff", "workflow": "issue-1" }),
        ];
        for call in operations {
            answers.push((call.to_string(), self.try_call(call).await));
        }
        let session = self.session("agent-1");
        let read = self.tool(&session, "read_file", json!({ "path": "src/a.txt" })).await;
        answers.push(("read_file".into(), read));
        answers.push(("saved list".into(), self.try_run_json(&["saved", "list", "--json"]).await));
        answers.push(("preflight".into(), self.try_run_json(&["preflight", "--json"]).await));
        answers
    }

    /// Calls every operation that removes objects of the fixture.
    async fn remove_everything(&self) -> Vec<(String, Value)> {
        let mut answers = Vec::new();
        for name in ["web", "kept", "with-db", "served"] {
            let call = json!({ "operation": "destroy", "container": name });
            answers.push((call.to_string(), self.try_call(call).await));
        }
        for call in [
            json!({ "operation": "worktree_remove", "workflow": "issue-1" }),
            json!({ "operation": "destroy_network", "name": "backend" }),
            json!({ "operation": "destroy_all", "confirm": true }),
        ] {
            answers.push((call.to_string(), self.try_call(call).await));
        }
        answers.push((
            "restore".into(),
            self.try_run_json(&["saved", "restore", "gone", "--into", "./b", "--json"]).await,
        ));
        answers
    }

    async fn try_run_json(&self, words: &[&str]) -> Value {
        let output = self.tool.run(words, b"").await;
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| String::from_utf8_lossy(&output.stderr).into())
    }
}

/// Tries one change of one file in a copy of the state directory. Returns the errors.
async fn fault_of(left: &Path, path: &str, kind: Kind, change: Change) -> Option<String> {
    let field = kind.field()?;
    let found = std::cell::RefCell::new(None);
    with_a_client(async |client| {
        archive::copy(&left.join("state"), &client.tool.state());
        client.fake.load_from(&left.join("engine")).unwrap();
        let file = client.tool.state().join(path);
        change.apply(&file, field);
        let before = fs::read(&file).unwrap();
        let mut answers = client.use_everything().await;
        let after = || fs::read(&file).map_err(|err| err.to_string());
        let is_named = |answer: &Value| answer.to_string().contains("newer version");
        let fault = if change == Change::Field {
            let refused = answers.iter().find(|(_, answer)| answer["success"] == false || is_named(answer));
            let retained = after().is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(LATER));
            match refused {
                Some((call, answer)) => Some(format!("{call}: {answer:#}")),
                None => (matches!(kind, Record(_)) && !retained)
                    .then(|| format!("the field is gone: {:?}", after().map(String::from_utf8))),
            }
        } else {
            answers.extend(client.remove_everything().await);
            match after() {
                Ok(bytes) if bytes != before => Some(format!("rewritten: {}", String::from_utf8_lossy(&bytes))),
                Err(err) => Some(format!("removed: {err}")),
                Ok(_) => (!answers.iter().any(|it| is_named(&it.1))).then(|| format!("not reported: {answers:#?}")),
            }
        };
        let bad = damaged(&client.tool.state());
        found.replace(fault.or((!bad.is_empty()).then(|| format!("renamed: {bad:?}"))));
    })
    .await;
    found.into_inner()
}

#[tokio::test]
async fn records_of_a_newer_version_are_used_or_left_and_reported_by_every_call() {
    if !is_root() {
        return crate::engines::skip(coracle_skips::NEEDS_ROOT);
    }
    let left = tempfile::tempdir().unwrap();
    with_a_client(async |client| client.write_fixture(left.path()).await).await;
    let state = left.path().join("state");
    let paths = files_below(&state);
    let paths: Vec<_> = paths.iter().map(|it| it.strip_prefix(&state).unwrap().to_str().unwrap()).collect();
    let unknown: Vec<_> = paths.iter().filter(|path| kind_of(path).is_none()).collect();
    assert_eq!(unknown, [&""; 0], "no rule says what a newer version may do to these files");
    let (mut faults, mut tried) = (Vec::new(), 0);
    for path in paths {
        let Some(kind) = kind_of(path).filter(|kind| kind.field().is_some()) else { continue };
        for change in [Change::Field, Change::Value, Change::Schema] {
            tried += 1;
            let fault = fault_of(left.path(), path, kind, change).await;
            faults.extend(fault.map(|fault| format!("{path}, {change:?}: {fault}")));
        }
    }
    assert!(tried >= 30, "{tried} cases");
    assert!(faults.is_empty(), "{} of {tried}:\n{}", faults.len(), faults.join("\n"));
}
