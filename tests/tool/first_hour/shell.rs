//! Habits from other tools at a shell: their commands, a terminal, logs, copies in both directions.

use super::{On, Step, at_terminal, ends, step};

pub(super) const STEPS: &[Step] = &[
    step("coracle create --name later --purpose python --mount-cwd=false", &["later is ready"]),
    step("coracle ps", &["later"]),
    Step { on: On::Terminal("exit\n"), ..step("coracle shell later -- echo by-itself", &["by-itself"]) },
    at_terminal(step("coracle exec -it later -- sh -c 'test -t 1 && echo a-terminal'", &["a-terminal"])),
    step("job=$(coracle exec-background later -- sh -c 'echo one; echo two')", &[]),
    step("coracle logs -f later $job", &["one\ntwo"]),
    step("coracle cp names.txt later:/tmp/names.txt", &["copied 1 file"]),
    step("coracle cp later:/tmp/names.txt -", &["b\na"]),
    ends("coracle copy-in later ~/elsewhere.txt /tmp/", 1, &["--allow"]),
    step("coracle copy-in later ~/elsewhere.txt /tmp/ --allow", &["copied 1 file"]),
    ends("coracle copy-in later /etc/hostname /tmp/ --allow", 1, &["error[policy_denied]"]),
    step("coracle audit log", &["create", "later"]),
    step("coracle audit summary", &["default", "acts of default"]),
    step("echo from-stdin | coracle workspace write-file piped.txt -", &["piped.txt"]),
    step("coracle workspace read-file piped.txt", &["from-stdin"]),
    ends("coracle create --name failing --setup-command 'exit 3' --strict", 3, &["failing"]),
    step("coracle create --name failing2 --setup-command 'exit 3'", &["--strict"]),
    ends("coracle worktree export", 2, &["coracle worktree export"]),
    ends("coracle destroy-network crwe", 1, &["crwe"]),
    step("coracle stop later", &["later"]),
    ends("coracle exec later -- true", 125, &["coracle start later"]),
    step("coracle start later", &["later"]),
    step("coracle rm later", &["later destroyed"]),
];
