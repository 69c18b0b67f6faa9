//! A container of the sandbox's own image, opened as an editor opens it: by the devcontainers CLI from npm.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use coracle_types::EngineKind;
use serde_json::Value;
use tokio::process::Command;

use super::super::debian::debian;
use super::super::mcp_clients::installed;
use super::super::person::Person;
use crate::engines::engine_program;

/// The image of `worktree create`, by its tag.
const SANDBOX: &str = concat!("coracle-sandbox:", env!("CARGO_PKG_VERSION"));

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(".devcontainer")
}

/// The file of this repository.
pub(super) fn ours() -> Value {
    serde_json::from_str(&std::fs::read_to_string(dir().join("devcontainer.json")).unwrap()).unwrap()
}

fn dockerfile() -> String {
    std::fs::read_to_string(dir().join("Dockerfile")).unwrap()
}

#[test]
fn the_file_of_this_repository_builds_on_the_image_of_this_version() {
    assert!(dockerfile().contains(&format!("\nFROM {SANDBOX}\n")), "{}", dockerfile());
}

/// On the base of the sandbox's image: building that image takes minutes, and it differs in packages only.
#[tokio::test]
async fn an_editor_opens_a_container_with_the_file_of_this_repository() {
    // The CLI asks Podman for `--userns=keep-id`, which Podman of root's refuses.
    Person::new("")
        .on_one_engine(EngineKind::Docker, async |tool| {
            let Some(program) = installed("node_modules/.bin/devcontainer") else { return };
            let base = debian(tool.case).await;
            // Images are named by the folder.
            let name = tool.case.name("editor").to_string();
            let folder = tool.work().join(&name);
            std::fs::create_dir_all(folder.join(".devcontainer")).unwrap();
            std::fs::write(folder.join("seen"), "from the host\n").unwrap();
            std::fs::copy(dir().join("devcontainer.json"), folder.join(".devcontainer/devcontainer.json")).unwrap();
            std::fs::write(folder.join(".devcontainer/Dockerfile"), dockerfile().replace(SANDBOX, base)).unwrap();
            let (key, value) = tool.case.label();
            let label = format!("{key}={value}");
            let devcontainer = |verb: &str, words: &[&str]| {
                let mut command = engine_program(program.to_str().unwrap());
                command.arg(verb).args(["--docker-path", tool.case.engine().as_str(), "--id-label", &label]);
                command.arg("--workspace-folder").arg(&folder).args(words);
                command.stdin(Stdio::null()).kill_on_drop(true);
                command
            };

            let up = output(devcontainer("up", &[])).await;
            let printed = printed(&up);
            assert!(up.status.success(), "{printed}");
            let answer: Value =
                serde_json::from_str(printed.lines().find(|it| it.starts_with("{\"outcome\"")).unwrap()).unwrap();
            assert_eq!((&answer["outcome"], &answer["remoteUser"]), (&"success".into(), &"agent".into()), "{printed}");
            let ran = output(devcontainer("exec", &["sh", "-c", "id -un; echo $HOME; cat seen; git --version"])).await;
            let printed = String::from_utf8(ran.stdout).unwrap();
            assert!(printed.starts_with("agent\n/home/agent\nfrom the host\ngit version"), "{printed}");

            tool.engine(&["rm", "--force", answer["containerId"].as_str().unwrap()]).await;
            let of_folder = format!("--filter=reference=vsc-{name}-*");
            let images = tool.engine_says(&["images", "--format", "{{.Repository}}", &of_folder]).await;
            for image in images.lines() {
                tool.engine(&["rmi", "--force", image]).await;
            }
        })
        .await;
}

async fn output(mut command: Command) -> Output {
    command.output().await.unwrap()
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
