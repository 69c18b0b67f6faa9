//! Resource usage of a container, read from the kernel: the engines' own `stats` take a second or two.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The mount point of control groups.
const MOUNT: &str = "/sys/fs/cgroup";

/// Minimum interval for computing the share of a core.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum interval: an older sample does not describe the current usage.
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// Usage of all processes of a container together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CgroupUsage {
    /// Without memory that the kernel can reclaim at once.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// 100 is one core.
    pub cpu_percent: f64,
    /// CPU time since the group was created.
    pub cpu_seconds: f64,
}

/// CPU times that were read earlier, so that the next reading need not wait for a second one.
#[derive(Debug, Default)]
pub struct CpuSamples(Mutex<BTreeMap<u32, Samples>>);

#[derive(Clone, Copy, Debug)]
struct Samples {
    before: Option<Sample>,
    last: Sample,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Sample {
    at: Instant,
    cpu_ns: u64,
}

impl Samples {
    /// Returns the latest sample that is old enough.
    fn base(&self, now: Instant) -> Option<Sample> {
        let is_usable = |it: &Sample| (MIN_INTERVAL..=MAX_INTERVAL).contains(&now.duration_since(it.at));
        [Some(self.last), self.before].into_iter().flatten().find(is_usable)
    }

    /// Adds a sample. If it follows the last one closely, the one before that is retained.
    fn with(self, sample: Sample) -> Self {
        let is_next = sample.at.duration_since(self.last.at) >= MIN_INTERVAL;
        if is_next { Self { before: Some(self.last), last: sample } } else { self }
    }
}

impl CpuSamples {
    fn base(&self, pid: u32, now: Instant) -> Option<Sample> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&pid)?.base(now)
    }

    fn add(&self, pid: u32, sample: Sample) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, it| sample.at.duration_since(it.last.at) <= MAX_INTERVAL);
        all.entry(pid).and_modify(|it| *it = it.with(sample)).or_insert(Samples { before: None, last: sample });
    }
}

/// Reads the usage of a process's control groups on this host. CPU usage is measured since the last sample of the last
/// minute; without one, since the start of a process that is younger than that, else over a tenth of a second. `None` if the process is not in a group of this container's own:
/// its engine may be on another host, or create no groups.
pub async fn used(pid: u32, container: &str, samples: &CpuSamples) -> Option<CgroupUsage> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    usage(&CgroupDirs::locate(&text, container, Path::new(MOUNT))?, pid, samples).await
}

/// Reads the usage of these groups; CPU usage as in [`used`], by earlier samples of the same `pid`.
pub async fn usage(groups: &CgroupDirs, pid: u32, samples: &CpuSamples) -> Option<CgroupUsage> {
    let read = || Some(Sample { at: Instant::now(), cpu_ns: groups.cpu_ns()? });
    let mut now = read()?;
    let earlier = samples.base(pid, now.at).filter(|it| it.cpu_ns <= now.cpu_ns);
    let base = match earlier.or_else(|| start_of(pid, now.at)) {
        Some(base) => base,
        None => {
            let first = now;
            samples.add(pid, first);
            tokio::time::sleep(MIN_INTERVAL).await;
            now = read()?;
            first
        }
    };
    samples.add(pid, now);
    let took = now.at.duration_since(base.at);
    let cpu_percent = 100.0 * now.cpu_ns.saturating_sub(base.cpu_ns) as f64 / took.as_nanos() as f64;
    Some(CgroupUsage {
        memory_bytes: groups.memory()?,
        pids: groups.pids()?,
        cpu_percent: (cpu_percent * 10.0).round() / 10.0,
        cpu_seconds: Duration::from_nanos(now.cpu_ns).as_secs_f64(),
    })
}

/// The kernel's unit of a start, on all architectures that Coracle runs on.
const TICK: Duration = Duration::from_millis(10);

/// The start of a process, when its container had used no CPU time, if that is a recent sample.
fn start_of(pid: u32, now: Instant) -> Option<Sample> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let age = age(&stat, &uptime)?;
    let is_recent = (2 * TICK..=MAX_INTERVAL).contains(&age);
    Some(Sample { at: now.checked_sub(age)?, cpu_ns: 0 }).filter(|_| is_recent)
}

/// The age of a process, from its `stat` and the `uptime` of the machine.
fn age(stat: &str, uptime: &str) -> Option<Duration> {
    // The name before the last parenthesis may have spaces; the start is the 20th field behind it.
    let start: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime - start * TICK.as_secs_f64()).ok()
}

/// The groups of a container, one per controller: the same one in version 2 of control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CgroupDirs {
    /// The group that counts memory.
    pub memory: PathBuf,
    /// The group that counts processes.
    pub pids: PathBuf,
    /// The group that counts CPU time.
    pub cpu: PathBuf,
}

impl CgroupDirs {
    /// Finds the groups in the content of `/proc/PID/cgroup`. Every engine uses the container's full id in the group's
    /// name; another group is shared with others, or belongs to an unrelated process.
    fn locate(text: &str, container: &str, mount: &Path) -> Option<Self> {
        let lines: Vec<_> = text.lines().filter_map(|it| it.split_once(':')?.1.split_once(':')).collect();
        let find = |controller: &str| {
            let own = lines.iter().find(|line| line.0.split(',').any(|it| it == controller));
            let (controllers, path) = own.or_else(|| lines.iter().find(|it| it.0.is_empty()))?;
            let unified = if mount.join("cgroup.controllers").exists() { "" } else { "unified" };
            let at = if controllers.is_empty() { unified } else { controllers };
            let group = |at: &str| mount.join(at).join(path.trim_start_matches('/'));
            // Controllers that are mounted together may have either name.
            let groups = [group(at), group(controller)];
            groups.into_iter().find(|it| path.contains(container) && it.is_dir())
        };
        Some(Self { memory: find("memory")?, pids: find("pids")?, cpu: find("cpuacct").or_else(|| find("cpu"))? })
    }

    /// Memory without the part of the cache that the kernel may reclaim at once, as engines report it.
    fn memory(&self) -> Option<u64> {
        let used = number(&self.memory, "memory.current").or_else(|| number(&self.memory, "memory.usage_in_bytes"))?;
        let stat = std::fs::read_to_string(self.memory.join("memory.stat")).unwrap_or_default();
        let inactive = field(&stat, "total_inactive_file").or_else(|| field(&stat, "inactive_file"));
        Some(used.saturating_sub(inactive.unwrap_or(0)))
    }

    fn pids(&self) -> Option<u64> {
        number(&self.pids, "pids.current")
    }

    fn cpu_ns(&self) -> Option<u64> {
        let of_version_1 = number(&self.cpu, "cpuacct.usage");
        of_version_1.or_else(|| {
            let stat = std::fs::read_to_string(self.cpu.join("cpu.stat")).ok()?;
            Some(field(&stat, "usage_usec")?.saturating_mul(1000))
        })
    }
}

fn number(group: &Path, file: &str) -> Option<u64> {
    std::fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

fn field(stat: &str, name: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.split_once(' ').filter(|field| field.0 == name)?.1.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "c0ffee";

    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        dir
    }

    fn read(text: &str, files: &[(&str, &str)]) -> Option<(u64, u64, u64)> {
        let dir = mounted(files);
        let groups = CgroupDirs::locate(text, ID, dir.path())?;
        Some((groups.memory()?, groups.pids()?, groups.cpu_ns()?))
    }

    #[test]
    fn version_1_has_a_directory_for_each_controller() {
        let text = "4:memory:/docker/c0ffee\n3:cpu,cpuacct:/docker/c0ffee\n2:pids:/docker/c0ffee\n0::/docker/c0ffee\n";
        let files = [
            ("memory/docker/c0ffee/memory.usage_in_bytes", "5000\n"),
            ("memory/docker/c0ffee/memory.stat", "inactive_file 1\ntotal_inactive_file 1000\n"),
            ("pids/docker/c0ffee/pids.current", "3\n"),
            ("cpuacct/docker/c0ffee/cpuacct.usage", "77\n"),
        ];
        assert_eq!(read(text, &files), Some((4000, 3, 77)));
    }

    #[test]
    fn version_2_has_one_directory() {
        let text = "0::/machine.slice/libpod-c0ffee.scope/container\n";
        let at = "machine.slice/libpod-c0ffee.scope/container";
        let file = |name: &str| format!("{at}/{name}");
        let (current, stat, pids, cpu) =
            (file("memory.current"), file("memory.stat"), file("pids.current"), file("cpu.stat"));
        let files = [
            ("cgroup.controllers", "cpu memory pids\n"),
            (current.as_str(), "5000\n"),
            (&stat, "anon 4\ninactive_file 1000\n"),
            (&pids, "3\n"),
            (&cpu, "usage_usec 7\nuser_usec 1\n"),
        ];
        assert_eq!(read(text, &files), Some((4000, 3, 7000)));
    }

    #[test]
    fn a_group_of_another_container_is_ignored() {
        let files = [
            ("cgroup.controllers", ""),
            ("user.slice/memory.current", "5000\n"),
            ("user.slice/pids.current", "3\n"),
            ("user.slice/cpu.stat", "usage_usec 7\n"),
        ];
        assert_eq!(read("0::/user.slice\n", &files), None);
        assert_eq!(read("", &files), None);
    }

    #[test]
    fn a_process_has_the_age_since_its_start() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 4500 1 1";
        assert_eq!(age(stat, "50.25 90.00\n"), Some(Duration::from_millis(5250)));
        assert_eq!((age(stat, "40.00 90.00"), age("7 (x", "50.25")), (None, None));
        let own = std::fs::read_to_string("/proc/self/stat").unwrap();
        let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        assert!(age(&own, &uptime).is_some_and(|it| it < MAX_INTERVAL), "a test is young");
    }

    #[test]
    fn usage_is_measured_since_a_sample_that_is_neither_too_new_nor_too_old() {
        let begin = Instant::now();
        let sample = |ms| Sample { at: begin + Duration::from_millis(ms), cpu_ns: ms };
        let base = |it: Samples, ms| it.base(begin + Duration::from_millis(ms)).map(|it| it.cpu_ns);
        let one = Samples { before: None, last: sample(0) };
        assert_eq!(
            (base(one, 99), base(one, 100), base(one, 60_000), base(one, 60_001)),
            (None, Some(0), Some(0), None)
        );
        let close = one.with(sample(50));
        assert_eq!(base(close, 120), Some(0));
        let two = one.with(sample(200));
        assert_eq!((base(two, 210), base(two, 300)), (Some(0), Some(200)));
    }
}
