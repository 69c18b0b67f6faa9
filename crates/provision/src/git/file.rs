//! A git configuration file, in git's own quoting.

use coracle_types::ContainerPath;

use super::settings::{Setting, Settings};

/// Answers with the token of the session, when git asks for a password.
const HELPER: &str = r#"!f() { if [ "$1" = get ] && [ -n "$GH_TOKEN" ]; then printf 'username=x-access-token\npassword=%s\n' "$GH_TOKEN"; fi; }; f"#;

/// The content of a `.gitconfig`.
pub(super) fn written(settings: Option<&Settings>, safe: &[ContainerPath], helper_for: Option<&str>) -> Vec<u8> {
    let mut file = File::default();
    for it in settings.iter().flat_map(|it| &it.kept) {
        file.set(it);
    }
    for path in safe {
        file.set(&setting("safe", None, "directory", path.as_str()));
    }
    if let Some(host) = helper_for {
        let url = format!("https://{host}");
        // An empty one forgets those that the image's own configuration names.
        file.set(&setting("credential", Some(&url), "helper", ""));
        file.set(&setting("credential", Some(&url), "helper", HELPER));
    }
    file.bytes
}

fn setting(section: &str, sub: Option<&str>, name: &str, value: &str) -> Setting {
    Setting {
        section: section.to_owned(),
        sub: sub.map(|it| it.as_bytes().to_vec()),
        name: name.to_owned(),
        value: Some(value.as_bytes().to_vec()),
    }
}

#[derive(Default)]
struct File {
    bytes: Vec<u8>,
    /// Where the last setting went.
    open: Option<(String, Option<Vec<u8>>)>,
}

impl File {
    fn set(&mut self, it: &Setting) {
        let place = (it.section.clone(), it.sub.clone());
        if self.open.as_ref() != Some(&place) {
            self.bytes.extend([b"[", it.section.as_bytes()].concat());
            if let Some(sub) = &it.sub {
                self.bytes.extend(b" \"");
                self.escaped(sub);
                self.bytes.push(b'"');
            }
            self.bytes.extend(b"]\n");
            self.open = Some(place);
        }
        self.bytes.extend([b"\t", it.name.as_bytes()].concat());
        if let Some(value) = &it.value {
            // In quotes blanks at the ends, `#` and `;` are what they are.
            self.bytes.extend(b" = \"");
            self.escaped(value);
            self.bytes.push(b'"');
        }
        self.bytes.push(b'\n');
    }

    /// There are no control characters in what is kept, so these are all.
    fn escaped(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if matches!(byte, b'"' | b'\\') {
                self.bytes.push(b'\\');
            }
            self.bytes.push(*byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_written_once_where_they_follow_each_other() {
        let printed =
            "user.name\nA \"B\"\0user.useconfigonly\0url.https://a.b/\"c\\/.insteadof\nx#y;z\0user.email\n a\\b ";
        let settings = Settings::read(printed.as_bytes(), &[]);
        let safe = ["/workspace", "/home/agent/it"].map(|it| ContainerPath::parse(it).unwrap());
        let file = String::from_utf8(written(Some(&settings), &safe, Some("github.com"))).unwrap();
        insta::assert_snapshot!(file, @r#"
        [user]
        	name = "A \"B\""
        	useconfigonly
        [url "https://a.b/\"c\\/"]
        	insteadof = "x#y;z"
        [user]
        	email = " a\\b "
        [safe]
        	directory = "/workspace"
        	directory = "/home/agent/it"
        [credential "https://github.com"]
        	helper = ""
        	helper = "!f() { if [ \"$1\" = get ] && [ -n \"$GH_TOKEN\" ]; then printf 'username=x-access-token\\npassword=%s\\n' \"$GH_TOKEN\"; fi; }; f"
        "#);
    }
}
