//! Detects the purpose of a repository by the file names in its top directory. Pure.

use std::collections::BTreeSet;

use coracle_types::ContainerPath;

use crate::profile::Purpose;

/// The detected profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedProfile {
    /// The purpose.
    pub purpose: Purpose,
    /// The file that decided it.
    pub marker: Option<&'static str>,
    /// Commands to run in the clone, as the exec user, in order.
    pub commands: Vec<Hint>,
    /// The Python environment that the commands create, relative to the clone.
    pub venv: Option<&'static str>,
}

/// A command that probably prepares the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The command.
    pub argv: &'static [&'static str],
    /// The command to try if it fails.
    pub otherwise: Option<&'static [&'static str]>,
}

const fn hint(argv: &'static [&'static str]) -> Hint {
    Hint { argv, otherwise: None }
}

const UV_VENV: Hint = hint(&["uv", "venv"]);
const EDITABLE: Hint =
    Hint { argv: &["uv", "pip", "install", "-e", ".[dev]"], otherwise: Some(&["uv", "pip", "install", "-e", "."]) };
const REQUIREMENTS: Hint = hint(&["uv", "pip", "install", "-r", "requirements.txt"]);
const MAKE: Hint = hint(&["make"]);

/// The first file that exists decides.
const MARKERS: [(&str, &str, &[Hint]); 8] = [
    ("Cargo.toml", "rust", &[hint(&["cargo", "build"])]),
    ("pyproject.toml", "python", &[UV_VENV, EDITABLE]),
    ("setup.py", "python", &[UV_VENV, EDITABLE]),
    ("requirements.txt", "python", &[UV_VENV, REQUIREMENTS]),
    ("bun.lock", "bun", &[hint(&["bun", "install"])]),
    ("bun.lockb", "bun", &[hint(&["bun", "install"])]),
    ("package.json", "node", &[]),
    ("go.mod", "go", &[hint(&["go", "build", "./..."])]),
];

/// The lock file decides the package manager.
const LOCKS: [(&str, Hint); 4] = [
    ("pnpm-lock.yaml", hint(&["pnpm", "install"])),
    ("yarn.lock", hint(&["yarn", "install"])),
    ("package-lock.json", hint(&["npm", "ci"])),
    ("npm-shrinkwrap.json", hint(&["npm", "ci"])),
];

/// Detects the profile from the names in a repository's top directory.
pub fn detect<'a>(names: impl IntoIterator<Item = &'a str>) -> DetectedProfile {
    let names: BTreeSet<&str> = names.into_iter().collect();
    let found = MARKERS.iter().find(|it| names.contains(it.0));
    let (marker, purpose, commands) = found.map_or((None, "general", &[][..]), |it| (Some(it.0), it.1, it.2));
    let mut commands = commands.to_vec();
    if purpose == "node" {
        let locked = LOCKS.iter().find(|it| names.contains(it.0)).map(|it| it.1.clone());
        commands.push(locked.unwrap_or_else(|| hint(&["npm", "install"])));
    }
    if names.contains("Makefile") {
        commands.push(MAKE);
    }
    let venv = (purpose == "python").then_some(".venv");
    DetectedProfile { purpose: Purpose::known(purpose), marker, commands, venv }
}

impl DetectedProfile {
    /// Returns `VIRTUAL_ENV` and the directory to prepend to `PATH`, for a session on the clone.
    #[must_use]
    pub fn python_env(&self, clone: &ContainerPath) -> Option<(String, String)> {
        let venv = format!("{}/{}", clone.as_str().trim_end_matches('/'), self.venv?);
        let bin = format!("{venv}/bin");
        Some((venv, bin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(names: &str) -> String {
        let it = detect(names.split_whitespace());
        let command = |it: &Hint| {
            let otherwise = it.otherwise.map(|it| format!(" || {}", it.join(" ")));
            it.argv.join(" ") + &otherwise.unwrap_or_default()
        };
        let commands: Vec<_> = it.commands.iter().map(command).collect();
        format!("{} ({}): {}", it.purpose, it.marker.unwrap_or("-"), commands.join("; "))
    }

    #[test]
    fn the_first_marker_decides() {
        for (names, expected) in [
            ("", "general (-): "),
            ("README.md src", "general (-): "),
            ("Makefile", "general (-): make"),
            ("cargo.toml makefile", "general (-): "),
            ("package.json Cargo.toml pyproject.toml", "rust (Cargo.toml): cargo build"),
            (
                "setup.py requirements.txt",
                "python (setup.py): uv venv; uv pip install -e .[dev] || uv pip install -e .",
            ),
            (
                "pyproject.toml setup.py Makefile",
                "python (pyproject.toml): uv venv; uv pip install -e .[dev] || uv pip install -e .; make",
            ),
            ("requirements.txt", "python (requirements.txt): uv venv; uv pip install -r requirements.txt"),
            ("bun.lock package.json package-lock.json", "bun (bun.lock): bun install"),
            ("bun.lockb package.json", "bun (bun.lockb): bun install"),
            ("package.json", "node (package.json): npm install"),
            ("package.json package-lock.json", "node (package.json): npm ci"),
            ("package.json yarn.lock package-lock.json", "node (package.json): yarn install"),
            ("package.json pnpm-lock.yaml yarn.lock", "node (package.json): pnpm install"),
            ("go.mod Makefile", "go (go.mod): go build ./...; make"),
            ("yarn.lock", "general (-): "),
        ] {
            assert_eq!(summary(names), expected, "{names}");
        }
    }

    #[test]
    fn a_session_on_a_python_repository_uses_its_environment() {
        let at = |names: &str, path: &str| detect(names.split(' ')).python_env(&ContainerPath::parse(path).unwrap());
        let expected = Some(("/workspace/repo/.venv".to_owned(), "/workspace/repo/.venv/bin".to_owned()));
        assert_eq!(at("setup.py", "/workspace/repo"), expected);
        assert_eq!(at("go.mod", "/workspace/repo"), None);
    }
}
