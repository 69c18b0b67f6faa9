//! Reads the versions of programs in a built image.

use std::time::Duration;

use coracle_client::Link;
use coracle_types::{Command, ContainerPath, Exec, Ids};

use super::contents::{Contents, InstalledToolchain, System};
use super::expected::Toolchain;
use crate::Error;
use crate::recipe::BuildOptions;

/// Time limit of programs that only print their version.
const LIMIT: Duration = Duration::from_secs(60);

/// Prints `os ID VERSION_ID VERSION_CODENAME`, then `PROGRAM PATH VERSION…` for those of `$@` that exist.
const PROBE: &str = r#"umask 077
cd /
( . /etc/os-release; printf 'os %s %s %s\n' "${ID:--}" "${VERSION_ID:--}" "${VERSION_CODENAME:--}" ) 2>/dev/null
for it; do
    at=$(command -v -- "$it") || continue
    case $it in
        go) printed=$(go version 2>/dev/null) ;;
        *) printed=$("$it" --version 2>/dev/null) ;;
    esac
    printf '%s %s %s\n' "$it" "$(readlink -f "$at")" "$(printf '%s' "$printed" | head -n 1)"
done"#;

/// Reads the versions of an image's programs, in a container of it.
///
/// # Errors
/// [`Error::Engine`] if the container or the link to it is lost.
pub(crate) async fn probe(link: &Link, options: &BuildOptions) -> Result<Contents, Error> {
    let programs = Toolchain::ALL.map(|it| it.program().to_owned());
    let argv = ["/bin/sh", "-c", PROBE, "probe"].map(str::to_owned).into_iter().chain(programs).collect();
    let mut exec = Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root());
    exec.env = options.env.clone();
    exec.limits.total = Some(LIMIT.min(options.limit));
    exec.cancel = options.cancel.clone();
    Ok(parsed(&link.exec(exec).await?.stdout.text()))
}

fn parsed(output: &str) -> Contents {
    let mut contents = Contents::default();
    for line in output.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match &words[..] {
            ["os", id, version, code_name, ..] => {
                let (id, version, code_name) = (word(id), word(version), word(code_name));
                contents.system = System { id, version, code_name };
            }
            [program, path, printed @ ..] => {
                let toolchain = Toolchain::ALL.into_iter().find(|it| it.program() == *program);
                if let (Some(toolchain), Some(version)) = (toolchain, printed.iter().find_map(|it| version(it))) {
                    // Programs that a recipe downloads are below these directories, and a distribution's packages
                    // never are.
                    let packaged = !["/usr/local/", "/opt/"].iter().any(|it| path.starts_with(it));
                    contents.toolchains.insert(toolchain, InstalledToolchain { version, packaged });
                }
            }
            _ => {}
        }
    }
    contents
}

/// Returns `v20.1.0`, `go1.22.10` and `1.4.5` without what precedes the number.
fn version(text: &str) -> Option<String> {
    let number = text.strip_prefix("go").or_else(|| text.strip_prefix('v')).unwrap_or(text);
    number.starts_with(|it: char| it.is_ascii_digit()).then(|| word(number))
}

/// Removes characters that cannot be in a label or a message.
fn word(text: &str) -> String {
    let plain = |it: &char| it.is_ascii_alphanumeric() || ".+~_-".contains(*it);
    let word: String = text.chars().filter(plain).take(40).collect();
    if word == "-" { String::new() } else { word }
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn versions_are_parsed_as_each_program_prints_them() {
        let contents = parsed(
            "os debian 12 bookworm\nbun /usr/local/lib/node_modules/bun/bin/bun.exe 1.4.5\n\
             go /usr/local/go/bin/go go version go1.22.10 linux/amd64\nnode /usr/bin/node v18.20.4\n\
             python /usr/bin/python3.11 Python 3.11.2\nrustc /usr/bin/rustc rustc 1.63.0 (4b91a6ea7 2022-08-08)\n",
        );
        assert_snapshot!(serde_json::to_string(&contents).unwrap(), @r#"{"system":{"id":"debian","version":"12","code_name":"bookworm"},"toolchains":{"bun":{"version":"1.4.5","packaged":false},"go":{"version":"1.22.10","packaged":false},"node":{"version":"18.20.4","packaged":true},"python":{"version":"3.11.2","packaged":true},"rust":{"version":"1.63.0","packaged":true}}}"#);
    }

    #[test]
    fn a_program_without_a_version_is_ignored() {
        assert_eq!(parsed(""), Contents::default());
        let contents = parsed("os alpine 3.20.1 -\nnode /usr/bin/node \nother /x 1.2\npython /p \"$(id)\" ok\n");
        assert_eq!((contents.system.code_name.as_str(), contents.toolchains.len()), ("", 0));
    }
}
