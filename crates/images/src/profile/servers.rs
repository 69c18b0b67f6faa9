//! The purposes whose containers run a server: its packages, its command, and its address for clients.

use std::num::NonZeroU16;

use super::definition::{Profile, ProfileServer};
use crate::recipe::Setup;
use crate::stand_in::open_python;

/// Where Playwright's own browsers are found.
const BROWSERS: [(&str, &str); 2] =
    [("PLAYWRIGHT_BROWSERS_PATH", "/opt/playwright"), ("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1")];

/// Installs Playwright from PyPI, for Debian's Chromium. `$1` is `LINK_CHROMIUM`.
const PLAYWRIGHT: &str = r#"set -e
umask 022
python3 -m pip install --quiet --no-input --no-cache-dir --disable-pip-version-check --root-user-action=ignore playwright
python3 -c "$1""#;

/// Playwright reports its path of a browser only if there is none: there, Debian's is linked.
const LINK_CHROMIUM: &str = r#"
import os, re
from playwright.sync_api import Error, sync_playwright

with sync_playwright() as it:
    for headless in (True, False):
        try:
            it.chromium.launch(headless=headless).close()
        except Error as why:
            missing = re.search(r"Executable doesn't exist at (\S+)", str(why))
            if missing:
                os.makedirs(os.path.dirname(missing[1]), exist_ok=True)
                os.symlink("/usr/bin/chromium", missing[1])
    it.chromium.launch().close()
"#;

/// Writes an executable: `$1` is a path and `$2` its content.
const PROGRAM: &str = r#"printf '%s' "$2" >"$1" && chmod 755 "$1""#;

/// Chromium accepts clients of its debugging port only on loopback, which a published port does not reach.
const BROWSER: &str = r#"#!/bin/sh
data="$HOME/.cache/coracle-browser"
mkdir -p "$data"
rm -f "$data"/Singleton*
(
    until curl --silent --fail --output /dev/null http://127.0.0.1:9221/json/version; do sleep 0.1; done
    exec socat TCP-LISTEN:9222,fork,reuseaddr TCP:127.0.0.1:9221
) &
# The container is the sandbox: Chromium's own needs namespaces, which a container may not create.
exec chromium --headless=new --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
    --disable-background-networking --window-size=1280,800 --user-data-dir="$data" \
    --remote-debugging-port=9221 about:blank
"#;

/// The VNC port is on loopback inside. The page in front of it needs the password, since any page in a browser on
/// the host can reach a port on the host's loopback.
const DESKTOP: &str = r#"#!/bin/sh
set -e
dir="$HOME/.coracle-desktop"
(
    umask 077
    mkdir -p "$dir"
    [ -s "$dir/password" ] || head -c 6 /dev/urandom | base64 | tr '+/' 'xy' | tr -d '\n' >"$dir/password"
    tigervncpasswd -f <"$dir/password" >"$dir/key"
)
rm -f /tmp/.X1-lock /tmp/.X11-unix/X1
Xtigervnc :1 -localhost -rfbport 5901 -SecurityTypes VncAuth -PasswordFile "$dir/key" -AlwaysShared \
    -geometry 1280x800 -depth 24 -desktop Coracle &
until [ -S /tmp/.X11-unix/X1 ]; do kill -0 $!; sleep 0.1; done
export DISPLAY=:1
openbox &
xterm -fa Monospace -fs 11 -geometry 100x30+40+40 &
exec websockify --web /usr/share/novnc 6080 127.0.0.1:5901
"#;

/// Chromium with its debugging port (CDP), and Playwright.
pub(super) fn browser(mut profile: Profile) -> Profile {
    let playwright = Setup::fixed("installing Playwright", PLAYWRIGHT, &[LINK_CHROMIUM], &["playwright"]);
    profile.recipe.setup = vec![open_python(), playwright, program("coracle-browser", BROWSER)];
    profile.recipe.env = BROWSERS.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let path = "/json/version".to_owned();
    with_server(profile, ProfileServer { command: command("coracle-browser"), port: port(9222), path, password: None })
}

/// A desktop, shown by a web page.
pub(super) fn desktop(mut profile: Profile) -> Profile {
    profile.recipe.setup = vec![program("coracle-desktop", DESKTOP)];
    profile.recipe.env = [("DISPLAY".to_owned(), ":1".to_owned())].into();
    let (path, password) = ("/vnc.html".to_owned(), Some(".coracle-desktop/password".to_owned()));
    with_server(profile, ProfileServer { command: command("coracle-desktop"), port: port(6080), path, password })
}

fn with_server(profile: Profile, server: ProfileServer) -> Profile {
    Profile { server: Some(server), ..profile }
}

fn program(name: &str, text: &str) -> Setup {
    Setup::fixed(&format!("installing {name}"), PROGRAM, &[&path(name), text], &[name])
}

fn command(name: &str) -> Vec<String> {
    vec![path(name)]
}

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).expect("a port")
}

fn path(name: &str) -> String {
    format!("/usr/local/bin/{name}")
}
