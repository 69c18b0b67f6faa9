//! A table of forms of files.

use coracle_types::Command;
use coracle_types::failure::{Code, Failure};
use serde_json::json;

use super::*;
use crate::definition::{Hook, LifecycleStage};
use crate::variables::Variables;

fn variables() -> Variables {
    Variables {
        local_folder: "/work/web".into(),
        local_name: "web".into(),
        container_folder: "/workspace/worktrees/w".into(),
        id: "k1".into(),
        local_env: BTreeMap::new(),
    }
}

fn reads(text: &str) -> Devcontainer {
    read(text.as_bytes(), &variables()).unwrap_or_else(|err| panic!("{text}: {err}"))
}

fn fails(text: &str) -> Failure {
    read(text.as_bytes(), &variables()).unwrap_err()
}

#[test]
fn x65_every_property_of_the_table_is_parsed() {
    let it = reads(
        r#"// A comment, and a trailing comma below.
        { "name": "x", "build": { "dockerfile": "Dockerfile", "context": "..", "args": { "A": "${localWorkspaceFolderBasename}" }, "target": "dev" },
          "features": { "./tool": { "version": "2", "fast": true } }, /* who */ "remoteUser": "node", "containerUser": "root",
          "workspaceFolder": "/workspaces/${localWorkspaceFolderBasename}",
          "mounts": ["source=cache,target=/cache,type=volume", { "type": "bind", "source": "/data", "target": "/data" }],
          "containerEnv": { "A": "1", "B": "${containerWorkspaceFolder}" }, "remoteEnv": { "A": "2", "GONE": null, "PATH": "${containerEnv:PATH}:/x:${containerEnv:A}" },
          "onCreateCommand": "make", "updateContentCommand": ["npm", "ci"],
          "postCreateCommand": { "a": "x", "b": ["y", "z"] }, "postStartCommand": "true",
          "forwardPorts": [3000, "db:5432"], "hostRequirements": { "cpus": 4, "memory": "8gb", "gpu": "optional" },
          "customizations": { "vscode": {} }, "runArgs": ["--init"], "privileged": false, "capAdd": [], }"#,
    );
    let build = it.build.as_ref().unwrap();
    assert_eq!(
        (build.dockerfile.as_str(), build.context.as_str(), build.target.as_deref()),
        ("Dockerfile", "..", Some("dev"))
    );
    assert_eq!((build.args["A"].as_str(), it.features[0].options["version"].as_str()), ("web", "2"));
    assert_eq!((it.user.as_deref(), it.workspace_folder.as_ref().unwrap().as_str()), (Some("node"), "/workspaces/web"));
    assert_eq!(it.mounts.len(), 2);
    let image = [("PATH", "/bin"), ("GONE", "x")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = it.env(&image);
    let env: Vec<_> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(env, [("A", "2"), ("B", "/workspaces/web"), ("PATH", "/bin:/x:1")]);
    assert_eq!(it.hooks.len(), 4);
    assert_eq!(it.hooks[&LifecycleStage::UpdateContent], Hook::One(Command::Argv(vec!["npm".into(), "ci".into()])));
    assert!(matches!(&it.hooks[&LifecycleStage::PostCreate], Hook::Together(all) if all.len() == 2));
    assert_eq!(it.forward_ports, ["3000", "db:5432"]);
    assert_eq!((it.needs.cpus, it.needs.memory, it.needs.gpu), (Some(4.0), Some(8 << 30), false));
    assert_eq!(it.warnings, []);
    assert_eq!(reads("{}"), Devcontainer::default());
}

#[test]
fn unknown_properties_are_reported_and_have_no_effect() {
    let cases = [
        (r#"{ "overrideCommand": false }"#, "`overrideCommand`"),
        (r#"{ "dockerFile": "x" }"#, "`dockerFile`"),
        (r#"{ "build": { "dockerfile": "x", "cacheFrom": "y" } }"#, "`build.cacheFrom`"),
        (r#"{ "workspaceFolder": "/workspace" }"#, "`workspaceFolder`"),
        (r#"{ "containerEnv": { "GIT_DIR": "/x" } }"#, "`GIT_DIR`"),
        (r#"{ "remoteEnv": { "LD_PRELOAD": "/x" } }"#, "`LD_PRELOAD`"),
        (r#"{ "containerEnv": { "A": "${localEnv:AWS_SECRET_ACCESS_KEY}" } }"#, "`AWS_SECRET_ACCESS_KEY`"),
    ];
    for (text, expected) in cases {
        let it = reads(text);
        assert_eq!(it.warnings.len(), 1, "{text}");
        assert_eq!(it.warnings[0].code, "devcontainer_ignored");
        assert!(it.warnings[0].message.contains(expected), "{text}: {:?}", it.warnings);
    }
    assert_eq!(reads(r#"{ "containerEnv": { "GIT_DIR": "/x" } }"#).container_env, BTreeMap::new());
}

#[test]
fn x66_effects_beyond_the_sandbox_are_refused_with_property_and_rule() {
    let cases = [
        (r#"{ "initializeCommand": "id" }"#, "initializeCommand", "devcontainer.host_command"),
        (r#"{ "initializeCommand": ["id"] }"#, "initializeCommand", "devcontainer.host_command"),
        (r#"{ "privileged": true }"#, "privileged", "devcontainer.privileged"),
        (r#"{ "privileged": "yes" }"#, "privileged", "devcontainer.privileged"),
        (r#"{ "capAdd": ["SYS_PTRACE"] }"#, "capAdd", "devcontainer.capabilities"),
        (r#"{ "securityOpt": ["seccomp=unconfined"] }"#, "securityOpt", "devcontainer.security_opt"),
        (r#"{ "appPort": 80 }"#, "appPort", "devcontainer.ports"),
        (r#"{ "dockerComposeFile": "c.yml" }"#, "dockerComposeFile", "devcontainer.compose"),
        (r#"{ "workspaceMount": "source=/,target=/x,type=bind" }"#, "workspaceMount", "devcontainer.workspace_mount"),
        (r#"{ "runArgs": ["--privileged"] }"#, "runArgs", "devcontainer.run_args"),
        (r#"{ "runArgs": ["--init", "--network=host"] }"#, "runArgs", "devcontainer.run_args"),
        (
            r#"{ "build": { "dockerfile": "x", "options": ["--network=host"] } }"#,
            "build.options",
            "devcontainer.build_options",
        ),
        (r#"{ "mounts": ["source=/x,target=/proc/x,type=bind"] }"#, "mounts", "mount.target"),
    ];
    for (text, property, rule) in cases {
        let failure = fails(text);
        assert_eq!(failure.code, Code::DevcontainerRefused, "{text}");
        assert_eq!(
            (&failure.details["property"], &failure.details["rule"]),
            (&json!(property), &json!(rule)),
            "{text}"
        );
        assert!(failure.message.contains(property) && failure.message.contains(rule), "{failure}");
    }
    let both = fails(r#"{ "privileged": true, "runArgs": ["--pid=host"] }"#);
    assert_eq!(both.details["problems"].as_array().unwrap().len(), 2);
}

#[test]
fn syntax_errors_are_reported_with_line_and_column() {
    let cases = [
        ("{ \"a\": 1\n  \"b\": 2 }", (1, 9), "comma"),
        ("[]", (1, 1), "object"),
        ("", (1, 1), "object"),
        ("{ 'a': 1 }", (1, 3), "quoted"),
        ("{\n\n  \"image\": 7 }", (3, 3), "`image` is no text"),
        ("{ \"remoteUser\": [] }", (1, 3), "`remoteUser`"),
        ("{ \"image\": \"a b\" }", (1, 3), "`image`"),
        ("{ \"image\": \"x\", \"build\": { \"dockerfile\": \"y\" } }", (1, 3), "both"),
        ("{ \"build\": {} }", (1, 3), "`dockerfile`"),
        ("{ \"mounts\": [\"x\"] }", (1, 3), "`mounts`"),
        ("{ \"postCreateCommand\": 7 }", (1, 3), "`postCreateCommand`"),
        ("{ \"forwardPorts\": [0] }", (1, 3), "port"),
        ("{ \"containerEnv\": { \"A B\": \"x\" } }", (1, 3), "`A B`"),
        ("{ \"workspaceFolder\": \"/proc/x\" }", (1, 3), "`workspaceFolder`"),
        ("{ \"workspaceFolder\": \"rel\" }", (1, 3), "`workspaceFolder`"),
        ("{ \"name\": \"a\",\n \"name\": \"b\" }", (2, 2), "twice"),
        ("{ \"hostRequirements\": { \"memory\": \"much\" } }", (1, 3), "size"),
    ];
    let wrong = cases.into_iter().filter_map(|(text, (line, column), why)| {
        let failure = fails(text);
        let at = (&failure.details["line"], &failure.details["column"]) == (&json!(line), &json!(column));
        let right = failure.code == Code::DevcontainerInvalid && at && failure.message.contains(why);
        (!right).then(|| format!("{text}: {failure}"))
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_hostile_file_only_fails_its_own_parsing() {
    for open in ["[", "{\"a\":"] {
        let deep = format!("{{\"x\": {}", open.repeat(40_000));
        assert_eq!(fails(&deep).code, Code::DevcontainerInvalid);
    }
    let long = format!("{{ \"name\": \"{}\" }}", "x".repeat(MAX_BYTES));
    assert!(fails(&long).message.contains("at most"));
    assert_eq!(read(b"{ \"a\": \"\xff\" }", &variables()).unwrap_err().details["column"], json!(9));
}
