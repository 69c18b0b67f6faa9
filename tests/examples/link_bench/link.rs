//! The calls of a link that are measured.

use std::time::{Duration, Instant};

use coracle_client as link;
use coracle_client::{Link, LinkSettings, WriteFile};
use coracle_protocol::{FileRef, UserSpec};
use coracle_runtime::ContainerRuntime;
use coracle_types::{Command, ContainerPath, Exec, Exit, Ids, Input};

use crate::engine::Container;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Socket,
    Stream,
}

/// A link that is open.
#[derive(Debug)]
pub(crate) struct Held(Link);

/// Opens a link of that transport.
pub(crate) async fn hold(runtime: &dyn ContainerRuntime, container: &Container, transport: Transport) -> Held {
    let (link, expected) = match transport {
        Transport::Socket => (by_socket(container).await, link::Transport::Socket),
        Transport::Stream => {
            let link = runtime.link(&container.id, None, LinkSettings::default()).await.unwrap();
            link.open().await.unwrap();
            (link, link::Transport::Stream)
        }
    };
    assert_eq!(link.transport(), Some(expected));
    Held(link)
}

/// A guest that just started has no socket yet, so this waits like `create` does.
async fn by_socket(container: &Container) -> Link {
    let begun = Instant::now();
    loop {
        if let Some(link) = Link::by_socket(&container.socket, LinkSettings::default()).await {
            return link;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "no process answers at {}", container.socket.dir.display());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

impl Held {
    /// Runs a command over the existing connection. It has to exit with 0. Returns its output.
    pub(crate) async fn exec(&self, words: &[&str]) -> Vec<u8> {
        let argv = words.iter().map(|it| (*it).to_owned()).collect();
        let output = self.0.exec(Exec::new(Command::Argv(argv), Ids::ROOT, ContainerPath::root())).await.unwrap();
        assert!(output.exit == Exit::Code(0) && !output.retried, "{words:?}: {output:?}");
        output.stdout.bytes()
    }

    /// The content of a file.
    pub(crate) async fn read(&self, path: &str) -> Vec<u8> {
        self.0.get(at(path), 0, u64::MAX).await.unwrap().1
    }

    /// Replaces a file.
    pub(crate) async fn write(&self, path: &str, content: &[u8]) {
        let content = Input::Bytes(content.to_vec());
        self.0
            .put(WriteFile { at: at(path), mode: None, exact: false, parents: false, replace: true, content })
            .await
            .unwrap();
    }
}

fn at(path: &str) -> FileRef {
    FileRef { user: UserSpec::Ids { uid: 0, gid: Some(0) }, path: path.to_owned(), follow: true }
}
