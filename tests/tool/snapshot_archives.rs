//! Snapshots as OCI archives: written by one engine and read by another.

use std::path::Path;
use std::sync::Mutex;

use coracle_types::{EngineKind, ImageRef, random_hex};
use serde_json::{Value, json};

use super::person::Person;
use super::{Tool, merge, with_rootful_engine, with_tool};
use crate::engines::LABEL;

impl Tool<'_> {
    async fn does(&self, operation: &str, more: Value) -> Value {
        let mut call = json!({ "operation": operation });
        merge(call.as_object_mut().unwrap(), more);
        self.call(call).await
    }

    async fn succeeds(&self, operation: &str, more: Value) -> Value {
        let answer = self.does(operation, more).await;
        assert_eq!(answer["success"], true, "{operation}: {answer:#}");
        answer
    }

    async fn code(&self, operation: &str, more: Value) -> Value {
        self.does(operation, more).await["code"].take()
    }

    /// A snapshot with a file that names the engine.
    async fn has_snapshot(&self, snapshot: &str) {
        let (web, engine) = (self.created(json!({ "workdir": WORKDIR })).await, self.case.engine());
        self.prints(&web, &format!("echo made on {engine} > made; chmod 640 made; ln -s made link")).await;
        self.succeeds("snapshot", json!({ "container": web, "name": snapshot })).await;
        self.call(json!({ "operation": "destroy", "container": web })).await;
    }

    /// The file in a container of the snapshot, with its mode. Then removes both.
    async fn content_of(&self, snapshot: &str) -> String {
        let label = self.case.label().1;
        let made = self.succeeds("restore", json!({ "snapshot": snapshot, "labels": { LABEL: label } })).await;
        let web = made["container"].as_str().unwrap();
        assert_eq!(made["workdir"], WORKDIR, "{made:#}");
        let printed = self.prints(web, "cat link; stat -c %a made").await;
        self.succeeds("destroy", json!({ "container": web })).await;
        self.succeeds("snapshot_delete", json!({ "snapshot": snapshot })).await;
        printed
    }
}

/// Not the usual one, so that it has to be in the archive.
const WORKDIR: &str = "/srv/app";

fn fresh() -> String {
    format!("moved-{}", random_hex::<4>())
}

fn expected(engine: EngineKind) -> String {
    format!("made on {engine}\n640")
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = dir.read_dir().unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_snapshot_is_exported_to_a_file_and_imported() {
    with_tool("", async |tool| {
        let (snapshot, other) = (fresh(), fresh());
        tool.has_snapshot(&snapshot).await;
        let export = json!({ "snapshot": snapshot, "host_path": "it.tar" });
        let exported = tool.succeeds("snapshot_export", export.clone()).await;
        let file = tool.work().canonicalize().unwrap().join("it.tar");
        assert_eq!(exported["host_path"], json!(file), "{exported:#}");
        assert_eq!(exported["size_bytes"].as_u64().unwrap(), file.metadata().unwrap().len());
        assert_eq!(names(&tool.work()), ["it.tar"]);
        assert_eq!(tool.code("snapshot_export", export.clone()).await, "path_exists");
        let mut again = export;
        again["replace"] = true.into();
        tool.succeeds("snapshot_export", again).await;
        // Under its own name, which is in use, and another one.
        let import = json!({ "host_path": "it.tar" });
        assert_eq!(tool.code("snapshot_import", import.clone()).await, "name_taken");
        let second = tool.succeeds("snapshot_import", json!({ "host_path": "it.tar", "snapshot": other })).await;
        assert_eq!((&second["snapshot"], second["container"].is_string()), (&json!(other), true), "{second:#}");
        let before = tool.succeeds("snapshots", json!({})).await;
        let replaced = tool.succeeds("snapshot_import", json!({ "host_path": "it.tar", "replace": true })).await;
        assert_eq!(replaced["snapshot"], json!(snapshot), "{replaced:#}");
        let after = tool.succeeds("snapshots", json!({})).await;
        assert_eq!((&before["count"], &after["count"]), (&2.into(), &2.into()), "{after:#}");
        tool.succeeds("snapshot_delete", json!({ "snapshot": other })).await;
        assert_eq!(tool.content_of(&snapshot).await, expected(tool.case.engine()));
        // A deleted snapshot can be restored from the archive.
        tool.succeeds("snapshot_import", import).await;
        assert_eq!(tool.content_of(&snapshot).await, expected(tool.case.engine()));
        assert_eq!(names(&tool.work()), ["it.tar"]);
    })
    .await;
}

/// Each engine writes an archive, and then each reads all of them.
#[tokio::test]
async fn an_archive_of_one_engine_is_read_by_another() {
    let archives: Mutex<Vec<(EngineKind, Vec<u8>)>> = Mutex::default();
    with_rootful_engine("", async |tool| {
        let snapshot = fresh();
        tool.has_snapshot(&snapshot).await;
        tool.succeeds("snapshot_export", json!({ "snapshot": snapshot, "host_path": "it.tar" })).await;
        tool.succeeds("snapshot_delete", json!({ "snapshot": snapshot })).await;
        let archive = std::fs::read(tool.work().join("it.tar")).unwrap();
        archives.lock().unwrap().push((tool.case.engine(), archive));
    })
    .await;
    with_rootful_engine("", async |tool| {
        let all = archives.lock().unwrap().clone();
        for (engine, archive) in all {
            let snapshot = fresh();
            std::fs::write(tool.work().join("it.tar"), archive).unwrap();
            tool.succeeds("snapshot_import", json!({ "host_path": "it.tar", "snapshot": snapshot })).await;
            assert_eq!(tool.content_of(&snapshot).await, expected(engine), "{engine} to {}", tool.case.engine());
        }
    })
    .await;
}

#[tokio::test]
async fn paths_of_the_host_are_guarded_and_refusals_leave_nothing() {
    let config = "[workspace]\nprotected = [\".git/hooks\", \".envrc\"]\n";
    Person::new(config)
        .on_every_engine(async |tool| {
            let snapshot = fresh();
            tool.has_snapshot(&snapshot).await;
            let outside = tempfile::tempdir_in("/var/tmp").unwrap();
            std::os::unix::fs::symlink(outside.path(), tool.work().join("away")).unwrap();
            std::fs::create_dir(tool.work().join("dir")).unwrap();
            let before = names(&tool.work());
            let away = outside.path().join("x.tar").display().to_string();
            for (path, code) in [
                (".envrc", "policy_denied"),
                (away.as_str(), "policy_denied"),
                ("away/x.tar", "policy_denied"),
                ("/etc/x.tar", "policy_denied"),
                ("dir", "path_exists"),
                ("dir/", "invalid_input"),
                ("missing/x.tar", "path_not_found"),
            ] {
                let export = json!({ "snapshot": snapshot, "host_path": path, "replace": true });
                assert_eq!(tool.code("snapshot_export", export).await, code, "{path}");
            }
            assert_eq!((names(&tool.work()), names(outside.path())), (before, Vec::new()));
            for (path, code) in [("/etc/passwd", "policy_denied"), ("dir", "copy_failed"), ("none", "path_not_found")] {
                assert_eq!(tool.code("snapshot_import", json!({ "host_path": path })).await, code, "{path}");
            }
            assert_eq!(
                tool.code("snapshot_export", json!({ "snapshot": "none", "host_path": "x" })).await,
                "not_found"
            );
            tool.succeeds("snapshot_delete", json!({ "snapshot": snapshot })).await;
        })
        .await;
}

#[tokio::test]
async fn an_invalid_or_damaged_archive_is_refused() {
    with_tool("", async |tool| {
        let (snapshot, file) = (fresh(), tool.work().join("it.tar"));
        tool.has_snapshot(&snapshot).await;
        tool.succeeds("snapshot_export", json!({ "snapshot": snapshot, "host_path": "it.tar" })).await;
        let names = [ImageRef::parse(format!("coracle-snapshot:{snapshot}")).unwrap()];
        let image = tool.case.runtime.find_images(&names).await.unwrap().remove(0).id;
        let whole = std::fs::read(&file).unwrap();
        let mut damaged = whole.clone();
        let at = find(&whole, b"made on ").unwrap();
        damaged[at] ^= 1;
        let import = json!({ "host_path": "it.tar", "snapshot": snapshot, "replace": true });
        for (content, says) in [
            (b"x".to_vec(), "not an OCI image archive"),
            (vec![0x1f, 0x8b, 8, 0], "not an OCI image archive"),
            (damaged, "damaged"),
            (whole[..whole.len() / 2].to_vec(), "is truncated"),
        ] {
            std::fs::write(&file, content).unwrap();
            let refused = tool.does("snapshot_import", import.clone()).await;
            assert_eq!(refused["code"], "invalid_input", "{refused:#}");
            assert!(refused["message"].as_str().unwrap().contains(says), "{says}: {refused:#}");
        }
        // The snapshot with that name is unchanged.
        let there = tool.case.runtime.find_images(&[ImageRef::parse(image.as_str()).unwrap()]).await.unwrap();
        assert_eq!(there.len(), 1);
        assert_eq!(tool.content_of(&snapshot).await, expected(tool.case.engine()));
    })
    .await;
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|it| it == what)
}
