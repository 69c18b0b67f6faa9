//! Commands: their input, environment and results.

use std::collections::BTreeMap;

use coracle_types::{AtLimit, Capability, EngineKind, Error, Exec, Exit, Ids, Input};

use super::{argv, path, sh};
use crate::engines::{
    FROM_IMAGE, Lack, Way, in_every_way_into_a_shared_one, on_every_engine, ran as scenario_ran, tar_of,
};

#[tokio::test]
async fn exit_codes_are_the_commands_own() {
    in_every_way_into_a_shared_one(async |running| {
        for code in [0, 1, 7, 124, 125, 126, 127, 128, 137, 255] {
            let it = running.ran(sh(&format!("exit {code}"))).await;
            assert_eq!((it.exit, it.tree_ended), (Exit::Code(code), None));
        }
        let it = running.ran(sh("kill -9 $$")).await;
        // An engine reports only the number, which may also be the command's own exit code.
        assert_eq!((it.exit, it.signal), (Exit::Code(137), running.has_guest().then_some(9)));
        assert_eq!(running.ran(argv(&["false"])).await.exit, Exit::Code(1));
    })
    .await;
}

#[tokio::test]
async fn a_missing_command_exits_127_and_one_that_cannot_be_executed_126() {
    in_every_way_into_a_shared_one(async |running| {
        for exec in [argv(&["no-such-program", "x"]), sh("no-such-program x"), argv(&["/no/such/program"])] {
            let it = running.ran(exec).await;
            assert_eq!(it.exit, Exit::Code(127));
            assert!(it.stderr.text().contains("not found"), "{it:?}");
        }
        let it = running.ran(Exec { workdir: path("/etc"), ..argv(&["./passwd"]) }).await;
        assert_eq!(it.exit, Exit::Code(126));
        assert!(it.stderr.text().contains("ermission denied"), "{it:?}");
        if running.case.engine() == EngineKind::Embedded {
            // Each of the other engines has its own message for this.
            running.ran(sh("echo '#!/no/such/interpreter' >/script && chmod 755 /script")).await;
            let it = running.ran(argv(&["/script"])).await;
            assert!(matches!(it.exit, Exit::Code(126 | 127)), "{it:?}");
            assert!(["/script: not found", "interpreter"].iter().any(|why| it.stderr.text().contains(why)), "{it:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_two_outputs_are_separate() {
    in_every_way_into_a_shared_one(async |running| {
        let it = running.ran(sh("echo out; echo err >&2; printf more")).await;
        assert_eq!((it.stdout.text().as_str(), it.stderr.text().as_str()), ("out\nmore", "err\n"));
    })
    .await;
}

#[tokio::test]
async fn s61_arguments_input_and_output_are_unchanged() {
    in_every_way_into_a_shared_one(async |running| {
        let words =
            ["a b", "it's", "\"q\"", "new\nline", "", "$HOME", "`id`", "\\", "ünï ☃", "*", "-n", "--", "a=b", " "];
        let it = running.ran(argv(&[&["printf", "%s\\0"], &words[..]].concat())).await;
        assert_eq!(it.stdout.text(), words.map(|it| format!("{it}\0")).concat());

        let megabyte: Vec<u8> = (0..1 << 20).map(|it: u32| (it.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let every_byte: Vec<u8> = (0..=255).collect();
        for bytes in [megabyte, every_byte, b"\xff\xfe\0no utf-8".to_vec()] {
            let it = running
                .ran(Exec { stdin: Some(Input::Bytes(bytes.clone())), keep_bytes: 2 << 20, ..argv(&["cat"]) })
                .await;
            assert_eq!(it.exit, Exit::Code(0));
            assert!(it.stdout.bytes() == bytes, "{} bytes became {}", bytes.len(), it.stdout.total_bytes());
        }
        scenario_ran("s61", running.case.engine());
    })
    .await;
}

#[tokio::test]
async fn without_input_stdin_is_empty() {
    in_every_way_into_a_shared_one(async |running| {
        assert_eq!(running.printed(sh("cat; echo end")).await, "end\n");
        let unread = Exec { stdin: Some(Input::Bytes(vec![b'x'; 1 << 20])), ..sh("exit 3") };
        assert_eq!(running.ran(unread).await.exit, Exit::Code(3));
    })
    .await;
}

#[tokio::test]
async fn given_variables_are_added_to_those_of_the_image() {
    in_every_way_into_a_shared_one(async |running| {
        let given = [
            ("QUOTES", "it's \"so\""),
            ("LINES", "a\nb\n"),
            ("DOLLAR", "$HOME ${x} `id` \\"),
            ("EMPTY", ""),
            ("DASH", "--user=7"),
            ("EQUALS", "a=b,c"),
        ];
        let env: BTreeMap<_, _> = given.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let names = given.map(|(name, _)| format!("\"${name}\"")).join(" ");
        let script = format!("printf '%s\\0' {names} \"${}\"", FROM_IMAGE.0);
        let it = running.ran(Exec { env, ..sh(&script) }).await;
        let expected = given.map(|(_, value)| format!("{value}\0")).concat() + FROM_IMAGE.1 + "\0";
        assert_eq!(it.stdout.text(), expected);
        let overridden = BTreeMap::from([(FROM_IMAGE.0.to_owned(), "mine".to_owned())]);
        let it = running.ran(Exec { env: overridden, ..sh(&format!("printf %s \"${}\"", FROM_IMAGE.0)) }).await;
        assert_eq!(it.stdout.text(), "mine");
        let shown = running.seen().await.env;
        assert!(shown.contains(&format!("{}={}", FROM_IMAGE.0, FROM_IMAGE.1)), "{shown:?}");
    })
    .await;
}

#[tokio::test]
async fn a_command_runs_as_its_user_without_further_groups() {
    in_every_way_into_a_shared_one(async |running| {
        if !running.case.is_real() {
            return running.case.left_out(); // programs of the fake run with the rights of the test
        }
        if !running.has_guest() && running.case.lacks(Lack::PlainUsers) {
            return;
        }
        for ids in [Ids { uid: 1000, gid: 1000 }, Ids { uid: 4321, gid: 1234 }, Ids::ROOT] {
            let it = running.ran(Exec { user: ids, ..sh("echo $(id -u):$(id -g)") }).await;
            assert_eq!(it.stdout.text().trim(), ids.to_string());
        }
        let agent = Ids { uid: 1000, gid: 1000 };
        let it = running.ran(Exec { user: agent, ..sh("echo x > /etc/mine; grep CapEff /proc/self/status") }).await;
        assert!(it.stderr.text().contains("ermission denied"), "{it:?}");
        assert!(it.stdout.text().contains("0000000000000000"), "{it:?}");
    })
    .await;
}

#[tokio::test]
async fn a_command_starts_in_its_directory() {
    in_every_way_into_a_shared_one(async |running| {
        let tar = tar_of(|tar| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(4);
            tar.append_data(&mut header, "work/it's a $dir/-n/file", &b"here"[..]).unwrap();
        });
        running.case.runtime.upload(&running.id, &path("/"), tar).await.unwrap();
        let workdir = path("/work/it's a $dir/-n");
        for exec in [argv(&["cat", "file"]), sh("cat file")] {
            let it = running.ran(Exec { workdir: workdir.clone(), ..exec }).await;
            assert_eq!((it.exit, it.stdout.text().as_str()), (Exit::Code(0), "here"));
        }
        // Coracle's way of entering the directory exits with 127 too.
        let it = running.ran(Exec { workdir, ..sh("exit 127") }).await;
        assert_eq!(it.exit, Exit::Code(127));
    })
    .await;
}

#[tokio::test]
async fn a_directory_that_is_missing_is_an_error() {
    in_every_way_into_a_shared_one(async |running| {
        for missing in ["/no/such/dir", "/etc/passwd", "/tmp/-n"] {
            for exec in [sh("true"), argv(&["true"])] {
                let it = running.exec(Exec { workdir: path(missing), ..exec }).await;
                assert!(matches!(&it, Err(Error::NoSuchPath(at)) if *at == path(missing)), "{missing}: {it:?}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn an_option_that_needs_a_guest_is_refused_by_the_engines_own_exec() {
    on_every_engine(async |case| {
        let id = super::running(case).await;
        let (files, at_limit) = (vec!["key".to_owned()], AtLimit::Keep);
        for exec in [Exec { bare: true, ..sh("true") }, Exec { files, ..sh("true") }, Exec { at_limit, ..sh("true") }] {
            let refused = case.runtime.exec(&id, exec).await;
            let is_refused = matches!(refused, Err(Error::Unsupported { capability: Capability::Guest, .. }));
            assert!(is_refused, "{refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn an_image_without_a_shell_says_so() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Images) {
            return;
        }
        let tag = case.tag("no-shell");
        let tar = tar_of(|tar| {
            let busybox = std::fs::read("/bin/busybox").unwrap();
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_size(busybox.len() as u64);
            tar.append_data(&mut header, "bin/sleep", &busybox[..]).unwrap();
        });
        let image = super::images::import(case, &tag, tar).await;
        for way in [Way::Plain, Way::Socket] {
            let running = case.run(way, case.spec(&format!("no-shell-{}", way == Way::Plain)), &image.id).await;
            let it = running.exec(sh("true")).await;
            assert!(matches!(it, Err(Error::NoShell)), "{way}: {it:?}");
        }
    })
    .await;
}
