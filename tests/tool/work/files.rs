//! The file tools.

use serde_json::{Value, json};

use super::{Agent, with_agent};
use crate::engines::ran;

/// Bytes of a file, past all rules for texts.
async fn bytes(agent: &Agent<'_>, path: &str) -> Vec<u8> {
    use base64::Engine as _;
    let read = agent.value("read_file", json!({ "file_path": path, "encoding": "base64" })).await;
    base64::prelude::BASE64_STANDARD.decode(read["content"].as_str().unwrap()).unwrap()
}

async fn write(agent: &Agent<'_>, path: &str, content: &str) {
    agent.value("write_file", json!({ "file_path": path, "content": content })).await;
}

#[tokio::test]
async fn w20_bytes_and_line_ends_are_preserved() {
    with_agent("", async |agent| {
        write(agent, "dos.txt", "a\r\nb\r\n").await;
        let edit = json!({ "file_path": "dos.txt", "old_string": "b", "new_string": "c" });
        agent.value("edit_file", edit).await;
        assert_eq!(bytes(agent, "dos.txt").await, b"a\r\nc\r\n");
        let edit = json!({ "file_path": "dos.txt", "old_string": "a\nc", "new_string": "x\ny" });
        let edited = agent.value("edit_file", edit).await;
        assert_eq!(edited["line_ending_adapted"], true, "{edited:#}");
        assert_eq!(bytes(agent, "dos.txt").await, b"x\r\ny\r\n");
        let read = agent.value("read_file", json!({ "file_path": "dos.txt" })).await;
        assert_eq!(
            (&read["content"], &read["line_ending"]),
            (&"   1 | x\n   2 | y".into(), &"crlf".into()),
            "{read:#}"
        );
        ran("w20", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w21_only_a_newline_ends_a_line_and_a_missing_one_stays_missing() {
    with_agent("", async |agent| {
        write(agent, "x", "x").await;
        agent.value("edit_file", json!({ "file_path": "x", "old_string": "x", "new_string": "y" })).await;
        assert_eq!(bytes(agent, "x").await, b"y");
        write(agent, "odd", "a\u{c}b\u{2028}c\rd\ne").await;
        let read = agent.value("read_file", json!({ "file_path": "odd" })).await;
        assert_eq!((&read["total_lines"], &read["final_newline"]), (&2.into(), &false.into()), "{read:#}");
        assert_eq!(read["content"], "   1 | a\u{c}b\u{2028}c\rd\n   2 | e");
        ran("w21", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w22_long_files_are_paged_long_lines_cut_and_binaries_returned_as_bytes() {
    with_agent("", async |agent| {
        let lines: String = (1..=3000).map(|it| format!("line {it}\n")).collect();
        write(agent, "long", &lines).await;
        let first = agent.call("read_file", json!({ "file_path": "long" })).await;
        assert_eq!(first["message"], "Read file long (lines 1-2000).");
        let first = &first["value"];
        assert_eq!(
            (&first["limit"], &first["next_offset"], &first["truncated"]),
            (&2000.into(), &2000.into(), &true.into())
        );
        let rest = agent.value("read_file", json!({ "file_path": "long", "offset": 2000, "limit": 9999 })).await;
        assert_eq!(
            (&rest["limit"], &rest["truncated"], &rest["next_offset"]),
            (&1000.into(), &false.into(), &Value::Null)
        );
        assert!(rest["content"].as_str().unwrap().ends_with("3000 | line 3000"), "{rest:#}");
        let beyond = agent.call("read_file", json!({ "file_path": "long", "offset": 9000 })).await;
        assert_eq!(beyond["message"], "Read file long (no lines returned).");
        assert_eq!((&beyond["value"]["offset"], &beyond["value"]["content"]), (&3000.into(), &"".into()));

        write(agent, "wide", &"ä".repeat(5 << 19)).await;
        let wide = agent.value("read_file", json!({ "file_path": "wide" })).await;
        let content = wide["content"].as_str().unwrap();
        assert!(content.len() < (256 << 10) + 64 && content.contains(" … [line cut: "), "{}", content.len());
        assert_eq!(wide["truncated"], true);

        agent.sh("head -c 100000 /dev/urandom >binary; printf '\\377' >>binary").await;
        assert_eq!(agent.code("read_file", json!({ "file_path": "binary" })).await, "binary_file");
        let sum = agent.sh("sha256sum <binary").await;
        let whole = bytes(agent, "binary").await;
        assert_eq!(whole.len(), 100_001);
        let reported = sum["stdout"].as_str().unwrap();
        assert!(reported.starts_with(&hex::encode(<sha2::Sha256 as sha2::Digest>::digest(&whole))), "{reported}");

        for (args, code) in [
            (json!({ "file_path": "long", "offset": -1 }), "invalid_range"),
            (json!({ "file_path": "long", "limit": 0 }), "invalid_range"),
            (json!({ "file_path": "none" }), "file_not_found"),
            (json!({ "file_path": "/" }), "path_empty"),
        ] {
            assert_eq!(agent.code("read_file", args.clone()).await, code, "{args}");
        }
        ran("w22", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w23_a_file_is_changed_only_if_its_present_version_was_read() {
    with_agent("", async |agent| {
        write(agent, "a.txt", "one\n").await;
        agent.sh("echo theirs >b.txt; chmod 666 b.txt").await;
        let again = json!({ "file_path": "a.txt", "content": "x" });
        let answer = agent.call("write_file", again).await;
        assert_eq!(answer["code"], "file_exists", "{answer:#}");
        assert_eq!(answer["message"], "File already exists; use edit_file to modify existing content.");
        let over = |path: &str| json!({ "file_path": path, "content": "new\n", "mode": "overwrite" });
        let unread = agent.call("write_file", over("b.txt")).await;
        assert_eq!(
            (&unread["code"], &unread["message"]),
            (&"read_required".into(), &"File 'b.txt' must be read before overwriting.".into())
        );
        agent.value("read_file", json!({ "file_path": "b.txt" })).await;
        let edit = json!({ "file_path": "b.txt", "old_string": "theirs", "new_string": "ours" });
        assert_eq!(agent.call("edit_file", edit).await["message"], "Replaced 1 occurrence in b.txt.");
        agent.sh("echo changed >b.txt").await;
        let stale = agent.call("write_file", over("b.txt")).await;
        assert_eq!(stale["code"], "stale_read", "{stale:#}");
        agent.value("read_file", json!({ "file_path": "b.txt" })).await;
        assert_eq!(agent.call("write_file", over("b.txt")).await["message"], "Updated b.txt (4 bytes).");
        let append = json!({ "file_path": "b.txt", "content": "more\n", "mode": "append" });
        assert_eq!(agent.call("write_file", append).await["message"], "Appended to b.txt (5 bytes).");
        assert_eq!(bytes(agent, "b.txt").await, b"new\nmore\n");
        ran("w23", agent.engine());
    })
    .await;
    with_agent("[workspace]\nread_before_write = false\n", async |agent| {
        agent.sh("echo theirs >b.txt; chmod 666 b.txt").await;
        let over = json!({ "file_path": "b.txt", "content": "new\n", "mode": "overwrite" });
        assert_eq!(agent.call("write_file", over).await["message"], "Updated b.txt (4 bytes).");
    })
    .await;
}

#[tokio::test]
async fn w25_a_text_that_is_there_often_is_ambiguous_and_too_much_is_not_written() {
    with_agent("", async |agent| {
        write(agent, "p", "x\ny x\nx\n").await;
        let edit = |all: bool| json!({ "file_path": "p", "old_string": "x", "new_string": "z", "replace_all": all });
        let answer = agent.call("edit_file", edit(false)).await;
        assert_eq!(answer["code"], "old_string_ambiguous", "{answer:#}");
        assert_eq!(
            (&answer["details"]["occurrences"], &answer["details"]["line_numbers"]),
            (&3.into(), &json!([1, 2, 3]))
        );
        assert_eq!(agent.call("edit_file", edit(true)).await["message"], "Replaced 3 occurrences in p.");
        let none = json!({ "file_path": "p", "old_string": "nope", "new_string": "z" });
        assert_eq!(agent.code("edit_file", none).await, "old_string_not_found");
        let much = json!({ "file_path": "much", "content": "x".repeat(33_554_433) });
        let answer = agent.call("write_file", much).await;
        assert_eq!(
            (&answer["code"], &answer["message"]),
            (&"content_too_large".into(), &"Content exceeds maximum length of 32MB.".into())
        );
        assert_eq!(agent.code("read_file", json!({ "file_path": "much" })).await, "file_not_found");
        ran("w25", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w26_paths_mean_the_same_in_every_tool() {
    with_agent("", async |agent| {
        write(agent, "/workspace/a", "a").await;
        assert_eq!(agent.value("read_file", json!({ "file_path": "workspace/a" })).await["path"], "a");
        let (deep, long) = (["a"; 17].join("/"), "a".repeat(81));
        for (path, code) in [
            ("a/../b", "path_dots"),
            (deep.as_str(), "path_depth"),
            (long.as_str(), "path_segment"),
            ("ä", "path_charset"),
            ("", "path_empty"),
        ] {
            for (tool, args) in [
                ("read_file", json!({ "file_path": path })),
                ("write_file", json!({ "file_path": path, "content": "" })),
                ("edit_file", json!({ "file_path": path, "old_string": "a", "new_string": "b" })),
                ("rm", json!({ "path": path })),
            ] {
                assert_eq!(agent.code(tool, args).await, code, "{tool} {path}");
            }
        }
        ran("w26", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w16_a_long_list_says_how_much_is_missing() {
    with_agent("", async |agent| {
        agent.sh("mkdir many && cd many && i=0; while [ $i -lt 2345 ]; do : >f$i; i=$((i+1)); done").await;
        let answer = agent.call("ls", json!({ "path": "many" })).await;
        assert_eq!(answer["value"].as_array().unwrap().len(), 2000);
        assert_eq!(
            (&answer["omitted"], &answer["omitted_exact"], &answer["truncated"]),
            (&345.into(), &true.into(), &true.into())
        );
        let message = answer["message"].as_str().unwrap();
        assert_eq!(message, "Listed directory many (0 subdirs, 2345 files). Truncated: 345 more not shown.");
        assert_eq!(agent.code("ls", json!({ "path": "many/f1" })).await, "not_a_directory");
        assert_eq!(agent.code("ls", json!({ "path": "none" })).await, "directory_not_found");
        ran("w16", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w17_w18_links_that_lead_outside_are_shown_and_never_followed() {
    with_agent("", async |agent| {
        agent.sh("mkdir d; echo in >d/in; ln -s /etc/shadow out; ln -s self self; ln -s d inside; mkfifo pipe").await;
        let listed = agent.value("ls", json!({})).await;
        let kind = |name: &str| {
            let item = listed.as_array().unwrap().iter().find(|it| it["path"] == name);
            item.unwrap_or_else(|| panic!("{name}: {listed:#}"))["kind"].as_str().unwrap().to_owned()
        };
        assert_eq!(
            ["out", "self", "inside", "pipe", "d"].map(kind),
            ["symlink", "symlink", "directory", "other", "directory"]
        );
        let found = agent.value("glob", json!({ "pattern": "**/*" })).await;
        let paths: Vec<&str> = found.as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["d/in"]);
        let lines = agent.value("grep", json!({ "pattern": "." })).await;
        assert_eq!(lines.as_array().unwrap().len(), 1, "{lines:#}");
        ran("w17", agent.engine());
        for (tool, args) in [
            ("read_file", json!({ "file_path": "out" })),
            ("write_file", json!({ "file_path": "out", "content": "x", "mode": "overwrite" })),
            ("edit_file", json!({ "file_path": "out", "old_string": "root", "new_string": "x" })),
        ] {
            assert_eq!(agent.code(tool, args).await, "path_escape", "{tool}");
        }
        assert_eq!(agent.code("read_file", json!({ "file_path": "pipe" })).await, "not_regular");
        assert_eq!(agent.value("rm", json!({ "path": "out" })).await["deleted_files"], 1);
        assert_eq!(agent.value("read_file", json!({ "file_path": "inside/in" })).await["content"], "   1 | in");
        ran("w18", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w27_patterns_cross_directories_only_where_they_say_so() {
    with_agent("", async |agent| {
        for path in ["a.py", "x/a.py", "x/y/a.py"] {
            write(agent, path, "").await;
        }
        for (pattern, expected) in [("**/*.py", 3), ("*.py", 1), ("x/**", 2), ("{a,b}.py", 1), ("x/[!b].py", 1)] {
            let found = agent.value("glob", json!({ "pattern": pattern })).await;
            assert_eq!(found.as_array().unwrap().len(), expected, "{pattern}: {found:#}");
        }
        assert_eq!(agent.code("glob", json!({ "pattern": "*", "path": "none" })).await, "directory_not_found");
        assert_eq!(agent.code("glob", json!({ "pattern": " " })).await, "invalid_pattern");
        assert_eq!(agent.code("glob", json!({ "pattern": "a/../b" })).await, "invalid_pattern");
        ran("w27", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w28_lines_are_in_order_and_those_after_the_last_shown_are_counted() {
    with_agent("", async |agent| {
        agent.sh("mkdir m; for f in 1 2 3; do i=0; while [ $i -lt 500 ]; do echo hit $i; i=$((i+1)); done >m/$f; done; printf 'hit\\0' >m/0").await;
        let answer = agent.call("grep", json!({ "pattern": "h.t", "path": "m" })).await;
        let lines = answer["value"].as_array().unwrap();
        assert_eq!((lines.len(), &answer["omitted"]), (1000, &500.into()));
        assert_eq!((&lines[0]["path"], &lines[0]["line_number"]), (&"m/1".into(), &1.into()));
        assert_eq!((&lines[999]["path"], &lines[999]["line_number"]), (&"m/2".into(), &500.into()));
        let one = agent.value("grep", json!({ "pattern": "HIT 7$", "path": "m/3", "case_insensitive": true, "context": 1 })).await;
        assert_eq!(one.as_array().unwrap().len(), 1, "{one:#}");
        assert_eq!((&one[0]["before"], &one[0]["after"]), (&json!(["hit 6"]), &json!(["hit 8"])));
        let bad = agent.call("grep", json!({ "pattern": "(" })).await;
        assert_eq!(bad["code"], "invalid_regex", "{bad:#}");
        assert!(bad["message"].as_str().unwrap().starts_with("Invalid regular expression: "));
        assert_eq!(agent.code("grep", json!({ "pattern": "x", "path": "none" })).await, "path_not_found");
        ran("w28", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w29_a_tree_goes_and_what_it_links_to_stays() {
    with_agent("", async |agent| {
        agent
            .sh("mkdir -p t/u keep; echo k >keep/k; ln -s ../keep t/l; ln -s /etc t/e; echo 1 >t/u/1; chmod -R a+rwX t")
            .await;
        let removed = agent.call("rm", json!({ "path": "t" })).await;
        assert_eq!(removed["message"], "Deleted 3 entries under t.", "{removed:#}");
        assert_eq!(removed["value"]["deleted_directories"], 2);
        assert_eq!(agent.sh("ls; cat keep/k; ls /etc | head -1").await["exit_code"], 0);
        assert_eq!(agent.value("ls", json!({})).await.as_array().unwrap().len(), 1);
        assert_eq!(agent.code("rm", json!({ "path": "/" })).await, "root_refused");
        assert_eq!(agent.code("rm", json!({ "path": "t" })).await, "nothing_matched");
        ran("w29", agent.engine());
    })
    .await;
}

#[tokio::test]
async fn w39_touched_files_have_versions() {
    with_agent("", async |agent| {
        write(agent, "real.txt", "1").await;
        let version = async || {
            let listed = agent.value("ls", json!({})).await;
            listed.as_array().unwrap().iter().find(|it| it["path"] == "real.txt").map(|it| it["version"].clone())
        };
        assert_eq!(version().await, Some(1.into()));
        let shell = agent.sh("sleep 0.01; echo 22 >real.txt; echo new >new.txt; echo FILE_CHANGE: nope; echo FILE_CHANGE: ../../etc/passwd").await;
        assert_eq!(shell["changed"]["modified"], json!(["real.txt"]), "{shell:#}");
        assert_eq!((&shell["changed"]["created"], &shell["changed"]["complete"]), (&json!(["new.txt"]), &true.into()));
        assert_eq!(version().await, Some(2.into()));
        let gone = agent.sh("rm real.txt").await;
        assert_eq!(gone["changed"]["deleted"], json!(["real.txt"]), "{gone:#}");
        ran("w39", agent.engine());
        ran("w40", agent.engine());
    })
    .await;
}
