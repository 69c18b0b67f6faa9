//! Images: found, imported, listed, removed, and not to be had.

use std::fs::File;
use std::time::Duration;

use coracle_runtime::{Image, ImageCommit, ImageConfig, ImageImport, LabelFilter, NetworkAttachment, Policy, admit};
use coracle_types::{Command, ContainerId, ContainerPath, EngineKind, Error, Exec, Ids, ImageRef};

use crate::engines::{Case, FROM_IMAGE, IMAGE, Lack, Way, on_every_engine, tar_of, with_a_guest};

/// Imports a tar under a tag, labelled so that it is removed with its case.
pub(crate) async fn import(case: &Case, tag: &ImageRef, tar: File) -> Image {
    let env = vec![("PATH".to_owned(), "/bin".to_owned())];
    let labels = vec![case.label(), ("coracle-test.odd".into(), "a \"b\" $c, d=e".into())];
    let import = ImageImport { tar, tag: tag.clone(), env, labels };

    case.runtime.import_image(import).await.unwrap()
}

fn small_tar(text: &str) -> File {
    tar_of(|tar| {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        tar.append_data(&mut header, "file", text.as_bytes()).unwrap();
    })
}

async fn find(case: &Case, name: &ImageRef) -> Vec<Image> {
    case.runtime.find_images(std::slice::from_ref(name)).await.unwrap()
}

#[tokio::test]
async fn an_image_is_found_by_name_and_by_id_and_a_missing_one_is_none() {
    on_every_engine(async |case| {
        let name = case.with_image(IMAGE);
        let by_name = find(case, &ImageRef::parse(&name).unwrap()).await;
        assert_eq!(by_name.len(), 1);
        assert_eq!(by_name[0].id, case.image);
        assert!(by_name[0].tags.contains(&name), "{by_name:?}");
        assert_eq!(find(case, &case.image.clone().into()).await, by_name);
        assert!(by_name[0].env.contains(&"PATH=/bin".to_owned()) && by_name[0].size_bytes > 1_000_000, "{by_name:?}");
        assert_eq!(by_name[0].arch, case.runtime.info().await.unwrap().arch);
        let missing = format!("sha256:{}", "e".repeat(64));
        for none in ["localhost/coracle-test-busybox:none", "coracle-test-none", &missing] {
            assert_eq!(find(case, &ImageRef::parse(none).unwrap()).await, [], "{none}");
        }
    })
    .await;
}

#[tokio::test]
async fn several_are_found_in_one_call_in_the_requested_order() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let tag = case.tag("several");
        let made = import(case, &tag, small_tar("several")).await;
        let names = [tag.as_str(), "coracle-test-none", IMAGE, "localhost/coracle-test-none:1"];
        let names = names.map(|it| ImageRef::parse(it).unwrap());
        let found = case.runtime.find_images(&names).await.unwrap();
        assert_eq!(found.iter().map(|it| &it.id).collect::<Vec<_>>(), [&made.id, &case.image]);
        assert!(found[0].is_named(&tag) && !found[0].is_named(&names[2]) && found[1].is_named(&names[2]), "{found:?}");
        assert_eq!(case.runtime.find_images(&[]).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_import_has_its_name_environment_and_labels() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let tag = case.tag("import");
        let made = import(case, &tag, small_tar("one")).await;
        // A short name, as those of our own caches: each engine completes it in its way.
        assert_eq!(find(case, &tag).await, std::slice::from_ref(&made));
        assert_eq!(made.env, ["PATH=/bin"]);
        assert_eq!(made.labels["coracle-test.odd"], "a \"b\" $c, d=e");
        assert!(case.runtime.list_images(&case.mine()).await.unwrap().iter().any(|it| it.id == made.id));
        let other = LabelFilter(vec![("coracle-test.odd".into(), Some("else".into())), case.mine().0[0].clone()]);
        assert_eq!(case.runtime.list_images(&other).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_name_goes_over_to_the_newest_import() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let tag = case.tag("newest");
        let old = import(case, &tag, small_tar("old")).await;
        let new = import(case, &tag, small_tar("new")).await;
        assert_ne!(old.id, new.id);
        assert_eq!(find(case, &tag).await[0].id, new.id);
    })
    .await;
}

#[tokio::test]
async fn an_invalid_tar_is_not_imported() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let (tag, mut tar) = (case.tag("broken"), tempfile::tempfile().unwrap());
        std::io::Write::write_all(&mut tar, &[b'x'; 4096]).unwrap();
        std::io::Seek::rewind(&mut tar).unwrap();
        let import = ImageImport { tar, tag: tag.clone(), env: vec![], labels: vec![case.label()] };
        let it = case.runtime.import_image(import).await;
        assert!(matches!(it, Err(Error::Engine { verb: "import", .. })), "{it:?}");
        assert_eq!(find(case, &tag).await, []);
    })
    .await;
}

#[tokio::test]
async fn a_removed_image_is_missing_and_can_be_removed_again() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let tag = case.tag("gone");
        let made = import(case, &tag, small_tar("gone")).await;
        for _ in 0..2 {
            case.runtime.remove_image(&made.id).await.unwrap();
            assert_eq!(find(case, &tag).await, []);
        }
    })
    .await;
}

#[tokio::test]
async fn an_image_of_two_names_goes_with_the_last_of_them_and_not_by_its_id() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let (one, other) = (case.tag("one"), case.tag("other"));
        let made = import(case, &one, small_tar("two names")).await;
        case.runtime.tag_image(&made.id, &other).await.unwrap();
        if case.runtime.kind() != EngineKind::Container {
            let by_id = case.runtime.remove_image(&made.id).await;
            assert!(matches!(by_id, Err(Error::Engine { .. })), "{by_id:?}");
        }
        for _ in 0..2 {
            case.runtime.untag_image(&one).await.unwrap();
            assert_eq!(find(case, &one).await, []);
            assert_eq!(find(case, &other).await.len(), 1);
        }
        case.runtime.untag_image(&other).await.unwrap();
        assert_eq!(find(case, &made.id.clone().into()).await, []);
    })
    .await;
}

#[tokio::test]
async fn an_image_in_use_stays_and_so_does_its_container() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let made = import(case, &case.tag("used"), small_tar("used")).await;
        let spec = admit(case.spec("user"), &Policy::everything())
            .unwrap()
            .with_image(made.id.clone(), NetworkAttachment::EngineDefault);
        let id = case.runtime.create(&spec).await.unwrap();
        let it = case.runtime.remove_image(&made.id).await;
        assert!(case.runtime.inspect(&id.into()).await.is_ok(), "the container went with its image");
        assert!(matches!(it, Err(Error::Engine { .. })), "{it:?}");
        assert_eq!(find(case, &made.id.clone().into()).await, [made]);
    })
    .await;
}

#[tokio::test]
async fn a_nonexistent_image_is_not_pulled() {
    on_every_engine(async |case| {
        // Port 1 of this machine: a refusal that needs no network.
        let (image, deadline) = (ImageRef::parse("127.0.0.1:1/coracle/none:1").unwrap(), Duration::from_secs(60));
        let begun = std::time::Instant::now();
        let it = case.runtime.pull_image(&image, deadline).await;
        assert!(matches!(&it, Err(Error::PullFailed { image: named, .. }) if *named == image), "{it:?}");
        assert!(begun.elapsed() < deadline);
    })
    .await;
}

async fn commit(case: &Case, id: &ContainerId, tag: Option<&ImageRef>, config: &ImageConfig) -> Image {
    let labels = vec![("coracle-test.odd".into(), "a \"b\" $c, d=e \\ #f".into()), case.label()];
    let commit = ImageCommit { container: id.clone(), tag: tag.cloned(), labels, config: config.clone() };
    case.runtime.commit_image(&commit).await.unwrap()
}

#[tokio::test]
async fn a_running_container_becomes_an_image_that_starts_as_its_own_did() {
    with_a_guest(async |running| {
        if running.case.lacks(Lack::Commit) {
            return;
        }
        let case = running.case;
        running.printed(sh("mkdir -p kept && echo kept >kept/file && chmod 700 kept")).await;
        let base = find(case, &case.image.clone().into()).await.remove(0);
        let tag = case.tag("commit");
        let made = commit(case, &running.id, Some(&tag), &base.config).await;
        let mut env = (made.env.clone(), base.env.clone());
        env.0.sort();
        env.1.sort();
        assert_eq!(env.0, env.1);
        assert!(env.0.contains(&format!("{}={}", FROM_IMAGE.0, FROM_IMAGE.1)));
        assert_eq!((&made.config, &made.volumes), (&base.config, &base.volumes));
        assert_eq!(made.labels["coracle-test.odd"], "a \"b\" $c, d=e \\ #f");
        assert_eq!(find(case, &tag).await, std::slice::from_ref(&made));
        assert!(running.seen().await.running(), "it goes on");

        let again = case.run(Way::Socket, case.spec("again"), &made.id).await;
        let look = "cat kept/file; stat -c %a kept; echo \"$HOSTNAME $TERM\"";
        let hostname = if case.is_real() { case.name("again").to_string() } else { String::new() };
        assert_eq!(again.printed(sh(look)).await, format!("kept\n700\n{hostname} \n"));
    })
    .await;
}

#[tokio::test]
async fn an_image_of_a_container_starts_with_the_given_command() {
    with_a_guest(async |running| {
        if running.case.lacks(Lack::Commit) {
            return;
        }
        let whole = ImageConfig {
            entrypoint: vec!["/bin/a b".into(), "\"$c\" \\ =".into()],
            cmd: vec!["--x=y".into(), "z #".into()],
            user: "agent".into(),
            workdir: "/home/a $b".into(),
        };
        let half = ImageConfig { cmd: vec!["sh".into()], user: "1000:1000".into(), ..ImageConfig::default() };
        let other = ImageConfig { entrypoint: vec!["/bin/sh".into(), "-c".into()], ..ImageConfig::default() };
        for config in [whole, half, other] {
            let made = commit(running.case, &running.id, None, &config).await;
            assert_eq!((made.config, made.tags), (config, vec![]));
        }
    })
    .await;
}

#[tokio::test]
async fn mounts_are_not_committed_and_a_missing_container_cannot_be() {
    with_a_guest(async |running| {
        if running.case.lacks(Lack::Commit) {
            return;
        }
        let case = running.case;
        let made = commit(case, &running.id, None, &ImageConfig::default()).await;
        let again = case.run(Way::Plain, case.spec("plain"), &made.id).await;
        let list = "ls -A .coracle/run .coracle/link 2>/dev/null; [ ! -s .coracle/guest ] && echo none";
        let listed = again.printed(sh(list)).await;
        assert!(listed.lines().all(|it| it.is_empty() || it == "none" || it.ends_with(':')), "{listed}");
        let commit = ImageCommit {
            container: ContainerId::parse("e".repeat(64)).unwrap(),
            tag: None,
            labels: vec![],
            config: ImageConfig::default(),
        };
        let it = case.runtime.commit_image(&commit).await;
        assert!(matches!(it, Err(Error::NoSuchContainer(_))), "{it:?}");
    })
    .await;
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root())
}
