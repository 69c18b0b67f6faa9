//! Credentials for git inside.

use async_trait::async_trait;
use coracle_proxy::policy::{GitCredentials, GitLogin, GitMode, GitRules, GitSettings};
use coracle_types::Input;

use super::super::argv;
use super::*;

#[derive(Debug)]
struct Login;

#[async_trait]
impl GitCredentials for Login {
    async fn login(&self, scheme: &str, _: &str, path: &str) -> Option<GitLogin> {
        let password = || Secret::from(format!("for-{path}").as_str());
        (scheme == "https").then(|| GitLogin { username: "u".into(), password: password() })
    }
}

#[tokio::test]
async fn x58_git_inside_is_given_a_credential_only_where_that_is_the_mode() {
    with_real_engines(async |case| {
        let room = Room::new(case, "git", "none").await;
        let rules = |mode| {
            let settings = GitSettings {
                mode,
                hosts: vec!["github.com".into()],
                repos: vec!["github.com/owner/*".into()],
                ..GitSettings::default()
            };
            GitRules::new(&settings, Arc::new(Login)).unwrap()
        };
        let config = rules(GitMode::Proxy).config();
        room.running.link().relay(By::Sockets, &room.net, &config).await.unwrap();
        let shown = Exec { user: AGENT, ..sh("cat /.coracle/run/gitconfig; touch /.coracle/run/gitconfig") };
        let shown = room.running.ran(shown).await;
        assert_eq!(shown.stdout.text(), config);
        assert!(shown.stderr.text().contains("denied"), "{shown:?}");
        let asks = async |act: &str, host: &str, path: &str| {
            let text = format!("protocol=https\nhost={host}\npath={path}\n");
            let exec = argv(&["/.coracle/guest", "git-credential", act]);
            let exec = Exec { user: AGENT, stdin: Some(Input::Bytes(text.into_bytes())), ..exec };
            let it = room.running.ran(exec).await;
            (it.stdout.text(), it.stderr.text())
        };
        let nothing = |why: &str| ("quit=true\n".to_owned(), format!("coracle: no credential: {why}\n"));
        let granted = |mode| Grants { git: Some(rules(mode)), ..room.grants() };
        room.proxy.grant(Some(granted(GitMode::Proxy)));
        assert_eq!(asks("get", "github.com", "owner/web.git").await, nothing("route_not_allowed"));
        room.proxy.grant(Some(granted(GitMode::Credential)));
        let given = "username=u\npassword=for-owner/web.git\n".to_owned();
        assert_eq!(asks("get", "github.com", "owner/web.git").await, (given, String::new()));
        for (host, path) in [("evil.com", "owner/web.git"), ("github.com", "other/web.git"), ("github.com", "")] {
            assert_eq!(asks("get", host, path).await, nothing("git_host_not_allowed"), "{host}/{path}");
        }
        for act in ["store", "erase"] {
            assert_eq!(asks(act, "github.com", "owner/web.git").await, (String::new(), String::new()));
        }
    })
    .await;
}
