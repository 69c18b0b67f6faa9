//! Renders a git configuration file, with git's quoting.

use coracle_types::ContainerPath;

use super::settings::{Setting, Settings};

/// Answers git's request for a password with the token of the session.
const HELPER: &str = r#"!f() { if [ "$1" = get ] && [ -n "$GH_TOKEN" ]; then printf 'username=x-access-token\npassword=%s\n' "$GH_TOKEN"; fi; }; f"#;

/// Renders the content of a `.gitconfig`.
pub(super) fn written(settings: Option<&Settings>, safe: &[ContainerPath], helper_for: Option<&str>) -> Vec<u8> {
    let mut file = File::default();
    for it in settings.iter().flat_map(|it| &it.forwarded) {
        file.set(it);
    }
    for path in safe {
        file.set(&setting("safe", None, "directory", path.as_str()));
    }
    if let Some(host) = helper_for {
        let url = format!("https://{host}");
        // An empty helper clears those in the image's own configuration.
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
    /// The section of the last setting.
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
            // The quotes preserve blanks at the ends, `#` and `;`.
            self.bytes.extend(b" = \"");
            self.escaped(value);
            self.bytes.push(b'"');
        }
        self.bytes.push(b'\n');
    }

    /// Forwarded values contain no other control characters.
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
    fn consecutive_settings_share_a_section() {
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
