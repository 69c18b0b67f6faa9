//! A fake container for tests of steps; its commands are programs of the host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use coracle_host::git_url::{GitRules, GitUrl};
use coracle_runtime::FakeRuntime;
use coracle_types::{Command, ContainerId, ContainerPath, Exit, Ids};
use tokio_util::sync::CancellationToken;

use crate::StepContext;

/// A running container and its directory.
pub(crate) struct Trial {
    pub(crate) fake: FakeRuntime,
    pub(crate) id: ContainerId,
    pub(crate) context: StepContext,
    /// Its root directory on the host.
    pub(crate) root: PathBuf,
}

pub(crate) fn path(text: &str) -> ContainerPath {
    ContainerPath::parse(text).unwrap()
}

impl Trial {
    pub(crate) async fn new() -> Self {
        let fake = FakeRuntime::with_programs();
        let (id, link) = fake.runs_guest("trial").await;
        let root = fake.root(&id).unwrap();
        for dir in ["home/agent", "workspace"] {
            std::fs::create_dir_all(root.join(dir)).unwrap();
        }
        let home = root.join("home/agent").display().to_string();
        let context = StepContext {
            link,
            user: Ids::ROOT,
            home: path("/home/agent"),
            workdir: path("/workspace"),
            bound: false,
            rootless: false,
            // Programs of the host see the host's files, so the home is below the container's root.
            user_env: BTreeMap::from([("HOME".to_owned(), home)]),
            root_env: BTreeMap::new(),
            clone_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(60),
            deadline: Instant::now() + Duration::from_secs(300),
            grace: Duration::from_millis(100),
            cancel: CancellationToken::new(),
        };
        Self { fake, id, context, root }
    }

    /// Creates a repository with these files, at that URL for git inside.
    pub(crate) async fn remote(&mut self, name: &str, files: &[(&str, &str)]) -> GitUrl {
        let dir = format!("remotes/{name}");
        for (file, text) in files {
            self.write(&format!("{dir}/{file}"), text);
        }
        self.write(&format!("{dir}/README"), name);
        let remotes = format!("file://{}/remotes/", self.root.display());
        let config = [("COUNT", "1"), ("KEY_0", &format!("url.{remotes}.insteadOf")), ("VALUE_0", "https://git.test/")];
        let env = config.map(|(name, value)| (format!("GIT_CONFIG_{name}"), value.to_owned()));
        self.context.user_env.extend(env);
        let script = "git init -q -b main . && git add -A && git -c user.name=n -c user.email=e commit -qm one";
        let exec = self.context.exec(Command::Shell(script.into()), &path(&format!("/{dir}")), Duration::from_secs(60));
        let made = self.context.link.exec(exec).await.unwrap();
        assert_eq!(made.exit, Exit::Code(0), "{made:?}");
        GitUrl::parse(&format!("https://git.test/{name}"), GitRules::default()).unwrap()
    }

    /// Reads a file of the container.
    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root.join(path)).unwrap()
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

#[tokio::test]
async fn steps_may_go_from_thread_to_thread() {
    fn may(_: impl Future<Output = crate::StepReport> + Send) {}
    let Trial { context, .. } = Trial::new().await;
    let url = GitUrl::parse("https://git.test/x", GitRules::default()).unwrap();
    let dotfiles = crate::Dotfiles { url, branch: None, target: path("/x"), script: None };
    let protected = crate::ProtectedBinds::default();
    may(crate::repos(&context, &[], None));
    may(crate::dotfiles(&context, &dotfiles, None));
    may(crate::dotfiles_inline(&context, &[], &protected));
    may(crate::config_files(&context, &[], &protected));
    may(crate::setup(&coracle_runtime::ExecTarget::Guest(context.link.clone()), &crate::Setup::at(&context, &[])));
}
