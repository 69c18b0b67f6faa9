//! Secrets planted on the host and in calls, and every place where none of them may appear.

mod search;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use coracle_types::EngineKind;
use serde_json::{Value, json};

pub(crate) use self::search::Canaries;
use self::search::Watch;
pub(crate) use self::search::files_below;
use super::Tool;
use super::debian::derived;
use super::person::{Person, Programs, step};
use crate::engines::{IMAGE, ran};

/// The program's output on both streams after a call.
async fn recorded_call(tool: &Tool<'_>, all: &mut Vec<u8>, call: Value) -> Value {
    if !tool.case.is_real() {
        let answer = tool.call(call).await;
        all.extend(answer.to_string().into_bytes());
        return answer;
    }
    // Through standard input: arguments of the test's own process are no leak.
    let output = tool.run(["call", "--stream", "-"], call.to_string().as_bytes()).await;
    all.extend([output.stdout.as_slice(), &output.stderr].concat());
    let last = output.stdout.split(|it| *it == b'\n').rfind(|it| !it.is_empty()).unwrap_or_default();
    let event: Value =
        serde_json::from_slice(last).unwrap_or_else(|err| panic!("{err}: {}", String::from_utf8_lossy(&output.stderr)));
    event["result"].clone()
}

/// Everything that the engine reveals about a container, by the name of the interface.
async fn shown(tool: &Tool<'_>, container: &str, image: &str, since: u64) -> Vec<(&'static str, Vec<u8>)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let elapsed = format!("--since={}s", now - since + 2);
    let until = format!("--until={}", now + 1);
    let docker = tool.case.engine().as_str() == "docker";
    let events: Vec<&str> = if docker {
        vec!["events", &elapsed, &until, "--format={{json .}}"]
    } else {
        vec!["events", "--stream=false", &elapsed, "--format=json"]
    };
    let at = tool.home().join("image.tar").display().to_string();
    tool.engine_says(&["save", "--output", &at, image]).await;
    let id = tool.engine_says(&["inspect", "--type=container", "--format={{.Id}}", container]).await;
    let mut shown = vec![
        ("inspect of the container", tool.engine_says(&["inspect", container]).await.into_bytes()),
        ("inspect of the image", tool.engine_says(&["inspect", "--type=image", image]).await.into_bytes()),
        ("history of the image", tool.engine_says(&["history", "--no-trunc", image]).await.into_bytes()),
        ("layers of the image", std::fs::read(&at).unwrap()),
        ("the engine's own files", stored_bytes(tool, &id)),
    ];
    std::fs::remove_file(at).unwrap();
    // The embedded engine has no daemon that would keep events.
    if tool.case.engine() != EngineKind::Embedded {
        shown.push(("events", tool.engine_says(&events).await.into_bytes()));
    }
    shown
}

/// The engine's files of a container on disk, by its id.
pub(crate) fn stored_bytes(tool: &Tool<'_>, id: &str) -> Vec<u8> {
    if tool.case.engine().as_str() == "docker" {
        return files_below(&Path::new("/var/lib/docker/containers").join(id));
    }
    if let Some(data) = tool.case.engine_data() {
        let entries = std::fs::read_dir(data.join("containers").join(id)).unwrap().map(|it| it.unwrap().path());
        // The container's own output is checked elsewhere.
        let own = entries.filter(|it| !["root", "upper", "work"].iter().any(|name| it.ends_with(name)));
        let read = |it: PathBuf| if it.is_dir() { files_below(&it) } else { std::fs::read(it).unwrap_or_default() };
        return own.flat_map(read).collect();
    }
    let storage = Path::new("/var/lib/containers/storage");
    let database = std::fs::read(storage.join("libpod/bolt_state.db")).unwrap_or_default();
    [database, files_below(&storage.join("overlay-containers").join(id))].concat()
}

/// A person's nine secrets.
struct Planted {
    canaries: Canaries,
    passed: String,
    of_create: String,
    of_exec: String,
    gh: String,
    inline: String,
    /// Files below the home.
    files: Vec<(&'static str, String)>,
}

impl Planted {
    fn new() -> Self {
        let mut canaries = Canaries::default();
        let (user, header) = (canaries.hatch("user of a URL"), canaries.hatch("header"));
        let gitconfig = format!(
            "[user]\n\tname = Ann\n[url \"https://ann:{user}@github.com/\"]\n\tinsteadOf = private:\n\
             [http]\n\textraHeader = \"Authorization: Bearer {header}\"\n"
        );
        let files = vec![
            (".gitconfig", gitconfig),
            (".ssh/id_ed25519", format!("-----BEGIN-----\n{}\n-----END-----\n", canaries.hatch("ssh key"))),
            (".amplifier/settings.yaml", format!("api_key: {}\n", canaries.hatch("settings"))),
        ];
        Self {
            passed: canaries.hatch("passed through"),
            of_create: canaries.hatch("env of create"),
            of_exec: canaries.hatch("env of exec"),
            gh: canaries.hatch("gh"),
            inline: canaries.hatch("inline dotfile"),
            files,
            canaries,
        }
    }
}

/// A profile whose image is built, so that the image can be searched.
fn config() -> String {
    let setup = format!("echo {} > built", coracle_types::random_hex::<8>());
    format!(
        "[security]\nallow_ssh = true\n[log]\nlevel = \"debug\"\n\
         [profiles.amplifier]\nimage = \"{IMAGE}\"\npackages = []\nsetup = [\"{setup}\"]\n"
    )
}

#[tokio::test]
async fn s45_secrets_are_in_nothing_that_others_can_read() {
    let it = Planted::new();
    let programs = Programs::new().with_gh(&it.gh);
    let person = Person::new(config()).with_programs(&programs).with_env("NPM_TOKEN", &it.passed);
    person
        .on_every_engine(async |tool| {
            for (path, content) in &it.files {
                tool.at_home(path, content);
            }
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let (watch, mut answers) = (Watch::begin(), vec![]);
            let create = tool.create_call(json!({
            "image": null, "purpose": "amplifier", "forward_ssh": true, "env": { "DB_PASSWORD": it.of_create },
            "dotfiles_inline": { ".netrc": it.inline },
            "setup_commands": ["true", "echo \"it is $NPM_TOKEN\"; printf '%s' \"$DB_PASSWORD\" | base64 >&2; exit 3"],
        }));
            let created = recorded_call(tool, &mut answers, create.clone()).await;
            assert_eq!(created["success"], true, "{created:#}");
            let item = &step(&created, "setup_commands")["items"][1];
            assert_eq!(item["exit_code"], 3, "{created:#}");
            assert!(item["output"].as_str().unwrap().contains("[redacted:NPM_TOKEN]"), "{item:#}");
            // The fake has no tmpfs for what lies in files.
            let in_files = ["forward_ssh", "amplifier_settings"].iter().filter(|_| tool.case.is_real());
            for secret in ["env_passthrough", "forward_gh"].iter().chain(in_files) {
                assert_eq!(step(&created, secret)["status"], "success", "{created:#}");
            }
            let name = created["container"].as_str().unwrap();
            // Verifies that they are inside: otherwise nothing could leak.
            let inside = tool.environ(name, json!({ "OF_EXEC_TOKEN": it.of_exec })).await;
            assert_eq!((&inside["NPM_TOKEN"], &inside["DB_PASSWORD"]), (&it.passed, &it.of_create));
            assert_eq!((&inside["GH_TOKEN"], &inside["OF_EXEC_TOKEN"]), (&it.gh, &it.of_exec));
            let env = json!({ "OF_EXEC_TOKEN": it.of_exec });
            let all_there = "[ -n \"$OF_EXEC_TOKEN\" ] && [ -n \"$DB_PASSWORD\" ] && sleep 0.2";
            for operation in ["exec", "exec_background"] {
                let call = json!({ "operation": operation, "container": name, "command": all_there, "env": env });
                let answer = recorded_call(tool, &mut answers, call).await;
                assert_eq!(answer["success"], true, "{answer:#}");
            }
            for operation in ["jobs", "status", "list", "preflight", "images", "exec_interactive_hint"] {
                let mut call = json!({ "operation": operation });
                if ["status", "exec_interactive_hint"].contains(&operation) {
                    call["container"] = name.into();
                }
                recorded_call(tool, &mut answers, call).await;
            }
            // Failures speak too.
            for more in [
                json!({ "image": "no-such-image:1", "pull": "never", "purpose": null }),
                json!({ "name": name }),
                json!({ "dotfiles_repo": format!("https://ann:{}@example.com/dots.git", it.of_exec) }),
                json!({ "repos": [{ "url": format!("https://{}@example.com/dots.git", it.of_exec) }] }),
                json!({ "user": "nobody-knows-them" }),
            ] {
                let mut call = create.clone();
                super::merge(call.as_object_mut().unwrap(), more);
                let answer = recorded_call(tool, &mut answers, call).await;
                assert_eq!(answer["success"], false, "{answer:#}");
            }
            let canaries = &it.canaries;
            canaries.absent("an answer, a report, progress or the log", &answers);
            canaries
                .absent("a record, the audit or another file of ours", &files_below(tool.state().parent().unwrap()));
            canaries.absent("a temporary file", &files_below(&tool.state().parent().unwrap().with_file_name("tmp")));
            if tool.case.is_real() {
                for (surface, bytes) in shown(tool, name, created["image"].as_str().unwrap(), since).await {
                    canaries.absent(surface, &bytes);
                }
            }
            tool.destroy(name).await;
            canaries.absent("the words of a process", &watch.end());
            canaries.absent("what is left of it", &files_below(tool.state().parent().unwrap()));
            ran("s45", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn s06_a_create_that_fails_says_nothing_of_what_it_would_have_forwarded() {
    let mut canaries = Canaries::default();
    let (passed, gh) = (canaries.hatch("passed through"), canaries.hatch("gh"));
    let (of_create, secret_name) = (canaries.hatch("env of create"), canaries.hatch("command"));
    let programs = Programs::new().with_gh(&gh);
    let person = Person::new("[log]\nlevel = \"debug\"\n").with_programs(&programs).with_env("NPM_TOKEN", &passed);
    person
        .on_real_engines(async |tool| {
            let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let (port, mut received) = (taken.local_addr().unwrap().port(), vec![]);
            let (watch, common) = (
                Watch::begin(),
                json!({ "env": { "DB_PASSWORD": of_create },
                "setup_commands": [["echo", secret_name]] }),
            );
            for (more, code) in [
                (json!({ "image": "localhost/no-such-image:1", "pull": "never" }), "image_not_found"),
                (json!({ "image": "127.0.0.1:1/no-such-image:1" }), "pull_failed"),
                (json!({ "ports": [{ "container": 80, "host": port }] }), "port_taken"),
            ] {
                let mut call = tool.create_call(common.clone());
                super::merge(call.as_object_mut().unwrap(), more);
                let answer = recorded_call(tool, &mut received, call).await;
                assert_eq!(answer["code"], code, "{answer:#}");
            }
            canaries.absent("an answer, progress or the log", &received);
            canaries.absent("the audit or another file of ours", &files_below(tool.state().parent().unwrap()));
            canaries.absent("a temporary file", &files_below(&tool.temp()));
            canaries.absent("the words of a process", &watch.end());
            assert!(tool.records().is_empty());
            ran("s06", tool.case.engine());
        })
        .await;
}

/// Also in fields of calls that fail.
#[tokio::test]
async fn no_field_of_a_call_leaves_a_secret_in_the_state_directory() {
    let mut canaries = Canaries::default();
    let [env, file, stack] = ["env as a list", "config_files", "compose_content"].map(|it| canaries.hatch(it));
    // The report of a container names its setup commands, so only the trail has to be without them.
    let mut of_report = Canaries::default();
    let setup = of_report.hatch("setup_commands");
    let [word, input, binary, pattern] = ["command", "stdin", "stdin_base64", "pattern"].map(|it| canaries.hatch(it));
    let compose =
        format!("services:\n  db:\n    image: nowhere/db\n    environment: {{ POSTGRES_PASSWORD: {stack} }}\n");
    Person::new("[log]\nlevel = \"debug\"\n")
        .on_every_engine(async |tool| {
            let create = tool.create_call(json!({
                "env": [format!("SERVICE_TOKEN={env}")],
                "config_files": { "/tmp/config": file },
                "setup_commands": [["sh", "-c", format!(": {setup}")]],
            }));
            let created = tool.call(create).await;
            assert_eq!(created["success"], true, "{created:#}");
            let name = created["container"].as_str().unwrap();
            let call = json!({ "operation": "create", "name": "with-stack", "image": "nowhere/app", "pull": "never", "compose_content": compose });
            assert_eq!(tool.call(call).await["success"], false);
            let binary = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, &binary);
            for (operation, more) in [
                ("exec", json!({ "command": ["sh", "-c", format!("cat >/dev/null; : {word}")], "stdin": input })),
                ("exec", json!({ "command": format!("cat >/dev/null; : {word}"), "stdin_base64": binary })),
                ("exec_background", json!({ "command": format!("sleep 0; : {word}") })),
            ] {
                let mut call = json!({ "operation": operation, "container": name });
                super::merge(call.as_object_mut().unwrap(), more);
                let answer = tool.call(call).await;
                assert_eq!(answer["success"], true, "{answer:#}");
            }
            let search = json!({ "operation": "job_read", "container": name, "job_id": "00000000", "pattern": pattern });
            assert_eq!(tool.call(search).await["success"], false);
            let trail = files_below(&tool.state().join("audit"));
            assert!(memchr::memmem::find(&trail, b"SERVICE_TOKEN").is_some(), "names are in the trail");
            of_report.absent("the trail", &trail);
            canaries.absent("a file of the state directory", &files_below(&tool.state()));
            tool.destroy(name).await;
        })
        .await;
}

/// The same search finds a carelessly passed secret in each interface.
#[tokio::test]
async fn leaks_are_found_in_every_interface() {
    Person::new("")
        .on_real_engines(async |tool| {
            let mut canaries = Canaries::default();
            let leak = canaries.hatch("leak");
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
            let watch = Watch::begin();
            let image = derived(tool, IMAGE, &format!("echo {leak} >/leak"), &[&format!("LABEL leak={leak}")]).await;
            let name = tool.case.name("leaks").to_string();
            let (key, value) = tool.case.label();
            let (label, env, leaking) =
                (format!("--label={key}={value}"), format!("--env=LEAK={leak}"), format!("--label=leak={leak}"));
            let words =
                ["run", "--detach", "--network=none", "--name", &name, &label, &env, &leaking, &image, "sleep", "100"];
            tool.engine_says(&words).await;
            for (surface, bytes) in shown(tool, &name, &image, since).await {
                // Podman's history does not contain the arguments of `commit`; that of an import contains its message.
                if surface != "history of the image" {
                    canaries.present(surface, &bytes);
                }
            }
            let (at, tag) = (tool.home().join("root.tar").display().to_string(), tool.case.tag("imported").to_string());
            tool.engine_says(&["export", "--output", &at, &name]).await;
            tool.engine_says(&["import", "--message", &leak, &at, &tag]).await;
            canaries.present("history", tool.engine_says(&["history", "--no-trunc", &tag]).await.as_bytes());
            tool.engine_says(&["rmi", &tag]).await;
            canaries.present("the words of a process", &watch.end());
            let mut answers = vec![];
            let own = tool.created(json!({})).await;
            recorded_call(
                tool,
                &mut answers,
                json!({ "operation": "exec", "container": own, "command": format!("echo {leak}") }),
            )
            .await;
            canaries.present("an answer", &answers);
            let ours = tool.state().join("containers/leak");
            std::fs::write(&ours, &leak).unwrap();
            canaries.present("a file of ours", &files_below(tool.state().parent().unwrap()));
            std::fs::remove_file(ours).unwrap();
        })
        .await;
}
