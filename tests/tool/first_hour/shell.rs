//! What a newcomer wants and does not get yet. The table of the first hour says how each comes out; none fails the test.
//! A line that comes out as it is wanted moves to the others.

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
    at_terminal(step("coracle copy-in later /etc/hostname /tmp/ --allow", &["copied 1 file"])),
    step("coracle audit log", &["create", "later"]),
    step("echo from-stdin | coracle workspace write-file piped.txt -", &["piped.txt"]),
    step("coracle workspace read-file piped.txt", &["from-stdin"]),
    ends("coracle create --name failing --setup-command 'exit 3' --strict", 3, &["failing"]),
    step("coracle create --name failing2 --setup-command 'exit 3'", &["--strict"]),
    step("test $(COLUMNS=60 coracle list | awk '{ if (length > m) m = length } END { print m + 0 }') -le 60", &[]),
    ends("coracle workspace read-file none.txt", 1, &["none.txt"]),
    ends("coracle worktree export", 2, &["coracle worktree export"]),
    ends("coracle destroy-network crwe", 1, &["crwe"]),
    step("coracle stop later", &["later"]),
    ends("coracle exec later -- true", 125, &["coracle start later"]),
    step("coracle start later", &["later"]),
    step("coracle rm later", &["later destroyed"]),
];
