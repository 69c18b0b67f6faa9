//! The installer where it is interrupted, and under odd conditions.

use super::*;
use crate::sh::Sh;

/// A release, the prefix it is installed to, and programs that come first in `PATH`.
struct Installer {
    scratch: Scratch,
    prefix: PathBuf,
    tools: PathBuf,
}

impl Installer {
    fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        packed(&scratch.dir("out"));
        let (prefix, tools) = (scratch.dir("prefix"), scratch.dir("tools"));
        Self { scratch, prefix, tools }
    }

    /// A program of that name, in place of the machine's.
    fn add_tool(&self, name: &str, script: &str) {
        fs::write(self.tools.join(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        sh("chmod", [PathBuf::from("755"), self.tools.join(name)]).read().unwrap();
    }

    /// The installer from the directory of the test, as someone whose shell is zsh.
    fn script(&self, words: &[&str]) -> Sh {
        self.script_with(&self.tools, words)
    }

    /// With that directory first in PATH.
    fn script_with(&self, first: &Path, words: &[&str]) -> Sh {
        let (dir, first) = (self.scratch.0.display(), first.display());
        let script = format!("cd '{dir}' && PATH='{first}':\"$PATH\" exec sh out/install.sh \"$@\"");
        sh("sh", ["-c", &script, "sh"]).words(words).env("SUDO_USER", "").env("SHELL", "/usr/bin/zsh")
    }

    fn fails(&self, words: &[&str]) -> String {
        let output = self.script(words).output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn an_installation_that_ends_early_leaves_nothing_that_cannot_be_removed() {
    let case = Installer::new("early");
    let share = case.prefix.join("share");
    fs::write(&share, "").unwrap();
    case.fails(&["--prefix", "prefix"]);
    assert!(!case.prefix.join("bin").exists(), "there is no place for the list");
    fs::remove_file(&share).unwrap();

    fs::create_dir(&share).unwrap();
    fs::write(share.join("man"), "").unwrap();
    case.fails(&["--prefix", "prefix"]);
    assert!(case.prefix.join("bin/coracle").exists());
    // The next attempt ends within the first file.
    case.add_tool("chmod", "exit 1");
    case.fails(&["--prefix", "prefix"]);
    assert_eq!(content(&share.join("coracle")).len(), 1, "the list alone");
    case.script(&["--prefix", "prefix", "--uninstall"]).read().unwrap();
    assert!(!case.prefix.join("bin/coracle").exists() && !share.join("coracle").exists());
}

#[test]
fn an_upgrade_that_ends_early_forgets_no_file() {
    let case = Installer::new("early-upgrade");
    let share = case.prefix.join("share");
    case.script(&["--prefix", "prefix"]).read().unwrap();
    fs::write(share.join("coracle/installed"), "share/old\n").unwrap();
    fs::write(share.join("old"), "").unwrap();
    case.add_tool("mv", "case $3 in */coracle.1) exit 1 ;; esac; exec /bin/mv \"$@\"");
    case.fails(&["--prefix", "prefix"]);
    case.script(&["--prefix", "prefix", "--uninstall"]).read().unwrap();
    assert!(!share.join("old").exists() && !case.prefix.join("bin/coracle").exists());
}

#[test]
fn a_prefix_is_found_in_the_path_in_any_spelling() {
    let case = Installer::new("spelling");
    let bin = case.prefix.join("bin");
    let absolute = format!("{}/", case.prefix.display());
    for prefix in ["prefix", "./prefix/", &absolute] {
        let printed = case.script(&["--prefix", prefix]).read().unwrap();
        assert!(printed.contains(&format!("{} is not in PATH", bin.display())), "{printed}");
        let printed = case.script_with(&bin, &["--prefix", prefix]).read().unwrap();
        assert!(!printed.contains("PATH"), "{printed}");
    }
}

#[test]
fn the_path_of_root_is_not_that_of_the_person_who_calls_sudo() {
    let case = Installer::new("sudo");
    case.add_tool("coracle", "");
    let printed = case.script(&["--prefix", "prefix"]).read().unwrap();
    assert!(printed.contains("is not in PATH") && printed.contains("may come first in PATH"), "{printed}");
    for (user, is_warned) in [("0", false), ("1000", true)] {
        case.add_tool("id", &format!("echo {user}"));
        let printed = case.script(&["--prefix", "prefix"]).env("SUDO_USER", "no-such-person").read().unwrap();
        assert_eq!(printed.contains("PATH"), is_warned, "{printed}");
    }
}

#[test]
fn removal_names_the_settings_of_podman() {
    let case = Installer::new("podman");
    case.add_tool("id", "echo 1000");
    let settings = case.scratch.dir("config/containers/containers.conf.d").join("50-coracle.conf");
    fs::write(&settings, "").unwrap();
    case.script(&["--prefix", "prefix"]).read().unwrap();
    let script = case.script(&["--prefix", "prefix", "--uninstall"]);
    let printed = script.env("XDG_CONFIG_HOME", case.scratch.0.join("config")).read().unwrap();
    assert!(printed.contains(&format!("stays     {}: ", settings.display())), "{printed}");
}

#[test]
fn zsh_finds_its_completions() {
    let case = Installer::new("zsh");
    let printed = case.script(&["--prefix", "prefix"]).read().unwrap();
    assert!(printed.contains(&format!("fpath+=(\"{}/share/zsh/site-functions\")", case.prefix.display())), "{printed}");
    let printed = case.script(&["--prefix", "prefix"]).env("SHELL", "/bin/sh").read().unwrap();
    assert!(!printed.contains("fpath"), "{printed}");
}

#[test]
fn the_installer_does_without_what_the_environment_says_of_directories() {
    let case = Installer::new("environment");
    // `cd out` would go there first.
    case.scratch.dir("elsewhere/out");
    let elsewhere = case.scratch.0.join("elsewhere");
    case.script(&["--prefix", "prefix"]).env("CDPATH", &elsewhere).read().unwrap();
    // Root's directories are for all.
    case.add_tool("id", "echo 0");
    let script = "umask 077; exec sh out/install.sh --prefix other";
    sh("sh", ["-c", &format!("cd '{}'; PATH='{}':$PATH; {script}", case.scratch.0.display(), case.tools.display())])
        .read()
        .unwrap();
    let mode = sh("ls", ["-ld"]).words([case.scratch.0.join("other/bin")]).read().unwrap();
    assert!(mode.starts_with("drwxr-xr-x"), "{mode}");
}

#[test]
fn a_missing_program_and_a_failed_download_are_reported() {
    let case = Installer::new("programs");
    let (tools, out) = (case.scratch.dir("few"), case.scratch.dir("out"));
    for name in ["dirname", "gzip", "id", "mktemp", "rm", "sh", "uname"] {
        std::os::unix::fs::symlink(which(name).unwrap(), tools.join(name)).unwrap();
    }
    assert!(refused(&out, Some(&tools)).contains("tar is needed"));
    std::os::unix::fs::symlink(which("tar").unwrap(), tools.join("tar")).unwrap();
    fs::write(tools.join("wget"), "#!/bin/sh\nexit 4\n").unwrap();
    sh("chmod", [PathBuf::from("755"), tools.join("wget")]).read().unwrap();
    let words = [out.join("install.sh").to_str().unwrap(), "--from", "https://release.test"].map(str::to_owned);
    let output = sh(which("sh").unwrap(), words).env("PATH", &tools).output().unwrap();
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(
        printed.contains("https://release.test/coracle-0.0.1") && printed.contains("cannot be downloaded"),
        "{printed}"
    );
}
