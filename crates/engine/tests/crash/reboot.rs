//! After a restart of the machine no container runs, whatever the files of the last boot say.

use std::path::{Path, PathBuf};

use coracle_runtime::{ContainerRuntime as _, LabelFilter};
use coracle_types::{ContainerStatus, boot_id};
use rustix::process::{Pid, Signal, kill_process};

use crate::case::{Case, eventually, names, runs};
use crate::operation::{Operation, open};
use crate::remains;

/// Every record of this boot becomes one of another. The number of them.
fn age_records(dir: &Path) -> usize {
    let mut aged = 0;
    for path in names(dir).into_iter().map(|it| dir.join(it)).filter(|it| !it.is_symlink()) {
        // What images and containers have of their own is no record.
        if path.is_dir() && !["diff", "upper", "work", "_data"].iter().any(|it| path.ends_with(it)) {
            aged += age_records(&path);
        } else if let Some(text) = std::fs::read_to_string(&path).ok().filter(|it| it.contains(boot_id())) {
            std::fs::write(&path, text.replace(boot_id(), "00000000-0000-0000-0000-000000000000")).unwrap();
            aged += 1;
        }
    }
    aged
}

fn in_container(data: &Path, id: &str, file: &str) -> PathBuf {
    data.join("containers").join(id).join(file)
}

#[tokio::test]
async fn after_a_restart_of_the_machine_containers_have_ended_and_start_again() {
    if !rustix::process::geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let case = Case::new().await;
    let prepared = case.prepare(Operation::Commit).await;
    let id = prepared.container.clone().unwrap();
    let pid = open(&case.data).list(&LabelFilter::default()).await.unwrap()[0].pid.unwrap();
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    // Control groups end with the boot, and PIDs are reused: this test has that of PID 1 now.
    eventually(|| if Path::new(&format!("/proc/{pid}/exe")).exists() { Err("it runs".into()) } else { Ok(()) })
        .await
        .unwrap();
    std::fs::copy("/proc/self/stat", in_container(&case.data, id.as_str(), "process")).unwrap();
    // The run, the layer, the member of the network.
    assert_eq!(age_records(&case.data), 3);
    for (operation, owner) in [("start", "1-2-3"), ("freeze", "1-2-3")] {
        let pending = case.data.join("pending").join(format!("{operation}.{id}.0"));
        std::os::unix::fs::symlink(owner, pending).unwrap();
    }
    let runtime = open(&case.data);
    let listed = runtime.list(&LabelFilter::default()).await.unwrap();
    assert_eq!((listed[0].status, listed[0].exit_code), (ContainerStatus::Exited, Some(137)));
    remains::check(&case.data, &listed).await.unwrap();
    assert!(runtime.verify_images(true).await.unwrap().damage.is_empty());
    runtime.start(&id).await.unwrap();
    runs(&runtime, &id, "cat /new/dir/file && grep -q eth0 /proc/net/dev").await;
    case.finish(&prepared).await;
}

#[tokio::test]
async fn a_stop_that_was_interrupted_does_not_end_a_later_run() {
    if !rustix::process::geteuid().is_root() {
        return coracle_skips::skip(coracle_skips::NEEDS_ROOT);
    }
    let case = Case::new().await;
    let prepared = case.prepare(Operation::Stop).await;
    let id = prepared.container.clone().unwrap();
    let runtime = open(&case.data);
    std::os::unix::fs::symlink("1-2-3", case.data.join("pending").join(format!("stop.{id}.0"))).unwrap();
    runtime.stop(&id, std::time::Duration::ZERO).await.unwrap();
    runtime.start(&id).await.unwrap();
    let listed = runtime.list(&LabelFilter::default()).await.unwrap();
    assert_eq!(listed[0].status, ContainerStatus::Running);
    assert_eq!(names(&case.data.join("pending")), Vec::<String>::new());
    case.finish(&prepared).await;
}
