//! Detects the host's system, and returns the commands that a user runs on it.

/// A system, as far as its commands differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum System {
    /// Uses apt; `supported` if its packages contain an engine that is new enough.
    Debian {
        /// Debian 12, Ubuntu 24.04 or later.
        supported: bool,
    },
    /// Packages come by dnf.
    Fedora,
    /// Packages come by pacman.
    Arch,
    /// Engines run in a virtual machine.
    MacOs,
    /// Linux under Windows; `apt` if it uses apt.
    Wsl {
        /// A relative of Debian.
        apt: bool,
    },
    /// An unknown system.
    Other,
}

/// What a user has to install or start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPrerequisite {
    /// No engine is installed.
    Engine,
    /// Podman is installed and does not answer.
    PodmanAnswer,
    /// Docker is installed and its daemon does not answer.
    DockerAnswer,
    /// Apple's `container` is installed and its service does not run, or it is too old.
    AppleAnswer,
    /// Docker answers, but not to this user.
    DockerPermission,
}

/// The packages that `setup` installs, and that a user on Debian is advised to install.
pub const PACKAGES: &[&str] =
    &["podman", "crun", "runc", "netavark", "aardvark-dns", "catatonit", "uidmap", "slirp4netns", "fuse-overlayfs"];

const PODMAN_MANUAL: &str = "https://podman.io/docs/installation";
const ROOTLESS_DOCKER: &str = "https://docs.docker.com/engine/security/rootless/";

/// Detects the host's system.
#[must_use]
pub fn system() -> System {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let kernel = if cfg!(target_os = "macos") { "Darwin".into() } else { read("/proc/sys/kernel/osrelease") };
    System::from_release(&read("/etc/os-release"), &kernel)
}

impl System {
    /// Detects it from `os-release` and the kernel's name and release (`Linux 6.1.0-18-amd64`, `Darwin 23.4.0`).
    #[must_use]
    pub(crate) fn from_release(os_release: &str, kernel: &str) -> Self {
        if kernel.starts_with("Darwin") {
            return Self::MacOs;
        }
        let field = |name: &str| {
            let value = os_release.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches(['"', '\'']).to_owned()
        };
        let (id, like, version) = (field("ID"), field("ID_LIKE"), field("VERSION_ID"));
        let is = |name: &str| id == name || like.split_whitespace().any(|it| it == name);
        let apt = is("debian") || is("ubuntu");
        if kernel.to_ascii_lowercase().contains("microsoft") {
            return Self::Wsl { apt };
        }
        if apt {
            return Self::Debian { supported: supported(&id, &version) };
        }
        match () {
            () if is("fedora") || is("rhel") || is("centos") => Self::Fedora,
            () if is("arch") => Self::Arch,
            () => Self::Other,
        }
    }
}

/// Whether this release of Debian or Ubuntu has Podman 4.3 or later. Debian's testing has no number.
fn supported(id: &str, version: &str) -> bool {
    let major = version.split('.').next().unwrap_or_default().parse::<u32>();
    match id {
        "debian" => version.is_empty() || major.is_ok_and(|it| it >= 12),
        "ubuntu" => major.is_ok_and(|it| it >= 24),
        _ => false,
    }
}

/// Returns the commands for that system. Engines that need no root come first.
#[must_use]
pub fn guidance(system: &System, missing: MissingPrerequisite) -> String {
    match missing {
        MissingPrerequisite::Engine => engine(system),
        MissingPrerequisite::PodmanAnswer => podman_answer(system),
        MissingPrerequisite::DockerAnswer => docker_answer(system),
        MissingPrerequisite::AppleAnswer => {
            "Start its service (version 1.1.0 or later on macOS 26 is needed):\n  container system start\n".into()
        }
        MissingPrerequisite::DockerPermission => docker_permission(system),
    }
}

fn engine(system: &System) -> String {
    let apt =
        format!("  sudo apt-get update\n  sudo apt-get install -y --no-install-recommends {}\n", PACKAGES.join(" "));
    let ids = "  sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$USER\"\n  \
               podman system migrate\n";
    match system {
        System::Debian { supported: true } => {
            format!("Install Podman, which needs no root to run containers:\n{apt}or let `coracle setup` do it.\n")
        }
        System::Debian { supported: false } => format!(
            "Coracle needs Podman 4.3 or later: Debian 12 and Ubuntu 24.04 bring it. See what this system has:\n  \
             apt-cache policy podman\nIf it is new enough:\n{apt}\
             Else install rootless Docker, 20.10 or later: {ROOTLESS_DOCKER}\n"
        ),
        System::Fedora => {
            "Install Podman, which needs no root to run containers:\n  sudo dnf install -y podman\n".into()
        }
        System::Arch => format!(
            "Install Podman, which needs no root to run containers:\n  \
             sudo pacman -S --needed podman crun netavark aardvark-dns slirp4netns fuse-overlayfs\n\
             If `grep \"^$USER:\" /etc/subuid` prints nothing, give yourself user ids for containers:\n{ids}"
        ),
        System::MacOs => "Install Podman and start its virtual machine:\n  brew install podman\n  \
                          podman machine init\n  podman machine start\n"
            .into(),
        System::Wsl { apt: true } => format!(
            "In this WSL distribution install Podman, which needs no root to run containers:\n{apt}\
             Or use Docker Desktop: Settings, Resources, WSL integration, switch this distribution on.\n"
        ),
        System::Wsl { apt: false } => format!(
            "In this WSL distribution install Podman, which needs no root to run containers: {PODMAN_MANUAL}\n\
             Or use Docker Desktop: Settings, Resources, WSL integration, switch this distribution on.\n"
        ),
        System::Other => format!(
            "Install Podman 4.3 or later, which needs no root to run containers: {PODMAN_MANUAL}\n\
             Or rootless Docker 20.10 or later: {ROOTLESS_DOCKER}\n"
        ),
    }
}

fn podman_answer(system: &System) -> String {
    match system {
        System::MacOs => "Start Podman's virtual machine (`podman machine init` once before that):\n  \
                          podman machine start\n"
            .into(),
        System::Debian { supported: true } => "See why Podman does not answer:\n  podman info\n\
             `coracle setup` installs what it lacks and makes the settings that this machine needs.\n"
            .into(),
        _ => "See why Podman does not answer:\n  podman info\n\
              After a change of /etc/subuid or /etc/subgid:\n  podman system migrate\n"
            .into(),
    }
}

fn docker_answer(system: &System) -> String {
    match system {
        System::MacOs => "Start Docker Desktop:\n  open -a Docker\n".into(),
        System::Wsl { .. } => "Start Docker Desktop and switch this distribution on (Settings, Resources, WSL \
                               integration), or start the daemon here:\n  sudo service docker start\n"
            .into(),
        _ => format!(
            "Start the daemon. A rootless one:\n  systemctl --user start docker\nThe one of root:\n  \
             sudo systemctl start docker\nOr use an engine without a daemon:\n{}",
            engine(system)
        ),
    }
}

fn docker_permission(system: &System) -> String {
    format!(
        "The safer way is an engine that runs as you.\n{}Docker can do that too: {ROOTLESS_DOCKER}\n\
         The other way, after a new login:\n  sudo usermod -aG docker \"$USER\"\n\
         The `docker` group equals root: every program that you start can then become root on this machine.\n",
        engine(system)
    )
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const LINUX: &str = "Linux 6.1.0-18-amd64";

    #[test]
    fn a_system_is_detected_by_its_os_release() {
        let cases = [
            ("ID=debian\nVERSION_ID=\"12\"\n", LINUX, System::Debian { supported: true }),
            ("ID=debian\n", LINUX, System::Debian { supported: true }),
            ("ID=debian\nVERSION_ID=\"11\"\n", LINUX, System::Debian { supported: false }),
            ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n", LINUX, System::Debian { supported: true }),
            ("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"22.04\"\n", LINUX, System::Debian { supported: false }),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\nVERSION_ID=22\n", LINUX, System::Debian { supported: false }),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", LINUX, System::Fedora),
            ("ID=arch\n", LINUX, System::Arch),
            ("ID=alpine\n", LINUX, System::Other),
            ("", LINUX, System::Other),
            ("", "Darwin 23.4.0", System::MacOs),
            ("ID=ubuntu\nVERSION_ID=24.04\n", "Linux 5.15.146.1-microsoft-standard-WSL2", System::Wsl { apt: true }),
        ];
        for (os_release, kernel, expected) in cases {
            assert_eq!(System::from_release(os_release, kernel), expected, "{os_release:?} {kernel}");
        }
    }

    #[test]
    fn debian_is_advised_to_install_packages() {
        assert_snapshot!(guidance(&System::Debian { supported: true }, MissingPrerequisite::Engine), @r"
        Install Podman, which needs no root to run containers:
          sudo apt-get update
          sudo apt-get install -y --no-install-recommends podman crun runc netavark aardvark-dns catatonit uidmap slirp4netns fuse-overlayfs
        or let `coracle setup` do it.
        ");
    }

    #[test]
    fn a_mac_is_advised_about_its_virtual_machine() {
        assert_snapshot!(guidance(&System::MacOs, MissingPrerequisite::Engine), @r"
        Install Podman and start its virtual machine:
          brew install podman
          podman machine init
          podman machine start
        ");
        assert_snapshot!(guidance(&System::MacOs, MissingPrerequisite::DockerAnswer), @r"
        Start Docker Desktop:
          open -a Docker
        ");
    }

    #[test]
    fn without_access_to_docker_a_rootless_engine_is_advised_first_and_the_group_is_explained() {
        assert_snapshot!(guidance(&System::Fedora, MissingPrerequisite::DockerPermission), @r#"
        The safer way is an engine that runs as you.
        Install Podman, which needs no root to run containers:
          sudo dnf install -y podman
        Docker can do that too: https://docs.docker.com/engine/security/rootless/
        The other way, after a new login:
          sudo usermod -aG docker "$USER"
        The `docker` group equals root: every program that you start can then become root on this machine.
        "#);
    }

    #[test]
    fn no_guidance_advises_to_prune() {
        let systems = [
            System::Debian { supported: true },
            System::Debian { supported: false },
            System::Fedora,
            System::Arch,
            System::MacOs,
            System::Wsl { apt: true },
            System::Wsl { apt: false },
            System::Other,
        ];
        let missing = [
            MissingPrerequisite::Engine,
            MissingPrerequisite::PodmanAnswer,
            MissingPrerequisite::DockerAnswer,
            MissingPrerequisite::AppleAnswer,
            MissingPrerequisite::DockerPermission,
        ];
        for text in systems.iter().flat_map(|it| missing.map(|missing| guidance(it, missing))) {
            let says_how = text.contains("\n  ") || text.contains("https://");
            assert!(!text.contains("prune") && text.ends_with('\n') && says_how, "{text}");
        }
    }
}
