//! Uses of the bytes of secrets.

use structure::text::{code, without_unit_tests};

use super::project::{Source, rust_files, source};

/// Files that use the bytes of a secret, and how often: keys of labels, and frames to a guest.
const REVEALING: &[(&str, usize)] = &[
    // Keys of HMAC.
    ("crates/runtime/src/labels.rs", 3),
    // What a guest is given.
    ("crates/client/src/session.rs", 3),
    ("crates/client/src/relay.rs", 1),
    // What a program is given on a descriptor.
    ("crates/client/src/command.rs", 1),
    // What the proxy knows a sandbox by.
    ("crates/worker/src/llm/http.rs", 1),
    // The proxy: keys and credentials on their way out, and looked for in what comes back.
    ("crates/proxy/src/policy/provider.rs", 1),
    ("crates/proxy/src/llm.rs", 2),
    ("crates/proxy/src/scrub.rs", 1),
    ("crates/proxy/src/git/mod.rs", 4),
    ("crates/proxy/src/policy/secret.rs", 1),
    // Where the key of an authority is read and written, and digests are computed with it.
    ("crates/proxy/src/tls/authority.rs", 3),
    ("crates/sandbox/src/record.rs", 1),
    // What files are searched for.
    ("crates/client/src/scan.rs", 1),
    // What a registry is sent: passwords and tokens, and their form in the user's own files.
    ("crates/engine/src/registry/authorization.rs", 3),
    ("crates/host/src/registry_login/files.rs", 2),
    ("crates/kube/src/registry/login.rs", 1),
    // What is looked for in texts, to take it out.
    ("crates/types/src/redact/mod.rs", 1),
    // The environment of the user's own GitHub program.
    ("crates/host/src/gh.rs", 1),
    // The search path, and the environment of the user's own editor.
    ("crates/cli/src/open_editor.rs", 2),
    // The search path, and the addresses of proxies.
    ("crates/cli/src/program_path.rs", 1),
    ("crates/cli/src/setup/detect.rs", 1),
    // Values that no variable can hold, values of a profile, and values for a record.
    ("crates/provision/src/env/select.rs", 1),
    ("crates/provision/src/env/session.rs", 3),
    // The lines of a key, to look for them in files.
    ("crates/provision/src/ssh.rs", 1),
    // The search path, and the address of a proxy.
    ("crates/context/src/host_identity.rs", 1),
    ("crates/prepare/src/image_build/build_containers.rs", 1),
    // Where traces are sent, and as whose.
    ("crates/context/src/host.rs", 1),
    // The address of a proxy, and what programs with logins are started with.
    ("crates/context/src/engines/embedded.rs", 1),
    // The user's `KUBECONFIG`: a list of files.
    ("crates/context/src/engines/kubernetes.rs", 1),
    ("crates/context/src/engines/logins.rs", 1),
    // What the user's own git is started with, and what a record has of a token.
    ("crates/context/src/user_environment.rs", 1),
    ("crates/prepare/src/sandbox/devcontainer/mod.rs", 1),
    ("crates/sandbox/src/container/sandbox_container.rs", 2),
    ("crates/sandbox/src/container/startup/steps.rs", 1),
];

/// Files outside tests that call `reveal` differently from [`REVEALING`].
fn revealing(files: &[Source]) -> Vec<String> {
    let shipped = files.iter().filter(|it| it.path.starts_with("crates/") && !it.path.contains("/tests/"));
    let counted = shipped.map(|it| (&it.path, without_unit_tests(&code(&it.text)).matches(".reveal()").count()));
    let allowed = |path: &str| REVEALING.iter().find(|it| it.0 == path).map_or(0, |it| it.1);
    let wrong = counted.filter(|(path, count)| *count != allowed(path));
    wrong.map(|(path, count)| format!("{path}: reveals {count} times, not {}", allowed(path))).collect()
}

#[test]
fn secrets_are_revealed_only_where_their_bytes_are_used() {
    assert_eq!(revealing(&rust_files()), Vec::<String>::new());
}

#[test]
fn a_secret_that_is_revealed_elsewhere_is_found() {
    let files = [
        source("crates/jobs/src/read.rs", "let it = secret.reveal(); // not .reveal()"),
        source("crates/jobs/src/wait.rs", "#[cfg(test)]\nmod tests { fn it() { secret.reveal() } }"),
        source("crates/runtime/src/labels.rs", ""),
    ];
    let expected =
        ["crates/jobs/src/read.rs: reveals 1 times, not 0", "crates/runtime/src/labels.rs: reveals 0 times, not 3"];
    assert_eq!(revealing(&files), expected);
}
