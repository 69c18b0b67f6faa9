//! What tools do with the files of a workspace.
//!
//! Everything blocks, and runs on a thread of its own as the caller's user.
//!
//! **Invariant:** a path is resolved from a descriptor of the workspace. The kernel is never asked to follow a link: where
//! one leads is decided here, part by part, each taken in a directory that is open. So whoever swaps names meanwhile gets
//! an error or something else from inside.
//! **Invariant:** only regular files and directories are opened for more than looking.
//! **Invariant:** a file that is written has its old content or its new one, whenever somebody looks.
//! **Invariant:** memory does not grow with what the workspace holds.

mod afterwards;
mod bytes;
mod changed;
mod edit;
mod find;
mod grep;
mod hunt;
mod item;
mod lines;
mod list;
mod locks;
mod measure;
mod memory;
mod print;
mod remove;
mod replace;
mod stage;
mod sums;
mod told;
mod write;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use self::afterwards::Afterwards;
use self::locks::Locks;
use self::memory::Memory;
use crate::files::error::{FsError, Tried, words};
use crate::files::resolve::Root;
use crate::os::as_user::as_user;
use crate::os::blocking::Stop;
use crate::os::machine::Machine;
use crate::wire::space::{Act, Done, MAX_CONTENT, Space};
use crate::wire::{Fault, FaultCode};

/// Workspaces that are remembered, at most. A container has one.
const MAX_ROOTS: usize = 64;

/// Bytes that an act may bring.
pub(crate) const MAX_BROUGHT: usize = 2 * MAX_CONTENT as usize;

/// What a guest remembers of workspaces.
#[derive(Debug)]
pub(crate) struct Spaces {
    roots: Mutex<HashMap<String, Arc<Memory>>>,
    locks: Locks,
    afterwards: Afterwards,
    /// What is older was not begun by this guest.
    since: SystemTime,
}

impl Spaces {
    pub(crate) fn new() -> Self {
        Self {
            roots: Mutex::default(),
            locks: Locks::default(),
            afterwards: Afterwards::default(),
            since: SystemTime::now(),
        }
    }

    /// Waits until what was left for afterwards is done.
    pub(crate) async fn settle(&self) {
        self.afterwards.settle().await;
    }

    fn memory(&self, root: &str) -> Result<Arc<Memory>, Fault> {
        let mut roots = self.roots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(memory) = roots.get(root) {
            return Ok(memory.clone());
        }
        if roots.len() >= MAX_ROOTS {
            return Err(Fault::new(FaultCode::TooMany, format!("{MAX_ROOTS} workspaces are remembered already")));
        }
        Ok(roots.entry(root.to_owned()).or_default().clone())
    }
}

/// A workspace, for the length of one act.
#[derive(Debug)]
struct Work<'a> {
    root: Root,
    memory: &'a Memory,
    locks: &'a Locks,
    stop: &'a Stop,
    afterwards: &'a Afterwards,
}

impl Spaces {
    /// Does it, and what came of it in JSON. Blocks.
    pub(crate) fn act_as_json(
        &self,
        machine: &dyn Machine,
        ask: Space,
        content: &[u8],
        stop: &Stop,
    ) -> Result<Vec<u8>, Fault> {
        self.act(machine, ask, content, stop).map(told::json)
    }

    fn act(&self, machine: &dyn Machine, ask: Space, content: &[u8], stop: &Stop) -> Result<Done, Fault> {
        let ids = machine.ids(&ask.user)?;
        let memory = self.memory(&ask.root)?;
        if let Act::Recall = ask.act {
            return memory.recall(content).map(|()| Done::Recalled);
        }
        as_user(&ids, || {
            let root = match Root::open(machine.root(), &ask.root)? {
                Ok(root) => root,
                Err(FsError(trouble)) => return Ok(Done::Not(trouble)),
            };
            let Spaces { locks, afterwards, since, .. } = self;
            let work = Work { root, memory: &memory, locks, stop, afterwards };
            work.sweep(*since);
            Ok(work.act(ask.act, content).unwrap_or_else(|FsError(trouble)| Done::Not(trouble)))
        })
        .unwrap_or_else(|errno| {
            Err(Fault::new(FaultCode::Denied, format!("cannot act as user {}: {}", ids.uid, words(errno))))
        })
    }
}

impl Work<'_> {
    fn act(&self, act: Act, content: &[u8]) -> Tried<Done> {
        match act {
            Act::List { path, most } => self.list(&path, most as usize),
            Act::Stat { path } => self.stat(&path).map(Done::Found),
            Act::Lines { path, offset, limit, most } => self.lines(&path, (offset, limit, most)).map(Done::Text),
            Act::Bytes { path, offset, limit } => self.bytes(&path, offset, limit),
            Act::Write { path, how, executable, seen, tool } => {
                let write = write::Write { path: &path, how, executable, seen, tool: &tool };
                self.write(&write, content).map(Done::Written)
            }
            Act::Edit { path, old, all, seen, tool } => {
                let edit = edit::Edit { path: &path, old: old as usize, all, seen, tool: &tool };
                self.edit(&edit, content).map(Done::Written)
            }
            Act::Remove { path, within_ms, tool } => self.remove(&path, within_ms, &tool),
            Act::RemoveOne { path, tool } => self.remove_one(&path, &tool),
            Act::MakeDir { path, parents, exist_ok } => self.make_dir(&path, parents, exist_ok).map(Done::Found),
            Act::Glob { path, pattern, gitignore, bounds } => self.glob(&path, &pattern, gitignore, bounds),
            Act::Grep { path, pattern, glob, ignore_case, context, gitignore, bounds } => {
                let glob = glob.as_deref();
                let grep = grep::Grep { path: &path, pattern: &pattern, glob, ignore_case, context, gitignore };
                self.grep(&grep, bounds)
            }
            Act::Changed { hints, exclude, bounds, tool } => {
                self.changed(&hints, &exclude, bounds, &tool).map(Done::Changed)
            }
            Act::Sums { after, bounds } => self.sums(after.as_deref(), bounds),
            Act::Measure { bounds } => self.measure(bounds),
            Act::Stage { stage, begins } => self.stage(&stage, begins, content).map(|()| Done::Staged),
            Act::Unstage { stage } => self.unstage(&stage).map(|()| Done::Staged),
            Act::Touched => Ok(Done::Touched(self.memory.touched())),
            Act::Recall => Ok(Done::Recalled),
        }
    }
}

#[cfg(test)]
mod tests;
