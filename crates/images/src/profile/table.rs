//! The built-in profiles.

use coracle_types::ImageRef;

use super::definition::Profile;
use super::error::ProfileError;
use super::passthrough::Passthrough;
use super::purpose::{DETECTED, Purpose};
use super::servers;
use crate::packages::listed;
use crate::recipe::{Recipe, Setup};
use crate::stand_in::{bootstrap, uv};

/// Purpose, registry image, packages.
const TABLE: [(&str, &str, &str); 10] = [
    ("amplifier", "python:3.12-slim", "git curl ca-certificates jq"),
    (
        "browser",
        "debian:bookworm-slim",
        "git curl ca-certificates chromium fonts-liberation socat python3 python3-pip libatomic1",
    ),
    ("bun", "oven/bun:1-slim", "git curl ca-certificates"),
    ("clean", "ubuntu:24.04", "git curl ca-certificates"),
    (
        "desktop",
        "debian:bookworm-slim",
        "git curl ca-certificates tigervnc-standalone-server tigervnc-tools openbox xterm fonts-dejavu-core novnc websockify xdotool scrot",
    ),
    ("general", "ubuntu:24.04", "git curl wget ca-certificates build-essential make jq tree less vim-tiny"),
    ("go", "golang:1.22", "git curl ca-certificates"),
    ("node", "node:20-slim", "git curl ca-certificates"),
    ("python", "python:3.12-slim", "git curl ca-certificates build-essential"),
    ("rust", "rust:1-slim", "git curl ca-certificates build-essential pkg-config libssl-dev"),
];

/// Installs `$1` with uv.
const UV_TOOL: &str = r#"set -e
umask 022
export UV_TOOL_DIR=/opt/uv/tools UV_TOOL_BIN_DIR=/usr/local/bin UV_PYTHON_INSTALL_DIR=/opt/uv/python
uv tool install --quiet --no-cache -- "$1"
chmod -R u=rwX,go=rX /opt/uv"#;

/// Returns the built-in profile of a purpose, if there is one.
pub(super) fn builtin(purpose: &Purpose, version: Option<&str>) -> Result<Option<Profile>, ProfileError> {
    let Some((name, image, packages)) = TABLE.iter().find(|it| it.0 == purpose.as_str()) else {
        return Ok(None);
    };
    let mut profile = blank(known(image));
    profile.recipe.packages = listed(packages);
    match *name {
        "python" => {
            profile.recipe.setup = vec![uv()];
            profile.project_venv = true;
        }
        "amplifier" => profile.recipe.setup = vec![uv(), amplifier(version)?],
        "node" => profile.recipe.setup = vec![Setup::fixed("enabling corepack", "corepack enable", &[], &["corepack"])],
        "browser" => profile = servers::browser(profile),
        "desktop" => profile = servers::desktop(profile),
        "clean" => {
            profile.env_passthrough = Some(Passthrough::None);
            for it in
                [&mut profile.forward_git, &mut profile.forward_gh, &mut profile.forward_ssh, &mut profile.dotfiles]
            {
                *it = Some(false);
            }
        }
        _ => {}
    }
    Ok(Some(profile))
}

/// A profile of an image, without a recipe or settings of its own.
pub(super) fn blank(image: ImageRef) -> Profile {
    Profile {
        bootstrap: bootstrap(&image).unwrap_or_default(),
        image,
        recipe: Recipe::default(),
        env_passthrough: None,
        forward_git: None,
        forward_gh: None,
        forward_ssh: None,
        dotfiles: None,
        server: None,
        project_venv: false,
    }
}

pub(super) fn names() -> impl Iterator<Item = Purpose> {
    TABLE.iter().map(|it| it.0).chain([DETECTED]).map(Purpose::known)
}

fn amplifier(version: Option<&str>) -> Result<Setup, ProfileError> {
    let plain = |it: char| it.is_ascii_alphanumeric() || ".+!-".contains(it);
    let what = match version {
        None => "amplifier".to_owned(),
        Some(it) if !it.is_empty() && it.len() <= 64 && it.chars().all(plain) => format!("amplifier=={it}"),
        Some(bad) => return Err(ProfileError::Version(bad.to_owned())),
    };
    Ok(Setup::fixed("installing amplifier", UV_TOOL, &[&what], &["amplifier"]))
}

fn known(image: &str) -> ImageRef {
    ImageRef::parse(image).expect("the table names images")
}
