//! Finds the guests and workers that `cargo xtask guest` has built, for `src/guest.rs` to embed.
//!
//! For each one `guest_<arch>` is set, with its path in `CORACLE_GUEST_<ARCH>` and the SHA-256 of the uncompressed file
//! in `CORACLE_GUEST_<ARCH>_SHA256`; likewise for a worker. `CORACLE_GUEST_DIR` sets another directory, for packagers.

use std::fs::{File, create_dir_all};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use sha2::{Digest, Sha256};

/// The architectures of engines' images, by their names.
const ARCHITECTURES: &[&str] = &["amd64", "arm64"];

fn main() {
    let dir = directory();
    // Cargo treats a missing path as changed and would compile this crate every time. If the directory cannot be
    // created, it does.
    let _ = create_dir_all(&dir);
    println!("cargo:rerun-if-changed={}", dir.display());
    println!("cargo:rerun-if-changed=build.rs");
    let mut found = false;
    for arch in ARCHITECTURES {
        for program in ["guest", "worker"] {
            println!("cargo:rustc-check-cfg=cfg({program}_{arch})");
            let [small, fast] = ["", ".fast"].map(|it| dir.join(format!("coracle-{program}-{arch}{it}.gz")));
            if small.is_file() {
                announce(program, arch, &small);
            } else if fast.is_file() {
                announce(program, arch, &fast);
                warn_of_fast(program);
            } else {
                continue;
            }
            found |= program == "guest";
        }
    }
    if !found {
        println!(
            "cargo:warning=no guest in {}: containers will run without one; build it with `cargo xtask guest`",
            dir.display()
        );
    }
}

/// Tests and the demo use the fast build, which is not optimised.
#[expect(clippy::disallowed_methods, reason = "cargo tells a build script its profile in variables")]
fn warn_of_fast(program: &str) {
    // Checks the optimisation level, since `PROFILE` is `release` for the demo too.
    if std::env::var("OPT_LEVEL").is_ok_and(|it| it != "0") {
        println!("cargo:warning=the {program} is not optimised; `cargo xtask guest` builds one that is");
    }
}

/// Reads a variable of the compilation, which cargo repeats when the variable changes.
fn directory() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the crate lies in crates/context");
    workspace.join(option_env!("CORACLE_GUEST_DIR").unwrap_or("target/guest"))
}

fn announce(program: &str, arch: &str, file: &Path) {
    let sha256 = sha256(file).unwrap_or_else(|err| panic!("{}: {err}", file.display()));
    let name = format!("CORACLE_{}_{}", program.to_uppercase(), arch.to_uppercase());
    println!("cargo:rerun-if-changed={}", file.display());
    println!("cargo:rustc-cfg={program}_{arch}");
    println!("cargo:rustc-env={name}={}", file.display());
    println!("cargo:rustc-env={name}_SHA256={sha256}");
}

/// Hashes the uncompressed content of a file.
fn sha256(file: &Path) -> io::Result<String> {
    let mut content = Vec::new();
    GzDecoder::new(File::open(file)?).read_to_end(&mut content)?;
    Ok(hex::encode(Sha256::digest(&content)))
}
