//! System calls for which the standard library has no safe form. All `unsafe` blocks of the engine are here.

mod caller;
mod child;
mod dumpable;
mod enter;
mod fork;
mod fs_ids;
mod inherited;
mod kernel;
mod mounts;
mod namespace;
mod pidfd;
mod plan;
mod spawn;
mod spawn_watch;
mod target;
mod trampoline;

pub(crate) use child::{INHERITED_DESCRIPTOR, TRAMPOLINE_DESCRIPTOR};
pub(crate) use dumpable::while_dumpable;
pub(crate) use fork::{ChildPlace, run_in_child};
pub use inherited::close_inherited_on_exec;
#[cfg(test)]
pub(crate) use kernel::install_filter;
pub(crate) use mounts::{OverlayPlan, TreeOptions, attach_mount, build_mapped_overlay, clone_tree, detach_mounts};
pub(crate) use namespace::create_user_namespace;
pub(crate) use pidfd::watch_process;
pub(crate) use plan::{BindSource, ChildPlan, Namespaces, Program, RootMount, Step};
pub(crate) use spawn::{FailedAt, FirstProcess, spawn, spawn_watched};
pub(crate) use spawn_watch::{SpawnWatch, SpawnedPidfd};
pub(crate) use trampoline::{MESSAGE as NOT_EXECUTED, trampoline};
