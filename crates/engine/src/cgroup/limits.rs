//! Limits as files of a control group.

use coracle_runtime::Limits;

use super::hierarchies::Version;

/// The kernel's default period of processor time, in microseconds.
const PERIOD: f64 = 100_000.0;

/// The shortest quota that the kernel accepts.
const LEAST_QUOTA: f64 = 1000.0;

/// A file to write, in the directory of its controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupFile {
    pub(super) controller: &'static str,
    pub(super) name: &'static str,
    pub(super) content: String,
    /// Whether some kernels lack it.
    pub(super) optional: bool,
}

/// Returns the files for these limits, in the order to write them: the limit of memory plus swap may never be below that of
/// memory.
pub(super) fn files(version: Version, limits: &Limits) -> Vec<GroupFile> {
    let file = |controller, name, content: String| GroupFile { controller, name, content, optional: false };
    let optional = |it: GroupFile| GroupFile { optional: true, ..it };
    let mut files = Vec::new();
    if let Some(memory) = limits.memory.map(|it| it.0.to_string()) {
        match version {
            Version::V1 => files.extend([
                file("memory", "memory.limit_in_bytes", memory.clone()),
                optional(file("memory", "memory.memsw.limit_in_bytes", memory)),
                // Prevents swapping if swap is not accounted.
                file("memory", "memory.swappiness", "0".into()),
            ]),
            Version::V2 => files.extend([
                file("memory", "memory.max", memory),
                optional(file("memory", "memory.swap.max", "0".into())),
            ]),
        }
    }
    if let Some(pids) = limits.pids {
        files.push(file("pids", "pids.max", pids.to_string()));
    }
    if let Some(quota) = limits.cpus.map(quota) {
        match version {
            Version::V1 => files.extend([
                file("cpu", "cpu.cfs_period_us", PERIOD.to_string()),
                file("cpu", "cpu.cfs_quota_us", quota.to_string()),
            ]),
            Version::V2 => files.push(file("cpu", "cpu.max", format!("{quota} {PERIOD}"))),
        }
    }
    files
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "cores of a machine, and clamped")]
fn quota(cpus: f64) -> u64 {
    (cpus * PERIOD).round().clamp(LEAST_QUOTA, f64::from(u32::MAX)) as u64
}

#[cfg(test)]
mod tests {
    use coracle_types::ByteSize;

    use super::*;

    fn shown(version: Version, limits: &Limits) -> String {
        let files = files(version, limits);
        files.iter().map(|it| format!("{}={}{} ", it.name, it.content, if it.optional { "?" } else { "" })).collect()
    }

    #[test]
    fn each_version_has_its_files_and_neither_lets_a_container_swap() {
        let all = Limits { memory: Some(ByteSize::mib(64)), cpus: Some(1.5), pids: Some(50) };
        assert_eq!(
            shown(Version::V1, &all),
            "memory.limit_in_bytes=67108864 memory.memsw.limit_in_bytes=67108864? memory.swappiness=0 pids.max=50 \
             cpu.cfs_period_us=100000 cpu.cfs_quota_us=150000 "
        );
        assert_eq!(
            shown(Version::V2, &all),
            "memory.max=67108864 memory.swap.max=0? pids.max=50 cpu.max=150000 100000 "
        );
        assert_eq!(shown(Version::V2, &Limits::default()), "");
    }

    #[test]
    fn a_quota_is_not_less_than_the_kernel_takes() {
        let cpus = |cpus| shown(Version::V2, &Limits { cpus: Some(cpus), ..Limits::default() });
        assert_eq!((cpus(0.001).as_str(), cpus(0.25).as_str()), ("cpu.max=1000 100000 ", "cpu.max=25000 100000 "));
    }
}
