//! Forks: containers with a copy of another one's files at one moment.

use coracle_types::{Capability, Error};

use super::{placed, printed, running};
use crate::engines::on_every_engine;

/// Numbers from 1, each written by one call through a descriptor that stays open.
const WRITER: &str = "mkdir /data; cd /data; (i=0; exec 3>>log; while [ $i -lt 20000 ]; do i=$((i+1)); echo $i >&3; done; \
                      echo end >done) >/dev/null 2>&1 &";

/// How many numbers there are, which have to be all from 1.
fn count(text: &str) -> usize {
    text.lines().enumerate().for_each(|(at, line)| assert_eq!(line, (at + 1).to_string()));
    text.lines().count()
}

#[tokio::test]
async fn a_fork_has_the_files_of_one_moment_and_its_parent_continues() {
    on_every_engine(async |case| {
        let (parent, spec) = (running(case).await, placed(case, case.spec("fork")));
        if Capability::lacked_by(case.engine()).contains(&Capability::Fork) {
            let refused = case.runtime.fork(&parent, &spec).await;
            assert!(matches!(refused, Err(Error::Unsupported { capability: Capability::Fork, .. })), "{refused:?}");
            return;
        }
        printed(case, &parent, WRITER).await;
        printed(case, &parent, "while ! [ -s /data/log ]; do sleep 0.01; done").await;
        let fork = case.runtime.fork(&parent, &spec).await.unwrap();
        case.runtime.start(&fork).await.unwrap();
        let written = count(&printed(case, &fork, "cat /data/log").await);
        assert!(written > 0);
        // Each has its own files from then on, its own name and its own processes.
        printed(case, &fork, "rm /data/log; echo mine >/data/of-fork").await;
        assert_eq!(printed(case, &fork, "hostname").await.trim_end(), spec.spec().hostname());
        let second = case.runtime.fork(&fork, &placed(case, case.spec("second"))).await.unwrap();
        printed(case, &parent, "while ! [ -e /data/done ]; do sleep 0.01; done").await;
        assert_eq!(count(&printed(case, &parent, "cat /data/log").await), 20_000);
        assert_eq!(printed(case, &parent, "ls /data").await, "done\nlog\n");
        case.runtime.remove(&parent).await.unwrap();
        assert_eq!(printed(case, &fork, "cat /data/of-fork").await, "mine\n");
        case.runtime.remove(&fork).await.unwrap();
        case.runtime.start(&second).await.unwrap();
        assert_eq!(printed(case, &second, "cat /data/of-fork").await, "mine\n");
    })
    .await;
}
