//! Engines by their own programs: `docker` and `podman`.
#![expect(clippy::disallowed_methods, reason = "the engines' own programs are what is compared with")]

use std::process::{Command, Output, Stdio};
use std::time::Instant;

use coracle_docker::{CliRuntime, Dialect};
use coracle_engine_program::{ApiUse, EngineSettings};

use crate::busybox::{self, IMAGE};
use crate::{LABEL, Timing};

pub(crate) struct Program {
    dialect: Dialect,
}

impl Program {
    pub(crate) async fn open(name: &str) -> Self {
        let dialect = match name {
            "docker" => Dialect::Docker,
            "podman" => Dialect::Podman,
            _ => panic!("no engine `{name}`"),
        };
        let config = tempfile::tempdir().unwrap();
        let settings = EngineSettings {
            program: None,
            endpoint: None,
            config_dir: config.path().to_owned(),
            home: std::env::var_os("HOME").unwrap_or("/root".into()).into(),
            runtime_dir: std::env::var_os("XDG_RUNTIME_DIR").map(Into::into),
            temp_dir: std::env::temp_dir(),
            api: ApiUse::Auto,
            ssh_config: None,
            ssh_agent: None,
            logins: Default::default(),
        };
        busybox::ensure(&CliRuntime::connect(dialect, &settings).unwrap()).await.unwrap();
        Self { dialect }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.dialect.kind().as_str()
    }

    pub(crate) fn one(&self, network: bool) -> Timing {
        let label = format!("--label={}={}", LABEL, std::process::id());
        let mut words = vec!["run", "--detach", &label];
        words.extend((!network).then_some("--network=none"));
        words.extend([IMAGE, "sleep", "1000000"]);
        let begun = Instant::now();
        let id = run(self.name(), &words);
        let create = begun.elapsed();
        run(self.name(), &["exec", &id, "true"]);
        let first = begun.elapsed();
        let begun = Instant::now();
        run(self.name(), &["exec", &id, "true"]);
        let exec = begun.elapsed();
        let mut words = vec!["rm", "--force"];
        // Docker kills at once; Podman would send TERM and wait.
        words.extend((self.dialect == Dialect::Podman).then_some("--time=0"));
        words.push(&id);
        let begun = Instant::now();
        run(self.name(), &words);
        Timing { create, first, exec, destroy: begun.elapsed() }
    }
}

/// The output of a program, which has to succeed.
pub(crate) fn run(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().unwrap();
    ended_well(&output);
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The same, for a program whose output is not read: its children may keep a pipe open.
pub(crate) fn run_detached(program: &str, words: &[&str]) {
    let mut command = Command::new(program);
    let status = command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(status.unwrap().success(), "{program} {words:?}");
}

pub(crate) fn version(program: &str) -> String {
    let reported = run(program, &["--version"]);
    let number = |it: &&str| it.starts_with(|c: char| c.is_ascii_digit());
    reported.split([' ', ',', '\n']).find(number).unwrap_or("unknown").to_owned()
}

fn ended_well(output: &Output) {
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
}
