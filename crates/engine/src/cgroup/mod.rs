//! Interim.

use std::io;
use std::os::fd::OwnedFd;

use coracle_runtime::Limits;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Group;

impl Group {
    pub(crate) fn create(_id: &str, _limits: &Limits) -> io::Result<Option<Self>> {
        Ok(None)
    }
    pub(crate) fn entries(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(Vec::new())
    }
    pub(crate) fn oom_kills(&self) -> u64 {
        0
    }
    pub(crate) fn remove(&self) -> io::Result<()> {
        Ok(())
    }
}
