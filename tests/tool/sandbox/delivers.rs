//! A prompt leads to a commit in the remote, even if the agent forgets to commit.

use serde_json::json;

use super::{Bench, WITH_GIT, with_bench};
use crate::engines::git;
use crate::servers::model::{call, calls, says};

/// The repository has no commit, and a new file.
fn changes() -> [crate::servers::model::Turn; 2] {
    let write = json!({ "file_path": "new.txt", "content": "new\n" });
    [calls([call("write_file", write)]), says("It is there.")]
}

/// The exit code and the output of a command for worktrees.
async fn printed(bench: &Bench<'_>, words: &[&str]) -> (Option<i32>, String) {
    let output = bench.tool.run(["worktree"].iter().chain(words), b"").await;
    let printed = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    (output.status.code(), printed.concat())
}

#[tokio::test]
async fn the_commands_shown_to_a_user_name_the_profile() {
    let profile = format!("\n[sandbox.profiles.other]\nimage = \"{WITH_GIT}\"\n");
    with_bench(&profile, async |bench| {
        let (id, url) = (bench.id("other"), bench.url());
        let (code, created) = printed(bench, &["create", &url, "--workflow", &id, "--profile", "other"]).await;
        let run = format!("coracle worker run --worktree {id} --profile other --prompt");
        assert!(code == Some(0) && created.contains(&run), "{created}");
        let (code, opened) = printed(bench, &["open", &id, "--profile", "other"]).await;
        let diff = format!("coracle worktree diff {id} --profile other");
        assert!(code == Some(0) && opened.contains(&diff), "{opened}");
        // Without a profile, a workflow is found in any profile.
        let (code, listed) = printed(bench, &["list"]).await;
        assert!(code == Some(0) && listed.contains("PROFILE") && listed.contains("other"), "{listed}");
        let (code, nothing) = printed(bench, &["diff", &id]).await;
        assert!(code == Some(0) && nothing.contains("nothing changed"), "{nothing}");
        let (code, elsewhere) = printed(bench, &["remove", &id, "--profile", "default"]).await;
        let reported = elsewhere.contains("error[worktree_missing]")
            && elsewhere.contains("name the profile that has it: `other`");
        assert!(code == Some(1) && reported, "{elsewhere}");
        let (code, removed) = printed(bench, &["remove", &id]).await;
        assert!(code == Some(0) && removed.contains("removed"), "{removed}");
        let (code, again) = printed(bench, &["remove", &id]).await;
        assert!(code == Some(0) && again.contains("was gone already"), "{again}");
    })
    .await;
}

#[tokio::test]
async fn uncommitted_work_of_an_agent_is_committed_as_the_user_and_pushed() {
    with_bench("", async |bench| {
        let config = "[user]\n\tname = Ann \\\"O\\\" Neil\n\temail = ann@example.com\n";
        std::fs::write(bench.tool.home().join(".gitconfig"), config).unwrap();
        let id = bench.id("delivers");
        bench.created(&id).await;
        let text = async |words: &[&str]| printed(bench, words).await;

        for empty in [&["push", &id][..], &["export", &id, "it.mbox", "--format", "mbox"]] {
            let refused = bench.tries(empty).await;
            assert_eq!(refused["code"], "no_commits", "{refused:#}");
        }
        assert!(!bench.tool.work().join("it.mbox").exists());
        let (code, printed) = text(&["log", &id]).await;
        assert!(code == Some(0) && printed.contains("no commit of its own"), "{printed}");

        bench.model.then(changes());
        let (ended_well, events) = bench.works(&id, "Make new.txt.").await;
        assert!(ended_well, "{events:#?}");
        let warned = events.iter().find(|it| it["code"] == "leftover_committed").unwrap();
        assert!(warned["message"].as_str().unwrap().contains("1 file"), "{warned:#}");

        let listed = bench.worktree(&["log", &id]).await;
        assert_eq!((&listed["count"], &listed["commits"][0]["author"]), (&1.into(), &"Ann \"O\" Neil".into()));
        let (code, printed) =
            text(&["exec", &id, "--", "sh", "-c", "cat new.txt; git config user.email; exit 7"]).await;
        assert_eq!((code, printed.as_str()), (Some(7), "new\nann@example.com\n"));
        let trail = bench.tool.run(["audit", "log"], b"").await;
        let trail = String::from_utf8(trail.stdout).unwrap();
        let line = |act: &str| trail.lines().find(|it| it.contains(act)).unwrap_or_else(|| panic!("{act}: {trail}"));
        assert!(line("worker_run").contains("done"), "{trail}");
        assert!(line("worktree_exec").contains("exit 7"), "{trail}");
        let opened = bench.worktree(&["open", &id]).await;
        assert!(opened["path"].as_str().unwrap().ends_with(&id), "{opened:#}");
        assert_eq!(text(&["exec", "nobody", "--", "true"]).await.0, Some(125));

        let pushed = bench.worktree(&["push", &id]).await;
        let branch = format!("refs/heads/coracle/{id}");
        let there = git(&bench.server.dir("web"), &["log", "-1", "--format=%H %ae", &branch], "").await;
        assert_eq!(there.trim(), format!("{} ann@example.com", pushed["new"].as_str().unwrap()));
    })
    .await;
}
