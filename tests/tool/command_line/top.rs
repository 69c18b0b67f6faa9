//! `coracle top`.

use serde_json::{Value, json};

use super::prints;
use super::typing::Typing;
use crate::tool::with_engine;

#[tokio::test]
async fn containers_are_watched_and_keys_step_in() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let call = json!({ "operation": "exec_background", "container": name, "command": "echo pri''nted; sleep 300" });
        let id = tool.call(call).await["job_id"].as_str().unwrap().to_owned();
        let json: Value = serde_json::from_str(&prints(tool, &["top", "--json"]).await).unwrap();
        assert_eq!(
            (&json["containers"][0]["name"], &json["containers"][0]["jobs_running"]),
            (&name.clone().into(), &1.into())
        );
        assert!(prints(tool, &["top", "--once"]).await.starts_with("CONTAINER"));

        let mut top = Typing::start(tool, &["top", "--interval", "1"]);
        top.until("coracle top: loading…").await;
        top.until(&format!("> {name}")).await;
        top.until(&id).await;
        top.keys("l").await;
        top.until("printed").await;
        top.keys("l").await;
        top.keys("c").await;
        top.until(&format!("end job {id} of {name}? y/N")).await;
        top.keys("n").await;
        top.until("q quit").await;
        top.keys("c").await;
        top.until("y/N").await;
        top.keys("y").await;
        top.until(&format!("job {id} is ended")).await;
        top.keys("\r").await;
        top.until("detaches").await;
        top.keys("echo ins''ide\r").await;
        top.until("inside").await;
        top.keys("\x10\x11").await;
        top.until(&format!("> {name}")).await;
        // A `y` with Enter removes the one, and attaches to nothing.
        let other = tool.created(json!({})).await;
        top.until(&other).await;
        top.keys("d").await;
        top.until(&format!("remove {name}")).await;
        top.keys("y\r").await;
        top.until(&format!("removing {name}…")).await;
        top.until(&format!("{name} is removed")).await;
        top.keys("d").await;
        top.until(&format!("remove {other}")).await;
        top.keys("y").await;
        top.until("no containers").await;
        top.keys("q").await;
        assert_eq!(top.end().await.0, Some(0));
    })
    .await;
}
