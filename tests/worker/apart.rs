//! The worker is separated from what its tools run.

use coracle_sandbox::driver::Event;
use coracle_types::{Command, ContainerPath, Exec, Ids};
use serde_json::json;

use super::{AGENT, ask, with_worker};
use crate::engines::engine_program;
use crate::servers::model::{call, calls, says};

/// Writes frames of a worker to everything writable, and searches the token everywhere.
const HOSTILE: &str = r#"
    line='{"frame":"done","msg":null,"error":null,"id":"00000000000000000000000000000000","messages":0}'
    echo "$line"; echo "$line" >&2
    for it in /proc/[0-9]*; do
        case $(tr '\0' ' ' < $it/cmdline) in
            /.coracle/worker*)
                for fd in 0 1 2 3 10 11; do echo "$line" > $it/fd/$fd; cat $it/fd/$fd; done
                echo "worker $(ls $it/fd | wc -l) $(cat $it/environ | wc -c) $(cat $it/maps | wc -c)";;
        esac
        tr '\0' '\n' < $it/environ; tr '\0' ' ' < $it/cmdline
    done 2>/dev/null
    ls -l /.coracle/run; cat /.coracle/run/* 2>/dev/null
    exit 0"#;

#[tokio::test]
async fn x45_a_tools_program_can_neither_imitate_the_worker_nor_read_its_token() {
    with_worker(async |bench| {
        if !bench.running.case.is_real() {
            return bench.running.case.left_out(); // the worker is part of this process
        }
        bench.model.then([calls([call("shell_execute", json!({ "command": ["sh", "-c", HOSTILE] }))]), says("tried")]);
        let events = bench.runs(ask("x")).await;
        let [Event::ToolCall { .. }, Event::ToolResult { output, .. }, Event::Result { content, .. }] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert_eq!(content, "tried");
        let reported = &bench.model.requests()[1].texts_of("tool")[0];
        assert!(reported.contains("worker 0 0 0\n"), "no descriptor, environment or memory of it is seen: {reported}");
        assert!(!reported.contains(&bench.token) && !output.contains(&bench.token));
        // Searches as root inside, and in what the engine shows.
        let all = "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline; find /.coracle /tmp /workspace /etc -type f -exec cat {} + 2>/dev/null | head -c 4000000";
        let exec = Exec { keep_bytes: 16 << 20, ..Exec::new(Command::Shell(all.into()), Ids::ROOT, ContainerPath::root()) };
        assert!(!bench.running.ran(exec).await.stdout.text().contains(&bench.token));
        let engine = bench.running.case.engine();
        let inspect = engine_program(engine.as_str()).args(["inspect", bench.running.id.as_str()]).output().await.unwrap();
        assert!(inspect.status.success() && !String::from_utf8_lossy(&inspect.stdout).contains(&bench.token));
        // Positive control: the search would find the token.
        let exec = Exec::new(Command::Argv(["echo", &bench.token].map(str::to_owned).to_vec()), AGENT, ContainerPath::root());
        assert!(bench.running.ran(exec).await.stdout.text().contains(&bench.token));
    })
    .await;
}

#[tokio::test]
async fn the_workers_environment_is_what_it_needs_and_both_users_have_a_name() {
    with_worker(async |bench| {
        if !bench.running.case.is_real() {
            return bench.running.case.left_out();
        }
        bench.model.then([
            calls([call("shell_execute", json!({ "command": ["sh", "-c", "id -un; id -u; echo $HOME; touch made; stat -c %U made"] }))]),
            says("done"),
        ]);
        let events = bench.runs(ask("x")).await;
        let Event::ToolResult { output, .. } = &events[1] else { panic!("{events:?}") };
        assert!(output.contains("10002\n"), "{output}");
        let script = "for it in /proc/[0-9]*; do case $(tr '\\0' ' ' < $it/cmdline 2>/dev/null) in \
            /.coracle/worker*) grep -E '^(Uid|CapEff|NoNewPrivs|Seccomp):' $it/status; tr '\\0' '\\n' < $it/environ | cut -d= -f1 | sort;; esac; done; \
            grep -E ':1000[12]:' /etc/passwd; stat -c '%u %a' /.coracle/run/worker.sock";
        let exec = Exec::new(Command::Shell(script.into()), Ids::ROOT, ContainerPath::root());
        let reported = bench.running.ran(exec).await.stdout.text();
        assert!(reported.contains("Uid:\t10001\t10001\t10001\t10001\n") && reported.contains("CapEff:\t0000000000000000\n"), "{reported}");
        assert!(reported.contains("worker:x:10001:10001::/nonexistent:/usr/sbin/nologin\n"), "{reported}");
        assert!(reported.contains(":10002:10002:") && reported.contains("10001 600\n"), "{reported}");
        assert!(!reported.contains("FROM_IMAGE"), "{reported}");
    })
    .await;
}
