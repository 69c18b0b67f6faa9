//! A Debian for tests that need git or a package manager inside, and images that are derived from others.

use std::fs::File;
use std::path::Path;

use coracle_types::{ContainerId, ImageRef};
use serde_json::json;

use super::{Person, Tool};
use crate::engines::{Case, IMAGE};

/// The base that coracle makes where no registry answers, made once for all tests under a name of theirs.
pub(crate) const DEBIAN: &str = "localhost/coracle-test-debian:1";

/// Its own namespace: to the tests it is a stranger's image, and theirs to no `cache_clear`.
const CONFIG: &str = "label_namespace = \"coracle-debian\"\n";

/// An image with git and python. On the fake, whose programs are the host's, any has them.
pub(crate) async fn debian(case: &Case) -> &'static str {
    if !case.is_real() {
        return IMAGE;
    }
    let _lock = lock(case, "debian").await;
    let tag = ImageRef::parse(DEBIAN).unwrap();
    if case.runtime.find_images(&[tag]).await.unwrap().is_empty() {
        let tool = Tool::new(case, &Person::new(CONFIG));
        let answer = tool.made(json!({ "image": null })).await;
        tool.engine_says(&["tag", answer["image_id"].as_str().unwrap(), DEBIAN]).await;
        tool.destroy(answer["container"].as_str().unwrap()).await;
    }
    DEBIAN
}

/// A Postgres and a Redis, of Debian's packages.
pub(crate) const SERVICES: &str = "localhost/coracle-test-services:1";

/// Makes the image of the services, once for all tests.
pub(crate) async fn services(tool: &Tool<'_>) {
    with_packages(tool, "services", SERVICES, "postgresql redis-server", "true").await;
}

/// Makes an image of Debian's packages and of what a script installs, once for all tests.
pub(crate) async fn with_packages(tool: &Tool<'_>, what: &str, tag: &str, packages: &str, script: &str) {
    let from = debian(tool.case).await;
    let lock = lock(tool.case, what).await;
    if tool.case.runtime.find_images(&[ImageRef::parse(tag).unwrap()]).await.unwrap().is_empty() {
        let install = format!(
            "export DEBIAN_FRONTEND=noninteractive; apt-get update -qq > /dev/null \
            && apt-get install -qq -y --no-install-recommends {packages} > /dev/null 2>&1 && {script}"
        );
        let name = tool.case.name(what).to_string();
        tool.engine_says(&["run", "--name", &name, "--user=0:0", from, "sh", "-c", &install]).await;
        tool.engine_says(&["commit", &name, tag]).await;
        tool.engine_says(&["rm", &name]).await;
    }
    drop(lock);
}

/// Held by one test at a time, whichever process it is in.
pub(crate) async fn lock(case: &Case, what: &str) -> File {
    let lock = File::create(coracle_skips::of_account(&format!("{what}-{}.lock", case.engine()))).unwrap();
    tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.unwrap().unwrap()
}

/// An image of another one: what a command changes in it as root, and directives such as `USER 7`. Gone with its case.
pub(crate) async fn derived(tool: &Tool<'_>, from: &str, script: &str, changes: &[&str]) -> String {
    let name = tool.case.name("derived").to_string();
    let tag = tool.case.tag(&format!("derived-{}", coracle_types::random_hex::<4>())).to_string();
    let (key, value) = tool.case.label();
    let label = format!("{key}={value}");
    let label_word = format!("--label={label}");
    let words = ["run", "--name", &name, "--user=0:0", "--network=none", "--entrypoint=/bin/sh", &label_word, from];
    tool.engine_says(&[&words[..], &["-c", script]].concat()).await;
    let changes: Vec<String> = changes.iter().map(|it| format!("--change={it}")).collect();
    let mut words = vec!["commit"];
    words.extend(changes.iter().map(String::as_str));
    words.extend([name.as_str(), &tag]);
    tool.engine_says(&words).await;
    tool.engine_says(&["rm", &name]).await;
    tag
}

/// The content of a file that lies somewhere in a container: where recipes run is not for tests to say.
pub(crate) async fn found(tool: &Tool<'_>, answer: &serde_json::Value, file: &str) -> Option<String> {
    let Some(fake) = tool.case.fake() else {
        let name = answer["container"].as_str().unwrap();
        let find = format!("find / -xdev -name {file} -type f -exec cat {{}} ';' 2>/dev/null; true");
        return Some(tool.prints(name, &find).await).filter(|it| !it.is_empty());
    };
    let id = ContainerId::parse(answer["id"].as_str().unwrap()).unwrap();
    find(&fake.root(&id).unwrap(), file).map(|it| it.trim_end().to_owned())
}

fn find(dir: &Path, file: &str) -> Option<String> {
    std::fs::read_dir(dir).unwrap().map(|it| it.unwrap()).find_map(|entry| {
        if entry.file_type().unwrap().is_dir() {
            return find(&entry.path(), file);
        }
        (entry.file_name() == file).then(|| std::fs::read_to_string(entry.path()).unwrap())
    })
}
