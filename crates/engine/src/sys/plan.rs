//! What a child does before it executes PID 1: data, prepared by the parent so that the child allocates nothing.

use std::ffi::CString;
use std::fmt;
use std::os::fd::OwnedFd;

use rustix::mount::MountAttrFlags;
use rustix::process::Resource;

use super::mounts::OverlayPlan;

/// The whole way from `clone` to `execve`.
#[derive(Debug)]
pub(crate) struct ChildPlan {
    /// Files of control groups into which the child writes itself.
    pub(crate) groups: Vec<OwnedFd>,
    /// The user namespace that it enters first.
    pub(crate) user_namespace: Option<OwnedFd>,
    pub(crate) namespaces: Namespaces,
    pub(crate) steps: Vec<Step>,
    pub(crate) program: Program,
}

/// The namespaces of the child, apart from that of users.
#[derive(Debug)]
pub(crate) enum Namespaces {
    /// New ones; it is the first process in them.
    New { network: bool },
    /// Those of a process, with these kinds.
    Of { process: OwnedFd, kinds: libc::c_int },
}

/// The program that the child executes.
#[derive(Debug)]
pub(crate) struct Program {
    /// Tried in this order, as a shell looks through `PATH`.
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
}

/// One thing that the child does, in this order of the list.
#[derive(Debug)]
pub(crate) enum Step {
    /// Writes its line of `/proc/self/stat` into the file: from then on every process can find it.
    RecordProcess(OwnedFd),
    NewSession,
    /// Mounts that it makes are not seen outside.
    PrivateMounts,
    /// The file or directory belongs to user and group 0 of the user namespace, who are not its maker.
    GiveToRoot(OwnedFd),
    /// Attaches the root file system at a directory of the host, and goes there.
    AttachRoot {
        root: RootMount,
        at: CString,
    },
    /// Becomes user and group 0 of its user namespace, without other groups.
    BecomeRoot,
    /// A new instance of a file system. Its target is made when it is missing.
    FileSystem {
        kind: CString,
        /// One with an empty value is a flag.
        options: Vec<(CString, CString)>,
        attributes: MountAttrFlags,
        target: CString,
        /// Left out where the kernel lacks it or refuses it.
        optional: bool,
    },
    /// A directory or file of the host.
    Bind {
        source: BindSource,
        attributes: MountAttrFlags,
        target: CString,
        directory: bool,
    },
    Symlink {
        leads_to: CString,
        at: CString,
    },
    /// Covers a file by `/dev/null`, a directory by an empty one. A missing path is left out.
    Mask(CString),
    /// Makes what lies there read-only. A missing path is left out.
    ReadOnly(CString),
    /// Makes the root file system read-only, without what is mounted below.
    ReadOnlyRoot,
    /// Makes the attached root the root directory, and detaches everything else.
    EnterRoot,
    /// Its control group is the root that it sees.
    NewCgroupNamespace,
    Hostname(CString),
    LoopbackUp,
    /// Writes a kernel setting of its namespaces, which may be missing.
    Setting {
        path: CString,
        value: CString,
    },
    /// Standard input is empty; both outputs go to this file, or nowhere.
    Output(Option<OwnedFd>),
    /// The standard streams of a command.
    Streams {
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// Descriptor 3 becomes this file.
    KeepOpen(OwnedFd),
    /// Descriptor 3 becomes this file, which then executes the program of the plan.
    Trampoline(OwnedFd),
    /// Closes all descriptors from this one on. Before the working directory, whose path may lead through one of them.
    CloseFrom(u32),
    /// A limit of processes; never more than this process may have.
    Limit {
        resource: Resource,
        soft: u64,
        hard: u64,
    },
    WorkingDirectory(CString),
    /// Keeps these capabilities and no others, and becomes that user.
    Privileges {
        capabilities: u64,
        uid: u32,
        gid: u32,
    },
    /// No program gains privileges any more, and these system calls are filtered.
    Filter(&'static [libc::sock_filter]),
}

/// The root file system of a container.
#[derive(Debug)]
pub(crate) enum RootMount {
    /// Mounted by the parent, which is root.
    Prepared(OwnedFd),
    /// To be mounted by the child, which is root in its user namespace only.
    Overlay(OverlayPlan),
}

/// What a bind shows.
#[derive(Debug)]
pub(crate) enum BindSource {
    /// A detached mount with its attributes.
    Prepared(OwnedFd),
    /// A path of the host without links.
    Path { path: CString, recursive: bool },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = |text: &str, path: &CString| format!("{text} `{}`", path.to_string_lossy());
        let text = match self {
            Self::RecordProcess(_) => "record the process".to_owned(),
            Self::NewSession => "start a session".to_owned(),
            Self::PrivateMounts => "make the mounts private".to_owned(),
            Self::GiveToRoot(_) => "give a file to the container's root".to_owned(),
            Self::AttachRoot { .. } => "mount the root file system".to_owned(),
            Self::BecomeRoot => "become root of the user namespace".to_owned(),
            Self::FileSystem { target, .. } => path("mount a file system at", target),
            Self::Bind { target, .. } => path("bind a path of the host at", target),
            Self::Symlink { at, .. } => path("make the link", at),
            Self::Mask(at) => path("cover", at),
            Self::ReadOnly(at) => path("make read-only", at),
            Self::ReadOnlyRoot => "make the root file system read-only".to_owned(),
            Self::EnterRoot => "enter the root file system".to_owned(),
            Self::NewCgroupNamespace => "create a cgroup namespace".to_owned(),
            Self::Hostname(_) => "set the host name".to_owned(),
            Self::LoopbackUp => "bring up the loopback device".to_owned(),
            Self::Setting { path: at, .. } => path("set", at),
            Self::Output(_) => "open the standard streams".to_owned(),
            Self::Streams { .. } => "connect the standard streams".to_owned(),
            Self::Trampoline(_) => "prepare the execution of the program".to_owned(),
            Self::CloseFrom(_) => "close descriptors".to_owned(),
            Self::KeepOpen(_) => "keep a descriptor".to_owned(),
            Self::Limit { resource, hard, .. } => format!("set the limit {resource:?} to {hard}"),
            Self::WorkingDirectory(at) => path("go to", at),
            Self::Privileges { uid, gid, .. } => format!("become {uid}:{gid}"),
            Self::Filter(_) => "filter system calls".to_owned(),
        };
        f.write_str(&text)
    }
}
