//! Counts the commands that entered a container from outside, whichever program started them.

use std::collections::BTreeSet;

use coracle_types::ProcessId;

use super::super::directory::ContainerDir;
use super::super::state::RunRecord;
use crate::exec_record::recorded;
use crate::process_table::parent_of;

/// Counts processes of the container's control group, other than PID 1, whose parent is outside the group. (PID 1 adopts
/// processes whose parent inside ends.) Without a control group, counts the recorded commands of this engine.
pub(in super::super) fn entered(container: &ContainerDir, run: &RunRecord, first: &ProcessId) -> usize {
    if run.group.is_empty() {
        return recorded(&container.execs());
    }
    let members: BTreeSet<u32> = run.group.processes().unwrap_or_default().into_iter().collect();
    let from_outside = |pid: u32| pid != first.pid && parent_of(pid).is_some_and(|it| !members.contains(&it));
    members.iter().filter(|it| from_outside(**it)).count()
}
