use std::collections::BTreeMap;
use std::sync::Mutex;

use coracle_runtime::FakeRuntime;
use coracle_types::ContainerId;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::packages::PackageName;

struct World {
    fake: FakeRuntime,
    id: ContainerId,
    link: Link,
    messages: Mutex<Vec<String>>,
}

impl World {
    async fn of(fake: FakeRuntime) -> Self {
        let (id, link) = fake.runs_guest("build").await;
        Self { fake, id, link, messages: Mutex::default() }
    }

    /// A fake Debian that answers from a table.
    async fn debian() -> Self {
        let world = Self::of(FakeRuntime::new()).await;
        let bin = world.fake.root(&world.id).unwrap().join("usr/bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("apt-get"), "").unwrap();
        world.reply(&Manager::Apt.update().unwrap(), 0);
        world.reply(&Manager::Apt.clean().unwrap(), 0);
        world
    }

    fn reply(&self, argv: &[String], code: u8) {
        self.fake.reply(&argv.join(" "), Exit::Code(code), "", "the reason\n");
    }

    fn probe(&self, commands: &str, missing: &str) {
        let words = format!("/bin/sh -c {MISSING} probe {commands}");
        self.fake.reply(&words, Exit::Code(0), missing, "");
    }

    async fn run(&self, recipe: &Recipe, on_failure: OnFailure) -> BuildReport {
        let (env, cancel) = ([("CA".to_owned(), "/ca".to_owned())].into(), CancellationToken::new());
        let options = BuildOptions { env, limit: Duration::from_secs(60), on_failure, cancel };
        let report = |it: &str| self.messages.lock().unwrap().push(it.to_owned());
        run_recipe(&self.link, recipe, &options, &report).await.unwrap()
    }
}

fn packages(names: &[&str]) -> Recipe {
    Recipe { packages: names.iter().map(|it| PackageName::parse(it).unwrap()).collect(), ..Recipe::default() }
}

fn setup(scripts: &[&str]) -> Recipe {
    Recipe { setup: scripts.iter().map(|it| Setup::from((*it).to_owned())).collect(), ..Recipe::default() }
}

fn shown(report: &BuildReport) -> Vec<String> {
    let line = |it: &CommandReport| format!("{}: {}", it.name, it.error.as_deref().unwrap_or("ok"));
    report.commands.iter().map(line).collect()
}

#[tokio::test]
async fn commands_run_in_order_with_their_environment() {
    let world = World::of(FakeRuntime::with_programs()).await;
    let mut recipe = setup(&["echo one >made", "echo \"two $CA\" | tee -a made"]);
    recipe.setup.push(Setup::fixed("with arguments", "printf '%s' \"$1\" >>made", &["$(id) three"], &["sh"]));
    let report = world.run(&recipe, OnFailure::Stop).await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(report.commands[1].output, "two /ca");
    let made = std::fs::read_to_string(world.fake.root(&world.id).unwrap().join("made")).unwrap();
    assert_eq!(made, "one\ntwo /ca\n$(id) three");
    let steps =
        ["1 of 3: running `echo one >made`", &format!("2 of 3: {}", report.commands[1].name), "3 of 3: with arguments"];
    assert_eq!(*world.messages.lock().unwrap(), steps.map(|step| format!("step {step}")));
}

#[tokio::test]
async fn a_failure_stops_an_image_build_but_not_a_running_container() {
    let recipe = setup(&["echo no >&2; exit 3", "true"]);
    let world = World::of(FakeRuntime::with_programs()).await;
    let stopped = world.run(&recipe, OnFailure::Stop).await;
    assert_eq!(shown(&stopped), ["running `echo no >&2; exit 3`: exit 3"]);
    assert_eq!((stopped.commands[0].exit, stopped.commands[0].output.as_str()), (Some(3), "no"));
    assert_eq!(stopped.failure().unwrap(), "running `echo no >&2; exit 3`: exit 3");
    let went_on = world.run(&recipe, OnFailure::Continue).await;
    assert_eq!(shown(&went_on)[1], "running `true`: ok");
    assert!(!went_on.is_complete());
}

#[tokio::test]
async fn missing_programs_are_reported() {
    let world = World::of(FakeRuntime::with_programs()).await;
    let brings = ["sh", "coracle-no-such-command"];
    let recipe = Recipe { setup: vec![Setup::fixed("x", "true", &[], &brings)], ..Recipe::default() };
    let report = world.run(&recipe, OnFailure::Stop).await;
    assert_eq!((report.missing.join(" "), report.is_complete()), ("coracle-no-such-command".to_owned(), false));
}

#[tokio::test]
async fn packages_are_installed_first_and_together() {
    if !coracle_skips::has_root() {
        return;
    }
    let world = World::debian().await;
    world.reply(&Manager::Apt.install(&["curl", "git"]), 0);
    world.probe("curl git", "");
    let report = world.run(&packages(&["git", "curl"]), OnFailure::Stop).await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(
        shown(&report),
        ["fetching the lists of packages: ok", "installing curl git: ok", "removing downloaded files: ok"]
    );
}

#[tokio::test]
async fn an_unavailable_package_does_not_stop_the_others_in_a_running_container() {
    if !coracle_skips::has_root() {
        return;
    }
    let world = World::debian().await;
    for (names, code) in [(&["curl", "nosuch"][..], 100), (&["curl"], 0), (&["nosuch"], 100)] {
        world.reply(&Manager::Apt.install(names), code);
    }
    world.probe("curl", "");
    let report = world.run(&packages(&["curl", "nosuch"]), OnFailure::Continue).await;
    assert_eq!(shown(&report)[1..3], ["installing curl: ok", "installing nosuch: exit 100"]);
    assert_eq!(report.commands[2].output, "the reason");

    let world = World::debian().await;
    world.reply(&Manager::Apt.install(&["curl", "nosuch"]), 100);
    let report = world.run(&packages(&["curl", "nosuch"]), OnFailure::Stop).await;
    assert_eq!(shown(&report)[1..], ["installing curl nosuch: exit 100"]);
}

#[tokio::test]
async fn without_a_package_manager_the_commands_run_in_a_running_container() {
    let world = World::of(FakeRuntime::with_programs()).await;
    let recipe = Recipe { setup: setup(&["true"]).setup, ..packages(&["git"]) };
    let report = world.run(&recipe, OnFailure::Continue).await;
    assert!(report.no_manager && report.commands.len() == 1, "{report:?}");
    assert_eq!(world.run(&recipe, OnFailure::Stop).await.commands, []);
}

#[tokio::test]
async fn all_commands_together_have_a_limit_and_can_be_cancelled() {
    let world = World::of(FakeRuntime::with_programs()).await;
    let cancel = CancellationToken::new();
    let options = |millis, cancel: &CancellationToken| BuildOptions {
        env: BTreeMap::new(),
        limit: Duration::from_millis(millis),
        on_failure: OnFailure::Continue,
        cancel: cancel.clone(),
    };
    let late = run_recipe(&world.link, &setup(&["sleep 30", "true"]), &options(300, &cancel), &|_| {}).await.unwrap();
    assert!(late.commands[0].error.as_ref().unwrap().starts_with("not done within"), "{late:?}");
    let report = |_: &str| cancel.cancel();
    let ended =
        run_recipe(&world.link, &setup(&["sleep 30", "true"]), &options(60_000, &cancel), &report).await.unwrap();
    assert_eq!(shown(&ended), ["running `sleep 30`: cancelled"]);
}

#[tokio::test]
async fn owners_of_directories_are_set_last_and_are_part_of_the_recipe() {
    let world = World::of(FakeRuntime::new()).await;
    let owned = vec![OwnedDirectory { uid: 1000, gid: 1000, path: "/workspace".into() }];
    let recipe = Recipe { owned, ..Recipe::default() };
    assert!(!recipe.is_empty() && recipe.sum() != Recipe::default().sum());
    let report = world.run(&recipe, OnFailure::Stop).await;
    assert!(report.is_complete(), "{report:?}");
    assert_eq!(shown(&report), ["giving /workspace to 1000:1000: ok"]);
    assert!(world.fake.root(&world.id).unwrap().join("workspace").is_dir());
}

#[tokio::test]
async fn a_directory_of_another_user_is_not_changed() {
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) != 0 {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let world = World::of(FakeRuntime::new()).await;
    let dir = world.fake.root(&world.id).unwrap().join("workspace");
    std::fs::create_dir(&dir).unwrap();
    let owned = OwnedDirectory { uid: 1000, gid: 1000, path: "/workspace".into() };
    let recipe = Recipe { owned: vec![owned], ..Recipe::default() };
    assert!(world.run(&recipe, OnFailure::Stop).await.is_complete());
    std::os::unix::fs::lchown(&dir, Some(33), Some(33)).unwrap();
    let report = world.run(&recipe, OnFailure::Stop).await;
    assert_eq!(
        report.failure().unwrap(),
        "giving /workspace to 1000:1000: /workspace belongs to another user in the image"
    );
}
