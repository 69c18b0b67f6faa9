//! Races: several attempts at a task, each in a copy of a container.

use std::process::Stdio;
use std::time::Duration;

use coracle_types::Capability;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Tool, eventually, with_engine, with_tool};

impl Tool<'_> {
    async fn race(&self, container: &str, more: Value) -> Value {
        let mut call = json!({ "operation": "race", "container": container });
        super::merge(call.as_object_mut().unwrap(), more);
        self.call(call).await
    }

    /// The names of all containers of this test.
    async fn names(&self) -> Vec<String> {
        let listed = self.call(json!({ "operation": "list" })).await;
        let rows = listed["containers"].as_array().unwrap();
        rows.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }

    fn has_checkpoints(&self) -> bool {
        !Capability::lacked_by(self.case.engine()).contains(&Capability::Checkpoint)
    }
}

fn outcomes(race: &Value) -> Vec<&str> {
    race["attempts"].as_array().unwrap().iter().map(|it| it["outcome"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn the_container_gets_the_files_of_the_first_attempt_that_passes() {
    with_engine("", async |tool| {
        let web = &tool.created(json!({ "env": { "MODE": "fast" }, "memory_limit": "200m" })).await;
        tool.prints(web, "mkdir /srv; echo base >/srv/base; (sleep 1000 >/dev/null 2>&1 &)").await;
        let attempts = if tool.has_checkpoints() { 8 } else { 4 };
        // Those that pass are 3, 5 and 7; of the others, some fail and some would go on.
        let command = "echo $ATTEMPT of $ATTEMPTS in $MODE >/srv/made; rm /srv/base; \
            case $ATTEMPT in 1) exit 3;; 2|4) ;; 3|5|7) touch /srv/passes;; *) sleep 600;; esac";
        let race = tool
            .race(web, json!({ "command": command, "test": "echo tested; test -e /srv/passes", "attempts": attempts }))
            .await;
        assert_eq!(race["success"], true, "{race:#}");
        let winner = race["winner"].as_u64().unwrap();
        let outcomes = outcomes(&race);
        assert!([3, 5, 7].contains(&winner), "{race:#}");
        for (at, outcome) in outcomes.iter().enumerate() {
            let expected: &[&str] = match at as u64 + 1 {
                number if number == winner => &["won"],
                3 | 5 | 7 => &["passed", "ended"],
                1 | 2 | 4 => &["failed", "ended"],
                _ => &["ended"],
            };
            assert!(expected.contains(outcome), "{race:#}");
        }
        let won = &race["attempts"][winner as usize - 1];
        assert_eq!(
            (&won["exit_code"], &won["test_exit_code"], &won["output"]),
            (&0.into(), &0.into(), &"tested".into())
        );
        let made = format!("{winner} of {attempts} in fast");
        if tool.has_checkpoints() {
            assert_eq!(
                tool.prints(web, "cat /srv/made; ls /srv; echo $MODE").await,
                format!("{made}\nmade\npasses\nfast")
            );
            assert_eq!(tool.names().await, [web.as_str()]);
            let back =
                tool.call(json!({ "operation": "rewind", "container": web, "checkpoint": race["before"] })).await;
            assert_eq!(back["success"], true, "{back:#}");
        } else {
            let copy = race["winner_container"].as_str().unwrap();
            assert_eq!(tool.prints(copy, "cat /srv/made").await, made);
            assert_eq!(tool.names().await.len(), 2);
            tool.destroy(copy).await;
        }
        assert_eq!(tool.prints(web, "cat /srv/base; ls /srv").await, "base\nbase");
        tool.destroy(web).await;
    })
    .await;
}

#[tokio::test]
async fn a_race_without_a_winner_leaves_the_container_as_it_was() {
    with_tool("", async |tool| {
        let web = &tool.created(json!({})).await;
        let race = tool.race(web, json!({ "command": "echo no; exit $ATTEMPT", "attempts": 2 })).await;
        assert_eq!((&race["success"], &race["winner"]), (&true.into(), &Value::Null), "{race:#}");
        assert_eq!(outcomes(&race), ["failed", "failed"]);
        assert_eq!((&race["attempts"][1]["exit_code"], &race["attempts"][1]["output"]), (&2.into(), &"no".into()));
        assert_eq!(tool.names().await, [web.as_str()]);
        for (fields, code) in [
            (json!({ "command": "true", "attempts": 1 }), "invalid_input"),
            (json!({ "command": "true", "attempts": 17 }), "invalid_input"),
            (json!({ "command": "true", "timeout": 0.01 }), "invalid_input"),
        ] {
            assert_eq!(tool.race(web, fields).await["code"], code);
        }
        // The fake runs commands on this host.
        let command = if tool.case.is_real() { "echo it >/it" } else { "true" };
        let apart = tool.race(web, json!({ "command": command, "attempts": 2, "keep_winner": true })).await;
        let copy = apart["winner_container"].as_str().unwrap_or_else(|| panic!("{apart:#}"));
        if tool.case.is_real() {
            assert_eq!(tool.prints(copy, "cat /it").await, "it");
            assert_eq!(tool.prints(web, "ls /it 2>/dev/null || echo none").await, "none");
        }
        tool.destroy(copy).await;
        let closed = &tool.created(json!({ "network": "none" })).await;
        let apart = tool.race(closed, json!({ "command": "true", "attempts": 2, "keep_winner": true })).await;
        let copy = apart["winner_container"].as_str().unwrap_or_else(|| panic!("{apart:#}"));
        let status = tool.call(json!({ "operation": "status", "container": copy })).await;
        assert_eq!(status["network"], "none", "a copy has no wider network: {status:#}");
        tool.destroy(copy).await;
        tool.destroy(closed).await;
        let bound = &tool.created(json!({ "mount_cwd": true })).await;
        let refused = tool.race(bound, json!({ "command": "true" })).await;
        assert_eq!(refused["code"], "unsupported", "{refused:#}");
        tool.destroy(bound).await;
        tool.destroy(web).await;
    })
    .await;
}

#[tokio::test]
async fn a_race_that_the_user_interrupts_leaves_nothing() {
    with_engine("", async |tool| {
        let web = &tool.created(json!({})).await;
        tool.prints(web, "echo base >/base").await;
        let command = "rm /base; sleep 600";
        let mut race = tool.command(["race", web, "-n", "3", command]);
        let mut race = race.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = async || tool.names().await.len() == 4;
        eventually("three copies", Duration::from_secs(60), begun).await;
        let pid = Pid::from_raw(i32::try_from(race.id().unwrap()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let status = tokio::time::timeout(Duration::from_secs(60), race.wait()).await.unwrap().unwrap();
        assert_eq!(status.code(), Some(130));
        assert_eq!(tool.names().await, [web.as_str()]);
        assert_eq!(tool.prints(web, "cat /base").await, "base");
        tool.destroy(web).await;
    })
    .await;
}
