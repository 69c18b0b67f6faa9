//! How far containers of each engine are cut off: one program looks at what it can do in a container of each, and no
//! engine's own containers may be weaker in any row than those that Docker makes for the same request.
//!
//! The whole table is printed: `cargo nextest run -p coracle-tests isolation:: --no-capture`.

mod rows;

use std::sync::Mutex;
use std::time::Duration;

use coracle_types::{EngineKind, Exec, ExecLimits};

use self::rows::{Pair, Rows, is_weaker, parse, table};
use crate::engines::{Case, Way, with_real_engines};
use crate::guest::{add_perl, perl};

/// System calls by number, which Perl has no names for.
#[cfg(target_arch = "x86_64")]
const NUMBERS: &[(&str, &str)] = &[
    ("SOCKET", "41"),
    ("GETPID", "39"),
    ("UNSHARE", "272"),
    ("PERSONALITY", "135"),
    ("MKNODAT", "259"),
    ("MOUNT", "165"),
    ("PTRACE", "101"),
];

/// `rt_sigreturn`, `pause`, `clone`, `fork`, `vfork`, `exit`, `sync`, `exit_group`: they do not come back, come back twice
/// or wait. `socket` and `personality` depend on their arguments, and have rows of their own.
#[cfg(target_arch = "x86_64")]
const UNSAFE: &[u32] = &[15, 34, 41, 56, 57, 58, 60, 135, 162, 231];
#[cfg(target_arch = "aarch64")]
const UNSAFE: &[u32] = &[81, 92, 93, 94, 139, 198, 220];

/// Numbers between the architecture's own and those that all have in common.
#[cfg(target_arch = "x86_64")]
const UNASSIGNED: std::ops::Range<u32> = 337..424;
#[cfg(target_arch = "aarch64")]
const UNASSIGNED: std::ops::Range<u32> = 295..424;
#[cfg(target_arch = "aarch64")]
const NUMBERS: &[(&str, &str)] = &[
    ("SOCKET", "198"),
    ("GETPID", "172"),
    ("UNSHARE", "97"),
    ("PERSONALITY", "92"),
    ("MKNODAT", "33"),
    ("MOUNT", "40"),
    ("PTRACE", "117"),
];

/// Linux 6.17's last.
const LAST_CALL: u32 = 469;

/// Calls that Docker's present profile allows and that its release 20.10 refuses or does not know yet:
/// `name_to_handle_at`, `process_vm_readv` and `_writev`, `pkey_*` and `uretprobe`, then those that are new since.
#[cfg(target_arch = "x86_64")]
const SINCE_ALLOWED: &[u32] = &[303, 310, 311, 329, 330, 331, 335];
#[cfg(target_arch = "aarch64")]
const SINCE_ALLOWED: &[u32] = &[264, 270, 271, 288, 289, 290];
const NEW_AND_ALLOWED: &[u32] =
    &[444, 445, 446, 447, 448, 449, 451, 452, 453, 454, 455, 456, 457, 458, 462, 463, 464, 465, 466];

fn probe() -> Exec {
    // Functions without arguments, since the module for constants is not in the image.
    let constant = |name: &str, value: &str| format!("sub {name}() {{ {value} }}\n");
    let numbers: String = NUMBERS.iter().map(|it| constant(it.0, it.1)).collect();
    let unsafe_calls: String = UNSAFE.iter().copied().chain(UNASSIGNED).map(|it| format!("{it} ")).collect();
    let numbers = numbers + &constant("UNSAFE", &format!("'{unsafe_calls}'"));
    let program = numbers + &constant("LAST_CALL", &LAST_CALL.to_string()) + include_str!("probe.pl");
    let limits = ExecLimits { total: Some(Duration::from_secs(120)), ..ExecLimits::default() };
    Exec { limits, ..perl(&program) }
}

/// The program's output in a container that is entered this way.
async fn rows_of(case: &Case, way: Way) -> Rows {
    let running = case.runs(way).await;
    add_perl(&running).await;
    let it = running.ran(probe()).await;
    let rows = parse(&it.stdout.text());
    assert!(rows.len() > 500, "{} rows: {it:?}", rows.len());
    rows
}

fn rows_of_host() -> Rows {
    let mut rows = Rows::new();
    for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let id = std::fs::read_link(format!("/proc/self/ns/{name}")).unwrap();
        rows.insert(format!("namespace {name}"), id.display().to_string());
    }
    let words = |path: &str| std::fs::read_to_string(path).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    rows.insert("uid map".into(), words("/proc/self/uid_map"));
    rows.insert("hostname".into(), words("/proc/sys/kernel/hostname"));
    rows
}

/// Rows in which Coracle's containers are weaker than Docker's.
fn weaker_rows(ours: &Rows, theirs: &Rows, host: &Rows) -> Vec<String> {
    let value = |rows: &Rows, name: &str| rows.get(name).cloned().unwrap_or_default();
    let later = [SINCE_ALLOWED, NEW_AND_ALLOWED].concat();
    let since_allowed = |row: &str| later.iter().any(|it| *row == format!("call {it}"));
    let weaker = |row: &&String| {
        let (ours, theirs, host) = (value(ours, row), value(theirs, row), value(host, row));
        is_weaker(row, Pair { ours: &ours, theirs: &theirs, host: &host })
    };
    let all = ours.keys().filter(weaker).filter(|it| !since_allowed(it));
    all.map(|it| format!("{it}: {} and not {}", value(ours, it), value(theirs, it))).collect()
}

async fn compare(way: Way) {
    let found = Mutex::new(Vec::<(EngineKind, Rows)>::new());
    with_real_engines(async |case| {
        let rows = rows_of(case, way).await;
        found.lock().unwrap().push((case.engine(), rows));
    })
    .await;
    let (found, host) = (found.into_inner().unwrap(), rows_of_host());
    let columns: Vec<_> = found.iter().map(|it| (it.0.to_string(), it.1.clone())).collect();
    eprintln!("{}", table(&columns));
    let of = |kind: EngineKind| found.iter().find(|it| it.0 == kind).map(|it| &it.1);
    if let (Some(ours), Some(theirs)) = (of(EngineKind::Embedded), of(EngineKind::Docker)) {
        assert_eq!(
            weaker_rows(ours, theirs, &host),
            [] as [String; 0],
            "{way}: the embedded engine is weaker than Docker"
        );
    }
    for (engine, rows) in &found {
        let open = open_rows(rows, &host);
        assert_eq!(open, [] as [String; 0], "{way}: on {engine}");
    }
}

/// Rows that are closed on every engine, whatever the other engines do.
fn open_rows(rows: &Rows, host: &Rows) -> Vec<String> {
    let is_open = |(row, value): &(&String, &String)| {
        let (kind, rest) = row.split_once(' ').unwrap_or((row, ""));
        match (kind, rest) {
            ("namespace", "mnt" | "pid" | "net" | "ipc" | "uts") => host.get(*row) == Some(value),
            ("writable", rest) => !rest.starts_with("/proc/1/") && *value == "1",
            (
                "readable",
                "/proc/kcore" | "/proc/keys" | "/sys/firmware" | "/dev/mem" | "/dev/kmsg" | "/proc/timer_list",
            ) => *value == "1",
            ("self" | "1", "NoNewPrivs") => *value != "1",
            ("self" | "1", "Seccomp") => *value != "2",
            ("self" | "1", "CapInh" | "CapAmb") => !value.trim_start_matches('0').is_empty(),
            ("descriptor", _) => true,
            ("device", _) => value.starts_with("block"),
            _ => false,
        }
    };
    rows.iter().filter(is_open).map(|(row, value)| format!("{row}: {value}")).collect()
}

#[tokio::test]
async fn commands_of_the_engines_own_exec_are_cut_off_as_with_docker() {
    compare(Way::Plain).await;
}

#[tokio::test]
async fn commands_of_the_guest_are_cut_off_as_with_docker() {
    compare(Way::Socket).await;
}
