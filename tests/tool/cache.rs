//! Profiles and their images: built once, identified by a key, built without a registry.

use std::time::Instant;

use coracle_types::random_hex;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::debian::{derived, found};
use super::person::{Person, step, warnings};
use super::{Tool, with_rootful_engine, with_rootful_tool};
use crate::engines::{GitServer, IMAGE, LABEL, Lack, WITHOUT_WAITING, ran};

/// A profile of its own: its file, its image, and the random word in it keep tests apart that run side by side.
struct Tiny {
    mark: String,
    config: String,
}

impl Tiny {
    /// Its recipe leaves a file that differs from build to build.
    fn new() -> Self {
        let mark = random_hex::<8>();
        let setup = format!("cat /proc/sys/kernel/random/uuid > built-{mark}");
        Self { config: Self::of(&[&setup], ""), mark }
    }

    fn of(setup: &[&str], more: &str) -> String {
        format!("[profiles.tiny]\nimage = \"{IMAGE}\"\npackages = []\nsetup = {}\n{more}\n", json!(setup))
    }

    /// The build that a container comes from.
    async fn build(&self, tool: &Tool<'_>, answer: &Value) -> Option<String> {
        found(tool, answer, &format!("built-{}", self.mark)).await
    }
}

/// A container of the profile.
async fn tiny(tool: &Tool<'_>, more: Value) -> Value {
    let mut call = json!({ "image": null, "purpose": "tiny" });
    super::merge(call.as_object_mut().unwrap(), more);
    tool.made(call).await
}

/// Rewrites the configuration, which the next call of the program reads.
fn reconfigure(tool: &Tool<'_>, from: &str, to: &str) {
    let file = tool.work().parent().unwrap().join("config.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(file, text.replace(from, to)).unwrap();
}

async fn images(tool: &Tool<'_>) -> Vec<Value> {
    let answer = tool.call(json!({ "operation": "images" })).await;
    assert_eq!(answer["count"], answer["images"].as_array().unwrap().len(), "{answer:#}");
    answer["images"].as_array().unwrap().clone()
}

#[tokio::test]
async fn an_image_is_built_once_and_says_what_it_is() {
    let it = Tiny::new();
    with_rootful_tool(&it.config, async |tool| {
        let first = tiny(tool, json!({})).await;
        assert_eq!((&first["cache_used"], &first["image_source"]), (&false.into(), &"built".into()), "{first:#}");
        assert_eq!(step(&first, "packages")["status"], "success", "{first:#}");
        assert!(step(&first, "packages")["probe"].is_string());
        let second = tiny(tool, json!({})).await;
        assert_eq!((&second["cache_used"], &second["image_source"]), (&true.into(), &"cache".into()), "{second:#}");
        assert_eq!((&first["image"], &first["image_id"]), (&second["image"], &second["image_id"]));
        let report = step(&second, "packages");
        assert_eq!(
            (&report["status"], report["detail"].as_str().unwrap().contains("cache")),
            (&"skipped".into(), true),
            "{report:#}"
        );
        let built = it.build(tool, &first).await;
        assert!(built.is_some() && built == it.build(tool, &second).await, "{built:?}");
        let listed = images(tool).await;
        let [image] = &listed[..] else { panic!("{listed:#?}") };
        let key = image["key"].as_str().unwrap();
        assert_eq!(
            (image["purpose"].as_str(), key.len(), &image["in_use"]),
            (Some("tiny"), 64, &true.into()),
            "{image:#}"
        );
        assert!(image["image"].as_str().unwrap().contains(&format!("coracle-cache:tiny-{}-", &key[..16])), "{image:#}");
        assert_eq!(&image["image_id"], &first["image_id"]);
        assert!(image["base"].is_string() && image["size_bytes"].is_u64() && image["created"].is_string(), "{image:#}");
    })
    .await;
}

#[tokio::test]
async fn images_are_cleared_by_purpose_except_those_in_use() {
    let it = Tiny::new();
    with_rootful_tool(&it.config, async |tool| {
        let nothing = tool.call(json!({ "operation": "cache_clear" })).await;
        assert_eq!((&nothing["success"], &nothing["cleared"]), (&true.into(), &json!([])), "{nothing:#}");
        let answer = tiny(tool, json!({})).await;
        let clear = async |more: Value| {
            let mut call = json!({ "operation": "cache_clear" });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.call(call).await
        };
        let retained = clear(json!({})).await;
        assert_eq!((&retained["success"], &retained["cleared"]), (&true.into(), &json!([])), "{retained:#}");
        assert!(retained["kept"][0]["reason"].is_string(), "{retained:#}");
        tool.destroy(answer["container"].as_str().unwrap()).await;
        assert_eq!(clear(json!({ "purpose": "tiny", "dry_run": true })).await["images"].as_array().unwrap().len(), 1);
        assert_eq!(clear(json!({ "purpose": "python" })).await["cleared"], json!([]));
        assert_eq!(images(tool).await.len(), 1);
        assert_eq!(clear(json!({ "purpose": "tiny" })).await["cleared"], json!(["tiny"]));
        assert_eq!(images(tool).await.len(), 0);
        assert_eq!(tiny(tool, json!({})).await["cache_used"], false);
    })
    .await;
}

#[tokio::test]
async fn s23_a_cached_image_does_not_stand_in_for_one_that_is_named() {
    let it = Tiny::new();
    with_rootful_engine(&it.config, async |tool| {
        let other = derived(tool, IMAGE, "echo of the other >/which", &[]).await;
        let first = tiny(tool, json!({})).await;
        assert_eq!(tool.exec(first["container"].as_str().unwrap(), "cat /which").await["exit_code"], 1);
        for more in [json!({ "image": other }), json!({ "image": other, "purpose": null })] {
            let answer = tiny(tool, more).await;
            assert_eq!(tool.prints(answer["container"].as_str().unwrap(), "cat /which").await, "of the other");
            assert_eq!(it.build(tool, &answer).await.is_some(), answer["purpose"] == "tiny", "{answer:#}");
        }
        // Without purpose and packages it is used as it is.
        let plain = tool.made(json!({ "image": other })).await;
        assert!(plain["image"].as_str().unwrap().contains(&other) && plain["image_source"] == "local", "{plain:#}");
        ran("s23", tool.case.engine());
    })
    .await;
}

/// Everything that a user can provide goes into the first container, and nothing of it into the image.
#[tokio::test]
async fn s49_a_cached_image_holds_nothing_of_the_container_that_it_was_made_for() {
    let (canary, it) = (random_hex::<16>(), Tiny::new());
    let config = format!("{}[profiles.tiny.env]\nOF_PROFILE = \"it's ${{FROM_IMAGE}}\"\n", it.config);
    Person::new(config)
        .with_env("NPM_TOKEN", &canary)
        .on_real_engines(async |tool| {
            let first = tiny(
                tool,
                json!({
                    "env": { "OWN": canary }, "config_files": { "/etc/canary": canary, "~/canary": canary },
                    "setup_commands": [format!("echo {canary} > /opt-canary")], "dotfiles_inline": { "c": canary },
                }),
            )
            .await;
            assert_eq!(first["provisioning_ok"], true, "{first:#}");
            let (id, at) = (first["image_id"].as_str().unwrap(), tool.work().join("image.tar").display().to_string());
            tool.engine_says(&["save", "--output", &at, id]).await;
            let saved = std::fs::read(&at).unwrap();
            let has = |bytes: &[u8]| saved.windows(bytes.len()).any(|it| it == bytes);
            assert!(has(format!("built-{}", it.mark).as_bytes()), "the layers are readable as they are");
            assert!(!has(canary.as_bytes()), "the image holds what was the container's");
            let config = tool.engine_says(&["inspect", "--type=image", id]).await;
            let config: Value = serde_json::from_str(&config).unwrap();
            let config = &config[0]["Config"];
            let mut env: Vec<&str> = config["Env"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
            env.sort_unstable();
            let (name, value) = crate::engines::FROM_IMAGE;
            // Podman names the container that an image was made of, by nothing.
            env.retain(|it| *it != "HOSTNAME=");
            assert_eq!(
                env,
                [format!("{name}={value}"), "PATH=/bin".into()],
                "of the base, and the profile's comes later"
            );
            for unset in ["Entrypoint", "Volumes", "User", "Cmd"] {
                assert!(
                    // Docker has no other way to clear what a container was started with.
                    ["null", "\"\"", "{}", "[]", "[\"\"]", "\"0:0\""].contains(&config[unset].to_string().as_str()),
                    "{unset}: {config:#}"
                );
            }
            let labels = config["Labels"].as_object().unwrap();
            assert!(labels.keys().all(|it| it.starts_with("coracle.")) && !labels.contains_key(LABEL), "{labels:#?}");
            assert!(labels.contains_key("coracle.cache.key") && labels.contains_key("coracle.sig"), "{labels:#?}");
            ran("s49", tool.case.engine());
        })
        .await;
}

#[tokio::test]
async fn s50_another_recipe_is_another_image_and_bust_replaces_one() {
    let it = Tiny::new();
    with_rootful_tool(&it.config, async |tool| {
        let first = tiny(tool, json!({})).await;
        let of_first = it.build(tool, &first).await;
        tool.destroy(first["container"].as_str().unwrap()).await;
        let busted = tiny(tool, json!({ "cache_bust": true })).await;
        assert_eq!(
            (&busted["cache_used"], busted["image_id"] == first["image_id"]),
            (&false.into(), false),
            "{busted:#}"
        );
        assert!(it.build(tool, &busted).await != of_first);
        let listed = images(tool).await;
        assert_eq!(listed.len(), 1, "the old one is gone: {listed:#?}");
        assert_eq!(listed[0]["image_id"], busted["image_id"]);
        ran("s50", tool.case.engine());
    })
    .await;
    with_rootful_engine(&it.config, async |tool| {
        let first = tiny(tool, json!({})).await;
        let (mut keys, other) = (vec![images(tool).await[0]["key"].clone()], Tiny::of(&["true"], ""));
        for (from, to) in
            [(it.config.as_str(), other.as_str()), ("setup = [", "env = { X = \"1\" }\nsetup = ["), (IMAGE, "")]
        {
            let to = if to.is_empty() { derived(tool, IMAGE, "true", &[]).await } else { to.to_owned() };
            reconfigure(tool, from, &to);
            let answer = tiny(tool, json!({})).await;
            assert_eq!(
                (&answer["cache_used"], answer["image_id"] == first["image_id"]),
                (&false.into(), false),
                "{to}: {answer:#}"
            );
            let new = images(tool).await.into_iter().map(|it| it["key"].clone()).find(|it| !keys.contains(it));
            keys.push(new.unwrap_or_else(|| panic!("{to} has no key of its own")));
        }
    })
    .await;
}

#[tokio::test]
async fn s51_an_image_under_the_name_of_a_cached_one_is_not_used() {
    let it = Tiny::new();
    with_rootful_engine(&it.config, async |tool| {
        let first = tiny(tool, json!({})).await;
        let tag = first["image"].as_str().unwrap().to_owned();
        let labels = tool.engine_says(&["inspect", "--type=image", "--format={{json .Config.Labels}}", &tag]).await;
        let labels: std::collections::BTreeMap<String, String> = serde_json::from_str(&labels).unwrap();
        tool.destroy(first["container"].as_str().unwrap()).await;
        tool.call(json!({ "operation": "cache_clear", "purpose": "tiny" })).await;
        // Without a signature, with a made-up one, and with a right one that was given for another recipe.
        let changed = |key: &str, value: Option<&str>| {
            let mut labels = labels.clone();
            labels.remove(key);
            labels.extend(value.map(|value| (key.to_owned(), value.to_owned())));
            labels.into_iter().map(|(key, value)| format!("LABEL \"{key}\"={value:?}")).collect::<Vec<_>>()
        };
        let made_up = "0".repeat(64);
        for changes in [
            changed("coracle.sig", None),
            changed("coracle.sig", Some(&made_up)),
            changed("coracle.cache.recipe", Some(&made_up)),
        ] {
            let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
            let planted = derived(tool, IMAGE, "echo planted >/planted", &changes).await;
            tool.engine_says(&["tag", &planted, &tag]).await;
            let answer = tiny(tool, json!({})).await;
            assert_eq!(answer["cache_used"], false, "{answer:#}");
            let name = answer["container"].as_str().unwrap();
            assert_eq!(tool.exec(name, "cat /planted").await["exit_code"], 1, "{answer:#}");
            assert!(it.build(tool, &answer).await.is_some());
            tool.destroy(name).await;
            tool.call(json!({ "operation": "cache_clear", "purpose": "tiny" })).await;
        }
        ran("s51", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s52_eight_creates_at_once_build_once() {
    let it = Tiny::new();
    with_rootful_tool(&it.config, async |tool| {
        let call = tool.create_call(json!({ "image": null, "purpose": "tiny" }));
        let answers = if tool.case.is_real() {
            let mut makers = JoinSet::new();
            for _ in 0..8 {
                let mut command = tool.command(["call", &call.to_string()]);
                makers.spawn(async move { command.stdin(std::process::Stdio::null()).output().await.unwrap() });
            }
            let outputs = makers.join_all().await;
            outputs.iter().map(|it| serde_json::from_slice(&it.stdout).unwrap()).collect::<Vec<Value>>()
        } else {
            // Eight of them are too large for a test's stack.
            let call = || Box::pin(tool.call(call.clone()));
            let (a, b, c, d, e, f, g, h) = tokio::join!(call(), call(), call(), call(), call(), call(), call(), call());
            vec![a, b, c, d, e, f, g, h]
        };
        let mut builds = std::collections::BTreeSet::new();
        for answer in &answers {
            assert_eq!(answer["success"], true, "{answer:#}");
            builds.insert(it.build(tool, answer).await);
        }
        assert!(builds.len() == 1 && !builds.contains(&None), "{builds:?}");
        assert_eq!(images(tool).await.len(), 1);
        // Build containers are gone.
        assert_eq!(tool.call(json!({ "operation": "list" })).await["count"], 8);
        ran("s52", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn s52_a_failed_recipe_is_reported_and_never_cached() {
    let mark = random_hex::<8>();
    let config = Tiny::of(&[&format!("echo 1 > first-{mark}"), "echo the reason >&2; exit 9"], "");
    with_rootful_tool(&config, async |tool| {
        for _ in 0..2 {
            let answer = tiny(tool, json!({})).await;
            assert_eq!(
                (&answer["cache_used"], &answer["provisioning_ok"]),
                (&false.into(), &false.into()),
                "{answer:#}"
            );
            let report = step(&answer, "packages");
            assert_eq!(report["status"], "partial", "{report:#}");
            assert!(report.to_string().contains("the reason") && report.to_string().contains('9'), "{report:#}");
            let name = answer["container"].as_str().unwrap();
            assert_eq!(tool.exec(name, "true").await["exit_code"], 0);
            assert_eq!(
                found(tool, &answer, &format!("first-{mark}")).await.as_deref(),
                Some("1"),
                "what worked is there"
            );
        }
        assert_eq!(images(tool).await, Vec::<Value>::new());
    })
    .await;
    with_rootful_tool(&Tiny::of(&["exit 9"], ""), async |tool| {
        let answer = tiny(tool, json!({})).await;
        assert_eq!(step(&answer, "packages")["status"], "failed", "{answer:#}");
        assert_eq!(tool.exec(answer["container"].as_str().unwrap(), "true").await["exit_code"], 0);
    })
    .await;
}

#[tokio::test]
async fn packages_without_a_package_manager_are_reported_and_the_container_stays() {
    with_rootful_engine("", async |tool| {
        let answer = tool.made(json!({ "packages": ["git"] })).await;
        let report = step(&answer, "packages");
        assert_eq!((&report["status"], &report["code"]), (&"failed".into(), &"unsupported".into()), "{report:#}");
        assert_eq!(tool.exec(answer["container"].as_str().unwrap(), "true").await["exit_code"], 0);
    })
    .await;
    with_rootful_tool("", async |tool| {
        for package in ["--option", "a b", "a;b", "Git", "", "-y", "$(id)"] {
            let answer = tool.create(json!({ "packages": [package] })).await;
            assert_eq!(answer["code"], "invalid_input", "{package}: {answer:#}");
        }
        let answer = tool.create(json!({ "purpose": "no-such-purpose" })).await;
        assert_eq!(answer["code"], "invalid_input", "{answer:#}");
        assert!(answer.to_string().contains("python"), "the known ones are named: {answer:#}");
        tool.nothing_left().await;
    })
    .await;
}

#[tokio::test]
async fn s53_without_registry_and_mirror_the_image_cannot_be_had() {
    with_rootful_engine("[images]\nfallback = \"fail\"\n", async |tool| {
        let answer = tool.create(json!({ "image": null, "purpose": "python" })).await;
        assert_eq!(answer["code"], "pull_failed", "{answer:#}");
        assert_eq!(
            answer["details"]["image"].as_str().map(|it| it.contains("python:3.12-slim")),
            Some(true),
            "{answer:#}"
        );
        tool.nothing_left().await;
        // A named image has no fallback.
        let answer = tool.create(json!({ "image": "python:3.12-slim" })).await;
        assert_eq!(answer["code"], "pull_failed", "{answer:#}");
        let cause = answer["message"].as_str().unwrap();
        assert!(
            cause.contains("no registry answers at ") || cause.contains("no such host"),
            "the cause is reported: {cause}"
        );
    })
    .await;
}

/// The only test that builds a full profile, so it checks everything that needs one.
#[tokio::test]
async fn s48_python_is_built_once_and_what_it_promises_works() {
    if !coracle_skips::may_download() {
        return;
    }
    let server = GitServer::start();
    let project =
        "[project]\nname = \"app\"\nversion = \"1\"\n[build-system]\nrequires = []\nbuild-backend = \"none\"\n";
    server.repository("app", &[("pyproject.toml", project)]).await;
    with_rootful_engine("[images]\ngit_allow_private = true\n[setup]\ntimeout = \"10m\"\n", async |tool| {
        if tool.case.lacks(Lack::HostAddress) {
            return;
        }
        let more = json!({ "image": null, "purpose": "python", "user": "1000", "repos": [
            { "url": server.url("app"), "install": "uv venv .venv && . .venv/bin/activate && python -V > installed" } ] });
        let first = tool.made(more).await;
        assert_eq!((&first["cache_used"], &first["provisioning_ok"]), (&false.into(), &true.into()), "{first:#}");
        assert_eq!((&first["purpose"], step(&first, "packages")["probe"].is_string()), (&"python".into(), true));
        assert!(warnings(&first).contains(&"bootstrap_image"), "{first:#}");
        let name = first["container"].as_str().unwrap();
        let version = tool.prints(name, "python -c 'import platform; print(platform.python_version())'").await;
        super::stand_ins::assert_names(&first, &format!("python {version}"));
        let installed = "pip install --quiet --disable-pip-version-check six && python -c 'import six; print(six.__file__)'";
        assert!(tool.prints(name, installed).await.starts_with("/home/agent/"), "a user's own");
        for command in ["python3 -V", "pip --version || python3 -m pip --version", "uv --version", "git --version", "curl -V", "cc --version"] {
            assert_ne!(tool.prints(name, command).await, "", "{command}");
        }
        assert!(tool.prints(name, "cat app/installed").await.starts_with("Python 3"));
        // What verifies certificates knows the host's own authorities.
        tool.prints(name, "python3 -m pip download --quiet --no-deps --dest /tmp/got idna && ls /tmp/got/idna*").await;
        tool.prints(name, "curl --fail --silent --show-error --output /dev/null https://pypi.org/simple/idna/").await;
        tool.prints(name, "uv venv -q /tmp/v && VIRTUAL_ENV=/tmp/v uv pip install -q idna").await;
        let refused = tool.exec(name, "GIT_TERMINAL_PROMPT=0 git ls-remote https://pypi.org/simple/idna/").await;
        let words = refused["stderr"].as_str().unwrap();
        assert!(words.contains("pypi.org") && !words.to_lowercase().contains("certificate"), "{words}");
        assert_eq!(tool.prints(name, "id -u; id -un").await, "1000\nagent");
        let begun = Instant::now();
        let second = tool.made(json!({ "image": null, "purpose": "python", "network": "none" })).await;
        assert!(begun.elapsed() < WITHOUT_WAITING, "{:?}", begun.elapsed());
        super::stand_ins::assert_names(&second, &format!("python {version}"));
        assert_eq!((&second["cache_used"], &second["image_source"]), (&true.into(), &"cache".into()), "{second:#}");
        assert!(tool.prints(second["container"].as_str().unwrap(), "uv --version; python3 -V; git --version").await.contains("git"));
        let root = "pip install --quiet --root-user-action=ignore --disable-pip-version-check six && python -c 'import six'";
        let third = json!({ "image": null, "purpose": "python", "user": "0", "setup_commands": [root] });
        assert_eq!(tool.made(third).await["provisioning_ok"], true);
        super::stacks::an_app_reaches_its_services(tool, json!({ "image": null, "purpose": "python" })).await;
        ran("s48", tool.case.engine());
        ran("s53", tool.case.engine());
    })
    .await;
}
