//! Blocks that are programs of the client libraries.

use std::path::Path;

use super::super::client_libraries::{in_environment, node, package_for_node, python, succeeds};
use super::super::{Tool, with_engine};
use super::blocks::{Block, blocks};
use crate::engines::IMAGE;

/// Languages of these blocks.
pub(super) const LANGUAGES: &[&str] = &["python", "js"];

/// The program of a block, with the test's image in place of a purpose, whose image takes minutes.
fn program(block: &Block) -> String {
    let text = block.text.replace("purpose=\"python\"", &format!("image=\"{IMAGE}\", mount_cwd=False"));
    let text = text.replace("purpose: \"python\"", &format!("image: \"{IMAGE}\", mount_cwd: false"));
    if text.contains("import ") { text } else { format!("import coracle.sync\n{text}") }
}

async fn runs(tool: &Tool<'_>, interpreter: &Path, name: &str) {
    let language = name.rsplit_once('.').unwrap().1.replace("py", "python").replace("mjs", "js");
    let all: Vec<Block> = blocks().into_iter().filter(|it| it.language == language && it.not_run.is_none()).collect();
    assert!(!all.is_empty(), "the pages have programs in {language}");
    for block in all {
        std::fs::write(tool.work().join(name), program(&block)).unwrap();
        let output = in_environment(tool, interpreter).arg(name).output().await.unwrap();
        assert!(!succeeds(&output).is_empty(), "{}", block.at());
    }
}

#[tokio::test]
async fn each_program_of_the_pages_runs() {
    let (Some(python), Some(node)) = (python().await, node().await) else { return };
    with_engine("", async |tool| {
        package_for_node(tool);
        runs(tool, &python, "block.py").await;
        runs(tool, &node, "block.mjs").await;
    })
    .await;
}
