//! Forbidden features of compose files, and those of public projects.

use std::path::{Path, PathBuf};

use coracle_types::EngineKind;
use serde_json::{Value, json};

use super::{Tool, with_engine};
use crate::engines::ran;

/// A file of `fixtures/compose`: its header names the rule that it breaks, and the files that it needs.
struct Fixture {
    name: String,
    text: String,
}

fn all(kind: &str) -> Vec<Fixture> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/compose").join(kind);
    let paths = std::fs::read_dir(dir).unwrap().map(|it| it.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|it| it.extension().is_some_and(|it| it == "yaml")).collect();
    files.sort();
    let fixture = |it: PathBuf| Fixture {
        name: it.file_stem().unwrap().to_str().unwrap().to_owned(),
        text: std::fs::read_to_string(it).unwrap(),
    };
    files.into_iter().map(fixture).collect()
}

impl Fixture {
    fn lay_out(&self, work: &Path) {
        for line in self.text.lines() {
            if let Some(file) = line.strip_prefix("# file: ") {
                std::fs::create_dir_all(work.join(file).parent().unwrap()).unwrap();
                std::fs::write(work.join(file), "A=1\n").unwrap();
            } else if let Some(dir) = line.strip_prefix("# dir: ") {
                std::fs::create_dir_all(work.join(dir)).unwrap();
            }
        }
    }

    /// Written to a directory of its own, so that its relative paths resolve.
    async fn create(&self, tool: &Tool<'_>, project: &str) -> Value {
        let dir = tool.work().join(&self.name);
        std::fs::create_dir_all(&dir).unwrap();
        self.lay_out(&dir);
        std::fs::write(dir.join("compose.yaml"), &self.text).unwrap();
        let file = format!("{}/compose.yaml", self.name);
        tool.create(json!({ "compose_file": file, "compose_project": project })).await
    }
}

fn rules(answer: &Value) -> Vec<&str> {
    let problems = answer["details"]["problems"].as_array();
    problems.into_iter().flatten().filter_map(|it| it["rule"].as_str()).collect()
}

/// Objects of these projects on the engine, which other tests use, too.
async fn made(tool: &Tool<'_>, project: &str) -> Vec<String> {
    let mut made = Vec::new();
    for (list, name) in [("ps --all", "{{.Names}}"), ("network ls", "{{.Name}}"), ("volume ls", "{{.Name}}")] {
        let format = format!("--format={name}");
        let words: Vec<_> = list.split(' ').chain(["--filter=label=com.docker.compose.project", &format]).collect();
        let (_, names) = tool.engine(&words).await;
        made.extend(names.lines().filter(|it| it.contains(project)).map(str::to_owned));
    }
    made
}

/// A project that only this test uses.
fn project(tool: &Tool<'_>) -> String {
    format!("rules-{}", tool.case.label().1)
}

#[tokio::test]
async fn s72_every_hostile_file_is_refused_by_the_rule_it_breaks() {
    with_engine("", async |tool| {
        // The refusal does not come from the engine, so some of them are enough on the other engines.
        let some = if tool.case.engine() == EngineKind::Podman { 5 } else { 1 };
        for file in all("hostile").iter().step_by(some) {
            let answer = file.create(tool, &project(tool)).await;
            match file.text.lines().next().unwrap().strip_prefix("# rule: ") {
                Some(rule) => {
                    assert_eq!(answer["code"], "policy_denied", "{}: {answer:#}", file.name);
                    assert!(rules(&answer).contains(&rule), "{}: {answer:#}", file.name);
                }
                None => assert_eq!(answer["code"], "compose_invalid", "{}: {answer:#}", file.name),
            }
        }
        assert!(tool.records().is_empty());
        assert_eq!(made(tool, &project(tool)).await, [""; 0]);
        ran("s72", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn an_impossible_request_is_refused_before_images_are_searched() {
    with_engine("[images]\nprobe_timeout = \"1s\"\npull_timeout = \"5s\"\n", async |tool| {
        std::fs::write(tool.work().join("bad.env"), "A=1\nB='x\n").unwrap();
        let image = "image: 'localhost/coracle-test-none:1'";
        let circle = format!("{{a: {{{image}, depends_on: [b]}}, b: {{{image}, depends_on: [a]}}}}");
        let networks = format!("{{a: {{{image}, networks: [one, two]}}}}\nnetworks: {{one: {{}}, two: {{}}}}");
        let variables = format!("{{a: {{{image}, env_file: bad.env}}}}");
        let is_embedded = tool.case.engine() == EngineKind::Embedded;
        for (services, code) in [
            (circle, Some("compose_invalid")),
            (networks, is_embedded.then_some("compose_invalid")),
            (variables, Some("compose_invalid")),
        ] {
            std::fs::write(tool.work().join("compose.yaml"), format!("services: {services}")).unwrap();
            let answer = tool.create(json!({ "compose_file": "compose.yaml" })).await;
            assert_eq!(answer["success"], false, "{answer:#}");
            let found = answer["code"].as_str().unwrap();
            match code {
                Some(code) => assert_eq!(found, code, "{answer:#}"),
                None => assert_ne!(found, "compose_invalid", "{answer:#}"),
            }
            assert!(!is_embedded || !answer["error"].as_str().unwrap().contains("Compose refuses"), "{answer:#}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_tilde_in_a_compose_file_is_the_users_home() {
    with_engine("", async |tool| {
        let content = "services: {a: {image: b, volumes: ['~/data:/data']}}";
        let answer = tool.create(json!({ "compose_content": content })).await;
        let data = tool.home().canonicalize().unwrap().join("data").display().to_string();
        assert_eq!(answer["code"], "policy_denied", "{answer:#}");
        assert!(answer["error"].as_str().unwrap().contains(&data), "{answer:#}");
        assert!(!tool.work().join("~").exists());
    })
    .await;
}

/// No registry answers here, so that is how far they get: nothing was refused, and the first image is what is missing.
#[tokio::test]
async fn s72_idioms_of_public_projects_are_admitted() {
    let config = "[compose]\nallow_build = true\n[images]\nprobe_timeout = \"1s\"\npull_timeout = \"5s\"\n";
    with_engine(config, async |tool| {
        for file in all("idioms") {
            let answer = file.create(tool, &project(tool)).await;
            let code = answer["code"].as_str().unwrap_or_default();
            // It has containers on one network, few limits, and no builds.
            if code == "unsupported"
                || code == "compose_invalid"
                    && answer["error"].as_str().is_some_and(|error| error.contains("the embedded engine"))
            {
                assert_eq!(tool.case.engine(), EngineKind::Embedded, "{}: {answer:#}", file.name);
                continue;
            }
            assert!(["pull_failed", "pull_timeout", "image_not_found"].contains(&code), "{}: {answer:#}", file.name);
        }
        assert!(tool.records().is_empty());
    })
    .await;
}

#[tokio::test]
async fn s72_a_file_is_given_once_and_sees_nothing_of_the_host() {
    with_engine("", async |tool| {
        let both = json!({ "compose_content": "services: {a: {image: b}}", "compose_file": "x.yaml" });
        let answer = tool.create(both).await;
        assert_eq!(answer["code"], "conflicting_fields", "{answer:#}");
        assert!(answer["error"].as_str().unwrap().contains("not both"), "{answer:#}");
        // A variable of the host's environment is empty: otherwise another image would be searched.
        for name in ["AWS_SECRET_ACCESS_KEY", "HOME", "PATH", "DOCKER_HOST", "DOCKER_CONFIG"] {
            let content = format!("services: {{a: {{image: 'busybox:x${{{name}}}x'}}}}");
            let answer = tool.create(json!({ "compose_content": content })).await;
            assert_eq!(
                (&answer["success"], &answer["details"]["image"]),
                (&false.into(), &"busybox:xx".into()),
                "{answer:#}"
            );
        }
    })
    .await;
}
