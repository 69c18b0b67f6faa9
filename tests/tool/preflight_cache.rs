//! Passes the result of `preflight` to the next test of the same configuration.
//!
//! A look costs Podman a third of a second, most of it questions to the host's package manager, and each test has a state
//! directory of its own. Coracle itself sees to how old a verdict may be.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Person;
use crate::engines::{Case, lasting_dir};

/// The result of `preflight` for one configuration, and its origin.
pub(super) struct Verdict {
    place: PathBuf,
    taken: Option<Vec<u8>>,
}

impl Verdict {
    /// Puts the last one into a new state directory. Not for a person with programs or variables of their own: these
    /// may lead to another engine.
    pub(super) fn hand_over(case: &Case, person: &Person, config: &str, state: &Path) -> Option<Self> {
        if !case.is_real() || case.is_rootless() || case.program().is_some() || !person.is_plain() {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        config.hash(&mut hasher);
        let dir = lasting_dir().join("verdicts");
        std::fs::create_dir_all(&dir).unwrap();
        let place = dir.join(format!("{}-{:016x}.json", case.engine(), hasher.finish()));
        let taken = std::fs::read(&place).ok();
        if let Some(bytes) = &taken {
            std::fs::DirBuilder::new().mode(0o700).create(state).unwrap();
            std::fs::write(in_state(state), bytes).unwrap();
        }
        Some(Self { place, taken })
    }

    /// Copies a newer one.
    pub(super) fn take_back(&self, state: &Path) {
        let Some(bytes) = std::fs::read(in_state(state)).ok().filter(|it| Some(it) != self.taken.as_ref()) else {
            return;
        };
        let mut file = tempfile::NamedTempFile::new_in(self.place.parent().unwrap()).unwrap();
        file.write_all(&bytes).unwrap();
        file.persist(&self.place).unwrap();
    }
}

fn in_state(state: &Path) -> PathBuf {
    state.join("preflight.json")
}
