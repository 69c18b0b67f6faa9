//! Decides what to do on a machine. Pure: uses only its argument.

use std::path::PathBuf;

use coracle_context::host_system::System;
use toml::Table;

/// The facts of the machine that the plan depends on.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) system: System,
    pub(super) root: bool,
    pub(super) sudo: bool,
    /// Proxy variables of the user, which `sudo` would drop.
    pub(super) proxies: Vec<String>,
    /// The version of Docker's server or Podman: `Docker 28.2.2`.
    pub(super) answers: Option<String>,
    /// Podman answers.
    pub(super) podman: bool,
    /// Required packages that are not installed.
    pub(super) missing: Vec<&'static str>,
    /// The package lists are missing or older than a day.
    pub(super) lists_are_old: bool,
    pub(super) settings: Settings,
}

/// Podman's settings: what this machine needs, and which file sets what.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// The file of Coracle's settings.
    pub(super) drop_in: PathBuf,
    /// Its current text.
    pub(super) present: Option<String>,
    /// The settings that Podman needs here.
    pub(super) fixes: Table,
    /// The settings of all other files, each a table of tables.
    pub(super) others: Vec<Table>,
}

/// One step, with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SetupStep {
    Run { why: &'static str, words: Vec<String> },
    Write { why: &'static str, path: PathBuf, text: String },
}

/// The plan.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SetupPlan {
    /// An engine answers and lacks nothing.
    Ready(String),
    /// These steps, in order.
    Steps(Vec<SetupStep>),
    /// An unsupported system: the user does it.
    Theirs,
    /// Packages are missing, and this user cannot install them.
    NotRoot(Vec<String>),
}

/// The first line of a file that `setup` may replace.
pub(super) const MARK: &str =
    "# Written by `coracle setup` for this machine; it is written anew when the machine needs it.";

/// The same on Coracle's own test machines.
const TEST_MARK: &str =
    "# Written by `cargo xtask engines up` for this machine; it is written anew when the machine needs it.";

/// Waits for another installation instead of failing at its lock.
const APT: &[&str] = &["apt-get", "-o", "DPkg::Lock::Timeout=120"];

pub(super) fn plan(machine: &Machine) -> SetupPlan {
    let acts = matches!(machine.system, System::Debian { supported: true });
    match &machine.answers {
        Some(engine) if !acts || !machine.podman => return SetupPlan::Ready(engine.clone()),
        None if !acts => return SetupPlan::Theirs,
        _ => {}
    }
    let mut steps = packages(machine);
    if !machine.root && !machine.sudo && !steps.is_empty() {
        return SetupPlan::NotRoot(steps.iter().map(SetupStep::shown).collect());
    }
    steps.extend(settings(&machine.settings));
    match &machine.answers {
        Some(engine) if steps.is_empty() => SetupPlan::Ready(engine.clone()),
        _ => SetupPlan::Steps(steps),
    }
}

fn packages(machine: &Machine) -> Vec<SetupStep> {
    // Only names: an address may contain a password, and command lines are visible to everyone.
    let proxies = format!("--preserve-env={}", machine.proxies.join(","));
    let as_root = |words: Vec<&str>| {
        let sudo = match machine.root || !machine.sudo {
            true => vec![],
            false if machine.proxies.is_empty() => vec!["sudo", "env", "DEBIAN_FRONTEND=noninteractive"],
            false => vec!["sudo", proxies.as_str(), "env", "DEBIAN_FRONTEND=noninteractive"],
        };
        sudo.into_iter().chain(words).map(str::to_owned).collect()
    };
    let mut steps = Vec::new();
    if machine.missing.is_empty() {
        return steps;
    }
    if machine.lists_are_old {
        let words = as_root([APT, &["update"]].concat());
        steps.push(SetupStep::Run { why: "the package lists are missing or older than a day", words });
    }
    let words = as_root([APT, &["install", "-y", "--no-install-recommends"], &machine.missing].concat());
    steps.push(SetupStep::Run { why: "Podman, and what it needs for networks and for running without root", words });
    steps
}

/// The keys that no other file sets, if they are missing. A file without the mark belongs to the user.
fn settings(settings: &Settings) -> Option<SetupStep> {
    let present = settings.present.as_deref().unwrap_or_default();
    let (ours, tests) = (present.starts_with(MARK), present.starts_with(TEST_MARK));
    let theirs = toml::from_str::<Table>(present).ok().filter(|_| !ours);
    let others: Vec<&Table> = settings.others.iter().chain(&theirs).collect();
    let needed = without(&settings.fixes, &others);
    if needed.is_empty() || !(ours || tests || present.is_empty()) {
        return None;
    }
    // The new file replaces the old one, so it has every key, including existing ones.
    let others: Vec<&Table> = settings.others.iter().collect();
    let text = format!("{MARK}\n{}", without(&settings.fixes, &others));
    let why = "settings without which Podman starts no container on this machine";
    (text != present).then(|| SetupStep::Write { why, path: settings.drop_in.clone(), text })
}

/// The keys of these tables that none of the others sets.
fn without(fixes: &Table, others: &[&Table]) -> Table {
    let is_set = |table: &str, key: &str| others.iter().any(|it| it.get(table).is_some_and(|it| it.get(key).is_some()));
    let tables = fixes.iter().filter_map(|(table, keys)| {
        let left: Table = keys
            .as_table()?
            .iter()
            .filter(|(key, _)| !is_set(table, key))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        (!left.is_empty()).then(|| (table.clone(), toml::Value::Table(left)))
    });
    tables.collect()
}

impl SetupStep {
    /// The text that the user reads before saying yes.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Run { words, .. } => format!("  {}\n", words.join(" ")),
            Self::Write { path, text, .. } => {
                let lines: String = text.lines().filter(|it| !it.is_empty()).map(|it| format!("    {it}\n")).collect();
                format!("  write {}:\n{lines}", path.display())
            }
        }
    }

    pub(super) fn why(&self) -> &'static str {
        match self {
            Self::Run { why, .. } | Self::Write { why, .. } => why,
        }
    }
}

/// Whether an engine is usable: the versions of `engine_version`.
pub(super) fn is_new_enough(podman: bool, version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+', '~']).map(|it| it.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= if podman { (4, 3) } else { (20, 10) }
}

/// What a user without root must do once for rootless containers.
pub(super) fn rootless_hints(user: &str, subuid: &str, subgid: &str, shut: &[&str]) -> Vec<String> {
    let has = |text: &str| text.lines().any(|it| it.split(':').next() == Some(user));
    let mut hints = Vec::new();
    if !has(subuid) || !has(subgid) {
        let (first, last) = free_range(subuid, subgid);
        hints.push(format!(
            "`{user}` has no user ids for containers:\n  sudo usermod --add-subuids {first}-{last} --add-subgids \
             {first}-{last} {user}\n  podman system migrate\n"
        ));
    }
    for device in shut {
        hints.push(
            match *device {
                "/dev/net/tun" => "`/dev/net/tun` cannot be opened: containers of yours have no network until it can\n",
                _ => "`/dev/fuse` cannot be opened: fine from kernel 5.13 on, else images take much more disk\n",
            }
            .to_owned(),
        );
    }
    hints
}

/// The first 65,536 unused ids, in the steps of `useradd`.
fn free_range(subuid: &str, subgid: &str) -> (u64, u64) {
    let end_of = |line: &str| {
        let mut fields = line.split(':').skip(1).map(|it| it.trim().parse::<u64>());
        Some(fields.next()?.ok()? + fields.next()?.ok()?)
    };
    let first = subuid.lines().chain(subgid.lines()).filter_map(end_of).fold(100_000, u64::max);
    (first, first + 65_535)
}

#[cfg(test)]
mod tests {
    use coracle_context::host_system::PACKAGES;
    use insta::assert_snapshot;

    use super::*;

    fn bare() -> Machine {
        Machine {
            system: System::Debian { supported: true },
            root: true,
            sudo: false,
            proxies: vec![],
            answers: None,
            podman: false,
            missing: PACKAGES.to_vec(),
            lists_are_old: true,
            settings: Settings {
                drop_in: "/etc/containers/containers.conf.d/50-coracle.conf".into(),
                fixes: table(
                    "[containers]\ndefault_ulimits = [\"nofile=9:9\"]\n[engine]\ncgroup_manager = \"cgroupfs\"\nruntime = \"runc\"\n",
                ),
                ..Settings::default()
            },
        }
    }

    fn podman() -> Machine {
        Machine { answers: Some("Podman 4.3.1".into()), podman: true, missing: vec![], ..bare() }
    }

    fn table(text: &str) -> Table {
        toml::from_str(text).unwrap()
    }

    fn render(plan: &SetupPlan) -> String {
        match plan {
            SetupPlan::Steps(steps) => steps.iter().map(|it| format!("{}\n{}", it.why(), it.shown())).collect(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_bare_machine_gets_lists_packages_and_settings() {
        assert_snapshot!(render(&plan(&bare())), @r#"
        the package lists are missing or older than a day
          apt-get -o DPkg::Lock::Timeout=120 update
        Podman, and what it needs for networks and for running without root
          apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends podman crun runc netavark aardvark-dns catatonit uidmap slirp4netns fuse-overlayfs
        settings without which Podman starts no container on this machine
          write /etc/containers/containers.conf.d/50-coracle.conf:
            # Written by `coracle setup` for this machine; it is written anew when the machine needs it.
            [containers]
            default_ulimits = ["nofile=9:9"]
            [engine]
            cgroup_manager = "cgroupfs"
            runtime = "runc"
        "#);
    }

    #[test]
    fn a_person_goes_through_sudo_and_only_for_what_is_missing() {
        let machine = Machine {
            root: false,
            sudo: true,
            lists_are_old: false,
            missing: vec!["netavark"],
            settings: Settings::default(),
            ..bare()
        };
        assert_snapshot!(render(&plan(&machine)), @r"
        Podman, and what it needs for networks and for running without root
          sudo env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends netavark
        ");
    }

    #[test]
    fn sudo_keeps_the_variables_of_a_proxy() {
        let proxies = ["http_proxy", "no_proxy"].map(str::to_owned).into();
        let machine =
            Machine { root: false, sudo: true, lists_are_old: false, missing: vec!["crun"], proxies, ..bare() };
        let shown = render(&plan(&machine));
        assert!(shown.contains("  sudo --preserve-env=http_proxy,no_proxy env DEBIAN_FRONTEND="), "{shown}");
    }

    #[test]
    fn a_user_without_sudo_sees_the_commands_for_root() {
        let machine = Machine { root: false, lists_are_old: false, missing: vec!["crun"], ..bare() };
        assert_eq!(
            render(&plan(&machine)),
            r#"NotRoot(["  apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends crun\n"])"#
        );
    }

    #[test]
    fn nothing_is_done_where_an_engine_answers_and_lacks_nothing() {
        let mended = Machine { settings: Settings::default(), ..podman() };
        assert_eq!(plan(&mended), SetupPlan::Ready("Podman 4.3.1".into()));
        let docker = Machine { answers: Some("Docker 28.2.2".into()), ..bare() };
        assert_eq!(plan(&docker), SetupPlan::Ready("Docker 28.2.2".into()));
    }

    #[test]
    fn other_systems_are_left_alone() {
        for system in [System::Debian { supported: false }, System::Fedora, System::Wsl { apt: true }, System::Other] {
            assert_eq!(plan(&Machine { system: system.clone(), ..bare() }), SetupPlan::Theirs);
            assert_eq!(plan(&Machine { system, ..podman() }), SetupPlan::Ready("Podman 4.3.1".into()));
        }
    }

    #[test]
    fn a_key_that_another_file_sets_is_left_to_it() {
        let mut machine = podman();
        machine.settings.others = vec![table("[engine]\nruntime = \"crun\"\n[containers]\ndefault_ulimits = []\n")];
        assert_snapshot!(render(&plan(&machine)), @r#"
        settings without which Podman starts no container on this machine
          write /etc/containers/containers.conf.d/50-coracle.conf:
            # Written by `coracle setup` for this machine; it is written anew when the machine needs it.
            [engine]
            cgroup_manager = "cgroupfs"
        "#);
    }

    #[test]
    fn what_is_written_is_not_written_twice() {
        let mut machine = podman();
        let SetupPlan::Steps(steps) = plan(&machine) else { panic!("nothing to do") };
        let [SetupStep::Write { text, .. }] = &steps[..] else { panic!("{steps:?}") };
        for mark in [MARK, TEST_MARK] {
            machine.settings.present = Some(text.replace(MARK, mark));
            assert_eq!(plan(&machine), SetupPlan::Ready("Podman 4.3.1".into()), "{mark}");
        }
    }

    #[test]
    fn coracles_own_file_is_rewritten_and_a_users_never() {
        let mut machine = podman();
        for mark in [MARK, TEST_MARK] {
            machine.settings.present = Some(format!("{mark}\n[engine]\nruntime = \"runc\"\n"));
            let SetupPlan::Steps(steps) = plan(&machine) else { panic!("nothing to do") };
            assert!(steps[0].shown().contains("cgroup_manager") && steps[0].shown().contains("runtime"), "{steps:?}");
        }
        machine.settings.present = Some("[engine]\nruntime = \"runc\"\n".into());
        assert_eq!(plan(&machine), SetupPlan::Ready("Podman 4.3.1".into()));
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let cases = [(true, "4.3.1", true), (true, "3.4.4", false), (true, "10.0.0-rc1", true), (true, "", false)];
        for (podman, version, expected) in
            cases.into_iter().chain([(false, "20.10.24+dfsg1", true), (false, "19.3", false)])
        {
            assert_eq!(is_new_enough(podman, version), expected, "{version}");
        }
    }

    #[test]
    fn hints_name_free_ids_and_shut_devices() {
        let others = "sam:100000:65536\n";
        assert_snapshot!(rootless_hints("ada", others, "", &["/dev/fuse", "/dev/net/tun"]).concat(), @r"
        `ada` has no user ids for containers:
          sudo usermod --add-subuids 165536-231071 --add-subgids 165536-231071 ada
          podman system migrate
        `/dev/fuse` cannot be opened: fine from kernel 5.13 on, else images take much more disk
        `/dev/net/tun` cannot be opened: containers of yours have no network until it can
        ");
        assert_eq!(rootless_hints("sam", others, others, &[]), Vec::<String>::new());
    }
}
