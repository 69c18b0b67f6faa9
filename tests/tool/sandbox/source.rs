//! Locations of a workflow's repository.

use serde_json::json;

use super::with_bench;
use crate::engines::git;

#[tokio::test]
async fn a_directory_is_a_source_by_its_name_and_an_invalid_source_creates_nothing() {
    with_bench("", async |bench| {
        let mine = bench.tool.work().join("mine");
        std::fs::create_dir(&mine).unwrap();
        std::fs::write(mine.join("file"), "committed\n").unwrap();
        git(&mine, &["init", "--quiet", "--initial-branch=main"], "").await;
        git(&mine, &["add", "--all"], "").await;
        git(&mine, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "--message=one"], "").await;
        for not in ["theirs", "./theirs", "ext::sh"] {
            let refused = bench.tries(&["create", not, "--workflow", "none"]).await;
            assert_eq!(refused["code"], "invalid_url", "{not}: {refused:#}");
        }
        let refused = bench.tries(&["create", "theirs", "--workflow", "none"]).await;
        assert!(refused["hint"].as_str().unwrap().contains("`./name`"), "{refused:#}");
        assert!(bench.sandboxes().await.is_empty(), "what cannot be is refused before anything is made");
        let (real, mut before) = (mine.canonicalize().unwrap(), json!(null));
        for (workflow, source) in [("named", "mine"), ("pointed", "./mine")] {
            let created = bench.worktree(&["create", source, "--workflow", workflow]).await;
            assert_eq!(created["repository"]["url"], json!(real), "{created:#}");
            before = created["base_commit"].clone();
        }
        // Another worktree of the unchanged repository, and one after a new commit.
        git(&mine, &["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "two", "--allow-empty"], "").await;
        let created = bench.worktree(&["create", "mine", "--workflow", "later"]).await;
        assert!(before.is_string() && created["base_commit"] != before, "{created:#}");
    })
    .await;
}
