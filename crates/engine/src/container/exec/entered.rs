//! Commands that entered a container from outside: another program may have started them.

use std::collections::BTreeSet;

use coracle_types::ProcessId;

use super::super::directory::ContainerDir;
use super::super::state::RunRecord;
use crate::exec_record::recorded;
use crate::process_table::parent_of;

/// How many there are: processes of the container's group, beside PID 1, whose parent is none of them. What loses its
/// parent inside gets PID 1. Without a control group, the commands that this engine started, in any process.
pub(in super::super) fn entered(container: &ContainerDir, run: &RunRecord, first: &ProcessId) -> usize {
    if run.group.is_empty() {
        return recorded(&container.execs());
    }
    let members: BTreeSet<u32> = run.group.processes().unwrap_or_default().into_iter().collect();
    let from_outside = |pid: u32| pid != first.pid && parent_of(pid).is_some_and(|it| !members.contains(&it));
    members.iter().filter(|it| from_outside(**it)).count()
}
