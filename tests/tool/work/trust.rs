//! Authority over an image's labels.

use coracle_types::{ImageRef, random_hex};
use serde_json::{Value, json};

use super::{Agent, Person, configured, with_real_agent};
use crate::engines::{IMAGE, busybox_with, caught, ran};
use crate::tool::Tool;

/// The result of a snippet. The image has no bash, but was used nevertheless.
async fn runs(agent: &Agent<'_>) -> String {
    agent.call("run_code", json!({ "code": "1", "language": "bash" })).await["code"].as_str().unwrap().to_owned()
}

/// The next snippet needs a new container.
async fn ends_container(agent: &Agent<'_>) {
    let container = agent.container("run").unwrap();
    assert!(agent.tool.engine(&["rm", "-f", &container]).await.0);
}

#[tokio::test]
async fn r04_a_users_trust_is_valid_in_one_state_directory_only() {
    const USED: &str = "language_unavailable";
    let name = format!("coracle-test-trust-{}", random_hex::<4>());
    let config = format!("[run_code]\nimage = \"{name}\"\n");
    with_real_agent(&config, async |agent| {
        let runtime = &agent.tool.case.runtime;
        let tag = ImageRef::parse(format!("{name}:latest")).unwrap();
        let first = runtime.find_images(&[ImageRef::parse(IMAGE).unwrap()]).await.unwrap().remove(0).id;
        runtime.tag_image(&first, &tag).await.unwrap();
        let elsewhere = Tool::new(agent.tool.case, &Person::new(configured(&config)));
        let other = Agent::new(&elsewhere, "agent-2");
        let checked = caught(async {
            // Both have recorded the first image with the name.
            assert_eq!((runs(agent).await.as_str(), runs(&other).await.as_str()), (USED, USED));
            // An image of a container of either would be recognised.
            let tar = busybox_with("root:x:0:0:root:/root:/bin/sh\n", |_| {});
            let second = crate::conformance::import(agent.tool.case, &tag, tar).await.id;
            for agent in [agent, &other] {
                ends_container(agent).await;
                assert_eq!(runs(agent).await, "image_changed");
            }
            let trust = async |tool: &Tool<'_>| -> Value {
                let output = tool.run(["images", "trust", &name, "--json"], b"").await;
                serde_json::from_slice(&output.stdout).unwrap_or_else(|err| panic!("{err}: {output:?}"))
            };
            let trusted = trust(agent.tool).await;
            assert_eq!((&trusted["success"], &trusted["id"]), (&true.into(), &second.as_str().into()), "{trusted:#}");
            assert_eq!(runs(agent).await, USED);
            // It is stored: a later process runs it too, and trusting it again changes nothing.
            assert_eq!(trust(agent.tool).await["before"], second.as_str());
            ends_container(agent).await;
            assert_eq!(runs(&Agent::new(agent.tool, "agent-1")).await, USED);

            assert_eq!(runs(&other).await, "image_changed", "it is not trusted there");
            assert_eq!(trust(&elsewhere).await["before"], first.as_str());
            assert_eq!(runs(&other).await, USED);
        });
        let checked = checked.await;
        for agent in [agent, &other] {
            agent.end().await;
        }
        agent.tool.engine(&["rmi", "-f", &format!("{name}:latest")]).await;
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
        ran("r04", agent.engine());
    })
    .await;
}
