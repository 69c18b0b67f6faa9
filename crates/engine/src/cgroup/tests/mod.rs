//! On this machine's control groups where this user may write them, and on directories that look like version 2.

use std::fs;
use std::process::{Child, Command};
use std::time::Instant;

use coracle_host::cgroup::CpuSamples;
use coracle_types::ByteSize;

use super::group::GroupEntry;
use super::*;

const LIMITS: Limits = Limits { memory: Some(ByteSize::mib(64)), cpus: Some(0.5), pids: Some(20) };

/// The groups of one test.
struct Own {
    cgroups: Cgroups,
}

impl Own {
    fn new() -> Option<Self> {
        let cgroups = Cgroups::detect(&format!("coracle-test-{}", coracle_types::random_hex::<4>())).unwrap();
        (!cgroups.parents.is_empty()).then_some(Self { cgroups })
    }

    fn left(&self) -> Vec<PathBuf> {
        let inside = |it: &Parent| {
            group::children(&it.dir).unwrap().into_iter().map(|name| it.dir.join(name)).collect::<Vec<_>>()
        };
        self.parents().iter().flat_map(inside).collect()
    }

    fn parents(&self) -> Vec<Parent> {
        self.cgroups.parents.iter().flat_map(|it| [it.clone(), it.for_runtimes()]).collect()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        for left in self.left() {
            let _ = self.cgroups.remove(&left.file_name().unwrap().to_string_lossy());
        }
        for parent in self.parents() {
            let _ = fs::remove_dir(&parent.dir);
        }
    }
}

/// Runs a shell command within a group, entered as a container enters it: it waits until it is inside.
#[expect(clippy::disallowed_methods, reason = "a test needs a process of its own")]
fn run(group: &ContainerGroup, command: &str) -> Child {
    let entry = group.entry();
    let files = entry.tasks.into_iter().chain(entry.unified.map(|it| it.join("cgroup.procs")));
    let enter: String = files.map(|it| format!("echo 0 > {} && ", it.display())).collect();
    Command::new("/bin/sh").arg("-c").arg(format!("{enter}{command}")).spawn().unwrap()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        pause(Duration::from_millis(2));
    }
}

fn state(pid: u32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.chars().next().unwrap()
}

#[test]
fn limits_hold_from_the_first_process_on() {
    let Some(own) = Own::new() else { return };
    let group = own.cgroups.create("c0ffee", &LIMITS).unwrap();
    let ignored = own.cgroups.ignored_limits();
    if !ignored.contains(&"pids".to_owned()) {
        let mut many = run(&group, "for i in $(seq 40); do sleep 30 & done");
        assert!(!many.wait().unwrap().success(), "40 processes where 20 are allowed");
        group.kill().unwrap();
    }
    if !ignored.contains(&"memory".to_owned()) {
        let before = group.oom_kills();
        let mut big = run(&group, "exec tail /dev/zero");
        assert!(!big.wait().unwrap().success());
        assert_eq!((before, group.oom_kills()), (0, 1));
    }
    group.remove().unwrap();
    assert_eq!(own.left(), [] as [PathBuf; 0]);
}

#[tokio::test]
async fn usage_counts_processes_memory_and_time() {
    let Some(own) = Own::new() else { return };
    if !own.cgroups.ignored_limits().is_empty() {
        return;
    }
    let group = own.cgroups.create("c0ffee", &LIMITS).unwrap();
    let mut busy = run(&group, "while :; do :; done");
    wait_until("inside", || group.processes().unwrap() == [busy.id()]);
    let usage = group.usage(busy.id(), &CpuSamples::default()).await.unwrap();
    group.kill().unwrap();
    busy.wait().unwrap();
    group.remove().unwrap();
    assert_eq!(usage.pids, 1);
    assert!((1..64 << 20).contains(&usage.memory_bytes) && (1.0..90.0).contains(&usage.cpu_percent), "{usage:?}");
}

#[test]
fn frozen_processes_stand_still_and_can_be_killed() {
    let Some(own) = Own::new() else { return };
    let group = own.cgroups.create("c0ffee", &Limits::default()).unwrap();
    let mut busy = run(&group, "while :; do :; done");
    wait_until("inside", || group.processes().unwrap() == [busy.id()]);
    group.freeze().unwrap();
    assert_ne!(state(busy.id()), 'R');
    group.thaw().unwrap();
    wait_until("running", || state(busy.id()) == 'R');
    group.freeze().unwrap();
    group.kill().unwrap();
    busy.wait().unwrap();
    group.remove().unwrap();
    group.thaw().unwrap();
    group.remove().unwrap();
}

#[test]
fn a_group_is_removed_with_groups_inside_once_its_processes_have_ended() {
    let Some(own) = Own::new() else { return };
    let group = own.cgroups.create("c0ffee", &Limits::default()).unwrap();
    for dir in group.entry().unified.iter().chain(group.by_controller.values()) {
        let _ = fs::create_dir_all(dir.join("inner/most"));
    }
    let mut brief = run(&group, "exec sleep 0.3");
    wait_until("inside", || !group.processes().unwrap().is_empty());
    group.remove().unwrap();
    assert!(brief.try_wait().unwrap().is_some());
    assert_eq!(own.left(), [] as [PathBuf; 0]);
}

#[test]
fn groups_that_no_record_names_are_removed_by_the_id_of_their_container() {
    let Some(own) = Own::new() else { return };
    let live = own.cgroups.create("live", &Limits::default()).unwrap();
    for create in [Cgroups::create, Cgroups::create_for_runtime] {
        let dead = create(&own.cgroups, "dead", &LIMITS).unwrap();
        let mut orphan = run(&dead, "exec sleep 100");
        wait_until("inside", || !dead.processes().unwrap().is_empty());
        let reaper = std::thread::spawn(move || orphan.wait().unwrap());
        own.cgroups.remove("dead").unwrap();
        assert!(!reaper.join().unwrap().success());
    }
    assert!(own.left().iter().all(|it| it.ends_with("live")) && !live.dirs().is_empty());
}

#[test]
fn only_listed_devices_can_be_opened() {
    let Some(own) = Own::new() else { return };
    let group = own.cgroups.create("c0ffee", &Limits::default()).unwrap();
    let Some(dir) = group.by_controller.get("devices") else { return };
    let list = fs::read_to_string(dir.join("devices.list")).unwrap();
    assert!(list.contains("c 1:3 rwm") && !list.contains("a *:*") && !list.contains("b "), "{list}");
    let mut opens = run(&group, "exec sh -c \"echo > /dev/null && ! (mknod /tmp/coracle-cg-$$ b 254 77)\"");
    assert!(opens.wait().unwrap().success());
    group.remove().unwrap();
}

/// A directory with the files of version 2's interface. It shows what is read and written, not what the kernel does.
fn fake(groups: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (group, files) in groups {
        let group = dir.path().join(group);
        fs::create_dir_all(&group).unwrap();
        for (name, content) in [("cgroup.procs", "")].iter().chain(*files) {
            fs::write(group.join(name), content).unwrap();
        }
    }
    dir
}

fn version_2(dir: &Path, own: &str) -> Hierarchy {
    Hierarchy { version: Version::V2, controllers: Vec::new(), mount: dir.to_owned(), own: dir.join(own) }
}

#[test]
fn with_version_2_a_group_has_limits_of_the_controllers_passed_on_to_it() {
    let passed_on: &[_] = &[("cgroup.controllers", "memory pids\n"), ("cgroup.subtree_control", "memory pids\n")];
    let dir = fake(&[("", passed_on), ("coracle", passed_on)]);
    let cgroups = Cgroups::among(&[version_2(dir.path(), "")], "coracle");
    assert_eq!((cgroups.version(), cgroups.ignored_limits()), (2, vec!["cpus".to_owned()]));
    assert_eq!(cgroups.enforced(LIMITS), Limits { cpus: None, ..LIMITS });
    let group = cgroups.create("c0ffee", &LIMITS).unwrap();
    let at = dir.path().join("coracle/c0ffee");
    let read = |name: &str| fs::read_to_string(at.join(name)).ok();
    assert_eq!(group.entry(), GroupEntry { tasks: Vec::new(), unified: Some(at.clone()) });
    assert_eq!((read("memory.max"), read("memory.swap.max")), (Some("67108864".into()), Some("0".into())));
    assert_eq!((read("pids.max"), read("cpu.max")), (Some("20".into()), None));
    fs::write(at.join("memory.events"), "low 0\noom 3\noom_kill 2\noom_group_kill 0\n").unwrap();
    fs::create_dir(at.join("inner")).unwrap();
    for (group, pids) in [("", "7\n8\n"), ("inner", "9\n")] {
        fs::write(at.join(group).join("cgroup.procs"), pids).unwrap();
    }
    assert_eq!((group.oom_kills(), group.processes().unwrap()), (2, vec![7, 8, 9]));
}

#[test]
fn controllers_are_passed_on_one_by_one_where_they_are_not() {
    let dir = fake(&[("", &[("cgroup.controllers", "cpu io\n"), ("cgroup.subtree_control", "")])]);
    let cgroups = Cgroups::among(&[version_2(dir.path(), "")], "coracle");
    assert_eq!(fs::read_to_string(dir.path().join("cgroup.subtree_control")).unwrap(), "+cpu");
    assert_eq!(cgroups.ignored_limits(), ["memory", "cpus", "pids"]);
}

#[test]
fn version_2_is_not_entered_for_a_controller_that_keeps_no_limit() {
    let dir = fake(&[("two", &[("cgroup.controllers", "hugetlb\n")]), ("freezer", &[])]);
    let mount = dir.path().join("freezer");
    // The group of this process is another one in a hierarchy of version 1 than in that of version 2.
    fs::create_dir(mount.join("own")).unwrap();
    let freezer =
        Hierarchy { version: Version::V1, controllers: vec!["freezer".into()], own: mount.join("own"), mount };
    let group = Cgroups::among(&[version_2(&dir.path().join("two"), ""), freezer], "coracle").create("c0ffee", &LIMITS);
    let group = group.unwrap();
    assert_eq!((group.entry().unified, group.entry().tasks.len(), group.can_freeze()), (None, 1, true));
}

#[test]
fn another_user_gets_the_top_of_what_is_delegated() {
    let own = "user.slice/user@7.service/app.slice";
    let dir = fake(&[("", &[]), ("user.slice", &[]), ("user.slice/user@7.service", &[]), (own, &[])]);
    for group in ["", "user.slice"] {
        fs::remove_file(dir.path().join(group).join("cgroup.procs")).unwrap();
    }
    let base = |own: &str| parent::base(&version_2(dir.path(), own));
    assert_eq!(base(own), Some(dir.path().join("user.slice/user@7.service")));
    assert_eq!(base("user.slice/session-1.scope"), None);
}

#[test]
fn without_a_usable_hierarchy_every_limit_is_reported_as_ignored() {
    let cgroups = Cgroups::among(&[], "coracle");
    let group = cgroups.create("c0ffee", &LIMITS).unwrap();
    assert_eq!((cgroups.version(), cgroups.ignored_limits().len(), group.dirs().is_empty()), (1, 3, true));
    assert!(group.freeze().is_err());
    assert_eq!((group.oom_kills(), group.processes().unwrap()), (0, vec![]));
    group.thaw().unwrap();
    group.kill().unwrap();
    group.remove().unwrap();
}
