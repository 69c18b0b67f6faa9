//! Current usage of a container, from its own control group.

use std::time::Duration;

use coracle_runtime::ContainerUsage;
use coracle_types::{ContainerId, ContainerStatus, Result};

use crate::cluster::Cluster;
use crate::exec::run;
use crate::find::find_pod;
use crate::pod::status;

/// Prints memory without what the kernel can reclaim, processes, and CPU time in nanoseconds twice, a tenth of a second
/// apart: for version 2 or version 1 of control groups.
const READ: &str = r#"cd /sys/fs/cgroup || exit 1
if [ -e memory.current ]; then
  cpu() { sed -n 's/^usage_usec //p' cpu.stat | sed 's/$/000/'; }
  used=$(cat memory.current) cache=$(sed -n 's/^inactive_file //p' memory.stat) pids=$(cat pids.current)
else
  cpu() { cat cpuacct/cpuacct.usage; }
  used=$(cat memory/memory.usage_in_bytes) cache=$(sed -n 's/^total_inactive_file //p' memory/memory.stat)
  pids=$(cat pids/pids.current)
fi
first=$(cpu); sleep 0.1; echo "$used $cache $pids $first $(cpu)""#;

/// `None` if it does not run, or has no shell.
pub(crate) async fn usage(cluster: &Cluster, id: &ContainerId) -> Result<Option<ContainerUsage>> {
    let pod = find_pod(cluster, &id.into()).await?;
    if status(&pod) != ContainerStatus::Running {
        return Ok(None);
    }
    let words = ["/bin/sh", "-c", READ].map(str::to_owned);
    let output = run(cluster, &pod, &words).await?;
    Ok(parse(&output.stdout.text()))
}

#[expect(clippy::cast_precision_loss, reason = "a share in percent")]
fn parse(text: &str) -> Option<ContainerUsage> {
    let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [used, cache, pids, before, after] = numbers[..] else { return None };
    Some(ContainerUsage {
        memory_bytes: used.saturating_sub(cache),
        pids,
        cpu_percent: after.saturating_sub(before) as f64 / 1e6,
        disk_bytes: None,
        cpu_seconds: Some(Duration::from_nanos(after).as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_reading_is_five_numbers() {
        let usage = parse("3000 1000 7 5000000 55000000\n").unwrap();
        assert_eq!((usage.memory_bytes, usage.pids, usage.cpu_percent), (2000, 7, 50.0));
        assert_eq!(usage.cpu_seconds, Some(0.055));
        assert_eq!(parse("3000 7"), None);
    }
}
