//! The calls of a link that are measured. A way that gives nothing here is shown as not measured.

use std::ffi::OsString;

use crate::engine::{Container, Engine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Socket,
    Stream,
}

/// A link that is open.
#[derive(Debug)]
pub(crate) enum Held {}

/// Opens a link of that transport.
pub(crate) async fn hold(_container: &Container, _transport: Transport) -> Option<Held> {
    None
}

impl Held {
    /// Runs a command, which has to exit with 0: what it printed.
    pub(crate) async fn exec(&self, _words: &[&str]) -> Vec<u8> {
        match *self {}
    }

    /// The content of a file.
    pub(crate) async fn read(&self, _path: &str) -> Vec<u8> {
        match *self {}
    }

    /// Replaces a file.
    pub(crate) async fn write(&self, _path: &str, _content: &[u8]) {
        match *self {}
    }
}

/// The words behind `coracle` that run `true` by that transport in a container that `coracle` made.
pub(crate) fn one_shot(_engine: &Engine, _transport: Transport) -> Option<Vec<OsString>> {
    None
}
