//! The container that this process is PID 1 of.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, getegid, geteuid, kill_process};
use tokio::time::timeout;

use crate::os::machine::{Ids, NewUser, Process, ProcessBackend, SessionVariables, SpawnError, SpawnSpec, TreeId};
use crate::os::openat2;
use crate::os::reap::{ChildId, Children, Reaper};
use crate::os::seccomp::Filter;
use crate::os::start::program::Program;
use crate::os::start::{Spawn, StatusChannel, env, not_forked, stdio};
use crate::os::suid_guard::{ListenerTask, SuidPolicy};
use crate::os::tree::{Marks, ProcessTree};
use crate::os::user::{Account, Users};
use crate::protocol::{EnsureUser, ErrorCode, RpcError, UserInfo, UserSpec};

/// A child normally executes its program much faster. It may be stopped before, or its file system may hang.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The backend that starts real processes, on the files beneath a root directory.
///
/// In a process that is not PID 1, as in tests, it reaps only its own children, and searches all processes for those of a
/// command.
#[derive(Debug)]
pub struct Container {
    root: PathBuf,
    /// The guest's own environment, `NAME=value` each.
    environment: Vec<Vec<u8>>,
    users: Users,
    rule: SuidPolicy,
    filter: Arc<Filter>,
    children: Arc<Children>,
    marks: Marks,
    leaders: Mutex<HashMap<TreeId, Leader>>,
    /// The kernel's list of PID 1's children; `None` in another process.
    child_list: Option<File>,
    image_had_shell: bool,
}

/// The first process of a command. Recorded until all of its processes have ended.
#[derive(Debug)]
struct Leader {
    child: ChildId,
    /// Answers the notifications of its seccomp filter.
    _listener_task: Option<ListenerTask>,
}

impl Container {
    /// Starts no process. The caller must run the reaper; without it no command ever ends.
    ///
    /// # Errors
    /// Fails if the root directory does not exist, or if there is no async runtime with signals.
    pub fn new(root: impl Into<PathBuf>, environment: Vec<Vec<u8>>) -> io::Result<(Self, Reaper)> {
        let root = root.into();
        let opened = open(&root, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let (children, is_init) = (Arc::<Children>::default(), std::process::id() == 1);
        let reaper = Reaper::new(Arc::clone(&children), is_init)?;
        // A process that is not PID 1 is in no container, so no host directory is mounted for it.
        let rule = if is_init { SuidPolicy::find() } else { SuidPolicy::NotNeeded };
        let users = Users::new(opened);
        let container = Self {
            root,
            environment,
            image_had_shell: has_shell(&users),
            users,
            filter: Arc::new(rule.filter()),
            rule,
            children,
            marks: Marks::new(),
            leaders: Mutex::default(),
            child_list: if is_init { File::open("/proc/self/task/1/children").ok() } else { None },
        };
        Ok((container, reaper))
    }

    fn leaders(&self) -> MutexGuard<'_, HashMap<TreeId, Leader>> {
        self.leaders.lock().expect("no code panics while holding the lock")
    }

    /// The environment of a command of that user, without the variables that a terminal or the command itself adds.
    pub(crate) fn environment_of(&self, who: &UserSpec, session: &SessionVariables) -> Result<Vec<Vec<u8>>, RpcError> {
        let (ids, account) = self.users.find(who)?;
        let session = self.session_for(ids.uid, session);
        Ok(env::environment([&self.environment, &session, &[]], &account, false))
    }

    /// The session's variables for a command of that user. Root gets no `HOME` and no directory of `PATH` in which the
    /// session's user could place a program for root to run; directories of the image's own `PATH` remain.
    fn session_for<'a>(&self, uid: u32, session: &'a SessionVariables) -> Cow<'a, [Vec<u8>]> {
        let mut variables = Cow::Borrowed(session.variables());
        if uid != 0 || session.user == Some(0) {
            return variables;
        }
        if env::value(&variables, b"HOME").is_some_and(|home| !only_root_changes(&self.users, home)) {
            variables.to_mut().retain(|variable| !variable.starts_with(b"HOME="));
        }
        if let Some(path) = env::value(&variables, b"PATH") {
            let is_colon = |byte: &u8| *byte == b':';
            let of_image = env::value(&self.environment, b"PATH").unwrap_or(env::PATH);
            let is_of_image = |dir: &[u8]| of_image.split(is_colon).any(|known| known == dir);
            let trusted = path.split(is_colon).filter(|dir| is_of_image(dir) || only_root_changes(&self.users, dir));
            let path = trusted.collect::<Vec<_>>().join(&b':');
            variables.to_mut().push([b"PATH=", &*path].concat());
        }
        variables
    }

    fn program(&self, plan: &mut SpawnSpec, ids: &Ids, account: &Account) -> Result<Program, RpcError> {
        let session = self.session_for(ids.uid, &plan.session);
        let environment = match plan.bare {
            true => plan.env.clone(),
            false => env::environment([&self.environment, &session, &plan.env], account, plan.terminal.is_some()),
        };
        let argv = std::mem::take(&mut plan.argv);
        let program = match plan.shell {
            true => Program::script(argv.concat(), environment),
            false => Program::from_argv(argv, environment).map_err(io::Error::from),
        };
        let program = program.and_then(|program| match &plan.secret {
            Some(secret) => program.with_secret(secret.bytes()),
            None => Ok(program),
        });
        program.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => {
                RpcError::new(ErrorCode::Invalid, "an argument or an environment variable contains a NUL")
            }
            _ => not_forked(&error),
        })
    }

    /// The user that a child has to switch to. A guest without privileges runs commands only as itself.
    fn target_user<'a>(&self, ids: &'a Ids) -> Result<Option<&'a Ids>, RpcError> {
        let own = (geteuid().as_raw(), getegid().as_raw());
        match own {
            (0, _) => Ok(Some(ids)),
            _ if own == (ids.uid, ids.gid) => Ok(None),
            (uid, gid) => Err(RpcError::new(
                ErrorCode::CannotStart,
                format!("the guest runs as {uid}:{gid} and cannot run commands as {}:{}", ids.uid, ids.gid),
            )),
        }
    }

    /// Starts a process and the task that answers the notifications of its filter.
    async fn launch(&self, mut plan: SpawnSpec) -> Result<Process, SpawnError> {
        let (ids, account) = self.users.find(&plan.user).map_err(SpawnError::Fault)?;
        let user = self.target_user(&ids).map_err(SpawnError::Fault)?;
        self.rule.check_user(ids.uid).map_err(SpawnError::Fault)?;
        let program = self.program(&mut plan, &ids, &account).map_err(SpawnError::Fault)?;
        let cwd = path(&plan.cwd).map_err(SpawnError::Fault)?;
        let limit = self.marks.limit(plan.mark).ok_or_else(|| SpawnError::Fault(no_mark()))?;
        let cannot = |error: io::Error| SpawnError::Fault(not_forked(&error));
        let (ours, theirs) = stdio::create(plan.stdin, plan.terminal, ids.uid).map_err(cannot)?;
        let launch = Spawn {
            stdio: theirs.each_ref().map(OwnedFd::as_fd),
            terminal: plan.terminal.is_some(),
            mark: Some(limit),
            user,
            root: self.users.root(),
            cwd: &cwd,
            filter: &self.filter,
        };
        let (child, status, exit) = self.children.start(|| launch.execute(program)).map_err(cannot)?;
        self.leaders().insert(plan.mark, Leader { child, _listener_task: None });
        drop(theirs);
        let wait_executed = self.within_start_timeout(child, status.wait_executed(plan.cwd)).await;
        let listener = wait_executed.unwrap_or_else(|fault| Err(SpawnError::Fault(fault)));
        let listener = listener.inspect_err(|_| self.forget(plan.mark))?;
        if let Some(leader) = self.leaders().get_mut(&plan.mark) {
            leader._listener_task = self.rule.start_listener(listener);
        }
        let stdio::ParentStdio { stdin, stdout, stderr, terminal } = ours;
        Ok(Process { pid: child.pid, root: ids.uid == 0, stdin, stdout, stderr, terminal, exit })
    }

    /// Replaces the error of a program that did not start by a more specific one, if the image's files were removed.
    fn diagnose(&self, why: SpawnError) -> SpawnError {
        let is_missing = match &why {
            SpawnError::NoProgram => true,
            SpawnError::NoPermission(_) => false,
            // Input is `/dev/null`, which may be missing as well.
            SpawnError::Fault(fault) => {
                matches!(fault.code, ErrorCode::NoShell | ErrorCode::NoDirectory | ErrorCode::CannotStart)
            }
        };
        if is_missing && self.image_had_shell && !has_shell(&self.users) {
            return SpawnError::Fault(RpcError::new(ErrorCode::FilesRemoved, "`/bin/sh` was removed"));
        }
        why
    }

    fn tree(&self, mark: TreeId) -> Option<ProcessTree<'_>> {
        let leader = self.leaders().get(&mark).map(|it| it.child);
        Some(ProcessTree {
            limit: self.marks.limit(mark)?,
            leader,
            children: &self.children,
            child_list: self.child_list.as_ref(),
        })
    }

    /// Waits for a child's report, and kills the child if none arrives in time.
    async fn within_start_timeout<T: Send + 'static>(
        &self,
        child: ChildId,
        report: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, RpcError> {
        let mut report = Box::pin(report);
        if let Ok(result) = timeout(START_TIMEOUT, &mut report).await {
            return Ok(result);
        }
        let id = Pid::from_raw(child.pid.cast_signed());
        // A child that was reaped needs no signal, and its pid may belong to another process by now.
        self.children.with(child, || id.map(|id| kill_process(id, Signal::KILL)));
        // The task reclaims the child's memory once the child has ended; the kernel may delay that for ever.
        tokio::spawn(report);
        Err(RpcError::new(ErrorCode::CannotStart, "the command did not start within 10 s"))
    }

    /// Removes the record of a command that has no processes any more.
    fn forget(&self, mark: TreeId) {
        self.leaders().remove(&mark);
    }
}

/// Whether no other user can change or create that directory: each existing part of its path belongs to root and is not
/// writable for others.
fn only_root_changes(users: &Users, directory: &[u8]) -> bool {
    if !directory.starts_with(b"/") {
        return false;
    }
    let is_end = |at: &usize| *at == directory.len() || directory[*at] == b'/';
    for end in (1..=directory.len()).filter(is_end) {
        let Ok(part) = CString::new(&directory[..end]) else { return false };
        match openat2::open(users.root(), &part, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).and_then(fstat) {
            Ok(found) if found.st_uid == 0 && found.st_mode & 0o022 == 0 => {}
            Err(Errno::NOENT) => return true,
            Ok(_) | Err(_) => return false,
        }
    }
    true
}

fn has_shell(users: &Users) -> bool {
    openat2::open(users.root(), c"/bin/sh", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

#[async_trait]
impl ProcessBackend for Container {
    async fn start(&self, plan: SpawnSpec) -> Result<Process, SpawnError> {
        self.launch(plan).await.map_err(|why| self.diagnose(why))
    }

    async fn end(&self, mark: TreeId, grace: Duration) -> bool {
        let Some(tree) = self.tree(mark) else { return true };
        let ended = tree.end(grace).await;
        if ended {
            self.forget(mark);
        }
        ended
    }

    async fn count(&self, mark: TreeId) -> u32 {
        let count = self.tree(mark).map_or(0, |it| it.count());
        if count == 0 {
            self.forget(mark);
        }
        count
    }

    fn add_user(&self, user: NewUser<'_>) -> Result<(), RpcError> {
        self.users.add(&user)
    }

    async fn ensure_user(&self, request: EnsureUser) -> Result<UserInfo, RpcError> {
        let ids = self.ids(&UserSpec::Ids { uid: request.uid, gid: Some(request.gid) })?;
        let Account { name, home, shell } = self.users.ensure_user(&request)?;
        let cwd = path(&request.workdir)?;
        let dev_null = open(c"/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let dev_null = dev_null.map_err(|errno| not_forked(&errno.into()))?;
        let launch = Spawn {
            stdio: [dev_null.as_fd(); 3],
            terminal: false,
            mark: None,
            user: self.target_user(&ids)?,
            root: self.users.root(),
            cwd: &cwd,
            filter: &self.filter,
        };
        let (child, status, _) = self.children.start(|| launch.check_access()).map_err(|error| not_forked(&error))?;
        let access = self
            .within_start_timeout(child, StatusChannel::directory_access(status))
            .await?
            .map_err(|error| not_forked(&error))?;
        let (uid, gid, readable, writable) = (access.uid, access.gid, access.readable, access.writable);
        Ok(UserInfo { name, home, shell, uid, gid, readable, writable })
    }

    fn oom_kills(&self) -> u64 {
        crate::os::oom::kills(self.root())
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn ids(&self, who: &UserSpec) -> Result<Ids, RpcError> {
        self.users.ids(who)
    }
}

fn path(cwd: &str) -> Result<CString, RpcError> {
    let invalid = || RpcError::new(ErrorCode::Invalid, "a working directory must be an absolute path without a NUL");
    CString::new(cwd).ok().filter(|_| cwd.starts_with('/')).ok_or_else(invalid)
}

fn no_mark() -> RpcError {
    RpcError::new(ErrorCode::CannotStart, "the guest's own RLIMIT_RTTIME is too low to tag a command")
}

#[cfg(test)]
mod tests;
