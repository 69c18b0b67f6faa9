//! Complete files: hostile ones and examples of public projects. They are stored with the end-to-end tests, beside
//! the output of Compose (`config --format json`, with `@DIR@` for their directory).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use coracle_runtime::{Limits, PatternSet, Policy, PolicyRefusal, Protocol};
use coracle_types::{ByteSize, LabelNamespace, ProjectName};
use serde_json::{Value, json};

use crate::admit::admit_normalised;
use crate::{AdmittedStack, ReadError, Rules, admit, read};

/// A user with a working directory and a policy.
pub(crate) struct Person {
    pub(crate) root: tempfile::TempDir,
    pub(crate) policy: Policy,
    pub(crate) namespace: LabelNamespace,
    pub(crate) protected: Vec<String>,
    pub(crate) bound_by_others: Vec<PathBuf>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) ours: BTreeSet<String>,
    pub(crate) root_is_host: bool,
    pub(crate) allow_build: bool,
    pub(crate) namespaced: bool,
    pub(crate) taken: u16,
}

impl Person {
    /// The policy `standard`, on an engine with root.
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().canonicalize().unwrap().join("home/project/work");
        std::fs::create_dir_all(&work).unwrap();
        let policy = Policy {
            allow_roots: vec![work.clone()],
            home: work.ancestors().nth(2).unwrap().to_owned(),
            denied: vec![],
            scratch: "/nowhere".into(),
            memory_max: ByteSize::mib(16 << 10),
            pids_max: 4096,
            port_min: 1024,
            allow_gpu: false,
            images: PatternSet::new(&["*".into()]).unwrap(),
            ..Policy::everything()
        };
        Self {
            root,
            policy,
            namespace: LabelNamespace::parse("coracle").unwrap(),
            protected: [".git/config", ".git/hooks", ".envrc"].map(String::from).to_vec(),
            bound_by_others: Vec::new(),
            env: BTreeMap::new(),
            ours: BTreeSet::new(),
            root_is_host: true,
            allow_build: false,
            namespaced: false,
            taken: 0,
        }
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().canonicalize().unwrap().join("home/project/work")
    }

    /// Admits a file in its long form.
    pub(crate) fn admit(&self, file: &Value) -> Result<AdmittedStack, PolicyRefusal> {
        self.with_rules(|rules| admit_normalised(file, &project(), rules))
    }

    pub(crate) fn with_rules<T>(&self, act: impl FnOnce(&Rules<'_>) -> T) -> T {
        let taken = self.taken;
        act(&Rules {
            policy: &self.policy,
            label_namespace: &self.namespace,
            namespace: self.namespaced,
            allow_build: self.allow_build,
            max_services: 20,
            default_limits: Limits { memory: Some(ByteSize::mib(4096)), cpus: None, pids: Some(1024) },
            root_is_host: self.root_is_host,
            protected: &self.protected,
            bound_by_others: &self.bound_by_others,
            env: &self.env,
            is_free: &move |port, _: Protocol| port != taken,
            our_networks: &self.ours,
            our_volumes: &self.ours,
        })
    }
}

pub(crate) fn project() -> ProjectName {
    ProjectName::parse("p").unwrap()
}

/// A file of the fixtures.
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) text: String,
    model: Option<String>,
}

pub(crate) fn all(kind: &str) -> Vec<Fixture> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/compose").join(kind);
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|it| it.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| Fixture {
            name: path.file_stem().unwrap().to_str().unwrap().to_owned(),
            text: std::fs::read_to_string(&path).unwrap(),
            model: std::fs::read_to_string(path.with_extension("json")).ok(),
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

impl Fixture {
    /// The rule that it violates; none if it cannot even be read.
    pub(crate) fn rule(&self) -> Option<&str> {
        self.text.lines().next().unwrap().strip_prefix("# rule: ")
    }

    /// Creates the files that the comments at its head list.
    pub(crate) fn lay_out(&self, work: &Path) {
        for line in self.text.lines() {
            if let Some(file) = line.strip_prefix("# file: ") {
                std::fs::create_dir_all(work.join(file).parent().unwrap()).unwrap();
                std::fs::write(work.join(file), "A=1\n").unwrap();
            } else if let Some(dir) = line.strip_prefix("# dir: ") {
                std::fs::create_dir_all(work.join(dir)).unwrap();
            }
        }
    }

    /// Returns its long form.
    pub(crate) fn normalised(&self, person: &Person) -> Result<Value, ReadError> {
        self.lay_out(&person.work());
        read(&self.text, &person.work(), &person.policy)?.normalised(&project(), &person.env)
    }

    /// Reads and admits the file.
    pub(crate) fn admitted(&self, person: &Person) -> Result<AdmittedStack, ReadError> {
        self.lay_out(&person.work());
        let file = read(&self.text, &person.work(), &person.policy)?;
        person.with_rules(|rules| admit(&file, &project(), rules))
    }
}

/// Removes values without effect: unset and empty ones, and a value that a key always has.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(entries) => {
            let entries = entries
                .into_iter()
                .filter(|(key, _)| !key.starts_with("x-") && !["create_host_path", "develop"].contains(&key.as_str()));
            let entries = entries.map(|(key, value)| (key, plain(value)));
            let is_empty = |value: &Value| value.is_null() || *value == json!({}) || *value == json!([]);
            Value::Object(entries.filter(|(_, value)| !is_empty(value)).collect())
        }
        Value::Array(items) => items.into_iter().map(plain).collect(),
        other => other,
    }
}

#[test]
fn the_long_form_is_what_compose_prints() {
    let (mut compared, mut differences) = (0, String::new());
    // One leads up from the directory, by as many levels as there were when it was recorded.
    let files = all("idioms").into_iter().chain(all("hostile")).filter(|file| file.name != "above_the_roots");
    for file in files {
        let person = Person::new();
        let Some(printed) = &file.model else { continue };
        let printed = serde_json::from_str(&printed.replace("@DIR@", person.work().to_str().unwrap())).unwrap();
        // A file that is refused when it is read has no long form.
        let Ok(ours) = file.normalised(&person) else { continue };
        let (ours, theirs) = (plain(ours), plain(printed));
        if ours != theirs {
            differences.push_str(&format!("{}: {ours}\n{theirs}\n", file.name));
        }
        compared += 1;
    }
    assert_eq!(differences, "");
    assert!(compared > 50, "{compared}");
}

#[test]
fn every_hostile_file_breaks_the_rule_it_names() {
    let files = all("hostile");
    assert!(files.len() >= 80, "{}", files.len());
    for file in files {
        match (file.rule(), file.admitted(&Person::new())) {
            (Some(rule), Err(ReadError::Refused(refused))) => {
                let rules: Vec<_> = refused.problems.iter().map(|it| it.rule).collect();
                assert!(rules.contains(&rule), "{}: {rules:?}", file.name);
            }
            (None, Err(ReadError::Invalid { .. })) => {}
            (rule, other) => panic!("{}: {rule:?}, {other:?}", file.name),
        }
    }
}

#[test]
fn idioms_of_public_projects_are_admitted() {
    let files = all("idioms");
    assert_eq!(files.len(), 10);
    for file in files {
        let person = Person { allow_build: true, ..Person::new() };
        let admitted = file.admitted(&person).unwrap_or_else(|err| panic!("{}: {err}", file.name));
        assert!(admitted.services().len() >= 2, "{}", file.name);
    }
}
