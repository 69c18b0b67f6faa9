//! Containers with a main program.

use serde_json::{Value, json};

use super::debian::{SERVICES, derived, services};
use super::person::step;
use super::{Person, Tool, with_rootful_engine, with_tool};
use crate::engines::{own_uid, ran};

async fn healthy(tool: &Tool<'_>, container: &str, more: Value) -> Value {
    let mut call = json!({ "operation": "wait_healthy", "container": container, "interval": 0.2, "retries": 100 });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.call(call).await
}

async fn log(tool: &Tool<'_>, container: &str) -> String {
    let call = json!({ "operation": "job_read", "container": container, "job_id": "main" });
    let page = tool.call(call).await;
    page["data"].as_str().unwrap_or_else(|| panic!("{page:#}")).to_owned()
}

#[tokio::test]
async fn s33_an_image_that_is_a_service_runs_as_its_main_program() {
    with_rootful_engine("", async |tool| {
        services(tool).await;
        let mut changes =
            vec!["ENTRYPOINT [\"redis-server\"]", "CMD [\"--bind\",\"127.0.0.1\",\"--dir\",\"/tmp\"]", "USER redis"];
        // Podman's own image format has no health check.
        let checks = tool.case.engine() == coracle_types::EngineKind::Docker;
        changes.extend(checks.then_some("HEALTHCHECK --interval=1s CMD redis-cli ping"));
        let image = derived(tool, SERVICES, "true", &changes).await;
        let answer = tool.made(json!({ "image": image, "main": "image" })).await;
        let (name, entry) = (answer["container"].as_str().unwrap(), step(&answer, "main"));
        assert_eq!((&answer["main_job_id"], &entry["status"]), (&"main".into(), &"success".into()), "{answer:#}");
        assert_eq!(healthy(tool, name, json!({ "port": 6379 })).await["healthy"], true);
        assert!(log(tool, name).await.contains("Ready to accept connections"));
        assert_eq!(tool.prints(name, "redis-cli set a 1 && ps -o user= -C redis-server").await, "OK\nredis");
        if checks {
            assert_eq!(healthy(tool, name, json!({ "health_check": true })).await["healthy"], true);
            // Past the guest it would run as root on the host's files.
            let bound = tool.made(json!({ "image": image, "main": "image", "mount_cwd": true })).await;
            let none = healthy(tool, bound["container"].as_str().unwrap(), json!({ "health_check": true })).await;
            assert_eq!(none["code"], "unsupported", "{none:#}");
        }
        let cancel = json!({ "operation": "exec_cancel", "container": name, "job_id": "main" });
        assert_eq!(tool.call(cancel).await["cancelled"], true);
        assert_eq!(tool.prints(name, "echo it goes on").await, "it goes on");
        ran("s33", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn words_run_as_the_exec_user_with_what_the_call_gives_alone() {
    let person = Person::new("").with_env("ACME_TOKEN", "a-canary-of-the-host");
    person
        .on_every_engine(async |tool| {
            let program = "echo $GIVEN ${ACME_TOKEN:-none} $(id -u); sleep 600";
            let call = json!({ "main": ["/bin/sh", "-c", program], "env": { "GIVEN": "by the call" },
                "user": if tool.case.is_real() { "1000:1000" } else { "root" } });
            let answer = tool.made(call).await;
            let name = answer["container"].as_str().unwrap();
            assert_eq!(step(&answer, "main")["status"], "success", "{answer:#}");
            let user = if tool.case.is_real() { 1000 } else { own_uid() };
            assert_eq!(log(tool, name).await, format!("by the call none {user}\n"));
            let jobs = tool.call(json!({ "operation": "jobs", "container": name })).await;
            assert_eq!((&jobs["jobs"][0]["job_id"], &jobs["count"]), (&"main".into(), &1.into()), "{jobs:#}");
            let status = tool.call(json!({ "operation": "status", "container": name })).await;
            assert_eq!(status["jobs_running"], 0, "the main program does not count as a job: {status:#}");
        })
        .await;
}

#[tokio::test]
async fn a_main_program_that_does_not_start_is_for_the_report() {
    with_tool("", async |tool| {
        for (main, says) in [
            (json!(["/bin/sh", "-c", "echo too bad >&2; exit 3"]), "it ended with 3: too bad"),
            (json!(["/no/such/program"]), if tool.case.is_real() { "not found" } else { "127" }),
            (json!("image"), "the image names no program"),
        ] {
            let answer = tool.made(json!({ "main": main })).await;
            let entry = step(&answer, "main");
            assert_eq!((&entry["status"], &answer["provisioning_ok"]), (&"failed".into(), &false.into()), "{entry:#}");
            assert!(entry["error"].as_str().unwrap().contains(says), "{entry:#}");
        }
        assert_eq!(tool.create(json!({ "main": "redis-server" })).await["code"], "invalid_input");
    })
    .await;
}

#[tokio::test]
async fn root_of_an_image_needs_a_grant() {
    with_tool("[security]\nallow_root = false\n", async |tool| {
        let answer = tool.create(json!({ "main": "image", "user": "1000:1000" })).await;
        assert_eq!((&answer["code"], &answer["details"]["rule"]), (&"policy_denied".into(), &"root.exec".into()));
        assert!(tool.records().is_empty());
    })
    .await;
}

#[tokio::test]
async fn a_main_program_runs_again_when_its_container_is_started_again() {
    with_rootful_engine("", async |tool| {
        let program = json!(["/bin/sh", "-c", "echo up; sleep 600"]);
        let name = tool.created(json!({ "main": program, "persistent": true })).await;
        assert!(tool.engine(&["kill", &name]).await.0);
        assert_eq!(tool.prints(&name, "echo back").await, "back");
        assert_eq!(log(tool, &name).await, "up\n");
    })
    .await;
}
