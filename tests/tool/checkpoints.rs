//! Checkpoints of a container: saved, compared, gone back to, and branched.

use coracle_types::Capability;
use serde_json::{Value, json};

use super::{Tool, with_tool};
use crate::engines::LABEL;

impl Tool<'_> {
    async fn saved_checkpoint(&self, container: &str, note: &str) -> Value {
        let call = json!({ "operation": "checkpoint", "container": container, "note": note });
        let saved = self.call(call).await;
        assert_eq!(saved["success"], true, "{saved:#}");
        saved
    }
}

#[tokio::test]
async fn a_container_goes_back_to_a_checkpoint_and_is_branched_there() {
    with_tool("[checkpoints]\nsteps = \"off\"\n", async |tool| {
        let made = tool.made(json!({})).await;
        let web = made["container"].as_str().unwrap();
        if Capability::lacked_by(tool.case.engine()).contains(&Capability::Checkpoint) {
            for operation in ["checkpoint", "timeline"] {
                let refused = tool.call(json!({ "operation": operation, "container": web })).await;
                let hint = refused["hint"].as_str().unwrap_or_default();
                assert_eq!(refused["code"], "unsupported", "{refused:#}");
                assert!(hint.contains("embedded"), "{refused:#}");
            }
            return;
        }
        tool.prints(web, "mkdir -p /srv; echo one >/srv/app; chmod 750 /srv").await;
        let first = tool.saved_checkpoint(web, "it works").await;
        assert_eq!((&first["checkpoint"], &first["changed"]), (&1.into(), &true.into()), "{first:#}");
        let again = tool.saved_checkpoint(web, "").await;
        assert_eq!((&again["checkpoint"], &again["changed"]), (&1.into(), &false.into()), "{again:#}");

        tool.prints(web, "echo two >/srv/app; echo more >/srv/more; rm /bin/wget").await;
        let second = tool.saved_checkpoint(web, "broken").await;
        let diff = tool
            .call(json!({ "operation": "checkpoint_diff", "container": web, "checkpoint": 1, "other_checkpoint": 2 }))
            .await;
        let of = |path: &str| {
            let rows = diff["changes"].as_array().unwrap();
            rows.iter().find(|it| it["path"] == path).map_or("", |it| it["change"].as_str().unwrap()).to_owned()
        };
        assert_eq!(
            [of("/srv/app"), of("/srv/more"), of("/bin/wget"), of("/srv")],
            ["changed", "added", "removed", ""],
            "{diff:#}"
        );

        // What was not saved is saved first.
        tool.prints(web, "echo unsaved >/srv/unsaved; (while true; do sleep 1; done) >/dev/null 2>&1 &").await;
        let rewound = tool.call(json!({ "operation": "rewind", "container": web, "checkpoint": 1 })).await;
        assert_eq!((&rewound["checkpoint"], &rewound["before"]), (&1.into(), &3.into()), "{rewound:#}");
        let now = "cat /srv/app; ls /srv; stat -c %a /srv; ls /bin/wget";
        assert_eq!(tool.prints(web, now).await, "one\napp\n750\n/bin/wget");
        let back = tool.call(json!({ "operation": "rewind", "container": web, "checkpoint": 3 })).await;
        assert_eq!(back["success"], true, "{back:#}");
        assert_eq!(tool.prints(web, "cat /srv/app /srv/unsaved").await, "two\nunsaved");

        // Without a number: what was done since the last checkpoint, and then the last step.
        tool.prints(web, "rm -r /srv").await;
        let undone = tool.call(json!({ "operation": "rewind", "container": web })).await;
        assert_eq!((&undone["checkpoint"], &undone["before"]), (&3.into(), &4.into()), "{undone:#}");
        assert_eq!(tool.prints(web, "cat /srv/unsaved").await, "unsaved");
        let undone = tool.call(json!({ "operation": "rewind", "container": web })).await;
        assert_eq!((&undone["checkpoint"], &undone["before"]), (&2.into(), &3.into()), "{undone:#}");
        assert_eq!(tool.prints(web, "ls /srv").await, "app\nmore");

        let label = tool.case.label().1;
        let call = json!({ "operation": "fork", "container": web, "checkpoint": 1, "labels": { LABEL: label } });
        let branch = tool.call(call).await;
        assert_eq!(branch["success"], true, "{branch:#}");
        let branch = branch["container"].as_str().unwrap();
        assert_eq!(tool.prints(branch, now).await, "one\napp\n750\n/bin/wget");

        let timeline = tool.call(json!({ "operation": "timeline", "container": web })).await;
        let rows: Vec<_> = timeline["checkpoints"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| {
                (it["checkpoint"].as_u64().unwrap(), it["note"].as_str().unwrap(), it["current"].as_bool().unwrap())
            })
            .collect();
        let expected = [
            (1, "it works", false),
            (2, "broken", true),
            (3, "before the rewind to 1", false),
            (4, "before a rewind", false),
        ];
        assert_eq!(rows, expected);
        assert_eq!(second["checkpoint"], 2);
        let missing = tool.call(json!({ "operation": "rewind", "container": web, "checkpoint": 9 })).await;
        assert_eq!(
            (&missing["code"], &missing["hint"]),
            (&"not_found".into(), &"there are 1, 2, 3, 4; `timeline` shows them".into())
        );
        let deleted = tool.run(["timeline", "delete", web, "1"], b"").await;
        assert!(deleted.status.success(), "{deleted:?}");
        let left = tool.call(json!({ "operation": "timeline", "container": web })).await;
        assert_eq!((&left["count"], &left["checkpoints"][0]["parent"]), (&3.into(), &Value::Null), "{left:#}");
        tool.destroy(branch).await;
        tool.destroy(web).await;
    })
    .await;
}

#[tokio::test]
async fn each_call_is_a_step_that_can_be_undone() {
    with_tool("[checkpoints]\nsteps = \"always\"\n", async |tool| {
        let made = tool.made(json!({})).await;
        let web = made["container"].as_str().unwrap();
        tool.prints(web, "mkdir /srv; echo one >/srv/app").await;
        tool.prints(web, "cat /srv/app").await;
        let failed = tool.call(json!({ "operation": "exec", "container": web, "command": "rm /srv/app; false" })).await;
        assert_eq!(failed["exit_code"], 1, "{failed:#}");
        let timeline = tool.call(json!({ "operation": "timeline", "container": web })).await;
        if Capability::lacked_by(tool.case.engine()).contains(&Capability::Checkpoint) {
            assert_eq!(timeline["code"], "unsupported", "{timeline:#}");
            return;
        }
        let rows = timeline["checkpoints"].as_array().unwrap();
        let notes: Vec<_> = rows.iter().map(|it| it["note"].as_str().unwrap()).collect();
        assert_eq!(notes, ["create", "mkdir /srv; echo one >/srv/app", "rm /srv/app; false (exit 1)"]);
        let undone = tool.call(json!({ "operation": "rewind", "container": web })).await;
        assert_eq!((&undone["checkpoint"], &undone["before"]), (&2.into(), &3.into()), "{undone:#}");
        assert_eq!(tool.prints(web, "cat /srv/app").await, "one");
        tool.destroy(web).await;
    })
    .await;
}
