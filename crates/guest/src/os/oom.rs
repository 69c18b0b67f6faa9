//! Counts processes of this container that the kernel killed for lack of memory.

use std::path::Path;

/// Files with the count inside a container, for both versions of control groups.
const FILES: [&str; 2] = ["sys/fs/cgroup/memory.events", "sys/fs/cgroup/memory/memory.oom_control"];

/// Number of kills; 0 if no file exists.
pub(crate) fn kills(root: &Path) -> u64 {
    let content = |file: &&str| std::fs::read_to_string(root.join(file)).ok();
    FILES.iter().find_map(content).as_deref().map_or(0, count)
}

fn count(events: &str) -> u64 {
    let number = events.lines().find_map(|it| it.strip_prefix("oom_kill "));
    number.and_then(|it| it.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn the_count_of_both_cgroup_versions_is_read() {
        assert_eq!(count("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"), 2);
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 7\n"), 7);
        assert_eq!(count("oom_kill_disable 1\n"), 0);
    }
}
