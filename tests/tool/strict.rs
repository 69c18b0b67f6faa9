//! `policy = "strict"` and `workspace.mode = "copy"`, as `create` has them.

use serde_json::{Value, json};

use super::person::Person;
use super::{with_engine, with_rootful_tool};
use crate::engines::{IMAGE, ran, skip};

#[tokio::test]
async fn r22_strict_creates_nothing_on_an_engine_without_limits() {
    Person::new("policy = \"strict\"\n")
        .on_scripted(async |tool, _| {
            let refused = tool.create(json!({ "network": "none", "pids_limit": 64, "cpu_limit": 0.5 })).await;
            assert_eq!(refused["code"], "unsupported", "{refused:#}");
            let listed = tool.run(["workspace", "ls", "--json"], b"").await;
            let printed = String::from_utf8_lossy(&listed.stdout).into_owned();
            assert!(printed.contains("unsupported") && printed.contains("limits"), "{printed}");
            ran("r22", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn r22_a_session_gets_no_container_whose_limits_the_kernel_does_not_keep() {
    let config = format!("policy = \"strict\"\n[workspace]\nimage = \"{IMAGE}\"\n");
    with_engine(&config, async |tool| {
        if tool.case.keeps_limits() {
            skip("needs a kernel that keeps no limits for a user");
            return; // that it gets one there is tried with the tools of a session
        }
        let output = tool.run(["--session", "lone", "workspace", "ls", "--json"], b"").await;
        let refused: Value = serde_json::from_slice(&output.stdout).unwrap();
        let reported = (&refused["code"], &refused["details"]["setting"], &refused["details"]["limit"]);
        assert_eq!(reported, (&"unsupported".into(), &"policy".into(), &"memory".into()), "{refused:#}");
        ran("r22", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn the_working_directory_is_copied_where_nothing_is_bound() {
    with_rootful_tool("[workspace]\nmode = \"copy\"\n", async |tool| {
        std::fs::create_dir_all(tool.work().join("src")).unwrap();
        std::fs::write(tool.work().join("src/a.txt"), "one\n").unwrap();
        let name = tool.created(json!({ "mount_cwd": true })).await;
        assert_eq!(tool.prints(&name, "cat src/a.txt").await, "one");
        tool.prints(&name, "echo two >src/a.txt").await;
        assert_eq!(std::fs::read_to_string(tool.work().join("src/a.txt")).unwrap(), "one\n");
        let mounts = json!([{ "host": ".", "container": "/here" }]);
        let bound = tool.create(json!({ "mount_cwd": false, "mounts": mounts })).await;
        assert_eq!((&bound["code"], &bound["details"]["rule"]), (&"policy_denied".into(), &"mount.bind".into()));
        ran("strict", tool.case.engine());
    })
    .await;
}
