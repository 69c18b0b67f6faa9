//! Snapshots of containers' files, and containers created from them.

use coracle_types::{Capability, ImageRef, random_hex};
use serde_json::{Value, json};

use super::canary::Canaries;
use super::debian::derived;
use super::person::{Person, Programs, step, warnings};
use super::{Tool, merge, with_engine, with_rootful_engine, with_rootful_tool, with_tool};
use crate::engines::{IMAGE, LABEL, ran};

/// A name that no other test uses on the same engine.
fn fresh(name: &str) -> String {
    format!("{name}-{}", random_hex::<4>())
}

impl Tool<'_> {
    async fn act(&self, operation: &str, more: Value) -> Value {
        let mut call = json!({ "operation": operation });
        merge(call.as_object_mut().unwrap(), more);
        self.call(call).await
    }

    /// An act that has to succeed.
    async fn acted(&self, operation: &str, more: Value) -> Value {
        let answer = self.act(operation, more).await;
        assert_eq!(answer["success"], true, "{operation}: {answer:#}");
        answer
    }

    async fn refused(&self, operation: &str, more: Value) -> String {
        let answer = self.act(operation, more).await;
        answer["code"].as_str().unwrap_or_else(|| panic!("{operation}: {answer:#}")).to_owned()
    }

    async fn restored(&self, snapshot: &str) -> Value {
        let label = self.case.label().1;
        self.acted("restore", json!({ "snapshot": snapshot, "labels": { LABEL: label } })).await
    }

    async fn has_image(&self, image: &str) -> bool {
        !self.case.runtime.find_images(&[ImageRef::parse(image).unwrap()]).await.unwrap().is_empty()
    }
}

fn name(answer: &Value) -> &str {
    answer["container"].as_str().unwrap()
}

#[tokio::test]
async fn s69_manual_changes_are_in_a_restored_container_and_in_a_fork() {
    let profile = format!("[profiles.tiny]\nimage = \"{IMAGE}\"\npackages = []\nsetup = [\"echo cooked > /cooked\"]\n");
    with_tool(&profile, async |tool| {
        let (snapshot, made) = (fresh("base"), tool.made(json!({ "env": { "GREETING": "of-the-first" } })).await);
        let by_hand = "echo kept > by-hand";
        tool.prints(name(&made), by_hand).await;
        if tool.case.is_real() {
            let install =
                "printf '#!/bin/sh\necho it works\n' >/usr/local/bin/by-hand; chmod +x /usr/local/bin/by-hand";
            tool.prints(name(&made), &format!("mkdir -p /usr/local/bin; {install}")).await;
        }
        let saved = tool.acted("snapshot", json!({ "container": name(&made), "name": snapshot })).await;
        assert_eq!(
            (saved["snapshot"].as_str(), saved["container"].as_str()),
            (Some(&*snapshot), made["container"].as_str())
        );
        assert!(saved["image"].as_str().unwrap().ends_with(&format!("-snapshot:{snapshot}")), "{saved:#}");
        let left_out = saved["not_included"].to_string();
        assert!(left_out.contains("running processes") && left_out.contains("memory"), "{left_out}");
        let fork = tool.acted("fork", json!({ "container": name(&made) })).await;
        assert_eq!((&fork["forked_from"], &fork["image_source"]), (&made["container"], &"snapshot".into()), "{fork:#}");
        assert_eq!(fork["not_included"], saved["not_included"]);
        tool.destroy(name(&made)).await;
        // A purpose has no built image, and none is used.
        let tiny = tool.acted("restore", json!({ "snapshot": snapshot, "purpose": "tiny" })).await;
        assert_eq!((&tiny["image_source"], &tiny["purpose"]), (&"snapshot".into(), &"tiny".into()), "{tiny:#}");
        assert_eq!((&tiny["image_id"], &tiny["cache_used"]), (&saved["image_id"], &false.into()));
        if tool.case.is_real() {
            assert_eq!(tool.prints(name(&tiny), "cat by-hand; ls /cooked 2>/dev/null || echo raw").await, "kept\nraw");
        }
        tool.destroy(name(&tiny)).await;
        let restored = tool.restored(&snapshot).await;
        assert_eq!((&restored["image_source"], &restored["cache_used"]), (&"snapshot".into(), &false.into()));
        assert_eq!(restored["image_id"], saved["image_id"]);
        for it in [&restored, &fork] {
            assert_eq!(tool.prints(name(it), "cat by-hand").await, "kept");
            assert_eq!(step(it, "packages")["status"], "skipped", "{it:#}");
            // Variables of commands belong only to that container.
            assert_eq!(tool.prints(name(it), "echo \"-$GREETING-\"").await, "--");
            if tool.case.is_real() {
                assert_eq!(tool.prints(name(it), "/usr/local/bin/by-hand").await, "it works");
            }
        }
        let listed = tool.acted("snapshots", json!({})).await;
        let one = listed["snapshots"].as_array().unwrap().iter().find(|it| it["name"] == *snapshot).unwrap();
        assert_eq!((&one["in_use"], &one["container"]), (&true.into(), &made["container"]), "{one:#}");
        let refused = tool.act("snapshot_delete", json!({ "snapshot": snapshot })).await;
        assert_eq!(
            (&refused["code"], &refused["details"]["containers"][0]),
            (&"in_use".into(), &restored["container"])
        );
        // The snapshot of a fork is removed with it; another one stays until it is deleted.
        let of_fork = fork["image"].as_str().unwrap();
        assert!(tool.has_image(of_fork).await);
        let is_copied = !Capability::lacked_by(tool.case.engine()).contains(&Capability::Fork);
        tool.destroy(name(&fork)).await;
        if is_copied {
            // Without a snapshot between the two it has the image of the first.
            assert_eq!(fork["image_id"], made["image_id"]);
        } else {
            assert!(!tool.has_image(of_fork).await, "{of_fork} is left");
        }
        tool.destroy(name(&restored)).await;
        let gone = tool.acted("snapshot_delete", json!({ "name": snapshot })).await;
        assert!(gone["reclaimed_bytes"].is_u64(), "{gone:#}");
        assert!(!tool.has_image(saved["image_id"].as_str().unwrap()).await);
        assert_eq!(tool.refused("restore", json!({ "snapshot": snapshot })).await, "not_found");
        assert_eq!(tool.acted("snapshots", json!({})).await["count"], 0);
        ran("s69", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s69_a_container_with_a_secret_in_a_file_is_not_snapshotted() {
    let (passed, given) = (random_hex::<12>(), random_hex::<12>());
    let person = |config: &str| Person::new(config).with_env("NPM_TOKEN", &passed);
    let fill = async |tool: &Tool<'_>| {
        let made = tool.made(json!({ "env": { "DB_PASSWORD": given, "EDITOR": "something-plain" } })).await;
        tool.prints(name(&made), "echo something-plain > plain").await;
        made["container"].as_str().unwrap().to_owned()
    };
    person("")
        .on_every_engine_and_rootless(async |tool| {
            let (web, snapshot) = (fill(tool).await, fresh("secret"));
            let keep = json!({ "container": web, "name": snapshot });
            tool.prints(&web, "mkdir -p conf; echo \"//registry/:_authToken=$NPM_TOKEN\" > conf/npmrc").await;
            tool.prints(&web, "printf %s \"$DB_PASSWORD\" | base64 > encoded").await;
            let refused = tool.act("snapshot", keep.clone()).await;
            let paths = json!(["/workspace/conf/npmrc", "/workspace/encoded"]);
            assert_eq!(
                (&refused["code"], &refused["details"]["paths"]),
                (&"snapshot_secrets".into(), &paths),
                "{refused:#}"
            );
            assert_eq!((&refused["container"], refused["hint"].is_string()), (&json!(web), true));
            let text = refused.to_string();
            assert!(!text.contains(&passed) && !text.contains(&given), "{text}");
            assert_eq!(tool.refused("fork", json!({ "container": web })).await, "snapshot_secrets");
            assert_eq!(tool.acted("snapshots", json!({})).await["count"], 0);
            tool.prints(&web, "rm -r conf encoded").await;
            assert_eq!(warnings(&tool.acted("snapshot", keep).await), Vec::<&str>::new());
            tool.acted("snapshot_delete", json!({ "name": snapshot })).await;
            ran("s69", tool.case.engine());
        })
        .await;
    person("[security]\nsnapshot_secrets = \"warn\"\n")
        .on_every_engine(async |tool| {
            let (web, snapshot) = (fill(tool).await, fresh("secret"));
            tool.prints(&web, "echo \"$NPM_TOKEN\" > npmrc").await;
            let saved = tool.acted("snapshot", json!({ "container": web, "name": snapshot })).await;
            assert_eq!(warnings(&saved), ["snapshot_secrets"]);
            assert!(saved["warnings"][0]["message"].as_str().unwrap().contains("/workspace/npmrc"), "{saved:#}");
            tool.acted("snapshot_delete", json!({ "name": snapshot })).await;
        })
        .await;
}

#[tokio::test]
async fn a_name_is_taken_once_and_replaced_on_request() {
    with_rootful_tool("", async |tool| {
        let (web, snapshot) = (tool.created(json!({})).await, fresh("twice"));
        let keep = |replace: bool| json!({ "container": web, "snapshot": snapshot, "replace": replace });
        tool.prints(&web, "echo first > which").await;
        let first = tool.acted("snapshot", keep(false)).await;
        let taken = tool.act("snapshot", keep(false)).await;
        let details = (&taken["details"]["kind"], &taken["details"]["ours"]);
        assert_eq!((&taken["code"], details), (&"name_taken".into(), (&"snapshot".into(), &true.into())), "{taken:#}");
        tool.prints(&web, "echo second > which").await;
        let second = tool.acted("snapshot", keep(true)).await;
        assert_ne!(first["image_id"], second["image_id"]);
        assert!(!tool.has_image(first["image_id"].as_str().unwrap()).await);
        let restored = tool.restored(&snapshot).await;
        assert_eq!(tool.prints(name(&restored), "cat which").await, "second");
        tool.destroy(name(&restored)).await;
        tool.acted("snapshot_delete", json!({ "snapshot": snapshot })).await;
        assert_eq!(tool.refused("snapshot", json!({ "container": web })).await, "missing_field");
        let two = json!({ "container": web, "name": "a", "snapshot": "b" });
        assert_eq!(tool.refused("snapshot", two).await, "conflicting_fields");
    })
    .await;
}

#[tokio::test]
async fn an_image_that_only_looks_like_a_snapshot_is_none() {
    with_rootful_engine("", async |tool| {
        let (planted, web) = (fresh("planted"), tool.created(json!({})).await);
        let copied = [
            "LABEL coracle.managed=true",
            "LABEL coracle.kind=snapshot",
            &format!("LABEL coracle.snapshot.name={planted}"),
        ];
        let image = derived(tool, IMAGE, "true", &copied).await;
        let tag = format!("coracle-snapshot:{planted}");
        tool.engine_says(&["tag", &image, &tag]).await;
        for operation in ["restore", "snapshot_delete"] {
            assert_eq!(tool.refused(operation, json!({ "snapshot": planted })).await, "not_managed", "{operation}");
        }
        let replacing = json!({ "container": web, "name": planted, "replace": true });
        let taken = tool.act("snapshot", replacing).await;
        assert_eq!((&taken["code"], &taken["details"]["ours"]), (&"name_taken".into(), &false.into()), "{taken:#}");
        assert_eq!(tool.acted("snapshots", json!({})).await["count"], 0);
        assert!(tool.has_image(&tag).await);
        tool.engine_says(&["rmi", &tag]).await;
        assert_eq!(tool.refused("restore", json!({ "snapshot": planted })).await, "not_found");
    })
    .await;
}

#[tokio::test]
async fn a_restored_container_can_be_snapshotted_again_and_its_own_snapshot_is_removed_later() {
    with_engine("", async |tool| {
        let (web, snapshot, again) = (tool.created(json!({})).await, fresh("first"), fresh("again"));
        tool.prints(&web, "echo one > one").await;
        let fork = tool.acted("fork", json!({ "container": web })).await;
        tool.prints(name(&fork), "echo two > two").await;
        tool.acted("snapshot", json!({ "container": name(&fork), "name": again })).await;
        tool.acted("snapshot", json!({ "container": web, "name": snapshot })).await;
        // The snapshot of the fork is based on the fork's own parent snapshot.
        tool.destroy(name(&fork)).await;
        tool.destroy(&web).await;
        let restored = tool.restored(&again).await;
        assert_eq!(tool.prints(name(&restored), "cat one two").await, "one\ntwo");
        tool.destroy(name(&restored)).await;
        tool.acted("snapshot_delete", json!({ "name": again })).await;
        let left = tool.acted("snapshots", json!({})).await;
        for it in left["snapshots"].as_array().unwrap() {
            tool.acted("snapshot_delete", json!({ "name": it["name"] })).await;
        }
        assert_eq!(tool.acted("snapshots", json!({})).await["count"], 0);
    })
    .await;
}

/// The user's data from the host goes into the first container, but not into the image.
#[tokio::test]
async fn s42_no_data_of_the_user_is_in_a_snapshot() {
    let mut canaries = Canaries::default();
    let (passed, given, gh) = (canaries.hatch("passed through"), canaries.hatch("env of create"), canaries.hatch("gh"));
    let key = canaries.hatch("ssh key");
    let programs = Programs::new().with_gh(&gh);
    let person = Person::new("[security]\nallow_ssh = true\n").with_programs(&programs).with_env("NPM_TOKEN", &passed);
    person
        .on_real_engines(async |tool| {
            let content = format!("-----BEGIN-----\n{key}\n-----END-----\n");
            tool.at_home(".ssh/id_ed25519", &content);
            tool.at_home(".ssh/id_ed25519.pub", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 ann\n");
            tool.at_home(".gitconfig", "[user]\n\tname = Ann\n");
            let more = json!({ "forward_ssh": true, "user": "1234", "env": { "DB_PASSWORD": given } });
            let (made, snapshot) = (tool.made(more.clone()).await, fresh("clean"));
            assert_eq!(tool.prints(name(&made), "cat ~/.ssh/id_ed25519").await, content.trim_end());
            tool.prints(name(&made), "echo work > ~/work").await;
            let saved = tool.acted("snapshot", json!({ "container": name(&made), "name": snapshot })).await;
            let image = saved["image"].as_str().unwrap();
            let at = tool.home().join("image.tar").display().to_string();
            tool.engine_says(&["save", "--output", &at, image]).await;
            canaries.absent("the layers of the snapshot", &std::fs::read(&at).unwrap());
            for words in [vec!["inspect", "--type=image", image], vec!["history", "--no-trunc", image]] {
                canaries.absent("what the engine says of it", tool.engine_says(&words).await.as_bytes());
            }
            canaries.absent("the answer", saved.to_string().as_bytes());
            tool.destroy(name(&made)).await;
            // The identity is provisioned again, over that of the first container.
            let mut call = json!({ "snapshot": snapshot });
            merge(call.as_object_mut().unwrap(), more);
            let restored = tool.acted("restore", call).await;
            for it in ["env_passthrough", "forward_git", "forward_gh", "forward_ssh"] {
                assert_eq!(step(&restored, it)["status"], "success", "{restored:#}");
            }
            assert_eq!(tool.prints(name(&restored), "cat ~/.ssh/id_ed25519").await, content.trim_end());
            assert_eq!(tool.prints(name(&restored), "cat ~/work").await, "work");
            // A key that was written down is found.
            tool.prints(name(&restored), "cp ~/.ssh/id_ed25519 /tmp/copied; cp ~/.ssh/*.pub /tmp/public").await;
            let refused = tool.act("snapshot", json!({ "container": name(&restored), "name": fresh("leak") })).await;
            assert_eq!(refused["details"]["paths"], json!(["/tmp/copied"]), "{refused:#}");
            tool.destroy(name(&restored)).await;
            tool.acted("snapshot_delete", json!({ "name": snapshot })).await;
            ran("s42", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn the_arguments_of_restore_are_those_of_create_but_for_the_image() {
    with_rootful_tool("", async |tool| {
        for field in ["image", "packages", "pull", "cache_bust", "repo_url"] {
            let value = match field {
                "packages" => json!(["git"]),
                "cache_bust" => json!(true),
                _ => json!("never"),
            };
            for operation in ["restore", "fork"] {
                let call = json!({ "snapshot": "x", "container": "x", field: value });
                assert_eq!(tool.refused(operation, call).await, "unknown_field", "{operation} {field}");
            }
        }
        assert_eq!(tool.refused("restore", json!({})).await, "missing_field");
        let bad = tool.act("restore", json!({ "snapshot": "a/b", "memory_limit": [] })).await;
        let problems: Vec<_> = bad["details"]["problems"].as_array().unwrap().iter().map(|it| &it["field"]).collect();
        assert!(problems.contains(&&json!("snapshot")) && problems.contains(&&json!("memory_limit")), "{bad:#}");
        let tried = tool.act("restore", json!({ "snapshot": "x", "purpose": "try-repo" })).await;
        assert_eq!(
            (&tried["code"], &tried["details"]["field"]),
            (&"invalid_input".into(), &"purpose".into()),
            "{tried:#}"
        );
        assert_eq!(tool.refused("restore", json!({ "snapshot": fresh("none") })).await, "not_found");
        assert_eq!(tool.refused("fork", json!({ "container": fresh("none") })).await, "not_found");
        tool.nothing_left().await;
    })
    .await;
}

#[tokio::test]
async fn a_fork_that_cannot_be_made_leaves_nothing() {
    with_rootful_tool("", async |tool| {
        let web = tool.created(json!({})).await;
        let failed = tool.act("fork", json!({ "container": web, "user": "nobody-knows-them" })).await;
        assert_eq!(failed["code"], "user_not_found", "{failed:#}");
        assert_eq!(tool.acted("snapshots", json!({})).await["count"], 0);
        assert_eq!(tool.records().len(), 1);
        assert_eq!(tool.prints(&web, "echo up").await, "up");
    })
    .await;
}

#[tokio::test]
async fn sessions_that_see_nothing_of_each_other_do_not_share_snapshots() {
    with_rootful_engine("[security]\ncross_session = \"none\"\n", async |tool| {
        let snapshot = fresh("mine");
        let in_session = async |session: &str, call: Value| -> Value {
            let output = tool.run(["call", "--session", session, "-"], call.to_string().as_bytes()).await;
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let mut create = tool.create_call(json!({}));
        let made = in_session("one", create.take()).await;
        let keep = json!({ "operation": "snapshot", "container": made["container"], "name": snapshot });
        assert_eq!(in_session("two", keep.clone()).await["code"], "other_session");
        assert_eq!(
            in_session("two", json!({ "operation": "fork", "container": made["container"] })).await["code"],
            "other_session"
        );
        assert_eq!(in_session("one", keep).await["success"], true);
        assert_eq!(in_session("two", json!({ "operation": "snapshots" })).await["count"], 0);
        for operation in ["restore", "snapshot_delete"] {
            let call = json!({ "operation": operation, "snapshot": snapshot });
            assert_eq!(in_session("two", call).await["code"], "other_session", "{operation}");
        }
        let gone = in_session("one", json!({ "operation": "snapshot_delete", "name": snapshot })).await;
        assert_eq!(gone["success"], true, "{gone:#}");
    })
    .await;
}
