//! Podman without root, with a directory bound: the user's ids are the same inside, and root's are subordinate ones.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use coracle_types::EngineKind;
use serde_json::{Value, json};

use super::{Tool, with_engine};
use crate::engines::{IMAGE, has_rootless, skip};

async fn with_rootless(check: impl AsyncFn(&Tool<'_>)) {
    if !has_rootless() {
        return skip("podman-rootless");
    }
    with_engine("", async |tool| match tool.case.is_rootless() {
        true => check(tool).await,
        false => tool.case.is_not_meant(),
    })
    .await;
}

fn me() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = path.symlink_metadata().unwrap();
    (meta.uid(), meta.gid())
}

/// Does the same as `podman unshare`, even without Podman.
#[expect(clippy::disallowed_methods, reason = "a test needs a process of its own")]
fn as_all_subordinate_users(command: &[&str]) -> bool {
    let status = std::process::Command::new("unshare").args(["--map-root-user", "--map-auto"]).args(command).status();
    status.unwrap().success()
}

fn codes(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().map(Vec::as_slice).unwrap_or_default();
    warnings.iter().filter_map(|it| it["code"].as_str()).collect()
}

#[tokio::test]
async fn a_user_has_the_same_ids_inside_and_a_home_and_owns_its_files() {
    with_rootless(async |tool| {
        std::fs::write(tool.work().join("mine"), "before").unwrap();
        let setup = json!(["id -u > /etc/setup-ran-as", "touch by-root"]);
        let answer = tool.create(json!({ "mount_cwd": true, "setup_commands": setup })).await;
        assert_eq!(answer["provisioning_ok"], true, "{answer:#}");
        let name = answer["container"].as_str().unwrap();
        let (uid, gid) = me();
        assert_eq!(tool.prints(name, "id -u; id -g; cat /etc/setup-ran-as").await, format!("{uid}\n{gid}\n0"));
        assert_eq!(tool.prints(name, "stat -c '%u %a' $HOME; touch $HOME/x && echo $HOME").await, {
            format!("{uid} 700\n{}", answer["home"].as_str().unwrap())
        });
        assert_eq!(
            tool.prints(name, "stat -c '%u:%g' mine; cat mine; echo after > mine").await,
            format!("{uid}:{gid}\nbefore")
        );
        assert_eq!(std::fs::read_to_string(tool.work().join("mine")).unwrap(), "after\n");
        // Root inside has no rights outside: its files are not the user's, but never root's.
        let by_root = owner(&tool.work().join("by-root"));
        assert!(by_root.0 >= 65_536 && by_root.1 >= 65_536, "{by_root:?}");
        assert_eq!(tool.prints(name, "rm by-root && echo gone").await, "gone");
    })
    .await;
}

#[tokio::test]
async fn jobs_and_copies_run_as_the_user_like_commands() {
    with_rootless(async |tool| {
        let name = tool.created(json!({ "mount_cwd": true })).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "id -u; echo x > from-job" });
        let job = tool.call(call).await["job_id"].take();
        let wait = json!({ "operation": "job_wait", "container": name, "job_id": job });
        assert_eq!(tool.call(wait).await["output"], format!("{}\n", me().0));
        let copy = async |operation: &str, host: &str, inside: &str| {
            let call =
                json!({ "operation": operation, "container": name, "host_path": host, "container_path": inside });
            let answer = tool.call(call).await;
            assert_eq!(answer["success"], true, "{answer:#}");
        };
        copy("copy_in", "from-job", "/tmp/copied").await;
        assert_eq!(tool.prints(&name, "stat -c %u /tmp/copied; cat /tmp/copied").await, format!("{}\nx", me().0));
        copy("copy_out", "back", "/tmp/copied").await;
        for file in ["from-job", "back"] {
            assert_eq!(owner(&tool.work().join(file)), me(), "{file}");
        }
    })
    .await;
}

#[tokio::test]
async fn limits_that_the_kernel_does_not_delegate_are_reported() {
    with_rootless(async |tool| {
        let answer = tool.create(json!({ "memory_limit": "64m", "pids_limit": 50 })).await;
        let reported = codes(&answer).iter().filter(|it| **it == "limit_not_enforced").count();
        if tool.case.keeps_limits() {
            return; // which of them were delegated is the machine's affair
        }
        assert_eq!(reported, 2, "memory and processes; no call requested a limit of cores: {answer:#}");
        assert_eq!(answer["limits"]["enforced"], json!([]), "{answer:#}");
        let again = tool.create(json!({ "memory_limit": "64m", "cpu_limit": 1 })).await;
        let reported = codes(&again).into_iter().filter(|it| *it == "limit_not_enforced").count();
        assert_eq!(reported, 1, "only the limit of cores is new: {again:#}");
    })
    .await;
}

#[tokio::test]
async fn a_session_gets_one_warning_for_each_limit_that_its_engine_ignores() {
    let config = format!("[workspace]\nimage = \"{IMAGE}\"\nmemory = \"800m\"\n");
    with_engine(&config, async |tool| {
        let run = async |words: &[&str]| -> Value {
            let words = ["--session", "lone", "workspace"].iter().chain(words).chain(&["--json"]);
            let output = tool.run(words, b"").await;
            serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"))
        };
        let first = run(&["ls"]).await;
        let again = run(&["ls"]).await;
        let ended = run(&["end"]).await;
        assert_eq!((&first["success"], &ended["success"]), (&true.into(), &true.into()), "{first:#} {ended:#}");
        assert_eq!((&again["success"], &again["warnings"]), (&true.into(), &json!([])), "{again:#}");
        let warnings = first["warnings"].as_array().unwrap();
        let unkept: Vec<&str> = warnings
            .iter()
            .filter(|it| it["code"] == "limit_not_enforced")
            .map(|it| it["details"]["limit"].as_str().unwrap())
            .collect();
        match (tool.case.is_rootless(), tool.case.keeps_limits()) {
            (true, true) => {} // which of them were delegated is the machine's affair
            (_, true) => assert!(unkept.is_empty(), "{first:#}"),
            (_, false) => assert_eq!(unkept, ["memory"], "the only one that the configuration sets: {first:#}"),
        }
    })
    .await;
}

#[tokio::test]
async fn files_of_root_inside_in_the_link_are_removed_or_set_aside() {
    with_rootless(async |tool| {
        let hides = [
            ("touch /.coracle/link/file && mkdir /.coracle/link/empty && chmod 0 /.coracle/link/*", 0),
            // A non-empty directory of an id that is not the user's can be removed only in a user namespace.
            ("mkdir -p /.coracle/link/full/of && chmod 700 /.coracle/link/full", 1),
        ];
        for (hide, left) in hides {
            let name = tool.created(json!({ "mount_cwd": true })).await;
            let call = json!({ "operation": "exec", "container": name, "command": hide, "as_root": true });
            let answer = tool.call(call).await;
            assert_eq!(answer["exit_code"], 0, "{answer:#}");
            let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!((&destroyed["success"], tool.records().len()), (&true.into(), 0), "{destroyed:#}");
            let links = std::fs::read_dir(tool.state().join("link")).unwrap();
            let links: Vec<_> = links.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            assert!(links.len() == left && links.iter().all(|it| it.starts_with(".trash-")), "{links:?}");
        }
        let link = tool.state().join("link");
        let removal = ["rm", "-r", link.to_str().unwrap()];
        let removed = match tool.case.engine() {
            EngineKind::Podman => tool.engine(&[&["unshare"][..], &removal].concat()).await.0,
            _ => as_all_subordinate_users(&removal),
        };
        assert!(removed);
    })
    .await;
}
