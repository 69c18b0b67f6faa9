//! A worker does not depend on its image.

use serde_json::json;

use super::{Bench, ask};
use crate::engines::{busybox_with, tar_of, with_real_engines};
use crate::servers::model::{call, calls, says};

#[tokio::test]
async fn x40_it_answers_in_any_image() {
    with_real_engines(async |case| {
        let scratch = tar_of(|tar| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(0);
            tar.append_data(&mut header, "empty", &[][..]).unwrap();
        });
        let busybox = busybox_with("root:x:0:0:root:/root:/bin/sh\n", |_| {});
        for (name, tar) in [("scratch", scratch), ("alpine-like", busybox)] {
            let image = crate::conformance::import(case, &case.tag(name), tar).await;
            let bench = Bench::new(case, name, &image.id).await;
            bench.model.then([
                calls([
                    call("write_file", json!({ "file_path": "dir/x", "content": "found\n" })),
                    call("grep", json!({ "pattern": "fou.d" })),
                ]),
                says("done"),
            ]);
            bench.runs(ask("x")).await;
            let reported = bench.model.requests()[1].texts_of("tool");
            assert!(reported[1].contains("dir/x"), "{name}: {reported:?}");
            bench.driver.close().await.unwrap();
        }
    })
    .await;
}
