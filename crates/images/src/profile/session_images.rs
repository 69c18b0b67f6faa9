//! The images of sessions' containers and of sandboxes.

use coracle_types::ImageRef;

use super::{Profile, table};
use crate::packages::listed;
use crate::recipe::{Recipe, Setup};
use crate::stand_in::{self, open_python};

/// Version of Bun at npm, and the checksum of each build's archive. The `baseline` build needs no AVX2.
const BUN: [&str; 5] = [
    "1.4.5",
    "bun-linux-x64-baseline",
    "sha512-s8yMwYcFnnrA178gji0gZbkE2WVDej/Ti1x770oPfihxyRxSMNhGhiAQNXV53aDeraZxksdvKV/RAdQBCd0qPA==",
    "bun-linux-aarch64",
    "sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==",
];

/// Runs a Python program, which the recipe installs anyway: `$1` is its text, the others are its arguments.
const RUN_PYTHON: &str = r#"set -e
umask 022
python3 -c "$@"
ln -sf bun /usr/local/bin/bunx
bun --version"#;

/// Downloads one archive from npm's registry, and unpacks the program only if the checksum matches.
const FETCH_BUN: &str = r#"
import base64, hashlib, io, os, sys, tarfile, urllib.request
version, x64, x64_sum, arm, arm_sum = sys.argv[1:]
name, wanted = (arm, arm_sum) if os.uname().machine == "aarch64" else (x64, x64_sum)
url = f"https://registry.npmjs.org/@oven/{name}/-/{name}-{version}.tgz"
archive = urllib.request.urlopen(url, timeout=120).read()
got = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
if got != wanted:
    sys.exit(f"the archive of {name} {version} is not the one that is meant: {got}")
with tarfile.open(fileobj=io.BytesIO(archive)) as tar, open("/usr/local/bin/bun", "wb") as program:
    program.write(tar.extractfile("package/bin/bun").read())
os.chmod("/usr/local/bin/bun", 0o755)
"#;

/// Path of pip's archive at PyPI, and its SHA-256. The image for snippets has no pip.
const PIP: [&str; 2] = [
    "https://files.pythonhosted.org/packages/44/3c/d717024885424591d5376220b5e836c2d5293ce2011523c9de23ff7bf068/pip-25.3-py3-none-any.whl",
    "9655943313a94722b7774661c21049070f6bbb0a1516bf02f7c8d5d9201514cd",
];

/// Runs pip from its archive, once the checksum matches. `$1` and `$2` are those of [`PIP`].
const RUN_PIP: &str = r#"
import hashlib, os, runpy, sys, tempfile, urllib.request
url, wanted, *words = sys.argv[1:]
archive = urllib.request.urlopen(url, timeout=120).read()
if hashlib.sha256(archive).hexdigest() != wanted:
    sys.exit("the archive of pip is not the one that is meant")
file = os.path.join(tempfile.mkdtemp(), url.rsplit("/", 1)[1])
with open(file, "wb") as whole:
    whole.write(archive)
sys.path.insert(0, file)
sys.argv = ["pip", *words]
runpy.run_module("pip", run_name="__main__")
"#;

const INSTALL_PYTHON: &str = r#"set -e
umask 022
python3 -c "$@""#;

/// Scripts of packages are not run: a download for all sessions must not do anything else.
const INSTALL_NODE: &str = r#"set -e
umask 022
export HOME=/tmp
cd "$1"
shift
[ -e package.json ] || echo '{}' > package.json
exec bun add --ignore-scripts --backend=copyfile --no-progress "$@""#;

/// Installs an agent with npm: `$1` is its program, `$2` the path below npm's root of a program that no package
/// declares; the others are npm's arguments.
const INSTALL_AGENT: &str = r#"set -e
umask 022
export HOME=/tmp npm_config_cache=/var/tmp/coracle-npm
case "$(uname -m)" in aarch64) arch=arm64 ;; *) arch=x64 ;; esac
program=$1 file=$(echo "$2" | sed "s/ARCH/$arch/g")
shift 2
for word; do
    shift
    set -- "$@" "$(echo "$word" | sed "s/ARCH/$arch/g")"
done
npm install --global --no-audit --no-fund --no-update-notifier "$@"
[ -z "$file" ] || ln -sf "$(npm root --global)/$file" "/usr/local/bin/$program"
rm -rf /var/tmp/coracle-npm
"$program" --version"#;

const COPY_ALL: &str = r#"exec cp -a "$1/." "$2/""#;

/// The recipe for a workspace if no registry provides its image: what tools need on a base, and the image's toolchain.
#[must_use]
pub fn workspace(base: ImageRef, stands_for: &ImageRef) -> Profile {
    let mut profile = table::blank(base);
    profile.recipe.packages = listed("python3 python3-venv git curl ca-certificates build-essential");
    if let Some(brings) = stand_in::bootstrap(stands_for) {
        profile.recipe = profile.recipe.after(&brings);
    }
    profile
}

/// The image for workflows: tools to build, test and search. Contains nothing of a project.
#[must_use]
pub fn sandbox(base: ImageRef) -> Profile {
    let mut profile = table::blank(base);
    let packages = "ca-certificates git openssh-client ripgrep jq less procps python3 python3-pip python3-venv nodejs \
                    build-essential";
    profile.recipe.packages = listed(packages);
    profile.recipe.setup = vec![open_python()];
    profile
}

/// The image for workflows of an agent from npm: the tools of every sandbox, npm, and the agent.
#[must_use]
pub fn agent(base: ImageRef, program: &str, below_root: Option<&str>, packages: &[&str]) -> Profile {
    let mut profile = sandbox(base);
    profile.recipe.packages.extend(listed("npm"));
    let words = [&[program, below_root.unwrap_or_default()], packages].concat();
    let install = Setup::fixed(&format!("installing {program}"), INSTALL_AGENT, &words, &[program]);
    profile.recipe.setup.push(install);
    profile
}

/// The image for snippets in every language of `run_code`.
#[must_use]
pub fn snippets(base: ImageRef) -> Profile {
    let mut profile = table::blank(base);
    profile.recipe.packages = listed("python3 ca-certificates bash");
    let [version, x64, x64_sum, arm, arm_sum] = BUN;
    let args = [FETCH_BUN, version, x64, x64_sum, arm, arm_sum];
    let bun = Setup::fixed("installing bun", RUN_PYTHON, &args, &["bun", "python3", "bash"]);
    profile.recipe.setup = vec![open_python(), bun];
    profile
}

/// The registry of packages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manager {
    /// For TypeScript and JavaScript, from npm's registry.
    Bun,
    /// For Python, from PyPI.
    Pip,
}

/// Installs packages below a directory, besides those that are copied from another one, where `run_code` looks for
/// them: in `node_modules` and `python`.
#[must_use]
pub fn shared_packages(manager: Manager, names: &[String], at: &str, copied_from: Option<&str>) -> Recipe {
    let copy = copied_from.map(|from| Setup::fixed("copying the existing packages", COPY_ALL, &[from, at], &[]));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let what = format!("installing {}", names.join(" "));
    let install = match manager {
        Manager::Bun => Setup::fixed(&what, INSTALL_NODE, &[&[at], names.as_slice()].concat(), &[]),
        Manager::Pip => {
            let (below, [url, sum]) = (format!("{at}/python"), PIP);
            let words = "install --upgrade --no-input --no-cache-dir --no-compile --disable-pip-version-check \
                         --root-user-action=ignore --target";
            let words =
                [RUN_PIP, url, sum].into_iter().chain(words.split_ascii_whitespace()).chain([below.as_str(), "--"]);
            let words: Vec<&str> = words.chain(names).collect();
            Setup::fixed(&what, INSTALL_PYTHON, &words, &[])
        }
    };
    Recipe { setup: copy.into_iter().chain([install]).collect(), ..Recipe::default() }
}
