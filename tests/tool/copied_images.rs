//! Images of the embedded engine that are copied from archives and to them, and verified.

use std::time::Duration;

use coracle_skips::{NEEDS_ENGINE, skip};
use coracle_types::EngineKind;
use serde_json::json;

use super::person::Person;
use super::start_adopt::says;
use super::{eventually, with_engine};
use crate::engines::{IMAGE, engine_program};

/// A command that holds all images, such as `images verify`, takes seconds.
const SOON: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_image_is_exported_and_imported_under_another_name() {
    Person::new("")
        .on_one_engine(EngineKind::Embedded, async |tool| {
            let (saved, status) = says(tool, &["images", "save", IMAGE, "saved.tar"]).await;
            assert_eq!(status, Some(0), "{saved:#}");
            let archive = tool.work().join("saved.tar");
            assert_eq!(saved["path"], archive.display().to_string(), "{saved:#}");

            let copy = tool.case.tag("copied").to_string();
            let (loaded, status) = says(tool, &["images", "load", &copy, "--from", "saved.tar"]).await;
            assert_eq!(status, Some(0), "{loaded:#}");
            assert_eq!(loaded["image"], copy, "{loaded:#}");
            says(tool, &["images", "save", &copy, "again.tar"]).await;
            let (again, status) = says(tool, &["images", "load", &copy, "--from", "again.tar"]).await;
            assert_eq!((&again["id"], status), (&loaded["id"], Some(0)), "{again:#}");
            let name = tool.created(json!({ "image": copy, "pull": "never" })).await;
            assert_eq!(tool.prints(&name, "echo from a copy").await, "from a copy");

            let (whole, status) = says(tool, &["images", "verify", "--deep"]).await;
            assert_eq!(
                (&whole["is_sound"], &whole["damage"], status),
                (&true.into(), &json!([]), Some(0)),
                "{whole:#}"
            );
            tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert!(tool.engine(&["rmi", &copy]).await.0);
        })
        .await;
}

#[tokio::test]
async fn a_name_of_which_docker_has_several_tags_is_its_latest() {
    Person::new("")
        .on_one_engine(EngineKind::Embedded, async |tool| {
            let docker = async |words: &[&str]| {
                let output = engine_program("docker").args(words).output().await;
                output.is_ok_and(|output| output.status.success())
            };
            if !docker(&["info"]).await {
                return skip(NEEDS_ENGINE);
            }
            let tag = tool.case.tag("tags").to_string();
            let name = tag.rsplit_once(':').unwrap().0;
            for (tag, file) in [("latest", "wanted"), ("other", "unwanted")] {
                let mut tar = tar::Builder::new(Vec::new());
                let mut header = tar::Header::new_gnu();
                header.set_size(0);
                tar.append_data(&mut header, file, &[][..]).unwrap();
                std::fs::write(tool.work().join("root.tar"), tar.into_inner().unwrap()).unwrap();
                let at = tool.work().join("root.tar").display().to_string();
                assert!(docker(&["import", &at, &format!("{name}:{tag}")]).await);
            }
            let (loaded, status) = says(tool, &["images", "load", name, "--from", "docker"]).await;
            for tag in ["latest", "other"] {
                docker(&["rmi", &format!("{name}:{tag}")]).await;
            }
            assert_eq!(status, Some(0), "{loaded:#}");
            says(tool, &["images", "save", name, "saved.tar"]).await;
            let saved = std::fs::read(tool.work().join("saved.tar")).unwrap();
            let has = |name: &[u8]| saved.windows(name.len()).any(|bytes| bytes == name);
            assert!(has(b"wanted\0") && !has(b"unwanted\0"), "the image is the latest");
            // Another test may have all images open for a moment.
            eventually("the image is removed", SOON, async || tool.engine(&["rmi", name]).await.0).await;
        })
        .await;
}

#[tokio::test]
async fn images_that_cannot_be_copied_are_refused_and_leave_nothing() {
    Person::new("")
        .on_one_engine(EngineKind::Embedded, async |tool| {
            let code = async |words: &[&str]| {
                let (answer, status) = says(tool, &[&["images"], words].concat()).await;
                assert_eq!(status, Some(1), "{answer:#}");
                answer["code"].as_str().unwrap_or_else(|| panic!("{answer:#}")).to_owned()
            };
            std::fs::write(tool.work().join("taken.tar"), "of another file").unwrap();
            assert_eq!(code(&["save", IMAGE, "taken.tar"]).await, "path_exists");
            assert_eq!(std::fs::read(tool.work().join("taken.tar")).unwrap(), b"of another file");
            assert_eq!(code(&["save", IMAGE, "missing/saved.tar"]).await, "path_not_found");
            assert_eq!(code(&["save", "localhost/coracle-test-none:1", "saved.tar"]).await, "image_not_found");
            let copy = tool.case.tag("refused").to_string();
            assert_eq!(code(&["load", &copy, "--from", "missing.tar"]).await, "path_not_found");
            assert_eq!(code(&["load", &copy, "--from", "taken.tar"]).await, "copy_failed");
            assert_eq!(code(&["load", "Not a name", "--from", "taken.tar"]).await, "invalid_input");
            assert!(!tool.engine(&["image", "inspect", &copy]).await.0);
            let left: Vec<_> = std::fs::read_dir(tool.work()).unwrap().map(|it| it.unwrap().file_name()).collect();
            assert_eq!(left, ["taken.tar"]);
        })
        .await;
}

#[tokio::test]
async fn images_of_other_engines_are_theirs() {
    with_engine("", async |tool| {
        if tool.case.engine() == EngineKind::Embedded {
            return tool.case.left_out();
        }
        for words in [&["verify"][..], &["save", IMAGE, "saved.tar"], &["load", "copy:1", "--from", "docker"]] {
            let (refused, status) = says(tool, &[&["images"], words].concat()).await;
            assert_eq!((&refused["code"], status), (&"unsupported".into(), Some(1)), "{refused:#}");
        }
    })
    .await;
}
