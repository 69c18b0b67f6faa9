//! Where the user's registry logins are stored.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use coracle_host::registry_login::LoginOptions;

use crate::host::Host;

/// Variables of the programs that store the user's logins, or export images of other engines.
const PROGRAM_VARIABLES: [&str; 6] =
    ["HOME", "PATH", "XDG_RUNTIME_DIR", "DOCKER_HOST", "DOCKER_CONFIG", "DBUS_SESSION_BUS_ADDRESS"];

/// Reads the user's variables.
pub(super) fn login_options(host: &Host) -> LoginOptions {
    let docker_config = text(host, "DOCKER_CONFIG").filter(|it| !it.is_empty());
    LoginOptions {
        docker_config: docker_config.map(|it| host.path(it.as_ref())),
        auth_files: auth_files(host),
        program_env: program_env(host),
        program_dirs: Vec::new(),
    }
}

fn auth_files(host: &Host) -> Vec<PathBuf> {
    let named = text(host, "REGISTRY_AUTH_FILE").filter(|it| !it.is_empty()).map(|it| host.path(it.as_ref()));
    named.into_iter().chain(host.runtime_dir.iter().map(|it| it.join("containers/auth.json"))).collect()
}

fn program_env(host: &Host) -> BTreeMap<String, OsString> {
    PROGRAM_VARIABLES.iter().filter_map(|it| Some(((*it).to_owned(), text(host, it)?.into()))).collect()
}

fn text(host: &Host, name: &str) -> Option<String> {
    host.env.get(name).map(|it| String::from_utf8_lossy(it.reveal()).into_owned())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn logins_are_found_by_the_users_variables() {
        let mut host = Host::below(Path::new("/h"));
        host.runtime_dir = Some("/run/user/7".into());
        assert_eq!(login_options(&host).auth_files, [Path::new("/run/user/7/containers/auth.json")]);
        assert_eq!(login_options(&host).docker_config, None);
        for (name, value) in [("DOCKER_CONFIG", "/cfg"), ("REGISTRY_AUTH_FILE", "/a.json"), ("TOKEN", "secret")] {
            host.env.insert(name.into(), coracle_types::Secret::new(value.as_bytes().to_vec()));
        }
        let found = login_options(&host);
        assert_eq!(found.docker_config.as_deref(), Some(Path::new("/cfg")));
        assert_eq!(found.auth_files[0], Path::new("/a.json"));
        assert_eq!(found.program_env.keys().collect::<Vec<_>>(), ["DOCKER_CONFIG"]);
    }
}
