//! Stacks of services for containers.

use std::time::Duration;

use coracle_runtime::LabelFilter;
use coracle_runtime::fake::Verb;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::debian::{debian, services as services_image};
use super::person::{step, warnings};
use super::stack_mounts::names_of_files;
use super::{Tool, with_rootful_engine, with_rootful_tool};
use crate::engines::{IMAGE, LABEL, Lack, ran};

/// Runs until it is signalled, after a first command.
fn on(first: &str) -> Value {
    json!(["sh", "-c", format!("{first}; trap 'exit 0' TERM; sleep 600 & wait")])
}

/// A file of these services on the busybox image, with labels of the case.
pub(crate) fn stack(tool: &Tool<'_>, mut services: Value) -> Value {
    let labels = json!({ LABEL: tool.case.label().1 });
    for service in services.as_object_mut().unwrap().values_mut() {
        service["labels"] = labels.clone();
        if service["image"].is_null() {
            service["image"] = IMAGE.into();
        }
    }
    json!({ "services": services, "networks": { "default": { "labels": labels.clone() } },
        "volumes": { "data": { "labels": labels } } })
}

/// A `create` with that file.
async fn with_stack(tool: &Tool<'_>, services: Value, more: Value) -> Value {
    let mut call = json!({ "compose_content": stack(tool, services).to_string() });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.create(call).await
}

/// Objects of a project on the engine.
async fn left_of(tool: &Tool<'_>, project: &str) -> Vec<String> {
    let runtime = &tool.case.runtime;
    let of_project = LabelFilter(vec![("com.docker.compose.project".into(), Some(project.to_owned()))]);
    let mut left: Vec<_> = runtime.list(&of_project).await.unwrap().into_iter().map(|it| it.name).collect();
    left.extend(runtime.list_networks(&of_project).await.unwrap().into_iter().map(|it| it.name));
    left.extend(runtime.list_volumes(&of_project).await.unwrap().into_iter().map(|it| it.name));
    left
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_else(|| panic!("no `{field}`: {value:#}"))
}

fn services(answer: &Value) -> Vec<(&str, &str, Value)> {
    let listed = answer["compose_services"].as_array().unwrap_or_else(|| panic!("{answer:#}"));
    listed.iter().map(|it| (text(it, "service"), text(it, "state"), it["exit_code"].clone())).collect()
}

#[tokio::test]
async fn s71_services_are_good_before_the_container_is_and_go_with_it() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let check = json!({ "test": ["CMD", "test", "-e", "/tmp/ready"], "interval": "1s", "retries": 30 });
        let db = json!({ "command": on("sleep 1; touch /tmp/ready; httpd -p 5432 -h /tmp"), "healthcheck": check,
            "volumes": ["data:/data"] });
        let answer = with_stack(tool, json!({ "db": db, "once": { "command": ["true"] } }), json!({})).await;
        assert_eq!(
            (&answer["success"], &step(&answer, "compose")["status"]),
            (&true.into(), &"success".into()),
            "{answer:#}"
        );
        assert_eq!(services(&answer), [("db", "running", Value::Null), ("once", "exited", 0.into())]);
        let (name, project) = (text(&answer, "container"), text(&answer, "compose_project"));
        assert!(project.starts_with(name), "{project}");
        assert_eq!(answer["compose_services"][0]["health"], "healthy");
        if tool.case.is_real() {
            assert_eq!(tool.prints(name, "wget -q -O - http://db:5432/ready && echo reached").await, "reached");
        }
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        assert_eq!(services(&status), services(&answer), "{status:#}");
        assert_eq!(status["compose_project"], answer["compose_project"]);
        let listed = tool.call(json!({ "operation": "list" })).await;
        let row = listed["containers"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(row["compose_services"], json!(["db", "once"]), "{row:#}");
        let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
        assert_eq!(destroyed["compose_project"], answer["compose_project"], "{destroyed:#}");
        assert_eq!(left_of(tool, project).await, [""; 0]);
        assert!(tool.records().is_empty());
        ran("s71", tool.case.engine());
    })
    .await;
}

/// An application that uses a Postgres and a Redis service by name.
pub(crate) async fn an_app_reaches_its_services(tool: &Tool<'_>, more: Value) {
    services_image(tool).await;
    let mut call = json!({ "compose_content": COMPOSE, "namespace": true, "config_files": { "/srv/app.py": APP } });
    super::merge(call.as_object_mut().unwrap(), more);
    let answer = tool.made(call).await;
    let listed = services(&answer);
    assert!(listed.iter().all(|it| it.1 == "running") && listed.len() == 2, "{answer:#}");
    let printed = tool.prints(text(&answer, "container"), "python3 /srv/app.py").await;
    assert_eq!(printed, "the database says 42 and the cache remembers 42");
    let project = text(&answer, "compose_project");
    let published = answer["compose_services"].as_array().unwrap().iter().map(|it| it["ports"][0]["host"].as_u64());
    for port in published {
        tokio::net::TcpStream::connect(("127.0.0.1", u16::try_from(port.unwrap()).unwrap())).await.unwrap();
    }
    tool.destroy(text(&answer, "container")).await;
    assert_eq!(left_of(tool, project).await, [""; 0]);
}

const COMPOSE: &str = include_str!("../fixtures/app/compose.yaml");
const APP: &str = include_str!("../fixtures/app/app.py");

#[tokio::test]
async fn an_app_reaches_a_postgres_and_a_redis_by_name() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let image = debian(tool.case).await;
        an_app_reaches_its_services(tool, json!({ "image": image })).await;
    })
    .await;
}

#[tokio::test]
async fn s73_one_file_runs_many_times_side_by_side() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let services = json!({ "web": {
            "container_name": "the-only-one",
            "command": on("mkdir /www; hostname > /www/who; httpd -p 80 -h /www"),
            "ports": ["18080:80"],
        } });
        let file = tool.work().join("compose.yaml");
        std::fs::write(&file, stack(tool, services).to_string()).unwrap();
        let call = tool.create_call(json!({ "compose_file": "compose.yaml", "namespace": true, "persistent": true }));
        let mut makers = JoinSet::new();
        for _ in 0..4 {
            let mut command = tool.command(["call", &call.to_string()]);
            makers.spawn(async move { command.output().await.unwrap() });
        }
        let outputs = makers.join_all().await;
        let answers: Vec<Value> = outputs.iter().map(|it| serde_json::from_slice(&it.stdout).unwrap()).collect();
        let mut ports: Vec<u64> = answers.iter().map(answers_at).collect();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 4, "{answers:#?}");
        let mut hosts = Vec::new();
        for port in &ports {
            hosts.push(fetched(*port, "/who").await);
        }
        hosts.sort();
        hosts.dedup();
        assert_eq!(hosts.len(), 4, "each is another container: {hosts:?}");
        for answer in &answers {
            // The name in the file resolves to the stack's own service.
            let own = tool.prints(text(answer, "container"), "wget -q -O - http://the-only-one/who").await;
            assert_eq!(own, fetched(answers_at(answer), "/who").await);
        }
        tool.destroy(text(&answers[0], "container")).await;
        assert_eq!(left_of(tool, text(&answers[0], "compose_project")).await, [""; 0]);
        for answer in &answers[1..] {
            assert!(!fetched(answers_at(answer), "/who").await.is_empty());
        }
        ran("s73", tool.case.engine());
    })
    .await;
}

/// The host port of its only published service.
fn answers_at(answer: &Value) -> u64 {
    let port = &answer["compose_services"][0]["ports"][0];
    assert_eq!((&port["container"], &port["address"]), (&80.into(), &"127.0.0.1".into()), "{answer:#}");
    port["host"].as_u64().unwrap()
}

/// The body of a page on loopback.
async fn fetched(port: u64, path: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", u16::try_from(port).unwrap())).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    page.split_once("\r\n\r\n").map(|it| it.1.trim().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn a_taken_host_port_is_moved_and_reported() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let requested = taken.local_addr().unwrap().port();
        let web = json!({ "web": { "command": on("httpd -p 80 -h /tmp"), "ports": [format!("{requested}:80")] } });
        let answer = with_stack(tool, web, json!({})).await;
        assert_ne!(answers_at(&answer), u64::from(requested));
        assert!(warnings(&answer).contains(&"ports_moved"), "{answer:#}");
    })
    .await;
}

#[tokio::test]
async fn s74_a_failed_service_is_reported_with_its_log_and_nothing_stays() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let project = format!("failing-{}", tool.case.label().1);
        let bad = json!({ "command": ["sh", "-c", "echo the disk is on fire >&2; exit 1"] });
        let answer = with_stack(
            tool,
            json!({ "bad": bad, "good": { "command": on("true"), "volumes": ["data:/data"] } }),
            json!({ "compose_project": project }),
        )
        .await;
        assert_eq!(answer["code"], "compose_failed", "{answer:#}");
        let [service] = &answer["details"]["services"].as_array().unwrap()[..] else { panic!("{answer:#}") };
        assert_eq!((&service["service"], &service["exit_code"]), (&"bad".into(), &1.into()));
        if tool.case.is_real() {
            assert!(text(service, "log").contains("the disk is on fire"), "{service:#}");
        }
        assert_eq!(left_of(tool, &project).await, [""; 0]);
        assert!(tool.records().is_empty() && answer["details"]["left"].is_null(), "{answer:#}");
        ran("s74", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_stack_that_failed_and_is_made_again_under_its_name_stays() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let project = format!("again-{}", tool.case.label().1);
        let made = async |command: Value| {
            let db = json!({ "db": { "command": command, "volumes": ["data:/data"] } });
            with_stack(tool, db, json!({ "compose_project": project })).await
        };
        let failed = made(json!(["sh", "-c", "exit 1"])).await;
        assert_eq!(failed["code"], "compose_failed", "{failed:#}");
        let answer = made(on("true")).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        // Each cleans up after cancelled calls.
        for operation in ["list", "create"] {
            let swept = if operation == "list" { json!({ "operation": "list" }) } else { tool.create_call(json!({})) };
            assert_eq!(tool.call(swept).await["success"], true);
        }
        assert!(left_of(tool, &project).await.len() > 2, "containers, the network and the volume");
        tool.destroy(text(&answer, "container")).await;
        assert_eq!(left_of(tool, &project).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn s75_services_are_addressed_by_name_and_go_by_their_project() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let project = format!("p-{}", tool.case.label().1);
        let db = json!({ "db": { "command": on("true"), "user": "1000:1000" } });
        let answer = with_stack(tool, db, json!({ "compose_project": project })).await;
        assert_eq!(answer["success"], true, "{answer:#}");
        let service = format!("{project}-db-1");
        let status = tool.call(json!({ "operation": "status", "container": service })).await;
        assert_eq!((&status["running"], status.get("metadata")), (&true.into(), None), "{status:#}");
        if tool.case.is_real() {
            assert_eq!(tool.prints(&service, "id -u").await, "1000");
            assert_eq!(tool.prints(&text(&status, "id")[..12], "hostname").await, text(&status, "id")[..12]);
        }
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(listed["count"], 1, "{listed:#}");
        // Other tests have containers of their own here.
        assert!(!listed["unverified"].as_array().unwrap().contains(&json!(service)), "{listed:#}");
        let destroy = |more: Value| {
            let mut call = json!({ "operation": "destroy", "container": service });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.call(call)
        };
        let saved = tool.call(json!({ "operation": "snapshot", "container": service, "name": "it" })).await;
        assert_eq!(saved["code"], "unsupported", "{saved:#}");
        assert_eq!(destroy(json!({})).await["code"], "invalid_input");
        assert_eq!(destroy(json!({ "compose_project": "another" })).await["code"], "not_found");
        let done = destroy(json!({ "compose_project": project })).await;
        assert_eq!((&done["success"], &done["container"]), (&true.into(), &answer["container"]), "{done:#}");
        assert_eq!(left_of(tool, &project).await, [""; 0]);
        assert!(tool.records().is_empty());
        ran("s75", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_container_joins_a_stack_that_runs_and_leaves_it_alone() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let project = format!("joined-{}", tool.case.label().1);
        let missing = tool.create(json!({ "compose_project": project })).await;
        assert_eq!(missing["code"], "not_found", "{missing:#}");
        let db = json!({ "db": { "command": on("httpd -p 80 -h /etc") } });
        let owner = with_stack(tool, db.clone(), json!({ "compose_project": project })).await;
        let taken = with_stack(tool, db, json!({ "compose_project": project })).await;
        assert_eq!((&taken["code"], &taken["details"]["ours"]), (&"name_taken".into(), &true.into()), "{taken:#}");
        let guest = tool.create(json!({ "compose_project": project })).await;
        assert_eq!(guest["success"], true, "{guest:#}");
        if tool.case.is_real() {
            let reached = tool.prints(text(&guest, "container"), "wget -q -O - http://db/passwd").await;
            assert!(reached.contains("root"), "{reached}");
        }
        let held = tool.call(json!({ "operation": "destroy", "container": owner["container"] })).await;
        assert_eq!(
            (&held["code"], &held["details"]["containers"][0]),
            (&"in_use".into(), &guest["container"]),
            "{held:#}"
        );
        tool.destroy(text(&guest, "container")).await;
        assert!(!left_of(tool, &project).await.is_empty(), "the stack is the other's");
        // Removing all together leaves nothing for a later call.
        let again = tool.create(json!({ "compose_project": project })).await;
        assert_eq!(again["success"], true, "{again:#}");
        let all = tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
        assert_eq!((&all["success"], &all["destroyed"]), (&true.into(), &2.into()), "{all:#}");
        assert_eq!(left_of(tool, &project).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn s09_a_name_of_a_foreign_project_is_taken_and_that_project_stays() {
    with_rootful_engine("", async |tool| {
        let project = format!("strange-{}", tool.case.label().1);
        let label = format!("com.docker.compose.project={project}");
        let (key, value) = tool.case.label();
        let own = format!("{key}={value}");
        let name = tool.case.name("stranger").to_string();
        let words = ["run", "--detach", "--name", &name, "--label", &label, "--label", &own, IMAGE, "sleep", "600"];
        assert!(tool.engine(&words).await.0);
        let db = json!({ "db": { "command": on("true") } });
        let answer = with_stack(tool, db, json!({ "compose_project": project })).await;
        assert_eq!((&answer["code"], &answer["details"]["ours"]), (&"name_taken".into(), &false.into()), "{answer:#}");
        assert_eq!(left_of(tool, &project).await, [name.as_str()]);
        assert_eq!(tool.engine(&["inspect", "--format={{.State.Running}}", &name]).await.1, "true");
        ran("s09", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s72_a_stack_is_read_from_one_directory_and_sees_nothing_of_the_host() {
    with_rootful_tool("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let file = stack(tool, json!({ "a": { "command": ["true"] } })).to_string();
        let both = tool.create(json!({ "compose_content": file, "compose_file": "compose.yaml" })).await;
        assert_eq!(both["code"], "conflicting_fields", "{both:#}");
        assert!(text(&both, "message").contains("not both"));
        let network = tool.create(json!({ "compose_content": file, "network": "none" })).await;
        assert_eq!(network["code"], "conflicting_fields", "{network:#}");
        let missing = tool.create(json!({ "compose_file": "nothing.yaml" })).await;
        assert_eq!(missing["code"], "path_not_found", "{missing:#}");
        let outside = tool.create(json!({ "compose_file": "/etc/hostname" })).await;
        assert_eq!(outside["code"], "policy_denied", "{outside:#}");
        assert!(tool.records().is_empty());
        let environment = json!({ "KEY": "[${AWS_SECRET_ACCESS_KEY}]", "HOST": "[${HOME}]", "GIVEN": "[${GIVEN}]" });
        let answer = with_stack(
            tool,
            json!({ "a": { "command": on("true"), "environment": environment } }),
            json!({ "env": { "GIVEN": "it" } }),
        )
        .await;
        let service = format!("{}-a-1", text(&answer, "compose_project"));
        let seen = tool.case.runtime.inspect(&coracle_types::Handle::parse(&service).unwrap()).await.unwrap();
        let mut env: Vec<_> = seen.env.iter().filter(|it| it.contains('[')).map(String::as_str).collect();
        env.sort_unstable();
        assert_eq!(env, ["GIVEN=[it]", "HOST=[]", "KEY=[]"]);
        ran("s72", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn a_stack_whose_creation_was_killed_is_removed_by_the_next_call() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let conf = tool.work().join("conf");
        std::fs::write(&conf, "").unwrap();
        let volumes = json!(["data:/data", format!("{}:/conf:ro", conf.display())]);
        let services = json!({ "db": { "command": on("true"), "volumes": volumes, "ports": ["80"] },
            "cache": { "command": on("true") } });
        let file = stack(tool, services).to_string();
        let begun = std::time::Instant::now();
        let warm = tool.created(json!({ "compose_content": file })).await;
        let whole = begun.elapsed();
        tool.destroy(&warm).await;
        for point in 0..6u32 {
            let project = format!("killed-{}-{point}", tool.case.label().1);
            let call = tool.create_call(json!({ "compose_content": file, "compose_project": project })).to_string();
            let mut child = tool.command(["call", &call]).spawn().unwrap();
            tokio::time::sleep(whole * point / 5).await;
            let _ = child.kill().await;
            // Compose outlives its caller, and may create something late. On a busy machine each call to Podman takes long.
            let give_up = std::time::Instant::now() + Duration::from_secs(180);
            loop {
                let answer = tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
                let left = (left_of(tool, &project).await, tool.records(), names_of_files(tool));
                if left.0.is_empty() && left.1.is_empty() && left.2.is_empty() {
                    break;
                }
                assert!(std::time::Instant::now() < give_up, "{project}: {left:?} after {answer:#}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    })
    .await;
}

/// Everything of this test that still exists in an engine, and records.
async fn left_at_all(tool: &Tool<'_>) -> Vec<String> {
    let runtime = &tool.case.runtime;
    let mut left: Vec<_> = runtime.list(&LabelFilter::default()).await.unwrap().into_iter().map(|it| it.name).collect();
    let networks = runtime.list_networks(&LabelFilter::default()).await.unwrap();
    left.extend(networks.into_iter().filter(|it| !it.labels.is_empty()).map(|it| it.name));
    let volumes = runtime.list_volumes(&LabelFilter::default()).await.unwrap();
    left.extend(volumes.into_iter().map(|it| it.name));
    left.extend(tool.records().iter().map(|it| it.display().to_string()));
    left
}

#[tokio::test]
async fn s31_no_failure_of_the_engine_leaves_anything_of_a_create_with_a_stack() {
    with_rootful_tool("", async |tool| {
        let Some(fake) = tool.case.fake() else { return };
        let db = json!({ "db": { "command": on("true"), "volumes": ["data:/data"] } });
        for verb in Verb::ALL.iter().copied() {
            fake.fail_next(verb);
            let answer = with_stack(tool, db.clone(), json!({})).await;
            // A failure that hits the undoing, or an end, is mended by the next call.
            for _ in 0..2 {
                tool.call(json!({ "operation": "destroy_all", "confirm": true })).await;
            }
            fake.clear_faults();
            assert_eq!(left_at_all(tool).await, [""; 0], "{verb:?}: {answer:#}");
        }
        ran("s31", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn the_text_of_a_secret_is_in_memory_and_in_nothing_that_stays() {
    with_rootful_engine("", async |tool| {
        if tool.case.lacks(Lack::Compose) {
            return;
        }
        let canary = "a-canary-of-a-secret";
        let script = "cat /run/secrets/key; cat /other; grep -c ' /run/secrets/key .* - tmpfs ' /proc/self/mountinfo";
        let secrets = json!(["key", { "source": "key", "target": "/other" }]);
        let db = json!({ "command": on("true"), "user": "1000:1000", "secrets": secrets });
        let mut file = stack(tool, json!({ "db": db }));
        file["secrets"] = json!({ "key": { "environment": "KEY" } });
        let call = json!({ "compose_content": file.to_string(), "env": { "KEY": canary } });
        let made = tool.create(call).await;
        assert_eq!(made["success"], true, "{made:#}");
        let (name, project) = (text(&made, "container"), text(&made, "compose_project"));
        let service = format!("{project}-db-1");
        let read = tool.exec(&service, script).await;
        assert_eq!(read["stdout"], format!("{canary}{canary}1\n"), "{read:#}");
        if tool.case.engine().has_program() {
            let (_, inspected) = tool.engine(&["inspect", &service]).await;
            assert!(inspected.contains("/run/secrets/key") && !inspected.contains(canary), "{inspected}");
        }
        // Without mounts: the files that an image of the service would have.
        let own = tool.temp().join("own-files.tar");
        let into = std::fs::File::create(&own).unwrap();
        let found = tool.case.runtime.inspect(&coracle_types::Handle::parse(&service).unwrap()).await.unwrap();
        if tool.case.runtime.export(&found.id, into, 1 << 30).await.is_ok() {
            let bytes = std::fs::read(&own).unwrap();
            assert!(bytes.len() > 1000 && !bytes.windows(canary.len()).any(|it| it == canary.as_bytes()));
        }
        let files = || {
            let dirs = std::fs::read_dir("/dev/shm").unwrap().map(|dir| dir.unwrap().path().join(project));
            dirs.filter(|dir| dir.exists()).collect::<Vec<_>>()
        };
        let saved = files();
        assert_eq!(saved.len(), 1, "{saved:?}");
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&saved[0].parent().unwrap().metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(tool.call(json!({ "operation": "destroy", "container": name })).await["success"], true);
        assert_eq!(files(), Vec::<std::path::PathBuf>::new());
    })
    .await;
}
