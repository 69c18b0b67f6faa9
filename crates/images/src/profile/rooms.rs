//! What the containers of a session are made of (workspace.md 1.3, 6.3).

use coracle_runtime::ImageRef;

use super::{Profile, table};
use crate::recipe::Setup;

/// Bun as npm has it: version, and what each build's archive has to sum up to. The `baseline` build needs no AVX2.
const BUN: [&str; 5] = [
    "1.4.5",
    "bun-linux-x64-baseline",
    "sha512-s8yMwYcFnnrA178gji0gZbkE2WVDej/Ti1x770oPfihxyRxSMNhGhiAQNXV53aDeraZxksdvKV/RAdQBCd0qPA==",
    "bun-linux-aarch64",
    "sha512-4BXmsSKnjOrlGWqZV4x/oWa7AVoR+B6lCXddMzOAXBIm3t50eslg9wb66gmtW1AamEQ1l1CDvmmruysEhqOWMg==",
];

/// `$1` is a program for Python, which the recipe brings anyway; the others are its arguments.
const RUN_PYTHON: &str = r#"set -e
umask 022
python3 -c "$@"
ln -sf bun /usr/local/bin/bunx
bun --version"#;

/// Fetches one archive of npm's registry, and takes the program out of it only if it is the one that is meant.
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

/// For a workspace whose image no registry gives: what its tools need on a base.
#[must_use]
pub fn workspace(base: ImageRef) -> Profile {
    let mut profile = table::blank(base);
    profile.recipe.packages = table::listed("python3 git ca-certificates");
    profile
}

/// For workflows: what an agent builds, tests and searches with. Nothing of any project goes in.
#[must_use]
pub fn sandbox(base: ImageRef) -> Profile {
    let mut profile = table::blank(base);
    let packages = "ca-certificates git openssh-client ripgrep jq less procps python3 nodejs build-essential";
    profile.recipe.packages = table::listed(packages);
    profile
}

/// For snippets of every language that `run_code` knows.
#[must_use]
pub fn snippets(base: ImageRef) -> Profile {
    let mut profile = table::blank(base);
    profile.recipe.packages = table::listed("python3 ca-certificates bash");
    let [version, x64, x64_sum, arm, arm_sum] = BUN;
    let args = [FETCH_BUN, version, x64, x64_sum, arm, arm_sum];
    profile.recipe.setup = vec![Setup::fixed("installing bun", RUN_PYTHON, &args, &["bun", "python3", "bash"])];
    profile
}
