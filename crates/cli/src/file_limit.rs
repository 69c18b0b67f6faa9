//! The number of files that a server may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for ten thousand containers. Programs that look through all numbers a process may have stay quick.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit as far as the hard one allows. Each container of a server takes a few files, and the usual 1,024
/// are spent on 300 containers. The limits of commands in containers are their own.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let Some(wanted) = raised(limit.current, limit.maximum) else { return };
    // With fewer files fewer containers work, and their calls say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
}

/// The soft limit to set, if the present one is lower. `None` in a limit is no limit.
fn raised(soft: Option<u64>, hard: Option<u64>) -> Option<u64> {
    let wanted = hard.map_or(ENOUGH, |it| it.min(ENOUGH));
    soft.filter(|it| *it < wanted).map(|_| wanted)
}

#[cfg(test)]
mod tests {
    use super::{ENOUGH, raised};

    #[test]
    fn a_limit_is_raised_within_the_hard_one_and_never_lowered() {
        assert_eq!(raised(Some(1024), Some(20_000)), Some(20_000));
        assert_eq!(raised(Some(1024), Some(1 << 20)), Some(ENOUGH));
        assert_eq!(raised(Some(1024), None), Some(ENOUGH));
        assert_eq!(raised(Some(1 << 20), Some(1 << 20)), None);
        assert_eq!(raised(None, None), None);
    }
}
