//! The environment of a command.

use crate::os::user::Account;

/// The default search path.
pub(crate) const PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Variables that the engine sets for PID 1, which commands do not get.
const GUEST_VARIABLES: [&[u8]; 7] = [b"HOME", b"USER", b"LOGNAME", b"SHELL", b"PWD", b"OLDPWD", b"_"];

/// The `NAME=value` of a command, each name once, in order of first occurrence. The layers are the guest's own
/// environment, the session's, and the command's; a later layer wins.
pub(crate) fn environment(layers: [&[Vec<u8>]; 3], account: &Account, terminal: bool) -> Vec<Vec<u8>> {
    let (mut names, [own, session, added]) = (Names::default(), layers);
    own.iter().filter(|it| !GUEST_VARIABLES.contains(&name(it))).for_each(|it| names.set(it.clone()));
    session.iter().for_each(|it| names.set(it.clone()));
    let path = names.value(b"PATH").unwrap_or(PATH).to_vec();
    // `PATH` gets the home's directory only if there is a home: otherwise each command would search its own directory.
    let home = names.value(b"HOME").filter(|it| it.starts_with(b"/")).unwrap_or(account.home.as_bytes());
    let home = &home[..home.iter().rposition(|it| *it != b'/').map_or(0, |it| it + 1)];
    names.set([b"PATH=", home, b"/.local/bin:", &path].concat());
    added.iter().for_each(|it| names.set(it.clone()));
    for (name, value) in
        [("HOME", &account.home), ("USER", &account.name), ("LOGNAME", &account.name), ("SHELL", &account.shell)]
    {
        names.set_missing(name, value);
    }
    if names.value(b"LC_ALL").is_none() {
        names.set_missing("LANG", "C.UTF-8");
    }
    if terminal {
        names.set_missing("TERM", "xterm-256color");
    }
    names.all
}

/// The value of a name; the last one if the name occurs twice.
pub(crate) fn value<'a>(environment: &'a [Vec<u8>], of: &[u8]) -> Option<&'a [u8]> {
    environment.iter().rev().find(|it| name(it) == of).map(|it| it.get(of.len() + 1..).unwrap_or_default())
}

fn name(variable: &[u8]) -> &[u8] {
    variable.split(|byte| *byte == b'=').next().unwrap_or_default()
}

#[derive(Default)]
struct Names {
    all: Vec<Vec<u8>>,
    positions: std::collections::HashMap<Vec<u8>, usize>,
}

impl Names {
    fn set(&mut self, variable: Vec<u8>) {
        match self.positions.get(name(&variable)) {
            Some(at) => self.all[*at] = variable,
            None => {
                self.positions.insert(name(&variable).to_vec(), self.all.len());
                self.all.push(variable);
            }
        }
    }

    fn set_missing(&mut self, name: &str, value: &str) {
        if !self.positions.contains_key(name.as_bytes()) {
            self.set(format!("{name}={value}").into_bytes());
        }
    }

    fn value(&self, name: &[u8]) -> Option<&[u8]> {
        value(&self.all, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(own: &[&str], added: &[&str], terminal: bool, expected: &[&str]) {
        check_all([own, &[], added], terminal, expected);
    }

    fn check_all(layers: [&[&str]; 3], terminal: bool, expected: &[&str]) {
        let bytes = |layer: &[&str]| layer.iter().map(|variable| variable.as_bytes().to_vec()).collect::<Vec<_>>();
        let account = Account { name: "agent".into(), home: "/home/agent".into(), shell: "/bin/bash".into() };
        let [own, session, added] = layers.map(bytes);
        let found = environment([&own, &session, &added], &account, terminal);
        let mut found: Vec<_> = found.iter().map(|it| str::from_utf8(it).unwrap()).collect();
        found.sort_unstable();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    const ENTRY: [&str; 4] = ["HOME=/home/agent", "USER=agent", "LOGNAME=agent", "SHELL=/bin/bash"];

    #[test]
    fn without_variables_the_environment_is_that_of_the_passwd_entry() {
        let path = "PATH=/home/agent/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        check(&[], &[], false, &[&ENTRY[..], &[path, "LANG=C.UTF-8"]].concat());
    }

    #[test]
    fn the_path_of_the_image_follows_the_users_own_programs() {
        let path = "PATH=/home/agent/.local/bin:/opt/bin:/bin";
        let own = ["PATH=/opt/bin:/bin", "LANG=de_DE.UTF-8", "GOPATH=/go"];
        check(&own, &[], false, &[&ENTRY[..], &[path, "LANG=de_DE.UTF-8", "GOPATH=/go"]].concat());
    }

    #[test]
    fn the_home_of_pid_1_is_not_passed_on() {
        let own = ["HOME=/root", "USER=root", "PATH=/bin", "LC_ALL=C"];
        check(&own, &[], false, &[&ENTRY[..], &["PATH=/home/agent/.local/bin:/bin", "LC_ALL=C"]].concat());
    }

    #[test]
    fn added_variables_win_and_the_last_value_of_a_name_counts() {
        let added = ["PATH=/only", "HOME=/elsewhere", "A=1", "A=2=3", "EMPTY=", "LANG=C"];
        let rest = ["PATH=/only", "HOME=/elsewhere", "A=2=3", "EMPTY=", "LANG=C"];
        check(&["A=0", "PATH=/bin"], &added, false, &[&ENTRY[1..], &rest].concat());
    }

    #[test]
    fn the_session_overrides_the_image_and_the_command_the_session() {
        let session = ["A=session", "B=session", "A=session's last", "LANG=C", "EMPTY="];
        let rest = ["A=session's last", "B=command", "C=image", "LANG=C", "EMPTY="];
        let path = "PATH=/home/agent/.local/bin:/bin";
        let layers = [&["A=image", "C=image", "PATH=/bin"][..], &session, &["B=command"]];
        check_all(layers, false, &[&ENTRY[..], &rest, &[path]].concat());
    }

    #[test]
    fn the_users_own_programs_are_first_in_the_path_of_the_session() {
        for (session, home, path) in [
            (&["PATH=/opt"][..], "/home/agent", "/home/agent/.local/bin:/opt"),
            (&["HOME=/elsewhere/"], "/elsewhere/", "/elsewhere/.local/bin:/bin"),
            (&["HOME=/"], "/", "/.local/bin:/bin"),
            (&["HOME="], "", "/home/agent/.local/bin:/bin"),
            (&["HOME=relative", "PATH=/opt"], "relative", "/home/agent/.local/bin:/opt"),
        ] {
            let (home, path) = (format!("HOME={home}"), format!("PATH={path}"));
            let expected = [&ENTRY[1..], &[&home, &path, "LANG=C.UTF-8"]].concat();
            check_all([&["PATH=/bin", "HOME=/root"], session, &[]], false, &expected);
        }
        let layers = [&["PATH=/bin"][..], &["PATH=/opt", "HOME=/x"], &["PATH=/only"]];
        check_all(layers, false, &[&ENTRY[1..], &["HOME=/x", "PATH=/only", "LANG=C.UTF-8"]].concat());
    }

    #[test]
    fn a_terminal_gets_the_variable_term() {
        let rest = ["PATH=/x", "LANG=C", "TERM=xterm-256color"];
        check(&[], &["PATH=/x", "LANG=C"], true, &[&ENTRY[..], &rest].concat());
        let rest = ["PATH=/x", "LANG=C", "TERM=dumb"];
        check(&["TERM=dumb"], &["PATH=/x", "LANG=C"], true, &[&ENTRY[..], &rest].concat());
    }

    #[test]
    fn a_value_is_found_by_the_whole_name() {
        let all = [b"PATHS=/no".to_vec(), b"PATH=/yes".to_vec(), b"BARE".to_vec()];
        assert_eq!(value(&all, b"PATH"), Some(&b"/yes"[..]));
        assert_eq!((value(&all, b"BARE"), value(&all, b"PAT")), (Some(&b""[..]), None));
    }
}
