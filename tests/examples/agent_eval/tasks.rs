//! The tasks: the steps of a scripted model, the prompt for a real one, and the check afterwards.

/// What a model wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Path and content.
    Write(&'static str, &'static str),
    Read(&'static str),
    /// Path, old and new text.
    Edit(&'static str, &'static str, &'static str),
    /// The same for all toolsets.
    EditAll(&'static str, &'static str, &'static str),
    Run(&'static str),
    /// A command that takes some seconds.
    Long(&'static str),
    Python(&'static str),
    Search(&'static str),
    Find(&'static str),
    /// A server on that port, by that command, reached from the host.
    Serve(u16, &'static str),
    /// A job that prints a line, which is waited for.
    Watch(&'static str, &'static str),
    /// A job that is ended again.
    Interrupt(&'static str),
    /// The container is stopped behind the model's back.
    Crash,
    Create(&'static str),
    Fork(&'static str),
    /// A snapshot, and the container that is made from it.
    Snapshot(&'static str, &'static str),
    RunIn(&'static str, &'static str),
    WriteIn(&'static str, &'static str, &'static str),
    Destroy(&'static str),
    /// Removes a snapshot.
    Forget(&'static str),
}

/// The task as a real model gets it.
pub(crate) struct Goal {
    pub(crate) text: &'static str,
    /// How many of the steps are done before it begins.
    pub(crate) given: usize,
    /// A text that its last answer has to contain.
    pub(crate) expected: &'static str,
}

const fn goal(text: &'static str, given: usize) -> Goal {
    question(text, given, "")
}

const fn question(text: &'static str, given: usize, expected: &'static str) -> Goal {
    Goal { text, given, expected }
}

pub(crate) struct Task {
    pub(crate) name: &'static str,
    pub(crate) goal: Goal,
    pub(crate) steps: &'static [Step],
    /// A command in the machine, and its output if the task is done.
    pub(crate) check: (&'static str, &'static str),
}

use Step::{
    Crash, Create, Destroy, Edit, EditAll, Find, Forget, Fork, Interrupt, Long, Python, Read, Run, RunIn, Search,
    Serve, Snapshot, Watch, Write, WriteIn,
};

const fn task(name: &'static str, goal: Goal, steps: &'static [Step], check: (&'static str, &'static str)) -> Task {
    Task { name, goal, steps, check }
}

const BROKEN: &str = "printf 'def add(a, b):\\n    return a - b\\n' > calc.py; \
                      printf 'from calc import add\\nassert add(2, 3) == 5\\nprint(\"passed\")\\n' > test.py";
const THREE: &str = "for it in a b c; do echo \"total = count($it)\" > $it.py; done";
const SERVER: &str = "python3 -m http.server 8000";
const LOG: &str = "seq 1 200000 > big.log; sed -i 's/^77777$/77777 ERROR disk is full/' big.log";
const PROBE: &str = "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000\").status)'";

pub(crate) const TASKS: &[Task] = &[
    task(
        "write a program and run it",
        goal("Write hello.py, which prints `hello`, and run it.", 0),
        &[Write("hello.py", "print('hello')\n")],
        ("python3 hello.py", "hello"),
    ),
    task(
        "fix a failing test",
        goal("`python3 test.py` fails. Fix calc.py so that it passes.", 1),
        &[Run(BROKEN), Run("python3 test.py"), Edit("calc.py", "return a - b", "return sum((a, b))")],
        ("python3 test.py", "passed"),
    ),
    task(
        "start a service and probe it",
        question(
            "Serve the working directory by HTTP on port 8000 of the machine, and find the URL on the host at which it answers.",
            0,
            "http://127.0.0.1",
        ),
        &[Serve(8000, SERVER)],
        (PROBE, "200"),
    ),
    task(
        "find a line in a big log",
        question("big.log has one line with an error. Which one is it?", 1, "77777"),
        &[Run(LOG), Search("ERROR")],
        ("grep -c ERROR big.log", "1"),
    ),
    task(
        "recover after a crash",
        goal("The machine has just crashed. Go on: state.txt has to contain `kept`.", 2),
        &[Write("state.txt", "kept\n"), Crash, Run("true")],
        ("cat state.txt", "kept"),
    ),
    task(
        "work in two containers",
        goal(
            "Make a second container called `db`, write 42 into data.txt in it, read it there, and remove that container.",
            0,
        ),
        &[Create("db"), WriteIn("db", "data.txt", "42\n"), RunIn("db", "cat data.txt"), Destroy("db")],
        ("test ! -e data.txt && echo apart", "apart"),
    ),
    task(
        "rename a function in three files",
        goal("Rename the function `count` to `tally` in all Python files.", 1),
        &[
            Run(THREE),
            Search("count"),
            Edit("a.py", "count", "tally"),
            Edit("b.py", "count", "tally"),
            Edit("c.py", "count", "tally"),
        ],
        ("grep -c tally a.py b.py c.py | tr '\\n' ' '", "a.py:1 b.py:1 c.py:1"),
    ),
    task(
        "replace a configuration",
        goal("Replace the whole content of app.conf by one line: new", 1),
        &[Run("echo old > app.conf"), Write("app.conf", "new\n")],
        ("cat app.conf", "new"),
    ),
    task(
        "wait for a long build",
        goal("Run `sleep 3; echo built > out.txt`, and wait until it is done.", 0),
        &[Long("sleep 3; echo built > out.txt")],
        ("cat out.txt", "built"),
    ),
    task(
        "compute with Python",
        goal("Compute the sum of the squares of 0 to 9 with Python, and write it into sum.txt.", 0),
        &[Python("print(sum(n * n for n in range(10)))"), Python("open('sum.txt', 'w').write('285\\n')")],
        ("cat sum.txt", "285"),
    ),
    task(
        "commit to a repository",
        goal("Make a git repository here with a readme.md, and commit it with the message `Begin`.", 0),
        &[
            Run("git init -q . && git config user.email a@example.org && git config user.name A"),
            Write("readme.md", "# A project\n"),
            Run("git add -A && git commit -qm 'Begin'"),
        ],
        ("git log --format=%s", "Begin"),
    ),
    task(
        "fix a shell script",
        goal("`sh run.sh` fails. Fix the script so that it prints `fine`.", 1),
        &[
            Run("printf 'if true; then\\necho fine\\n' > run.sh"),
            Run("sh run.sh"),
            Edit("run.sh", "fine\n", "fine\nfi\n"),
        ],
        ("sh run.sh", "fine"),
    ),
    task(
        "list the documents",
        question("Which Markdown files are there, in all directories?", 1, "deep/b.md"),
        &[Run("mkdir -p docs/deep; touch docs/a.md docs/deep/b.md docs/c.txt"), Find("**/*.md")],
        ("find docs -name '*.md' | wc -l", "2"),
    ),
    task(
        "try a change in a fork",
        goal("Fork the machine as `trial`, write `changed` into /var/tmp/a of the fork only, and remove the fork.", 1),
        &[
            Run("echo original > /var/tmp/a"),
            Fork("trial"),
            RunIn("trial", "echo changed > /var/tmp/a"),
            Destroy("trial"),
        ],
        ("cat /var/tmp/a", "original"),
    ),
    task(
        "go back to a snapshot",
        goal(
            "Keep the machine as the snapshot `before`, make the container `again` from it, look at /var/tmp/a there, then remove the container and the snapshot.",
            1,
        ),
        &[
            Run("echo kept > /var/tmp/a"),
            Snapshot("before", "again"),
            RunIn("again", "cat /var/tmp/a"),
            Destroy("again"),
            Forget("before"),
        ],
        ("cat /var/tmp/a", "kept"),
    ),
    task(
        "wait for a line of a log",
        question(
            "Start `sleep 1; echo ready; sleep 60` in the background, and wait until it prints `ready`.",
            0,
            "ready",
        ),
        &[Watch("sleep 1; echo ready; sleep 60", "ready")],
        ("echo seen", "seen"),
    ),
    task(
        "end a job that hangs",
        goal("Start `sleep 4242` in the background, then end it.", 0),
        &[Interrupt("sleep 4242")],
        ("pgrep -fc '^sleep 4242' || true", "0"),
    ),
    task(
        "change each occurrence",
        goal("In a.py, set x to 3 wherever it is set.", 1),
        &[Run("printf 'x = 1\\ny = 2\\nx = 1\\n' > a.py"), EditAll("a.py", "x = 1", "x = 3")],
        ("grep -c 'x = 3' a.py", "2"),
    ),
    task(
        "read the middle of a file",
        question("What is in line 2500 of n.txt?", 1, "2500"),
        &[Run("seq 1 5000 > n.txt"), Read("n.txt")],
        ("sed -n 2500p n.txt", "2500"),
    ),
    task(
        "make a script executable",
        goal("Write tool.sh, a shell script that prints `works` and can be run as ./tool.sh", 0),
        &[Write("tool.sh", "#!/bin/sh\necho works\n"), Run("chmod +x tool.sh")],
        ("./tool.sh", "works"),
    ),
    task(
        "keep letters of any alphabet",
        goal("Write this line into name.txt: Zoë Ångström 東京", 0),
        &[Write("name.txt", "Zoë Ångström 東京\n")],
        ("cat name.txt", "Zoë Ångström 東京"),
    ),
    task(
        "write below new directories",
        goal("Write `deep` into src/app/core/a.txt", 0),
        &[Write("src/app/core/a.txt", "deep\n")],
        ("cat src/app/core/a.txt", "deep"),
    ),
    task(
        "remove what is not needed",
        goal("Remove the directory tmp with all that is in it.", 1),
        &[Run("mkdir tmp; touch tmp/a tmp/b keep"), Run("rm -r tmp")],
        ("ls | tr '\\n' ' '", "keep"),
    ),
    task(
        "survive a flood of output",
        question("Run `seq 1 300000`. What is the last number?", 0, "300000"),
        &[Run("seq 1 300000")],
        ("echo still here", "still here"),
    ),
    task(
        "add the file that is missing",
        goal("`python3 main.py` has to print `now`. Find out why it does not, and fix it.", 0),
        &[Run("python3 main.py"), Write("main.py", "print('now')\n")],
        ("python3 main.py", "now"),
    ),
    task(
        "sum a column",
        question("What is the sum of column b of data.csv? Compute it with Python.", 1, "6"),
        &[
            Write("data.csv", "a,b\n1,2\n3,4\n"),
            Python("import csv\nprint(sum(int(row['b']) for row in csv.DictReader(open('data.csv'))))"),
        ],
        ("awk -F, 'NR>1 {s+=$2} END {print s}' data.csv", "6"),
    ),
    task(
        "pass data between commands",
        goal("Sort the lines `b` and `a` into sorted.txt.", 0),
        &[Run("printf 'b\\na\\n' | sort > sorted.txt"), Read("sorted.txt")],
        ("head -1 sorted.txt", "a"),
    ),
    task(
        "edit what was just written",
        goal("Change v.txt so that it says version 2.", 1),
        &[Write("v.txt", "version 1\n"), Edit("v.txt", "version 1", "version 2")],
        ("cat v.txt", "version 2"),
    ),
    task(
        "edit after a command changed the file",
        goal("Change v.txt so that it says version 3.", 2),
        &[Write("v.txt", "version 1\n"), Run("echo version 2 > v.txt"), Edit("v.txt", "version 2", "version 3")],
        ("cat v.txt", "version 3"),
    ),
    task(
        "serve what was written",
        question(
            "Serve index.html by HTTP on port 8001 of the machine, and find the URL on the host at which it answers.",
            1,
            "http://127.0.0.1",
        ),
        &[Write("index.html", "<p>served</p>\n"), Serve(8001, "python3 -m http.server 8001")],
        ("cat index.html", "<p>served</p>"),
    ),
];
