//! `coracle audit log`.

use serde_json::{Value, json};

use super::{prints, text, typed};
use crate::engines::IMAGE;
use crate::tool::{with_engine, with_rootful_engine};

#[tokio::test]
async fn the_audit_trail_is_shown() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.exec(&name, "exit 3").await;
        prints(tool, &["exec", &name, "--", "true"]).await;
        let shown = prints(tool, &["audit", "log"]).await;
        let rows: Vec<Vec<&str>> = shown.lines().map(|it| it.split_whitespace().collect()).collect();
        assert_eq!(rows.len(), 4, "{shown}");
        assert_eq!(rows[0], ["TIME", "(UTC)", "WHO", "OPERATION", "CONTAINER", "OUTCOME", "TOOK"]);
        assert_eq!(rows[1][2..6], ["call/default", "create", &name, "done"], "{shown}");
        assert!(rows[2].ends_with(&["s"]) && shown.contains("exit 3") && shown.contains("cli/default"), "{shown}");
        let filtered =
            ["audit", "log", "--operation", "exec", "--container", &name, "--since", "1h", "-n", "1", "--json"];
        let acts: Value = serde_json::from_str(&prints(tool, &filtered).await).unwrap();
        assert_eq!((&acts["count"], &acts["older"], &acts["acts"][0]["by"]), (&1.into(), &1.into(), &"cli".into()));
        let of_one = prints(tool, &["audit", "log", "--container", &name, "--json"]).await;
        let of_one: Value = serde_json::from_str(&of_one).unwrap();
        assert_eq!((&of_one["count"], &of_one["acts"][0]["operation"]), (&3.into(), &"create".into()), "{of_one:#}");
        let of_session = prints(tool, &["audit", "log", "default", "--container", &name, "--json"]).await;
        assert!(of_session.contains("\"count\":3"), "{of_session}");
        let of_another = prints(tool, &["audit", "log", "another"]).await;
        assert!(of_another.contains("nothing"), "{of_another}");
        let none = prints(tool, &["audit", "log", "--since", "2990-01-01T00:00:00Z"]).await;
        assert!(none.contains("nothing"), "{none}");
        for since in ["yesterday", "2h", "2026-01-01"] {
            let found = prints(tool, &["audit", "log", "--since", since, "--container", &name]).await;
            assert!(found.contains("create"), "{since}: {found}");
        }
        let wrong = typed(tool, &["audit", "log", "--since", "soon"]).await;
        assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    })
    .await;
}

#[tokio::test]
async fn the_trail_of_a_session_has_the_calls_of_its_tools() {
    with_rootful_engine(&format!("[workspace]\nimage = \"{IMAGE}\"\n"), async |tool| {
        prints(tool, &["workspace", "write-file", "a.txt", "text"]).await;
        prints(tool, &["workspace", "read-file", "a.txt"]).await;
        typed(tool, &["workspace", "shell-execute", "sh", "-c", "exit 3"]).await;
        let log: Value = serde_json::from_str(&prints(tool, &["audit", "log", "default", "--json"]).await).unwrap();
        let acts: Vec<&str> =
            log["acts"].as_array().unwrap().iter().map(|it| it["operation"].as_str().unwrap()).collect();
        assert_eq!(acts, ["write_file", "shell_execute"], "{log:#}");
        assert!(!log.to_string().contains("text"), "{log:#}");
    })
    .await;
}
