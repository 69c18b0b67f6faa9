mod installer;

use std::fs;
use std::path::{Path, PathBuf};

use super::platform::PLATFORMS;
use super::*;
use crate::clients;

/// In place of the program: as much of it as packaging and installing call.
const PROGRAM: &str = "#!/bin/sh\necho coracle 0.0.1\n";

fn release() -> Release {
    let texts = [COMPLETIONS[0].1, COMPLETIONS[1].1, COMPLETIONS[2].1, "share/man/man1/coracle.1"];
    Release {
        version: "0.0.1".into(),
        platform: Platform::here().unwrap(),
        time: 1_700_000_000,
        program: PROGRAM.into(),
        texts: texts.map(|it| ArchiveFile::new(it, it)).to_vec(),
        notices: ["LICENSE-APACHE", "LICENSE-MIT", notices::NAME].map(|it| ArchiveFile::new(it, it)).to_vec(),
    }
}

/// A directory for one test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("coracle-dist-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.0.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0); // a leftover in the temporary directory is not worth a failure
    }
}

fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|it| it.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|it| (it.file_name().unwrap().into(), fs::read(&it).unwrap())).collect()
}

fn packed(out: &Path) {
    write(&release(), out).unwrap();
    checksums::write(out, "0.0.1", "https://example.org/coracle/releases/download/v0.0.1").unwrap();
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    let scratch = Scratch::new("bytes");
    let [one, two] = ["one", "two"].map(|it| scratch.dir(it));
    packed(&one);
    packed(&two);
    assert_eq!(content(&one), content(&two));
    let tarball = release().platform.tarball("0.0.1");
    let sums = fs::read_to_string(one.join("SHA256SUMS")).unwrap();
    let formula = fs::read_to_string(one.join("coracle.rb")).unwrap();
    let sum = checksums::sha256(&fs::read(one.join(&tarball)).unwrap());
    assert!(sums.contains(&format!("{sum}  {tarball}\n")), "{sums}");
    assert!(
        formula.contains(&sum)
            && formula.contains(&format!("https://example.org/coracle/releases/download/v0.0.1/{tarball}")),
        "{formula}"
    );
    assert!(formula.contains("homepage \"https://example.org/coracle\"\n"), "{formula}");
    assert!(!formula.contains('@'), "{formula}");
}

#[test]
fn the_image_of_a_release_has_the_whole_name_where_containerd_reads_it() {
    let scratch = Scratch::new("image");
    let image = container_image::archive(&release()).unwrap();
    let path = scratch.0.join("image.tar");
    fs::write(&path, image.content).unwrap();
    let document = |name: &str| -> serde_json::Value {
        let text = sh("tar", ["-xOf", path.to_str().unwrap(), name]).read().unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let annotations = &document("index.json")["manifests"][0]["annotations"];
    assert_eq!(annotations["io.containerd.image.name"], "docker.io/library/coracle:0.0.1");
    assert_eq!(annotations["org.opencontainers.image.ref.name"], "0.0.1");
    assert_eq!(document("manifest.json")[0]["RepoTags"][0], "coracle:0.0.1");
}

#[test]
fn only_an_empty_directory_or_a_release_is_emptied() {
    let scratch = Scratch::new("out");
    let out = scratch.dir("out");
    let (program, lost) = (scratch.0.join("coracle"), scratch.0.join("none"));
    ensure_replaceable(&lost).unwrap();
    ensure_replaceable(&out).unwrap();
    packed(&out);
    ensure_replaceable(&out).unwrap();
    let real = out.canonicalize().unwrap();
    assert!(empty_directory(&out, &real.join("coracle")).is_err(), "the program would go");
    fs::write(out.join("mine"), "").unwrap();
    assert!(ensure_replaceable(&out).unwrap_err().to_string().contains("is not empty and not of `dist`"));
    assert_eq!(empty_directory(&out, &program).unwrap(), real);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 0);
}

#[test]
fn the_installer_installs_replaces_and_removes() {
    let scratch = Scratch::new("installer");
    let (out, prefix, home) = (scratch.dir("out"), scratch.dir("prefix"), scratch.dir("home"));
    packed(&out);
    let script = |words: &[&str]| {
        let words = [out.join("install.sh").to_str().unwrap(), "--prefix", prefix.to_str().unwrap()]
            .into_iter()
            .chain(words.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let unset = ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"];
        let script = unset.iter().fold(sh("sh", words).env("HOME", &home), |it, name| it.env(name, ""));
        script.output().unwrap()
    };
    let prints = |words: &[&str]| {
        let output = script(words);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(prints(&[]).contains("installed coracle 0.0.1"));
    assert_eq!(sh(prefix.join("bin/coracle"), ["--version"]).read().unwrap(), "coracle 0.0.1");
    for (_, path) in COMPLETIONS {
        assert_eq!(fs::read_to_string(prefix.join(path)).unwrap(), path);
    }
    let state = scratch.dir("home/.local/state/coracle");
    fs::write(state.join("key"), "a key").unwrap();
    // Something that only the version before had.
    let list = prefix.join("share/coracle/installed");
    fs::write(prefix.join("share/old"), "").unwrap();
    fs::write(&list, fs::read_to_string(&list).unwrap() + "share/old\n").unwrap();
    let second = prints(&[]);
    assert!(second.contains("replaced  coracle 0.0.1") && !prefix.join("share/old").exists(), "{second}");

    let last = prints(&["--uninstall"]);
    assert!(last.contains(&format!("stays     {}", state.display())), "{last}");
    assert_eq!(fs::read_to_string(state.join("key")).unwrap(), "a key");
    assert!(!prefix.join("bin/coracle").exists() && !list.exists());
    assert!(!script(&["--uninstall"]).status.success(), "there is nothing left");
}

#[test]
fn a_prefix_that_the_release_was_downloaded_to_keeps_its_own_files() {
    let scratch = Scratch::new("own-files");
    let prefix = scratch.dir("prefix");
    packed(&prefix);
    // The program of an earlier release, and files of the user's.
    let own = [scratch.dir("prefix/bin").join("mine"), scratch.dir("prefix/share").join("mine")];
    let old = ArchiveFile::program("bin/coracle", "#!/bin/sh\necho coracle 0.0.0\n");
    fs::write(prefix.join(&old.path), &old.content).unwrap();
    sh("chmod", [PathBuf::from("755"), prefix.join(&old.path)]).read().unwrap();
    for it in &own {
        fs::write(it, "").unwrap();
    }
    let script = |words: &[&str]| {
        sh("sh", [prefix.join("install.sh"), "--prefix".into(), prefix.clone()]).words(words).read().unwrap()
    };
    let printed = script(&[]);
    assert!(printed.contains("replaced  coracle 0.0.0") && printed.contains("installed coracle 0.0.1"), "{printed}");
    script(&["--uninstall"]);
    assert!(own.iter().all(|it| it.exists()) && !prefix.join("bin/coracle").exists());
}

/// What the installer says on standard error where it installs nothing.
fn refused(out: &Path, path: Option<&Path>) -> String {
    let prefix = out.join("prefix");
    let script = sh(which("sh").unwrap(), [out.join("install.sh"), "--prefix".into(), prefix.clone()]);
    let script = match path {
        Some(path) => script.env("PATH", path),
        None => script,
    };
    let output = script.output().unwrap();
    assert!(!output.status.success() && !prefix.exists());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn an_archive_that_cannot_be_checked_is_not_installed() {
    let scratch = Scratch::new("unchecked");
    let (out, tools) = (scratch.dir("out"), scratch.dir("tools"));
    packed(&out);
    for name in ["dirname", "grep", "cut", "gzip", "id", "mktemp", "rm", "tar", "uname"] {
        std::os::unix::fs::symlink(which(name).unwrap(), tools.join(name)).unwrap();
    }
    let printed = refused(&out, Some(&tools));
    assert!(printed.contains("sha256sum, shasum or openssl is needed"), "{printed}");
    fs::write(out.join("SHA256SUMS"), "00  coracle-0.0.2.tar.gz\n").unwrap();
    let printed = refused(&out, None);
    assert!(printed.contains("does not name") && !printed.contains("damaged"), "{printed}");
}

#[test]
fn a_damaged_archive_is_not_installed() {
    let scratch = Scratch::new("damaged");
    let (out, prefix) = (scratch.dir("out"), scratch.dir("prefix"));
    packed(&out);
    let tarball = out.join(release().platform.tarball("0.0.1"));
    fs::write(&tarball, [fs::read(&tarball).unwrap(), vec![0]].concat()).unwrap();
    let output = sh("sh", [out.join("install.sh"), "--prefix".into(), prefix.clone()]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("is damaged"));
    assert_eq!(fs::read_dir(&prefix).unwrap().count(), 0);
}

#[test]
fn the_bill_of_materials_has_each_crate_with_version_licence_and_sum() {
    let bill = || sbom::text("0.0.1", &Materials::new(PLATFORMS[0].triple).unwrap(), &[]);
    let text = bill();
    assert_eq!(text, bill());
    let bill: serde_json::Value = serde_json::from_str(&text).unwrap();
    let components = bill["components"].as_array().unwrap();
    for name in ["coracle-guest", "coracle-worker", "coracle", "tokio", "serde_derive", "ring", "clap"] {
        assert!(components.iter().any(|it| it["name"] == name), "no {name}");
    }
    for name in ["insta", "proptest", "xtask", "coracle-skips"] {
        assert!(!components.iter().any(|it| it["name"] == name), "{name} is for tests");
    }
    for it in components {
        assert!(it["licenses"][0]["expression"].is_string() && it["version"].is_string(), "{it:#}");
        let ours = it["name"].as_str().unwrap().starts_with("coracle");
        assert_eq!(it["hashes"].is_array(), !ours, "{it:#}");
    }
    assert!(bill["dependencies"].as_array().unwrap().len() >= components.len());
}

#[test]
fn the_bill_for_a_mac_has_the_crates_of_the_programs_for_containers() {
    let mac = PLATFORMS.iter().find(|it| !it.is_linux).unwrap();
    let bill: serde_json::Value =
        serde_json::from_str(&sbom::text("0.0.1", &Materials::new(mac.triple).unwrap(), &[])).unwrap();
    // Of Linux alone: what reaches the kernel without a C library.
    assert!(bill["components"].as_array().unwrap().iter().any(|it| it["name"] == "linux-raw-sys"));
}

#[test]
fn what_is_linked_and_no_crate_is_in_the_bill_and_in_the_notices() {
    let (materials, components) = (Materials::new(PLATFORMS[0].triple).unwrap(), components::of(b"", PLATFORMS[0]));
    let bill: serde_json::Value = serde_json::from_str(&sbom::text("0.0.1", &materials, &components)).unwrap();
    let files = notices::files(&materials, &components).unwrap();
    assert_eq!(files, notices::files(&materials, &components).unwrap());
    let text = str::from_utf8(&files.iter().find(|it| it.path == notices::NAME).unwrap().content).unwrap();
    for (name, licence) in [("glibc", "LGPL-2.1-or-later"), ("musl", "MIT"), ("xterm.js", "MIT")] {
        let entry = bill["components"].as_array().unwrap().iter().find(|it| it["name"] == name).unwrap();
        assert_eq!(entry["licenses"][0]["expression"], licence);
        assert!(text.contains(&format!("\n{name}: {licence}\n")), "no {name}");
    }
    for part in [
        "\nserde ",
        "GNU LESSER GENERAL PUBLIC LICENSE",
        "2005-2020 Rich Felker",
        "The xterm.js authors",
        "Mathijs van de Nes",
        "ring 0.",
    ] {
        assert!(text.contains(part), "no {part}");
    }
    assert!(!text.contains("\ncoracle") && !text.contains(root().to_str().unwrap()), "ours is none of others");
    let home = var("HOME").unwrap();
    assert!(!text.contains(&format!("{home}/")), "a path of the machine");
}

#[test]
fn every_package_has_the_licences() {
    let scratch = Scratch::new("licences");
    let out = scratch.dir("out");
    packed(&out);
    let program = scratch.0.join("coracle");
    fs::write(&program, PROGRAM).unwrap();
    let packs = clients::can_pack();
    if packs {
        package::pack(&program, &release().notices, &out).unwrap();
    } else {
        println!("the wheel and the npm package are not looked at: their tools cannot be installed here");
    }
    let names: Vec<String> = content(&out).into_iter().map(|it| it.0.display().to_string()).collect();
    let lists = |ending: &str, command: &str| {
        let name = names.iter().find(|it| it.ends_with(ending)).unwrap();
        sh("sh", ["-c", command, "sh", name]).dir(&out).read().unwrap()
    };
    let mut all = vec![lists(".tar.gz", "tar -tzf \"$1\"")];
    if packs {
        all.extend([lists(".tgz", "tar -tzf \"$1\""), lists(".whl", "python3 -m zipfile -l \"$1\"")]);
    }
    for (list, name) in all.iter().flat_map(|it| release().notices.into_iter().map(move |name| (it, name.path))) {
        assert!(list.contains(&format!("/{name}")), "no {name} in {list}");
    }
    if release().platform.is_linux {
        let image =
            lists(".oci.tar", "mkdir x; tar -xf \"$1\" -C x; for i in x/blobs/sha256/*; do tar -tzf $i; done; true");
        assert!(image.contains("usr/share/doc/coracle/THIRD-PARTY.txt"), "{image}");
        let package = lists(".deb", "ar p \"$1\" data.tar.gz | tar -tzf -");
        assert!(package.contains("usr/share/doc/coracle/THIRD-PARTY.txt.gz"), "{package}");
    }
}
