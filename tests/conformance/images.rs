//! Images: found, imported, listed, removed, and not to be had.

use std::fs::File;
use std::time::Duration;

use coracle_runtime::{Error, Image, ImageAct, ImageRef, LabelFilter, NetworkOn, Policy, admit};

use crate::engines::{Case, IMAGE, on_every_engine, tar_of};

/// Imports a tar under a tag, labelled so that it is removed with its case.
pub(crate) async fn import(case: &Case, tag: &ImageRef, tar: File) -> Image {
    let env = vec![("PATH".to_owned(), "/bin".to_owned())];
    let labels = vec![case.label(), ("coracle-test.odd".into(), "a \"b\" $c, d=e".into())];
    let act = ImageAct::Import { tar, tag: tag.clone(), env, labels };
    let [image] = <[Image; 1]>::try_from(case.runtime.image(act).await.unwrap()).unwrap();
    image
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
    case.runtime.image(ImageAct::Find(name.clone())).await.unwrap()
}

#[tokio::test]
async fn an_image_is_found_by_name_and_by_id_and_a_missing_one_is_none() {
    on_every_engine(async |case| {
        let by_name = find(case, &ImageRef::parse(IMAGE).unwrap()).await;
        assert_eq!(by_name.len(), 1);
        assert_eq!(by_name[0].id, case.image);
        assert!(by_name[0].tags.iter().any(|it| it == IMAGE), "{by_name:?}");
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
async fn an_import_has_its_name_environment_and_labels() {
    on_every_engine(async |case| {
        let tag = case.tag("import");
        let made = import(case, &tag, small_tar("one")).await;
        // A short name, as those of our own caches: each engine completes it in its way.
        assert_eq!(find(case, &tag).await, std::slice::from_ref(&made));
        assert_eq!(made.env, ["PATH=/bin"]);
        assert_eq!(made.labels["coracle-test.odd"], "a \"b\" $c, d=e");
        assert!(case.runtime.image(ImageAct::List(case.mine())).await.unwrap().iter().any(|it| it.id == made.id));
        let other = LabelFilter(vec![("coracle-test.odd".into(), Some("else".into())), case.mine().0[0].clone()]);
        assert_eq!(case.runtime.image(ImageAct::List(other)).await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_name_goes_over_to_the_newest_import() {
    on_every_engine(async |case| {
        let tag = case.tag("newest");
        let old = import(case, &tag, small_tar("old")).await;
        let new = import(case, &tag, small_tar("new")).await;
        assert_ne!(old.id, new.id);
        assert_eq!(find(case, &tag).await[0].id, new.id);
    })
    .await;
}

#[tokio::test]
async fn what_is_no_tar_is_not_imported() {
    on_every_engine(async |case| {
        let (tag, mut tar) = (case.tag("broken"), tempfile::tempfile().unwrap());
        std::io::Write::write_all(&mut tar, &[b'x'; 4096]).unwrap();
        std::io::Seek::rewind(&mut tar).unwrap();
        let act = ImageAct::Import { tar, tag: tag.clone(), env: vec![], labels: vec![case.label()] };
        let it = case.runtime.image(act).await;
        assert!(matches!(it, Err(Error::Engine { verb: "import", .. })), "{it:?}");
        assert_eq!(find(case, &tag).await, []);
    })
    .await;
}

#[tokio::test]
async fn a_removed_image_is_gone_and_can_be_removed_again() {
    on_every_engine(async |case| {
        let tag = case.tag("gone");
        let made = import(case, &tag, small_tar("gone")).await;
        for _ in 0..2 {
            assert_eq!(case.runtime.image(ImageAct::Remove(made.id.clone())).await.unwrap(), []);
            assert_eq!(find(case, &tag).await, []);
        }
    })
    .await;
}

#[tokio::test]
async fn an_image_in_use_stays_and_so_does_its_container() {
    on_every_engine(async |case| {
        let made = import(case, &case.tag("used"), small_tar("used")).await;
        let spec =
            admit(case.spec("user"), &Policy::everything()).unwrap().on(made.id.clone(), NetworkOn::EngineDefault);
        let id = case.runtime.create(&spec).await.unwrap();
        let it = case.runtime.image(ImageAct::Remove(made.id.clone())).await;
        assert!(case.runtime.inspect(&id.into()).await.is_ok(), "the container went with its image");
        assert!(matches!(it, Err(Error::Engine { .. })), "{it:?}");
        assert_eq!(find(case, &made.id.clone().into()).await, [made]);
    })
    .await;
}

#[tokio::test]
async fn an_image_that_nobody_has_is_not_pulled() {
    on_every_engine(async |case| {
        // Port 1 of this machine: a refusal that needs no network.
        let (image, deadline) = (ImageRef::parse("127.0.0.1:1/coracle/none:1").unwrap(), Duration::from_secs(60));
        let begun = std::time::Instant::now();
        let it = case.runtime.image(ImageAct::Pull { image: image.clone(), deadline }).await;
        assert!(matches!(&it, Err(Error::PullFailed { image: named, .. }) if *named == image), "{it:?}");
        assert!(begun.elapsed() < deadline);
    })
    .await;
}
