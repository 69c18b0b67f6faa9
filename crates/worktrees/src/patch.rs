//! Checks a workflow's patch, and parses git's output about it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use coracle_host::process::ProgramOutput;
use coracle_runtime::is_trusted_by_tools;
use coracle_types::failure::{Code, Failure, Result};
use coracle_types::{Capture, Excerpt};

/// Effects of a patch other than changed lines in the files that it names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PatchEffects {
    /// It renames or copies files. Coracle's patches never do, and the old names are not in git's numbers.
    renames: bool,
    /// It creates links or submodules.
    links: bool,
}

fn patch_effects(patch: &[u8]) -> PatchEffects {
    let mut patch_effects = PatchEffects::default();
    // Lines of a file begin with a sign, so these can only be lines of the patch itself.
    for line in patch.split(|it| *it == b'\n') {
        patch_effects.renames |= [&b"rename "[..], b"copy "].iter().any(|it| line.starts_with(it));
        let modes = [&b"new file mode "[..], b"new mode ", b"old mode ", b"deleted file mode "];
        let mode = modes.iter().find_map(|it| line.strip_prefix(*it));
        patch_effects.links |= mode.is_some_and(|it| !it.starts_with(b"100"));
    }
    patch_effects
}

/// The target of a patch.
pub(crate) struct Checkout<'a> {
    /// Its directory.
    pub(crate) to: &'a Path,
    /// Absolute paths that git on the host runs or reads its configuration from.
    pub(crate) programs: &'a [String],
    /// The user allows everything.
    pub(crate) leave: bool,
}

/// Refuses a patch that the user has to allow: it changes protected names or programs of the host's git, or creates
/// links.
pub(crate) fn check_patch(patch: &[u8], files: &[String], checkout: &Checkout<'_>) -> Result<()> {
    let patch_effects = patch_effects(patch);
    if patch_effects.renames {
        return Err(Failure::new(Code::ApplyConflict, "The patch renames files, which patches of coracle never do."));
    }
    let is_program = |file: &str| checkout.programs.iter().any(|program| checkout.to.join(file).starts_with(program));
    let is_guarded = |file: &&String| is_trusted_by_tools(file) || is_program(file);
    let guarded: Vec<String> = files.iter().filter(is_guarded).cloned().collect();
    if checkout.leave || (!patch_effects.links && guarded.is_empty()) {
        return Ok(());
    }
    let what = if guarded.is_empty() { "makes links or submodules" } else { "changes protected names" };
    let failure = Failure::new(Code::PolicyDenied, format!("The patch {what}."));
    let failure = failure.detail("rule", "apply.protected").detail("files", guarded);
    Err(failure.hint("only the user can apply it, after a look at the diff: `coracle worktree apply … --protected`"))
}

/// Parses the names in the output of `git apply --numstat -z`, as `added\tdeleted\tname` each. Fails if the output is
/// incomplete: a protected name may be missing.
pub(crate) fn patched_names(output: &Capture) -> Result<Vec<PathBuf>> {
    if output.left_out() > 0 {
        let message =
            format!("The names of the patch's files have {} bytes; too many to be checked.", output.total_bytes());
        return Err(Failure::over_limit(message));
    }
    let bytes = output.bytes();
    let parts = bytes.split(|it| *it == 0).filter(|it| !it.is_empty());
    let names = parts.filter_map(|part| part.splitn(3, |it| *it == b'\t').nth(2));
    Ok(names.map(|it| OsString::from_vec(it.to_vec()).into()).collect())
}

/// The failure of a patch that git refused, with the files in git's output.
pub(crate) fn apply_conflict(tried: &ProgramOutput) -> Failure {
    let stderr = Excerpt::from_bytes(&tried.stderr.bytes()).to_string();
    let mut files: Vec<String> = stderr
        .lines()
        .filter_map(|it| it.strip_prefix("error: "))
        .filter_map(|it| match it.strip_prefix("patch failed: ") {
            Some(rest) => rest.rsplit_once(':').map(|(name, _)| name.to_owned()),
            None => it.split_once(": ").map(|(name, _)| name.to_owned()),
        })
        .collect();
    files.dedup();
    Failure::new(Code::ApplyConflict, format!("It does not apply, and nothing was changed: {stderr}"))
        .detail("files", files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn captured(keep_bytes: usize, bytes: &[u8]) -> Capture {
        let mut capture = Capture::new(keep_bytes);
        capture.push(bytes);
        capture
    }

    #[test]
    fn names_of_a_patch_are_read() {
        let paths = patched_names(&captured(100, b"1\t0\ta b\0-\t-\tx\ty\0")).unwrap();
        assert_eq!(paths, ["a b", "x\ty"].map(PathBuf::from));
    }

    #[test]
    fn a_name_in_the_omitted_middle_is_not_ignored() {
        let long = format!("1\t0\t{0}\x001\t0\t.envrc\x001\t0\t{0}\0", "x".repeat(60));
        let refused = patched_names(&captured(100, long.as_bytes())).unwrap_err();
        assert_eq!((refused.code, refused.retryable), (Code::LimitReached, false));
        assert_eq!(patched_names(&captured(2 * long.len(), long.as_bytes())).unwrap().len(), 3);
    }

    #[test]
    fn effects_of_a_patch_are_found_only_in_its_own_lines() {
        let none = b"diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n+rename from x\n new file mode 120000\n";
        assert_eq!(patch_effects(none), PatchEffects::default());
        assert!(patch_effects(b"diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n").renames);
        assert!(patch_effects(b"diff --git a/a b/a\nnew file mode 120000\n").links);
        assert!(patch_effects(b"diff --git a/a b/a\nnew file mode 160000\n").links);
    }
}
