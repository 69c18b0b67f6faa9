//! Where the host starts programs of a container on its own account, past the guest or as root. The image, or an earlier
//! copy, can replace each of them, so a new place has to be argued for here.

use structure::text::{code, without_unit_tests};

use super::project::{Source, rust_files, source};

/// Code that starts one: by the engine's own exec, by one of our shell texts, or as root.
const STARTS: [&str; 5] = ["runtime.exec(", "container::exec(", "constant_program(", "exec_as_root(", "spawn(cluster"];

/// Files that may, and why that runs nothing as root that was not granted.
const ALLOWED: &[(&str, &str)] = &[
    ("crates/runtime/src/exec_target.rs", "a command of a caller, as the user whom the policy allowed"),
    ("crates/runtime/src/observe.rs", "passes the verb on"),
    ("crates/engine-program/src/exec.rs", "beside a command of a caller, as its user: it is looked for and ended"),
    ("crates/engine-program/src/lib.rs", "declares it"),
    ("crates/docker/src/lib.rs", "its arguments"),
    ("crates/docker/src/args/exec.rs", "its arguments"),
    ("crates/apple/src/lib.rs", "its arguments"),
    ("crates/apple/src/args.rs", "its arguments"),
    ("crates/apple/src/files.rs", "each container has a kernel of its own, and the engine no archive calls"),
    ("crates/provision/src/user_setup/by_engine.rs", "the exec user's own shell, to see what that user may do"),
    ("crates/provision/src/context.rs", "declares it: over the link, behind the guest's filter"),
    (
        "crates/provision/src/repos.rs",
        "over the link: an installation that a caller requested as root, where that is granted",
    ),
    ("crates/engine/src/runtime/containers.rs", "the verb itself"),
    ("crates/engine/src/service/health.rs", "the health check of a service, as the user of that service"),
    ("crates/kube/src/exec/command.rs", "declares it"),
    ("crates/kube/src/exec/limited.rs", "a command of a caller without a guest, as the user of the Pod"),
    ("crates/kube/src/upload.rs", "a node has no archive calls; copies into Pods with a guest go over the link"),
    ("crates/kube/src/download.rs", "a node has no archive calls; copies out of Pods with a guest go over the link"),
];

fn unexplained(source: &Source) -> Vec<String> {
    let path = source.path.as_str();
    let is_test = path.starts_with("tests/") || path.contains("/tests") || path.contains("/fake/");
    if !path.starts_with("crates/") || is_test || ALLOWED.iter().any(|(allowed, _)| *allowed == path) {
        return Vec::new();
    }
    let code = code(&source.text);
    let code = without_unit_tests(&code);
    STARTS.iter().filter(|start| code.contains(*start)).map(|start| format!("{path}: `{start}`")).collect()
}

#[test]
fn programs_of_a_container_are_started_in_their_places() {
    let files = rust_files();
    assert_eq!(files.iter().flat_map(unexplained).collect::<Vec<_>>(), Vec::<String>::new());
    let idle = |(path, _): &&(&str, &str)| {
        let file = files.iter().find(|source| source.path == *path);
        !file.is_some_and(|source| STARTS.iter().any(|start| code(&source.text).contains(start)))
    };
    let idle: Vec<_> = ALLOWED.iter().filter(idle).map(|(path, _)| path).collect();
    assert_eq!(idle, Vec::<&&str>::new(), "these start nothing any more");
}

#[test]
fn a_new_place_is_found() {
    let found = unexplained(&source("crates/lifecycle/src/copy.rs", "let it = found.runtime.exec(&id, exec).await?;"));
    assert_eq!(found, ["crates/lifecycle/src/copy.rs: `runtime.exec(`"]);
}
