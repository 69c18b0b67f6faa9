//! Docker and Podman, with an image of the test.

use std::time::Duration;

use coracle_host::find_program::find_program;
use coracle_host::process::{Invocation, Stdin, run};
use coracle_types::{Input, random_hex};

use crate::image::tar_of;

/// An engine that has an image by this name.
pub(crate) struct OtherEngine {
    program: std::path::PathBuf,
    pub(crate) name: String,
}

impl OtherEngine {
    /// Imports an image. `None` without the engine.
    pub(crate) async fn with_image(program: &str) -> Option<Self> {
        let program = find_program(program).ok()?;
        let engine = Self { program, name: format!("localhost/coracle-engine-test:{}", random_hex::<4>()) };
        let tar = Stdin::Input(Input::Bytes(tar_of(random_hex::<16>().as_bytes())));
        engine.call(&["import", "-", &engine.name], tar).await.map(|_| engine)
    }

    /// The image's id.
    pub(crate) async fn id(&self) -> String {
        let id = self.call(&["image", "inspect", "--format={{.Id}}", &self.name], Stdin::Empty).await.unwrap();
        format!("sha256:{}", id.trim_start_matches("sha256:"))
    }

    pub(crate) async fn remove(&self) {
        self.call(&["image", "rm", &self.name], Stdin::Empty).await.unwrap();
    }

    /// What it prints. `None` if it fails.
    async fn call(&self, words: &[&str], stdin: Stdin) -> Option<String> {
        let mut invocation = Invocation::new(&self.program, words);
        invocation.env = [("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", "/root")]
            .map(|(name, value)| (name.to_owned(), value.into()))
            .into();
        let output = run("engine", &invocation, stdin, (Duration::from_secs(60), 10_000)).await.unwrap();
        output.ok().then(|| output.stdout.text().trim().to_owned())
    }
}
