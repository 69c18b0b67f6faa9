//! Injected faults as states, and the check that every verb makes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coracle_types::{ContainerId, EngineKind, Error, Excerpt, Result};
use tokio::time::sleep;

use super::{FakeRuntime, refused};

/// Declares the verbs, each with the name that errors use.
macro_rules! verbs {
    ($($verb:ident = $name:literal,)*) => {
        /// The verbs of the engine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "the verbs of the trait, by their names")]
        pub enum Verb { $($verb,)* }

        impl Verb {
            /// All of them, for tests that let each fail in turn.
            pub const ALL: &[Self] = &[$(Self::$verb,)*];

            /// The name in errors.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$verb => $name,)* }
            }
        }
    };
}

verbs! {
    Info = "info",
    Create = "create",
    Start = "start",
    Stop = "stop",
    Inspect = "inspect",
    List = "list",
    Remove = "remove",
    Exec = "exec",
    Upload = "upload",
    Download = "download",
    FindImage = "find image",
    Pull = "pull",
    Import = "import",
    Commit = "commit",
    Build = "build",
    SaveImage = "image save",
    LoadImage = "image load",
    ListImages = "list images",
    RemoveImage = "remove image",
    TagImage = "tag",
    FindNetwork = "find network",
    CreateNetwork = "create network",
    ListNetworks = "list networks",
    RemoveNetwork = "remove network",
    StackUp = "compose up",
    StackDown = "compose down",
    Logs = "logs",
    CheckHealth = "check health",
    CreateVolume = "create volume",
    ListVolumes = "list volumes",
    RemoveVolume = "remove volume",
}

impl Verb {
    /// Limit of an answer; `None` where the call brings its own limit or has none.
    fn deadline(self) -> Option<Duration> {
        let seconds = match self {
            Self::Exec
            | Self::Upload
            | Self::Download
            | Self::Pull
            | Self::Import
            | Self::Build
            | Self::SaveImage
            | Self::LoadImage
            | Self::StackUp => {
                return None;
            }
            Self::StackDown | Self::CheckHealth => 120,
            Self::Commit => 300,
            Self::Create | Self::Start => 60,
            Self::Stop | Self::Remove | Self::RemoveImage | Self::RemoveVolume => 30,
            Self::CreateNetwork | Self::RemoveNetwork | Self::CreateVolume => 15,
            Self::Info | Self::Inspect | Self::List | Self::FindImage => 30,
            Self::ListImages | Self::FindNetwork | Self::ListNetworks => 30,
            Self::Logs | Self::ListVolumes | Self::TagImage => 30,
        };
        Some(Duration::from_secs(seconds))
    }
}

/// Faults of the engine, and its calls so far.
#[derive(Debug, Default)]
pub(super) struct Faults {
    failing: BTreeSet<Verb>,
    slow: BTreeMap<Verb, Duration>,
    unavailable: bool,
    calls: Vec<Verb>,
}

impl FakeRuntime {
    /// PID 1 of a container dies: it is `exited` with 137, and commands in it end.
    pub fn crash(&self, id: &ContainerId) {
        self.with(|state| state.end(id, 137).ok());
    }

    /// A container is paused behind our back: nothing in it answers until it is started again.
    pub fn pause(&self, id: &ContainerId) {
        self.with(|state| state.pause(id).ok());
    }

    /// The guest of a container falls silent, while the container runs on.
    pub fn silence(&self, id: &ContainerId) {
        self.with(|state| state.silence(id).ok());
    }

    /// The kernel ends PID 1 of a container for memory.
    pub fn run_out_of_memory(&self, id: &ContainerId) {
        self.with(|state| state.end_for_memory(id).ok());
    }

    /// A container is removed behind our back.
    pub fn disappear(&self, id: &ContainerId) {
        self.with(|state| state.remove(id));
    }

    /// The next call of that verb fails with [`Error::Engine`] and has no effect.
    pub fn fail_next(&self, verb: Verb) {
        self.with(|state| state.faults.failing.insert(verb));
    }

    /// Clears failures that did not occur yet.
    pub fn clear_faults(&self) {
        self.with(|state| state.faults.failing.clear());
    }

    /// Calls of that verb take so long. Beyond the verb's deadline they end in [`Error::TimedOut`] without effect.
    pub fn slow(&self, verb: Verb, duration: Duration) {
        self.with(|state| state.faults.slow.insert(verb, duration));
    }

    /// The engine stops answering at all, or answers again.
    pub fn unavailable(&self, unavailable: bool) {
        self.with(|state| state.faults.unavailable = unavailable);
    }

    /// Every verb that was called so far, also those that failed.
    #[must_use]
    pub fn calls(&self) -> Vec<Verb> {
        self.with(|state| state.faults.calls.clone())
    }

    /// Each verb begins here: it is noted, and meets the faults that are set.
    pub(super) async fn enter(&self, verb: Verb) -> Result<()> {
        let (unavailable, takes, fails) = self.with(|state| {
            let faults = &mut state.faults;
            faults.calls.push(verb);
            let takes = faults.slow.get(&verb).copied();
            (faults.unavailable, takes, !faults.unavailable && faults.failing.remove(&verb))
        });
        if unavailable {
            let excerpt = Excerpt::from_bytes(b"the fake engine was made unavailable");
            return Err(Error::Unavailable { engine: EngineKind::Fake, denied: false, excerpt });
        }
        wait(verb, takes).await?;
        if fails { Err(refused(verb, "the fake engine was made to fail")) } else { Ok(()) }
    }
}

async fn wait(verb: Verb, takes: Option<Duration>) -> Result<()> {
    let Some(takes) = takes else { return Ok(()) };
    match verb.deadline().filter(|after| takes > *after) {
        Some(after) => {
            sleep(after).await;
            Err(Error::TimedOut { verb: verb.as_str(), after })
        }
        None => {
            sleep(takes).await;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::trials::running;
    use super::*;
    use crate::ContainerRuntime;
    use coracle_types::ContainerStatus;

    #[tokio::test]
    async fn the_next_call_of_a_verb_fails_once_and_has_no_effect() {
        let (fake, id) = running().await;
        fake.fail_next(Verb::Stop);
        assert!(matches!(fake.stop(&id, Duration::ZERO).await, Err(Error::Engine { verb: "stop", .. })));
        assert_eq!(fake.inspect(&(&id).into()).await.unwrap().status, ContainerStatus::Running);
        fake.stop(&id, Duration::ZERO).await.unwrap();
    }

    #[tokio::test]
    async fn an_unavailable_engine_answers_nothing_and_forgets_nothing() {
        let (fake, id) = running().await;
        fake.unavailable(true);
        assert!(matches!(fake.info().await, Err(Error::Unavailable { denied: false, .. })));
        fake.unavailable(false);
        assert!(fake.inspect(&(&id).into()).await.unwrap().running());
        assert_eq!(fake.calls()[3..], [Verb::Info, Verb::Inspect]);
    }

    #[tokio::test]
    async fn a_container_can_crash_and_disappear() {
        let (fake, id) = running().await;
        fake.crash(&id);
        let crashed = fake.inspect(&(&id).into()).await.unwrap();
        assert_eq!((crashed.status, crashed.exit_code), (ContainerStatus::Exited, Some(137)));
        fake.disappear(&id);
        assert!(matches!(fake.inspect(&(&id).into()).await, Err(Error::NoSuchContainer(_))));
    }

    #[test]
    fn all_verbs_are_listed() {
        let names: BTreeSet<_> = Verb::ALL.iter().map(|it| it.as_str()).collect();
        assert_eq!(names.len(), Verb::ALL.len());
    }
}
