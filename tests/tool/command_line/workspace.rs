//! `coracle workspace`, as a person types it.

use serde_json::Value;

use super::{prints, text, typed};
use crate::engines::IMAGE;
use crate::tool::with_rootful_engine;

#[tokio::test]
async fn a_file_is_written_from_standard_input_and_directories_are_named_as_words() {
    let config = format!("[workspace]\nimage = \"{IMAGE}\"\n");
    with_rootful_engine(&config, async |tool| {
        let written = tool.run(["workspace", "write-file", "src/a", "-"], b"needle one\n").await;
        assert_eq!(written.status.code(), Some(0), "{}", text(&written.stderr));
        let bytes = tool.run(["workspace", "write-file", "src/b", "-"], b"\0\xff").await;
        assert_eq!(bytes.status.code(), Some(0), "{}", text(&bytes.stderr));
        let size = prints(tool, &["workspace", "shell-execute", "--", "sh", "-c", "wc -c < src/b; cat src/a"]).await;
        assert_eq!(size.split_whitespace().collect::<Vec<_>>(), ["2", "needle", "one"]);
        prints(tool, &["workspace", "write-file", "dash", "--content", "-"]).await;
        assert!(prints(tool, &["workspace", "read-file", "dash"]).await.contains('-'));
        let much = tool.run(["workspace", "write-file", "much", "-", "--json"], &vec![b'x'; (32 << 20) + 1]).await;
        let answer: Value = serde_json::from_slice(&much.stdout).unwrap();
        assert_eq!((&answer["code"], much.status.code()), (&"content_too_large".into(), Some(1)));
        let listed = prints(tool, &["workspace", "ls", "src"]).await;
        assert!(listed.contains('a') && !listed.contains("dash"), "{listed}");
        let found = prints(tool, &["workspace", "grep", "needle", "src"]).await;
        assert!(found.contains("src/a"), "{found}");
        assert_eq!(typed(tool, &["workspace", "end"]).await.status.code(), Some(0));
    })
    .await;
}
