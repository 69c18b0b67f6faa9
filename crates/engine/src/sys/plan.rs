//! The steps of a child before it executes its program. The parent prepares them as data, so that the child allocates
//! nothing.

use std::ffi::CString;
use std::fmt;
use std::os::fd::OwnedFd;

use rustix::mount::MountAttrFlags;
use rustix::process::Resource;

use super::mounts::OverlayPlan;

/// All steps from `clone` to `execve`.
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

/// The namespaces of the child, except the user namespace.
#[derive(Debug)]
pub(crate) enum Namespaces {
    /// New namespaces, in which it is the first process.
    New { network: bool },
    /// Namespaces of a process, of these kinds.
    Of { process: OwnedFd, kinds: libc::c_int },
}

/// The program that the child executes.
#[derive(Debug)]
pub(crate) struct Program {
    /// Tried in this order, as a shell searches `PATH`.
    pub(crate) paths: Vec<CString>,
    pub(crate) argv: Vec<CString>,
    pub(crate) env: Vec<CString>,
}

/// One step of the child.
#[derive(Debug)]
pub(crate) enum Step {
    /// Writes its line of `/proc/self/stat` to the file, by which any process can find it later.
    RecordProcess(OwnedFd),
    NewSession,
    /// Makes its mounts invisible outside.
    PrivateMounts,
    /// Gives the file or directory to user and group 0 of the user namespace, who did not create it.
    GiveToRoot(OwnedFd),
    /// Attaches the root file system at a directory of the host, and changes to it.
    AttachRoot {
        root: RootMount,
        at: CString,
    },
    /// Becomes user and group 0 of its user namespace, without other groups.
    BecomeRoot,
    /// Mounts a new instance of a file system. A missing target is created.
    FileSystem {
        kind: CString,
        /// Options; those with an empty value are flags.
        options: Vec<(CString, CString)>,
        attributes: MountAttrFlags,
        target: CString,
        /// Whether to skip it if the kernel lacks or refuses it.
        optional: bool,
    },
    /// Mounts a directory or file of the host.
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
    /// Covers a file with `/dev/null`, a directory with an empty one. A missing path is skipped.
    Mask(CString),
    /// Makes a path read-only. A missing path is skipped.
    ReadOnly(CString),
    /// Makes the root file system read-only, but not the mounts below it.
    ReadOnlyRoot,
    /// Makes the attached root the root directory, and detaches everything else.
    EnterRoot,
    /// Makes its control group the root that it sees.
    NewCgroupNamespace,
    Hostname(CString),
    LoopbackUp,
    /// Writes a kernel setting of its namespaces, which may be missing.
    Setting {
        path: CString,
        value: CString,
    },
    /// Makes standard input empty, and writes both outputs to this file or nowhere.
    Output(Option<OwnedFd>),
    /// Sets the standard streams of a command.
    Streams {
        stdin: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
    },
    /// Makes this file descriptor 3.
    KeepOpen(OwnedFd),
    /// Makes this file descriptor 3; it then executes the program of the plan.
    Trampoline(OwnedFd),
    /// Closes all descriptors from this one on. Comes before the working directory, whose path may lead through one of them.
    CloseFrom(u32),
    /// Sets a resource limit; never above the one of this process.
    Limit {
        resource: Resource,
        soft: u64,
        hard: u64,
    },
    WorkingDirectory(CString),
    /// Reduces the capabilities to these, and becomes that user.
    Privileges {
        capabilities: u64,
        uid: u32,
        gid: u32,
    },
    /// Prevents programs from gaining privileges, and installs this filter of system calls.
    Filter(&'static [libc::sock_filter]),
}

/// The root file system of a container.
#[derive(Debug)]
pub(crate) enum RootMount {
    /// Mounted already by the parent, which is root.
    Prepared(OwnedFd),
    /// Mounted by the child, which is root only in its user namespace.
    Overlay(OverlayPlan),
}

/// The source of a bind.
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
