//! Features of the fake engine beyond the contract, on paused time.

use std::time::Duration;

use coracle_runtime::fake::{LOCAL_IMAGE, Reply, Verb};
use coracle_runtime::{
    ContainerRuntime, CreateSpec, ExecTarget, FakeRuntime, Image, ImageStore as _, LabelFilter, NetworkAttachment,
    Policy, admit,
};
use coracle_types::{
    Command, ContainerId, ContainerName, ContainerPath, Error, Exec, ExecLimits, Exit, Ids, ImageRef, LimitKind, Result,
};
use tokio::time::{Instant, sleep};

use crate::engines::{is_root, skip};

const HOUR: Duration = Duration::from_secs(3600);

async fn running() -> (FakeRuntime, ContainerId) {
    let (fake, image) = (FakeRuntime::new(), ImageRef::parse(LOCAL_IMAGE).unwrap());
    let found = fake.find_images(std::slice::from_ref(&image)).await.unwrap();
    let spec = CreateSpec::new(ContainerName::parse("web").unwrap(), image);
    let spec =
        admit(spec, &Policy::everything()).unwrap().with_image(found[0].id.clone(), NetworkAttachment::EngineDefault);
    let id = fake.create(&spec).await.unwrap();
    fake.start(&id).await.unwrap();
    (fake, id)
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}

async fn pull(fake: &FakeRuntime, seconds: u64) -> Result<Image> {
    let (image, deadline) = (ImageRef::parse("alpine:3").unwrap(), Duration::from_secs(seconds));
    fake.pull_image(&image, deadline).await
}

#[tokio::test]
async fn the_local_image_has_a_short_name_too() {
    let fake = FakeRuntime::new();
    for name in ["busybox", "busybox:latest", LOCAL_IMAGE] {
        assert_eq!(fake.find_images(&[ImageRef::parse(name).unwrap()]).await.unwrap().len(), 1, "{name}");
    }
}

#[tokio::test]
async fn programs_of_a_guest_run_as_the_user_of_their_command() {
    if !is_root() {
        return skip(coracle_skips::NEEDS_ROOT);
    }
    let (_, link) = FakeRuntime::with_programs_as_users().runs_guest("web").await;
    let inside = ExecTarget::Guest(link);
    for (user, printed) in [(Ids { uid: 1234, gid: 1235 }, "1234 1235 1235\n"), (Ids::ROOT, "0 0")] {
        let command = Command::Shell("echo $(id -u) $(id -g) $(id -G)".into());
        let it = inside.exec(Exec::new(command, user, ContainerPath::root())).await.unwrap();
        assert_eq!((it.exit, it.stdout.text().starts_with(printed)), (Exit::Code(0), true), "{it:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn limits_end_a_reply_that_takes_long() {
    let (fake, id) = running().await;
    fake.replies("wait", [Reply::new(Exit::Code(0), "so far", "").after(HOUR)]);
    for (total, silence, exit) in [
        (7200, 7200, Exit::Code(0)),
        (60, 7200, Exit::TimedOut(LimitKind::Total)),
        (60, 5, Exit::TimedOut(LimitKind::Silence)),
    ] {
        let (total, silence) = (Duration::from_secs(total), Duration::from_secs(silence));
        let limits = ExecLimits { total: Some(total), silence: Some(silence), ..ExecLimits::default() };
        let it = fake.exec(&id, Exec { limits, ..sh("wait") }).await.unwrap();
        assert_eq!((it.exit, it.stdout.text().as_str()), (exit, "so far"));
        assert_eq!(it.duration, total.min(silence).min(HOUR));
    }
}

#[tokio::test(start_paused = true)]
async fn a_container_that_dies_ends_its_commands_and_their_output_is_retained() {
    let (fake, id) = running().await;
    fake.replies("wait", [Reply::new(Exit::Code(0), "so far", "").after(HOUR)]);
    let dies = async {
        sleep(Duration::from_secs(1)).await;
        fake.crash(&id);
    };
    let (ended, ()) = tokio::join!(fake.exec(&id, sh("wait")), dies);
    let Err(Error::NotRunning { exit_code: Some(137), output: Some(output), .. }) = ended else {
        panic!("{ended:?}");
    };
    assert_eq!(output.stdout.text(), "so far");
}

#[tokio::test(start_paused = true)]
async fn a_slow_verb_meets_its_deadline() {
    let (fake, begun) = (FakeRuntime::new(), Instant::now());
    fake.slow(Verb::List, Duration::from_secs(29));
    fake.list(&LabelFilter::default()).await.unwrap();
    fake.slow(Verb::List, Duration::from_secs(31));
    let late = fake.list(&LabelFilter::default()).await;
    assert!(matches!(late, Err(Error::TimedOut { verb: "list", .. })), "{late:?}");
    assert_eq!(begun.elapsed(), Duration::from_secs(59));
}

#[tokio::test(start_paused = true)]
async fn a_pull_takes_its_time_and_keeps_its_deadline() {
    let (fake, begun) = (FakeRuntime::new(), Instant::now());
    fake.pulls_take(Duration::from_secs(300));
    assert!(matches!(pull(&fake, 299).await, Err(Error::TimedOut { verb: "pull", .. })));
    assert!(matches!(pull(&fake, 300).await, Err(Error::PullFailed { .. })));
    fake.registry_has(&ImageRef::parse("docker.io/library/alpine:3").unwrap());
    assert_eq!(pull(&fake, 300).await.unwrap().tags, ["docker.io/library/alpine:3"]);
    assert_eq!(begun.elapsed(), Duration::from_secs(899));
}
