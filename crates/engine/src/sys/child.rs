//! Runs a plan in the child, which shares the memory of its suspended parent. So nothing here allocates, locks or panics.

use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Uid, chownat, open, openat2, symlinkat};
use rustix::io::{Errno, Result, read, write};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount_change, move_mount, unmount,
};
use rustix::process::{Resource, Rlimit, chdir, getrlimit, pivot_root, setrlimit, setsid};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use rustix::system::sethostname;
use rustix::thread::{
    CapabilitySet, CapabilitySets, UnshareFlags, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use super::kernel::{MountAttributes, close_from, install_filter, loopback_up, mount_setattr};
use super::mounts::{TreeOptions, build_overlay, clone_opened, clone_tree};
use super::plan::{BindSource, RootMount, Step};
use super::target::{MissingTarget, open_beneath, open_or_create};

/// The highest capability that a kernel may know.
const LAST_CAPABILITY: u32 = 63;

/// Executes one step. From `AttachRoot` on, the attached root is the working directory.
pub(super) fn run_step(step: &Step) -> Result<()> {
    match step {
        Step::RecordProcess(into) => record_process(into.as_fd()),
        Step::NewSession => setsid().map(drop),
        Step::PrivateMounts => mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC),
        Step::GiveToRoot(file) => chownat(file, c"", Some(Uid::ROOT), Some(Gid::ROOT), AtFlags::EMPTY_PATH),
        Step::AttachRoot { root, at } => attach_root(root, at),
        Step::BecomeRoot => become_user(0, 0),
        Step::FileSystem { optional, .. } => match mount_file_system(step) {
            Err(_) if *optional => Ok(()),
            done => done,
        },
        Step::Bind { source, attributes, target, directory } => {
            let kind = if *directory { MissingTarget::Directory } else { MissingTarget::File };
            match source {
                BindSource::Prepared(mount) => attach_at(mount, target, kind),
                BindSource::Path { path, recursive } => {
                    let options = TreeOptions { attributes: *attributes, ids: None, recursive: *recursive };
                    attach_at(&clone_tree(path, options)?, target, kind)
                }
            }
        }
        Step::Symlink { leads_to, at } => symlinkat(leads_to.as_c_str(), CWD, at.as_c_str()),
        Step::Mask(path) => mask(path),
        Step::ReadOnly(path) => make_read_only(path),
        Step::ReadOnlyRoot => {
            let root = open_beneath(CWD, c".")?;
            let set = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
            mount_setattr(&root, false, &MountAttributes { set, ..MountAttributes::default() })
        }
        Step::EnterRoot => {
            pivot_root(c".", c".")?;
            unmount(c".", UnmountFlags::DETACH)?;
            chdir(c"/")
        }
        Step::NewCgroupNamespace => super::enter::unshare(UnshareFlags::NEWCGROUP),
        Step::Hostname(name) => sethostname(name.to_bytes()),
        Step::LoopbackUp => loopback_up(),
        Step::Setting { path, value } => write_setting(path, value),
        Step::Output(into) => open_streams(into.as_ref()),
        Step::Streams { stdin, stdout, stderr } => {
            dup2_stdin(stdin)?;
            dup2_stdout(stdout)?;
            dup2_stderr(stderr)
        }
        Step::KeepOpen(file) => keep_open(file.as_fd()),
        Step::Trampoline(file) => super::enter::duplicate_until_execve(file.as_fd(), TRAMPOLINE_DESCRIPTOR),
        Step::CloseFrom(first) => close_from(*first),
        Step::Limit { resource, soft, hard } => set_limit(*resource, *soft, *hard),
        Step::WorkingDirectory(path) => chdir(path.as_c_str()),
        Step::Privileges { capabilities, uid, gid } => give_up_privileges(*capabilities, (*uid, *gid)),
        Step::Filter(program) => {
            set_no_new_privs(true)?;
            install_filter(program)
        }
    }
}

fn mount_file_system(step: &Step) -> Result<()> {
    let Step::FileSystem { kind, options, attributes, target, .. } = step else { return Err(Errno::INVAL) };
    let context = fsopen(kind.as_c_str(), FsOpenFlags::FSOPEN_CLOEXEC)?;
    // Without a source, `/proc/mounts` would show `none`.
    fsconfig_set_string(&context, c"source", kind.as_c_str())?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(&context, key.as_c_str())?;
        } else {
            fsconfig_set_string(&context, key.as_c_str(), value.as_c_str())?;
        }
    }
    fsconfig_create(&context)?;
    attach_at(&fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, *attributes)?, target, MissingTarget::Directory)
}

/// Records this process. `/proc` is still the host's, so the number is that on the host.
fn record_process(into: BorrowedFd<'_>) -> Result<()> {
    let mut line = [0; 1024];
    let stat = open(c"/proc/self/stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let length = read(&stat, &mut line)?;
    write(into, &line[..length]).map(drop)
}

fn attach_root(root: &RootMount, at: &CStr) -> Result<()> {
    match root {
        RootMount::Prepared(mount) => attach(mount, CWD, at)?,
        RootMount::Overlay(plan) => attach(&build_overlay(plan)?, CWD, at)?,
    }
    chdir(at)
}

fn attach(mount: &OwnedFd, to: BorrowedFd<'_>, path: &CStr) -> Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(mount, c"", to, path, flags)
}

/// Attaches a mount at a path of the new root.
fn attach_at(mount: &OwnedFd, target: &CStr, missing: MissingTarget) -> Result<()> {
    attach(mount, open_or_create(CWD, target, missing)?.as_fd(), c"")
}

/// Masks a path. It is opened only once, so that it cannot be replaced by a link in between.
fn mask(path: &CStr) -> Result<()> {
    let Some(target) = existing(path)? else { return Ok(()) };
    let is_directory = rustix::fs::fstat(&target)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let cover = if is_directory {
        let context = fsopen(c"tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_set_string(&context, c"source", c"tmpfs")?;
        fsconfig_set_string(&context, c"size", c"0")?;
        fsconfig_set_string(&context, c"mode", c"555")?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::MOUNT_ATTR_RDONLY | no_programs())?
    } else {
        // The host's `/dev/null`: that of the new root was created by this child.
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        clone_tree(c"/dev/null", TreeOptions { attributes, ids: None, recursive: false })?
    };
    attach(&cover, target.as_fd(), c"")
}

fn make_read_only(path: &CStr) -> Result<()> {
    let Some(target) = existing(path)? else { return Ok(()) };
    let attributes = MountAttrFlags::MOUNT_ATTR_RDONLY | no_programs();
    let tree = clone_opened(target.as_fd(), TreeOptions { attributes, ids: None, recursive: true })?;
    attach(&tree, target.as_fd(), c"")
}

fn existing(path: &CStr) -> Result<Option<OwnedFd>> {
    match open_beneath(CWD, path) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        found => found.map(Some),
    }
}

fn no_programs() -> MountAttrFlags {
    MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC
}

fn write_setting(path: &CStr, value: &CStr) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    write(&file, value.to_bytes()).map(drop)
}

fn open_streams(into: Option<&OwnedFd>) -> Result<()> {
    let null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let output = into.unwrap_or(&null);
    dup2_stdin(&null)?;
    dup2_stdout(output)?;
    dup2_stderr(output)
}

/// The number of the descriptor that PID 1 inherits.
pub(crate) const INHERITED_DESCRIPTOR: i32 = 3;

/// The number of the descriptor of the file that executes the program.
pub(crate) const TRAMPOLINE_DESCRIPTOR: i32 = 3;

fn keep_open(file: BorrowedFd<'_>) -> Result<()> {
    super::enter::duplicate_to(file, INHERITED_DESCRIPTOR)
}

/// Sets a limit, but not above the current maximum, which only a privileged process of the host can raise.
fn set_limit(resource: Resource, soft: u64, hard: u64) -> Result<()> {
    let ceiling = getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let hard = hard.min(ceiling);
    setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
}

fn become_user(uid: u32, gid: u32) -> Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    match set_thread_groups(&[]) {
        // Without subordinate ids, the kernel forbids a user to leave groups.
        Err(Errno::PERM) | Ok(()) => {}
        failed => return failed,
    }
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

fn give_up_privileges(capabilities: u64, user: (u32, u32)) -> Result<()> {
    for capability in 0..=LAST_CAPABILITY {
        let bit = CapabilitySet::from_bits_retain(1 << capability);
        if capabilities & (1 << capability) == 0 {
            match rustix::thread::remove_capability_from_bounding_set(bit) {
                // The kernel knows no higher capability.
                Err(Errno::INVAL) => break,
                done => done?,
            }
        }
    }
    if user != (0, 0) {
        become_user(user.0, user.1)?;
    }
    let set = CapabilitySet::from_bits_retain(capabilities);
    set_capabilities(None, CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() })
}
