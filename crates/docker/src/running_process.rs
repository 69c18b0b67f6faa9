//! A process that is held by a descriptor, so that its end is seen and no later one with its number is taken for it.

#[cfg(target_os = "linux")]
mod pidfd {
    use std::os::fd::OwnedFd;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    #[derive(Debug)]
    pub(crate) struct RunningProcess(OwnedFd);

    impl RunningProcess {
        /// `None` for one that is not there, or cannot be held.
        pub(crate) fn open(pid: u32) -> Option<Self> {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw)?;
            pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
        }

        pub(crate) fn runs(&self) -> bool {
            let mut polled = [PollFd::new(&self.0, PollFlags::IN)];
            poll(&mut polled, Some(&Timespec::default())).is_ok_and(|ended| ended == 0)
        }
    }
}

/// Elsewhere no process of a container is one of this machine.
#[cfg(not(target_os = "linux"))]
mod pidfd {
    #[derive(Debug)]
    pub(crate) struct RunningProcess;

    impl RunningProcess {
        pub(crate) fn open(_: u32) -> Option<Self> {
            None
        }

        pub(crate) fn runs(&self) -> bool {
            false
        }
    }
}

pub(crate) use pidfd::RunningProcess;

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::RunningProcess;
    use coracle_host::process::{Invocation, Stdin, spawn};

    #[tokio::test]
    async fn the_end_of_a_process_is_seen() {
        let mut child = spawn(&Invocation::new("/bin/cat", [""; 0]), Stdin::Open).unwrap();
        let Some(held) = RunningProcess::open(child.id().unwrap()) else { panic!("it runs") };
        assert!(held.runs());
        drop(child.stdin.take());
        child.wait().await.unwrap();
        assert!(!held.runs());
    }
}
