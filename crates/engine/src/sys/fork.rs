//! Runs a closure in a forked child: for work in other namespaces or as another user, which a thread cannot do.
#![expect(unsafe_code, reason = "fork")]

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::UnshareFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tracing::dispatcher::{Dispatch, with_default};

use super::child::run_step;
use super::enter::{enter, last_error, unshare};
use super::kernel::{die_with_parent, exit};
use super::plan::Step;

/// The namespaces and the identity of a child.
#[derive(Debug, Default)]
pub(crate) struct ChildPlace<'a> {
    /// Namespaces to enter, in this order: the file of a namespace or of a process, and the kinds to enter.
    pub(crate) namespaces: Vec<(BorrowedFd<'a>, libc::c_int)>,
    /// Whether it gets a mount namespace of its own.
    pub(crate) new_mounts: bool,
    pub(crate) steps: Vec<Step>,
}

/// An I/O error that crosses a pipe.
#[derive(Debug, Serialize, Deserialize)]
struct RemoteError {
    code: Option<i32>,
    text: String,
}

/// Forks a child that enters the place and runs `work`, and returns its result. Blocks.
///
/// The child has one thread: `work` must not take locks that other threads of this process may hold during the fork (those
/// of the allocator are safe), and must not use Tokio. Its log output is dropped.
///
/// # Errors
/// Those of entering and of `work`; also if the child ends without a result.
pub(crate) fn run_in_child<T: Serialize + DeserializeOwned>(
    place: &ChildPlace<'_>,
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let (mut reader, writer) = io::pipe()?;
    let parent = std::process::id();
    // SAFETY: the child runs with a copy of this thread alone, writes its result and exits without running destructors of
    // others; memory allocation is safe after glibc's `fork`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(reader);
        run_and_exit(place, parent, work, writer);
    }
    drop(writer);
    let pid = Pid::from_raw(pid.max(0)).ok_or_else(|| io::Error::from(last_error()))?;
    let answer = read_answer(&mut reader);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    let result: Result<T, RemoteError> =
        serde_json::from_slice(&answer?).map_err(|_| io::Error::other("the child process ended without a result"))?;
    result.map_err(|err| match err.code {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(err.text),
    })
}

/// Reads a result, which begins with its length: the pipe may stay open, since a child that another thread forked meanwhile
/// may have a copy of its other end. Returns nothing if there is no result.
fn read_answer(from: &mut io::PipeReader) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    let mut answer = Vec::new();
    match from.read_exact(&mut length) {
        Err(err) if err.kind() == io::ErrorKind::UnexpectedEof => return Ok(answer),
        read => read?,
    }
    from.take(u64::from_ne_bytes(length)).read_to_end(&mut answer)?;
    Ok(answer)
}

fn write_answer(into: &mut io::PipeWriter, answer: &[u8]) -> io::Result<()> {
    into.write_all(&(answer.len() as u64).to_ne_bytes())?;
    into.write_all(answer)
}

fn run_and_exit<T: Serialize>(
    place: &ChildPlace<'_>,
    parent: u32,
    work: impl FnOnce() -> io::Result<T>,
    mut into: io::PipeWriter,
) -> ! {
    let result = go_to(place).and_then(|()| {
        // Otherwise it would continue to write files that the next process takes for leftovers.
        die_with_parent(parent as usize);
        // The child logs nothing: another thread may have held the lock of the log's output during the fork.
        let work = || with_default(&Dispatch::none(), work);
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("the child process failed")))
    });
    let result = result.map_err(|err| RemoteError { code: err.raw_os_error(), text: err.to_string() });
    let written = serde_json::to_vec(&result).map_err(io::Error::from).and_then(|it| write_answer(&mut into, &it));
    exit(i32::from(written.is_err()))
}

fn go_to(place: &ChildPlace<'_>) -> io::Result<()> {
    for (of, kinds) in &place.namespaces {
        enter(of.as_fd(), *kinds)?;
    }
    if place.new_mounts {
        unshare(UnshareFlags::NEWNS)?;
    }
    place.steps.iter().try_for_each(|step| {
        run_step(step).map_err(|errno| io::Error::new(io::Error::from(errno).kind(), format!("cannot {step}: {errno}")))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::thread;
    use std::time::Duration;

    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// A log whose output is locked for each line, as standard error is.
    struct LockedLog(Arc<Mutex<()>>);

    impl Subscriber for LockedLog {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {
            drop(self.0.lock().unwrap());
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_child_that_logs_ends_while_another_thread_of_its_parent_holds_the_log() {
        let log = Arc::<Mutex<()>>::default();
        let held = log.lock().unwrap();
        let (sender, answers) = channel();
        let in_child = Dispatch::new(LockedLog(Arc::clone(&log)));
        thread::spawn(move || {
            let logs = || {
                tracing::warn!("`.wh.x` is left out");
                Ok(7)
            };
            let answer = with_default(&in_child, || run_in_child(&ChildPlace::default(), logs));
            sender.send(answer.unwrap()).unwrap();
        });
        assert_eq!(answers.recv_timeout(Duration::from_secs(20)), Ok(7));
        drop(held);
    }

    #[test]
    fn an_answer_ends_while_the_pipe_stays_open() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        write_answer(&mut writer, b"answer").unwrap();
        let copy = writer.try_clone().unwrap();
        assert_eq!(read_answer(&mut reader).unwrap(), b"answer");
        drop((writer, copy));
        assert_eq!(read_answer(&mut reader).unwrap(), b"");
    }
}
