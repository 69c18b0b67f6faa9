use std::path::Path;

use coracle_runtime::Policy;
use serde_json::{Value, json};

use super::{ReadError, read};

/// A user's directory below a root, with a link to a secret outside of it.
struct Location {
    root: tempfile::TempDir,
}

impl Location {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        for dir in ["work/app", "outside"] {
            std::fs::create_dir_all(root.path().join(dir)).unwrap();
        }
        std::fs::write(root.path().join("outside/secret"), "KEY=canary\n").unwrap();
        std::os::unix::fs::symlink(root.path().join("outside"), root.path().join("work/link")).unwrap();
        std::fs::write(root.path().join("work/a.env"), "A=1\nB='x$y'\n").unwrap();
        std::fs::write(root.path().join("work/app/Dockerfile"), "FROM scratch\n").unwrap();
        Self { root }
    }

    fn work(&self) -> std::path::PathBuf {
        self.root.path().canonicalize().unwrap().join("work")
    }

    fn policy(&self) -> Policy {
        Policy { allow_roots: vec![self.work()], ..Policy::everything() }
    }

    fn read(&self, text: &str) -> Result<Value, ReadError> {
        read(text, &self.work(), &self.policy()).map(|it| Value::Object(it.file))
    }

    fn rules(&self, text: &str) -> Vec<&'static str> {
        match self.read(text) {
            Err(ReadError::Refused(refused)) => refused.problems.iter().map(|it| it.rule).collect(),
            other => panic!("{text}: {other:?}"),
        }
    }
}

fn service(more: &str) -> String {
    format!("services: {{web: {{image: a, {more}}}}}")
}

#[test]
fn keys_on_which_compose_acts_while_it_reads_are_refused() {
    let location = Location::new();
    for (text, rule) in [
        ("include: [other.yaml]\nservices: {web: {image: a}}", "compose.include"),
        ("include: [other.yaml]", "compose.include"),
        (&service("extends: {file: other.yaml, service: x}"), "compose.extends"),
        (&service("provider: {type: sh}"), "compose.provider"),
        (&service("use_api_socket: true"), "compose.use_api_socket"),
        (&service("credential_spec: {file: x}"), "compose.credential_spec"),
        (&service("build: https://github.com/x/y.git"), "compose.build"),
        (&service("build: git@github.com:x/y.git"), "compose.build"),
        (&service("build: {context: app, additional_contexts: {x: 'oci-layout://x'}}"), "compose.build"),
        (&service("build: {context: app, additional_contexts: ['x=docker-image://x']}"), "compose.build"),
        (&service("build: {context: app, dockerfile: ../../outside/secret}"), "compose.root"),
        (&service("build: ../outside"), "compose.root"),
        (&service("build: link"), "compose.root"),
        (&service("build: /etc"), "compose.denied"),
        (&service("build: '${DIR}'"), "compose.build"),
        (&service("env_file: link/secret"), "compose.root"),
        (&service("env_file: [/etc/passwd]"), "compose.denied"),
        (&service("env_file: [{path: $HOME/x}]"), "compose.env_file"),
        (&service("env_file: ~other/x"), "compose.env_file"),
        (&service("volumes: ['~other/x:/y']"), "compose.volumes"),
        (&service("env_file: missing.env"), "compose.env_file"),
        (&service("env_file: {path: link/secret, required: false}"), "compose.root"),
        (&service("label_file: /proc/self/environ"), "compose.denied"),
        ("services: {web: {image: a}}\nconfigs: {c: {file: /etc/shadow}}", "compose.denied"),
        ("services: {web: {image: a}}\nsecrets: {c: {file: link/secret}}", "compose.root"),
        ("services: {web: {image: a}}\nsecrets: {c: {file: './${X}'}}", "compose.secrets"),
        (&service("a_key_of_tomorrow: 1"), "compose.key"),
        ("services: {web: {image: a}}\ntomorrow: 1", "compose.key"),
        ("services: {web: {image: a}}\nmodels: {m: {model: x}}", "compose.models"),
    ] {
        assert_eq!(location.rules(text), [rule], "{text}");
    }
}

#[test]
fn all_violations_are_reported_at_once() {
    let location = Location::new();
    let text = "include: [x]\nservices: {a: {image: x, provider: {type: y}}, b: {image: x, env_file: /etc/passwd}}";
    assert_eq!(location.rules(text), ["compose.include", "compose.provider", "compose.denied"]);
}

#[test]
fn a_default_dockerfile_that_is_a_link_does_not_lead_out() {
    let location = Location::new();
    std::fs::create_dir(location.work().join("evil")).unwrap();
    std::os::unix::fs::symlink("../link/secret", location.work().join("evil/Dockerfile")).unwrap();
    assert_eq!(location.rules(&service("build: evil")), ["compose.root"]);
}

#[test]
fn files_of_variables_are_expanded() {
    let location = Location::new();
    let read =
        location.read(&service("env_file: [a.env, {path: none.env, required: false}], environment: [A=2, C]")).unwrap();
    assert_eq!(read["services"]["web"], json!({ "image": "a", "environment": { "A": "2", "B": "x$$y", "C": null } }));
    let read = location.read(&service("label_file: a.env, labels: {x: y}")).unwrap();
    assert_eq!(read["services"]["web"]["labels"], json!({ "A": "1", "B": "x$$y", "x": "y" }));
}

#[test]
fn a_tilde_is_the_home_of_the_user() {
    let location = Location::new();
    let policy = Policy { home: location.work(), ..location.policy() };
    let text = "services: {web: {image: a, env_file: ~/a.env, volumes: ['~/app:/y:ro', '~:/z', 'data:/d', \
        {type: bind, source: ~/app, target: /x}]}}";
    let read = Value::Object(read(text, &location.work(), &policy).unwrap().file);
    let (work, app) = (location.work().display().to_string(), location.work().join("app").display().to_string());
    let volumes = json!([format!("{app}:/y:ro"), format!("{work}:/z"), "data:/d", { "type": "bind", "source": app, "target": "/x" }]);
    assert_eq!(read["services"]["web"]["volumes"], volumes);
    assert_eq!(read["services"]["web"]["environment"]["A"], "1");
}

#[test]
fn an_unreadable_file_of_variables_violates_no_rule() {
    let location = Location::new();
    std::fs::write(location.work().join("bad.env"), "A=1\nB='x\n").unwrap();
    std::fs::write(location.work().join("raw.env"), "A='x'\n").unwrap();
    let message = |text: &str| match location.read(text) {
        Err(ReadError::Invalid { message, .. }) => message,
        other => panic!("{text}: {other:?}"),
    };
    let bad = message(&service("env_file: bad.env"));
    assert_eq!(bad, "service `web`: `env_file` bad.env: is no file of variables: line 2");
    let format = message(&service("env_file: [{path: a.env, format: toml}]"));
    assert!(format.contains("has the format `toml`, which is not supported"), "{format}");
    assert!(message(&service("env_file: 7")).contains("is not a list of paths"));
    let read = location.read(&service("env_file: [{path: raw.env, format: raw}]")).unwrap();
    assert_eq!(read["services"]["web"]["environment"], json!({ "A": "'x'" }));
}

#[test]
fn paths_are_resolved_and_ignored_keys_are_removed() {
    let location = Location::new();
    std::os::unix::fs::symlink("app", location.work().join("alias")).unwrap();
    let text = "version: '3'\nname: x\nx-a: 1\nservices: {web: {build: alias, x-b: 1, develop: {watch: []}}}\nconfigs: {c: {file: ./a.env}}";
    let (read, work) = (location.read(text).unwrap(), location.work());
    assert_eq!(
        read,
        json!({
            "services": { "web": { "build": { "context": work.join("app") } } },
            "configs": { "c": { "file": work.join("a.env") } },
        })
    );
}

#[test]
fn other_files_are_refused_with_the_reason() {
    for text in ["", "[]", "services: {}", "services: []", "a: 1", "services:\n", "services: {a: {image: x}\n"] {
        let read = read(text, Path::new("/nowhere"), &Policy::everything());
        assert!(matches!(read, Err(ReadError::Invalid { .. })), "{text}: {read:?}");
    }
}
