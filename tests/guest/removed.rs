//! A container whose own files are removed from inside.

use coracle_types::{Error, Ids};

use super::{argv, at, sh};
use crate::engines::{Way, with_a_guest, with_real_engines};

/// Removes the files of image and engine, and the guest's sockets.
const REMOVE: &str = "rm -rf /bin /dev /etc /home /lib /lib64 /root /tmp /usr /var /.coracle 2>/dev/null";

fn is_reported<T>(outcome: &Result<T, Error>) -> bool {
    matches!(outcome, Err(Error::FilesRemoved { .. }))
}

#[tokio::test]
async fn a_script_whose_shell_was_removed_says_that_and_not_that_the_image_has_none() {
    with_a_guest(async |running| {
        running.link().remove(at(Ids::ROOT, "/bin"), true).await.unwrap();
        let outcome = running.exec(sh("true")).await;
        assert!(is_reported(&outcome), "{outcome:?}");
    })
    .await;
}

#[tokio::test]
async fn after_root_removed_everything_each_call_says_so() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Socket).await;
        // It does not end regularly, since its own output is removed too.
        let _ = running.exec(sh(REMOVE)).await;
        for exec in [sh("true"), argv(&["ls"])] {
            let outcome = running.exec(exec).await;
            assert!(is_reported(&outcome), "by a connection that stands: {outcome:?}");
        }
        let outcome = running.link_by(Way::Socket).await.open().await;
        assert!(is_reported(&outcome), "by a new one: {outcome:?}");
    })
    .await;
}
