//! Variables: those of the host, those of a call, and those that a restart loses.

use std::collections::BTreeSet;

use coracle_types::ContainerId;
use serde_json::{Value, json};

use super::person::{Person, step, warnings};
use super::with_rootful_tool;
use crate::engines::{FROM_IMAGE, IMAGE, ran};

/// The text behind the name in each value: no program may interpret any part of it.
const HARD: &str = " it's \"hard\": $HOME `x` \\ {} %s\n\tend ";

/// Variables as CI systems set them, and whether they go in by themselves.
const HOSTS: [(&str, bool); 27] = [
    ("ANTHROPIC_API_KEY", true),
    ("AMPLIFIER_MODEL", true),
    ("AZURE_OPENAI_ENDPOINT", true),
    ("CARGO_REGISTRY_TOKEN", true),
    ("CLIENT_SECRET", true),
    ("GEMINI_MODEL", true),
    ("GITHUB_TOKEN", true),
    ("GOOGLE_CLOUD_PROJECT", true),
    ("NPM_TOKEN", true),
    ("OLLAMA_HOST", true),
    ("OPENAI_ORG", true),
    ("VLLM_URL", true),
    ("ACTIONS_RUNTIME_TOKEN", false),
    ("AWS_SECRET_ACCESS_KEY", false),
    ("CI_JOB_TOKEN", false),
    ("CONTAINER_REGISTRY_TOKEN", false),
    ("CORACLE_API_KEY", false),
    ("DATABASE_PASSWORD", false),
    ("DOCKER_AUTH_TOKEN", false),
    ("GIT_TOKEN", false),
    ("MY_TOKENS", false),
    ("RUNNER_TOKEN", false),
    ("SSH_TOKEN", false),
    ("TOKEN", false),
    ("XDG_API_KEY", false),
    ("npm_token", false),
    ("openai_api_key", false),
];

fn person(config: &str) -> Person {
    HOSTS.iter().fold(Person::new(config), |it, (name, _)| it.with_env(name, format!("{name}{HARD}")))
}

fn names(goes_in: bool) -> BTreeSet<&'static str> {
    HOSTS.iter().filter(|it| it.1 == goes_in).map(|it| it.0).collect()
}

#[tokio::test]
async fn s43_of_the_hosts_variables_those_go_in_that_the_patterns_name() {
    person("")
        .on_every_engine(async |tool| {
            let answer = tool.made(json!({ "env": { "CLIENT_SECRET": "of create", "OWN": "7" } })).await;
            let name = answer["container"].as_str().unwrap();
            let inside =
                tool.environ(name, json!({ "NPM_TOKEN": "of the call", "CLIENT_SECRET": "of the call" })).await;
            let went: BTreeSet<&str> = HOSTS.iter().map(|it| it.0).filter(|it| inside.contains_key(*it)).collect();
            assert_eq!(went, names(true));
            for (name, _) in HOSTS.iter().filter(|it| it.1 && !["CLIENT_SECRET", "NPM_TOKEN"].contains(&it.0)) {
                assert_eq!(inside[*name], format!("{name}{HARD}"));
            }
            assert_eq!(
                (inside["NPM_TOKEN"].as_str(), inside["CLIENT_SECRET"].as_str()),
                ("of the call", "of the call")
            );
            let next = tool.environ(name, json!({})).await;
            assert_eq!(next["CLIENT_SECRET"], "of create", "`env` of create wins over the host");
            assert_eq!(next["NPM_TOKEN"], format!("NPM_TOKEN{HARD}"), "`env` of a call is for that call");
            assert_eq!(next["OWN"], "7");
            let step = step(&answer, "env_passthrough");
            assert_eq!((&step["status"], step["probe"].is_string()), (&"success".into(), true), "{step:#}");
            let reported: BTreeSet<&str> =
                step["items"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
            assert!(reported.is_superset(&names(true)) && reported.is_disjoint(&names(false)), "{step:#}");
            assert!(answer["env_vars_injected"].as_u64().unwrap() >= 13, "{answer:#}");
            assert!(!answer.to_string().contains("it's"), "a value is in the answer: {answer:#}");
            ran("s43", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn s44_what_the_user_did_not_allow_is_refused_by_name() {
    person("")
        .on_every_engine(async |tool| {
            let refused = async |requested: Value, rule: &str| {
                let answer = tool.create(json!({ "env_passthrough": requested })).await;
                assert_eq!(
                    (&answer["code"], &answer["details"]["rule"]),
                    (&"policy_denied".into(), &rule.into()),
                    "{answer:#}"
                );
                answer
            };
            let answer = refused("all".into(), "env.all").await;
            assert_eq!(answer["details"]["setting"], "security.allow_env_all");
            let answer = refused(json!(["NPM_TOKEN", "DATABASE_PASSWORD"]), "env.name").await;
            assert!(answer["message"].as_str().unwrap().contains("DATABASE_PASSWORD"), "{answer:#}");
            assert_eq!(answer["details"]["setting"], "auto_passthrough.env_allow");
            let answer = refused(json!(["SSH_TOKEN"]), "env.never").await;
            assert!(
                answer["message"].as_str().unwrap().contains("SSH_TOKEN") && answer["details"]["setting"].is_null()
            );
            tool.nothing_left().await;
            let answer = tool.made(json!({ "env_passthrough": "none" })).await;
            let inside = tool.environ(answer["container"].as_str().unwrap(), json!({})).await;
            assert!(HOSTS.iter().all(|it| !inside.contains_key(it.0)), "{inside:?}");
            assert_eq!(step(&answer, "env_passthrough")["status"], "skipped");
            ran("s44", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn a_list_names_exactly_what_goes_in_and_says_what_the_host_lacks() {
    person("[auto_passthrough]\nenv_allow = [\"DATABASE_*\"]\n")
        .on_every_engine(async |tool| {
            let requested = json!(["NPM_TOKEN", "DATABASE_PASSWORD", "NO_SUCH_TOKEN"]);
            let answer = tool.made(json!({ "env_passthrough": requested })).await;
            let inside = tool.environ(answer["container"].as_str().unwrap(), json!({})).await;
            let went: Vec<&str> = HOSTS.iter().map(|it| it.0).filter(|it| inside.contains_key(*it)).collect();
            assert_eq!(went, ["NPM_TOKEN", "DATABASE_PASSWORD"]);
            assert!(step(&answer, "env_passthrough").to_string().contains("NO_SUCH_TOKEN"), "{answer:#}");
        })
        .await;
}

#[tokio::test]
async fn all_means_all_but_those_that_never_go_in() {
    let config = "[security]\nallow_env_all = true\n[auto_passthrough]\nnever = [\"NPM_*\"]\n";
    person(config)
        .on_every_engine(async |tool| {
            let name = tool.created(json!({ "env_passthrough": "all" })).await;
            let inside = tool.environ(&name, json!({})).await;
            let never = [
                "ACTIONS_",
                "CI_JOB_TOKEN",
                "CONTAINER_",
                "CORACLE_",
                "DOCKER_",
                "GIT_",
                "NPM_",
                "RUNNER_",
                "SSH_",
                "XDG_",
            ];
            for (name, _) in HOSTS {
                assert_eq!(inside.contains_key(name), !never.iter().any(|it| name.starts_with(it)), "{name}");
            }
            // Programs of the fake are the host's, and so is their search path.
            assert!(!tool.case.is_real() || inside["PATH"] == "/root/.local/bin:/bin", "{inside:?}");
        })
        .await;
}

#[tokio::test]
async fn a_command_has_a_path_a_language_and_the_words_of_its_profile() {
    let profile = format!(
        "[profiles.tiny]\nimage = \"{IMAGE}\"\npackages = []\n[profiles.tiny.env]\nBASE = \"/opt/<${{FROM_IMAGE}}>\"\nNPM_TOKEN = \"of the profile\"\n"
    );
    person(&profile).on_real_engines(async |tool| {
        let more = json!({ "image": null, "purpose": "tiny", "user": "1000", "env": { "N": 1.5, "B": true, "GONE": null } });
        let name = tool.created(more).await;
        let inside = tool.environ(&name, json!({})).await;
        assert_eq!(inside["PATH"], "/home/agent/.local/bin:/bin");
        assert_eq!(inside["LANG"], "C.UTF-8");
        assert_eq!(inside[FROM_IMAGE.0], FROM_IMAGE.1);
        assert_eq!(inside["BASE"], format!("/opt/<{}>", FROM_IMAGE.1), "expanded once");
        assert_eq!(inside["NPM_TOKEN"], format!("NPM_TOKEN{HARD}"), "the host wins over the profile");
        assert_eq!((inside["N"].as_str(), inside["B"].as_str(), inside.get("GONE")), ("1.5", "true", None));
        for (name, value) in [("HOME", "/home/agent"), ("USER", "agent"), ("LOGNAME", "agent"), ("SHELL", "/bin/sh")] {
            assert_eq!(inside[name], value, "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn variables_that_cannot_be_are_refused_before_anything_is_made() {
    with_rootful_tool("", async |tool| {
        let long = "x".repeat((128 << 10) + 1);
        let many: Value = (0..9).map(|it| (format!("N{it}"), Value::from("x".repeat(120 << 10)))).collect();
        for env in [
            json!({ "1A": "x" }),
            json!({ "A B": "x" }),
            json!({ "A=B": "x" }),
            json!({ "": "x" }),
            json!({ "CORACLE_X": "x" }),
            json!({ "A": ["x"] }),
            json!({ "A": long }),
            many,
        ] {
            let answer = tool.create(json!({ "env": env })).await;
            assert_eq!(answer["code"], "invalid_input", "{answer:#}");
        }
        tool.nothing_left().await;
        // A program gets `NAME=value` of 128 KiB at most from the kernel.
        let most = "x".repeat((128 << 10) - 3);
        let name = tool.created(json!({ "env": { "A": most } })).await;
        assert!(tool.environ(&name, json!({})).await["A"] == most);
    })
    .await;
}

#[tokio::test]
async fn s47_after_a_restart_what_can_be_had_again_is_there_and_the_rest_is_named() {
    person("")
        .on_every_engine(async |tool| {
            let answer = tool.made(json!({ "env": { "DB_PASSWORD": "of the call", "PLAIN": "kept\n" } })).await;
            let name = answer["container"].as_str().unwrap();
            let id = ContainerId::parse(answer["id"].as_str().unwrap()).unwrap();
            assert_eq!(tool.environ(name, json!({})).await["DB_PASSWORD"], "of the call");
            tool.case.runtime.stop(&id, std::time::Duration::ZERO).await.unwrap();
            tool.case.runtime.start(&id).await.unwrap();
            let answer = tool.exec(name, "exit 0").await;
            assert_eq!(warnings(&answer), ["env_missing"], "{answer:#}");
            assert!(answer["warnings"][0]["message"].as_str().unwrap().contains("DB_PASSWORD"), "{answer:#}");
            let inside = tool.environ(name, json!({})).await;
            assert_eq!(inside["NPM_TOKEN"], format!("NPM_TOKEN{HARD}"));
            assert_eq!((inside["PLAIN"].as_str(), inside.get("DB_PASSWORD")), ("kept\n", None));
            let status = tool.call(json!({ "operation": "status", "container": name })).await;
            assert_eq!(status["env_missing"], json!(["DB_PASSWORD"]), "{status:#}");
            let given = tool.environ(name, json!({ "DB_PASSWORD": "again" })).await;
            assert_eq!(given["DB_PASSWORD"], "again");
            ran("s47", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn commands_of_a_python_container_use_the_environment_of_the_project() {
    let config = format!("[profiles.python]\nimage = \"{IMAGE}\"\npackages = []\nsetup = []\n");
    person(&config).on_real_engines(async |tool| {
        let make = "mkdir -p .venv/bin && printf '#!/bin/sh\\necho of the project\\n' > .venv/bin/python3 && chmod 755 .venv/bin/python3";
        let made = tool.made(json!({ "image": null, "purpose": "python", "setup_commands": [make] })).await;
        let name = made["container"].as_str().unwrap();
        assert_eq!(tool.prints(name, "python3").await, "of the project");
        assert_eq!(tool.prints(name, "sh -c 'command -v python3'").await, "/workspace/.venv/bin/python3");
        let call = json!({ "image": null, "purpose": "python", "setup_commands": [make], "user": "4321:8765",
            "env": { "HOME": "/workspace/home" } });
        let made = tool.made(call).await;
        let name = made["container"].as_str().unwrap();
        assert_eq!(tool.prints(name, "python3").await, "of the project");
        let of_root = json!({ "operation": "exec", "container": name, "command": "echo $PATH", "as_root": true });
        let answer = tool.call(of_root).await;
        let path = answer["stdout"].as_str().unwrap();
        assert!(path.contains("/bin") && !path.contains("/workspace"), "{answer:#}");
        let other = tool.made(json!({ "setup_commands": [make] })).await;
        let path = tool.prints(other["container"].as_str().unwrap(), "echo $PATH").await;
        assert!(!path.contains(".venv"), "{path}");
    })
    .await;
}
