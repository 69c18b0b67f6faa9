//! Resources that the tests of a run share: the image, and containers that they use one after the other, since creating
//! and removing one takes an engine longer than most checks of a command.
//!
//! A test that takes a container from here leaves it as it was, but for processes that sleep. `cargo xtask test` names the
//! run by `CORACLE_TEST_RUN` and removes the run's containers at its end; without a run each test makes its own.

use std::fs::{DirBuilder, File};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use coracle_runtime::{ContainerRuntime, CreateSpec, NetworkAttachment};
use coracle_types::{ContainerId, ContainerName, EngineKind, ImageId, Result, random_hex};
use tempfile::NamedTempFile;

use super::running::{Running, Way};
use super::{Case, LABEL, RunningCheck, busybox, on_every_engine, variable};

/// The image of most tests, which is requested from each engine once per run.
pub(super) async fn image(runtime: &dyn ContainerRuntime) -> Result<ImageId> {
    let Some(run) = shared_run(runtime.kind()) else { return busybox::ensure(runtime).await };
    let note = dir_of(&run).join(format!("{}-image", runtime.kind()));
    if let Ok(id) = std::fs::read_to_string(&note) {
        return Ok(ImageId::parse(id).unwrap());
    }
    let id = busybox::ensure(runtime).await?;
    // Atomic for concurrent readers.
    let mut file = NamedTempFile::new_in(dir_of(&run)).unwrap();
    file.write_all(id.as_str().as_bytes()).unwrap();
    file.persist(&note).unwrap();
    Ok(id)
}

/// The run, where its tests share what an engine has. One that is played has something else for each test.
fn shared_run(engine: EngineKind) -> Option<String> {
    variable("CORACLE_TEST_RUN").filter(|_| matches!(engine, EngineKind::Docker | EngineKind::Podman))
}

/// A directory of this run, which is removed with it.
fn dir_of(run: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("coracle-test-pool-{run}"));
    DirBuilder::new().mode(0o700).recursive(true).create(&dir).unwrap();
    dir
}

/// A place in the pool, held by its lock. While a test has it, its file is empty: what a test that failed, or was ended,
/// leaves is not for the next one.
#[derive(Debug)]
struct Place {
    run: String,
    file: File,
    /// The parent of its containers' link directories.
    dir: PathBuf,
    kind: &'static str,
}

impl Place {
    /// A free one on the engine of that case, if tests share at all.
    fn take(case: &Case, way: Way) -> Option<Self> {
        let run = shared_run(case.engine())?;
        let kind = if way == Way::Plain { "plain" } else { "guest" };
        let dir = dir_of(&run);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut places = (0..).map(|at| options.open(dir.join(format!("{}-{kind}-{at}", case.engine()))).unwrap());
        let file = places.find(|it| it.try_lock().is_ok())?;
        Some(Self { run, file, dir, kind })
    }

    /// The container that was left here.
    fn left(&mut self) -> Option<(ContainerId, PathBuf)> {
        let mut text = String::new();
        self.file.read_to_string(&mut text).unwrap();
        self.file.set_len(0).unwrap();
        self.file.rewind().unwrap();
        let (id, name) = text.split_once(' ')?;
        Some((ContainerId::parse(id).unwrap(), self.dir.join(name)))
    }

    /// Leaves it for the next test.
    fn leave(&mut self, running: &Running<'_>) {
        let name = running.socket.dir.file_name().unwrap().to_str().unwrap();
        write!(self.file, "{} {name}", running.id).unwrap();
    }

    /// A container of the busybox image with the run's label.
    fn spec(&self, case: &Case) -> CreateSpec {
        let name = ContainerName::parse(format!("ct-{}-{}-{}", self.run, self.kind, random_hex::<4>())).unwrap();
        CreateSpec { name, labels: [(LABEL.to_owned(), self.run.clone())].into(), ..case.spec("of-the-pool") }
    }
}

impl Case {
    async fn taken(&self, way: Way, place: &mut Place) -> Running<'_> {
        if let Some((id, dir)) = place.left()
            && let Some(running) = self.meets(way, id, dir).await
        {
            return running;
        }
        let spec = place.spec(self);
        // Short, since a path to a socket is.
        let dir = place.dir.join(random_hex::<4>());
        self.run_with_link(way, spec, (&self.image, NetworkAttachment::None), dir).await
    }
}

/// As [`in_every_way`](super::in_every_way), for checks that leave the container unchanged.
pub(crate) async fn in_every_way_into_a_shared_one(check: impl AsyncFn(&Running<'_>)) {
    in_each_way_into_a_shared_one(&check).await;
}

async fn in_each_way_into_a_shared_one(check: RunningCheck<'_>) {
    on_every_engine(async |case| {
        for way in case.ways() {
            eprintln!("on {}, {way}", case.engine());
            let Some(mut place) = Place::take(case, *way) else {
                check.on(&case.runs(*way).await).await;
                continue;
            };
            let running = case.taken(*way, &mut place).await;
            check.on(&running).await;
            place.leave(&running);
        }
    })
    .await;
}
