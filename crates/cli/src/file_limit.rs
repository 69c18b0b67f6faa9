//! The limit of open files of a server.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for ten thousand containers. Programs that scan all possible descriptors stay fast.
const ENOUGH: u64 = 65_536;

/// Raises the soft limit, up to the hard one. Each container of a server uses a few files; the usual 1,024 last for 300
/// containers. It does not affect commands in containers.
pub(crate) fn raise() {
    let limit = getrlimit(Resource::Nofile);
    let Some(wanted) = raised(limit.current, limit.maximum) else { return };
    // With a lower limit, fewer containers work, and their calls report it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum });
}

/// The soft limit to set, if the current one is lower. A limit of `None` is unlimited.
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
