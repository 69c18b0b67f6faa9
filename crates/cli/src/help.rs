//! Additions of the command line's help to the schema: groups, value names, examples.

/// Headings with their options, in order. All other options are under "Options".
const GROUPS: &[(&str, &str)] = &[
    (
        "What it is made from",
        "name purpose devcontainer repo_url image packages pull cache_bust setup_commands main labels persistent",
    ),
    ("What goes in", "mount_cwd mounts repos config_files env stdin stdin_base64 gpu"),
    (
        "What of yours goes in",
        "env_passthrough forward_git forward_gh forward_ssh dotfiles_repo dotfiles_script dotfiles_branch \
         dotfiles_target dotfiles_inline dotfiles_skip",
    ),
    ("How it is reached", "ports network replay add_hosts"),
    ("How commands run", "workdir user as_root"),
    ("What is waited for", "until pattern health_command port health_check idle interval retries attempt_timeout"),
    ("What is read", "stream offset line limit ignore_case context max_matches lines"),
    ("Limits", "timeout silence_timeout on_timeout max_output memory_limit cpu_limit pids_limit"),
];

/// Names of values, where the type is not enough.
const VALUES: &[(&str, &str)] = &[
    ("name", "NAME"),
    ("image", "IMAGE"),
    ("pull", "WHEN"),
    ("purpose", "PURPOSE"),
    ("repo_url", "URL"),
    ("devcontainer", "FILE"),
    ("packages", "PACKAGE"),
    ("repos", "URL[=PATH]"),
    ("env_passthrough", "MODE"),
    ("dotfiles_repo", "URL"),
    ("dotfiles_script", "PATH"),
    ("dotfiles_branch", "BRANCH"),
    ("dotfiles_target", "PATH"),
    ("amplifier_version", "VERSION"),
    ("amplifier_bundle", "URI"),
    ("setup_commands", "COMMAND"),
    ("main", "image|WORDS"),
    ("mounts", "HOST:CONTAINER[:ro]"),
    ("ports", "[HOST:]CONTAINER"),
    ("network", "NETWORK"),
    ("replay", "CONTAINER[/ID]"),
    ("add_hosts", "NAME:IP"),
    ("workdir", "PATH"),
    ("user", "USER"),
    ("cpu_limit", "CORES"),
    ("encoding", "ENCODING"),
    ("scope", "SCOPE"),
    ("stdin", "TEXT"),
    ("stdin_base64", "BASE64"),
    ("on_timeout", "WHAT"),
    ("until", "EVENT"),
    ("pattern", "REGEX"),
    ("health_command", "COMMAND"),
    ("test", "COMMAND"),
    ("port", "[ADDRESS:]PORT"),
    ("stream", "STREAM"),
    ("snapshot", "SNAPSHOT"),
];

/// All subcommands by task, in the order of typical use.
const COMMANDS: &[(&str, &str)] = &[
    ("Containers", "create list top status start stop destroy destroy-all prune adopt wait-healthy fork"),
    (
        "Commands and terminals",
        "exec shell attach exec-background jobs logs exec-poll job-wait job-read exec-cancel exec-interactive-hint",
    ),
    ("Files, ports and editors", "cp copy-in copy-out forward open ssh-config"),
    (
        "Images, snapshots and saved work",
        "images cache-clear snapshot snapshots restore snapshot-delete snapshot-export snapshot-import saved",
    ),
    ("Undo and attempts", "checkpoint timeline rewind checkpoint-diff race"),
    ("Networks", "networks create-network destroy-network approvals recorded"),
    ("Agents", "agent worktree sandbox worker workspace run"),
    ("This machine", "doctor setup init preflight ui audit completions"),
    ("For programs", "mcp serve call"),
];

/// The first commands for new users.
const FIRST_COMMANDS: &[(&str, &str)] = &[
    ("Containers", "create list top destroy"),
    ("In a container", "exec shell logs cp"),
    ("Agents", "agent mcp"),
    ("This machine", "doctor ui"),
];

/// The position of a word in a list.
fn position(words: &str, word: &str) -> Option<usize> {
    words.split(' ').position(|it| it == word)
}

/// The position of a subcommand in the list.
pub(super) fn order(word: &str) -> usize {
    let mut words = COMMANDS.iter().flat_map(|(_, words)| words.split(' '));
    words.position(|it| it == word).unwrap_or(usize::MAX)
}

/// Adds the help of the program: the first commands, or with `all` every command, the options and exit codes.
pub(super) fn with_root_help(root: clap::Command, all: bool) -> clap::Command {
    let commands = command_list(&root, if all { COMMANDS } else { FIRST_COMMANDS });
    let commands = commands.trim_end();
    let (rest, below) = if all {
        ("\n\nOptions:\n{options}{after-help}", [EXAMPLES, EXIT_CODES].join("\n\n"))
    } else {
        ("{after-help}", [EXAMPLES, MORE].join("\n\n"))
    };
    let template = format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}{rest}");
    root.help_template(template).after_help(below)
}

/// Whether a command line asks for the complete help.
pub(super) fn is_about_all(words: &[std::ffi::OsString]) -> bool {
    let is_help = |word: &std::ffi::OsString| ["help", "--help", "-h"].iter().any(|help| word == help);
    matches!(words, [_, first, second] if is_help(first) && second == "--all" || is_help(second) && first == "--all")
}

/// Width of the help if the terminal's is unknown.
const HELP_WIDTH: usize = 80;

fn command_list(root: &clap::Command, groups: &[(&str, &str)]) -> String {
    let words = groups.iter().flat_map(|(_, words)| words.split(' '));
    let indent = words.map(str::len).max().unwrap_or(0) + 4;
    let mut list = String::new();
    for (heading, words) in groups {
        list += &format!("{heading}:\n");
        for command in words.split(' ').filter_map(|word| root.find_subcommand(word)) {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let mut line = format!("  {}", command.get_name());
            for word in about.split_whitespace() {
                let at_start = line.trim_start().is_empty();
                if !at_start && line.chars().count() + 1 + word.chars().count() > HELP_WIDTH {
                    list += &format!("{line}\n");
                    line = String::new();
                }
                let gap = if line.len() < indent { indent - line.len() } else { 1 };
                line += &format!("{:gap$}{word}", "");
            }
            list += &format!("{line}\n");
        }
        list.push('\n');
    }
    list
}

/// The group of an option, and its position in it.
pub(super) fn place(field: &str) -> (usize, usize) {
    let places = GROUPS.iter().enumerate().filter_map(|(group, it)| Some((group, position(it.1, field)?)));
    places.min().unwrap_or((GROUPS.len(), 0))
}

/// The heading of an option.
pub(super) fn heading(field: &str) -> Option<&'static str> {
    GROUPS.get(place(field).0).map(|it| it.0)
}

/// The name of an option's value.
pub(super) fn value(field: &str) -> Option<&'static str> {
    VALUES.iter().find(|it| it.0 == field).map(|it| it.1)
}

/// Descriptions address agents. In help for people, "the user" becomes "you".
const YOU: &[(&str, &str)] = &[
    ("the user allows", "you allow"),
    ("the user grants", "you grant"),
    ("the user wants", "you want"),
    ("the user named", "you named"),
    ("the user has to", "you have to"),
    ("the user's to set", "yours to set"),
    ("secret of the user", "secret of yours"),
    ("The user has to", "You have to"),
    ("The user names", "You name"),
    ("the user sees", "you see"),
    ("the user's", "your"),
    ("The user's", "Your"),
    ("the user", "you"),
];

/// A description for people.
pub(super) fn for_people(text: &str) -> String {
    YOU.iter().fold(text.to_owned(), |text, (agent, person)| text.replace(agent, person))
}

/// The text below the help of a subcommand.
pub(super) fn examples(word: &str) -> &'static str {
    match word {
        "create" => CREATE,
        "exec" => EXEC,
        "exec-background" => EXEC_BACKGROUND,
        "exec-poll" => "Examples:\n  coracle exec-poll web 1a2b3c4d --lines 20",
        "job-wait" => JOB_WAIT,
        "job-read" => JOB_READ,
        "logs" => LOGS,
        "shell" => "Examples:\n  coracle shell web\n  coracle shell web -- python3",
        "attach" => ATTACH,
        "doctor" => {
            "Examples:\n  coracle doctor\n  coracle doctor --json                   for programs; with --yes it also fixes"
        }
        "init" => INIT,
        "top" => TOP,
        "cp" => "Examples:\n  coracle cp ./data web:/tmp/\n  coracle cp web:/workspace/report.html .",
        "audit" => {
            "Examples:\n  coracle audit log --since 1h --container web\n  coracle audit summary --since 7d\n  coracle audit verify"
        }
        "copy-in" => COPY_IN,
        "copy-out" => COPY_OUT,
        "snapshot" => "Examples:\n  coracle snapshot web with-tools\n  coracle snapshot web with-tools --replace",
        "snapshot-export" => "Examples:\n  coracle snapshot-export with-tools with-tools.tar",
        "snapshot-import" => {
            "Examples:\n  coracle snapshot-import with-tools.tar\n  coracle snapshot-import with-tools.tar --replace"
        }
        "checkpoint" => "Examples:\n  coracle checkpoint web --note 'tests pass'",
        "timeline" => "Examples:\n  coracle timeline web\n  coracle timeline delete web 3",
        "rewind" => {
            "Examples:\n  coracle rewind web                      to the checkpoint before the current one\n  coracle rewind web 3"
        }
        "race" => {
            "Examples:\n  coracle race web -n 5 --test 'pytest -q' -- ./fix.sh     $ATTEMPT is 1 to 5\n  coracle race web 'make -C $ATTEMPT'                      its exit code decides"
        }
        "checkpoint-diff" => "Examples:\n  coracle checkpoint-diff web 3 5",
        "restore" => "Examples:\n  coracle restore with-tools --name web2",
        "forward" => {
            "Examples:\n  coracle forward web 8000\n  coracle forward web 8000 --host-port 8080\n  coracle forward --workflow issue-1 8000"
        }
        "open" => OPEN,
        "ssh-config" => SSH_CONFIG,
        "fork" => "Examples:\n  coracle fork web --name experiment",
        "destroy-all" => "Examples:\n  coracle destroy-all --confirm",
        "list" => LIST,
        "approvals" => APPROVALS,
        "saved" => SAVED,
        "recorded" => RECORDED,
        "sandbox" => SANDBOX,
        "agent" => AGENT,
        "completions" => COMPLETIONS,
        "call" => CALL,
        "mcp" => MCP,
        "serve" => SERVE,
        "ui" => UI,
        _ => "",
    }
}

/// The text below the help of the program.
pub(super) const EXAMPLES: &str = "\
Examples:
  coracle create --name web               a container with this directory at /workspace
  coracle exec web make test              a command in it, waited for
  coracle shell web                       a shell in it
  coracle destroy web";

const MORE: &str = "\
`coracle help COMMAND` explains a command. `coracle help --all` has all commands,
the options that every command takes, and the exit codes.";

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    the call could not be carried out: `error[code]`, and what to do; `preflight`: not ready
  2    the command line, or a call's JSON, was not understood
  3    with `create --strict`: it is made, and a step of the report failed
  130  interrupted; what was begun is ended or undone. 143 after TERM, 129 after HUP
  141  the reader of the output went away
  `exec` and `shell` give the command's own code, 128 + n after signal n, 124 after a time-out,
  and `exec` 125 where the command was not run. `job-wait` gives the job's code, see its help.
  With --json the codes are 0, 1 and 2 only.";

const AGENT: &str = "\
Examples:
  coracle agent claude                                   # you work with it, in a sandbox
  coracle agent codex --task 'Fix the failing test.'     # it works alone, and its commits arrive as a branch
  coracle agent gemini --repo https://github.com/OWNER/NAME.git --task - < task.md
  coracle agent claude --workflow claude-1a2b3c4d -- --continue";

const SANDBOX: &str = "\
Examples:
  coracle sandbox list
  coracle sandbox remove 3f2a9c1d0b7e4a55
  coracle sandbox remove --all
  coracle sandbox forward issue-1 20000 --port 8080
  coracle sandbox review issue-1          before your own git works there; 1 if something is found";

const CREATE: &str = "\
Examples:
  coracle create --name web
  coracle create --name web --image debian:12 --setup-command 'apt-get update' --port 8080:80
  coracle create --purpose python --repo https://github.com/OWNER/NAME.git
  coracle create --purpose try-repo --repo-url https://github.com/OWNER/NAME.git
  coracle create --mount ~/data:/data:ro --env MODE=test --memory-limit 2g

Options that may be given several times also take the JSON of a call:
  coracle create --ports '{\"container\": 53, \"protocol\": \"udp\"}'";

const EXEC: &str = "\
Examples:
  coracle exec web make test              a program and its arguments, as they stand
  coracle exec web 'cd src && make'       one text is for /bin/sh
  coracle exec --timeout 10m web make -j  options of `exec` come before the command
  coracle exec web tar -x < files.tar     what is piped or redirected in reaches the command
  coracle exec -it web python3            on your terminal

`--` may stand before the command.

Standard input that is a pipe or a file streams to the command, however much it is. Give
`< /dev/null` to keep it, for example in a loop that reads a file.

The exit code is the command's own: 128 + n after signal n, 124 after a time-out. 125 says that
it was not run.";

const ATTACH: &str = "\
Examples:
  coracle attach web                      your terminal in it: opened if there is none, else as you left it
  coracle attach web -- htop              a program on a new one
  coracle attach web --list               those that are open, also shells of agents
  coracle attach web 1a2b3c4d             that one; you type and an agent goes on reading

Ctrl-P Ctrl-Q detaches: the terminal goes on in the container, as a job. `exit` ends it, and the exit
code is the shell's. Several may be attached at once. To end one from outside: `coracle exec-cancel`.";

const OPEN: &str = "\
Examples:
  coracle open web                        the first editor found here, on its working directory
  coracle open web /workspace/api --editor cursor

The editor connects by ssh, as `coracle ssh-config` configures it; which is shown for confirmation once.";

const SSH_CONFIG: &str = "\
Examples:
  coracle ssh-config web > ssh.conf; ssh -F ssh.conf web.coracle
  coracle ssh-config --write              for every program that uses ssh; then `ssh web.coracle`

Any container is a host NAME.coracle, also one that is created later. The client starts `coracle`
itself as the server: no port is opened, and nothing runs in the container for it.
`ssh root@NAME.coracle` is root inside, where you grant it.";

const TOP: &str = "\
Examples:
  coracle top                             until `q`
  coracle top --once                      one look, as a table
  coracle top --json                      the same, for programs

Keys: up and down choose a container; Enter or a attaches to it, l shows what its newest job prints,
c cancels that job and d destroys the container (both ask), q ends.";

const INIT: &str = "\
Examples:
  coracle init                            the configuration, and each program found here
  coracle init --client cursor --print    what would be written
  coracle init --client codex --client zed --yes

Comments and other servers in a program's file stay, and its old text is saved beside it as
FILE.before-coracle. What cannot be changed safely is left alone, and what to do by hand is printed.";

const LOGS: &str = "\
Examples:
  coracle logs web                        all that its main program, or its newest job, printed
  coracle logs web -f --tail 20           its last 20 lines, and what comes
  coracle logs web 1a2b3c4d

With -f the exit code is the job's own, as that of `job-wait`; 130 where Ctrl-C ended the following,
which leaves the job alone.";

const EXEC_BACKGROUND: &str = "\
Examples:
  job=$(coracle exec-background web -- make serve)
  coracle job-wait web $job --until port --port 8080
  coracle exec-cancel web $job

The id of the job is all that is printed. Standard input that is a pipe or a file is
read to its end, at most 4 MiB, and goes to the job.";

const JOB_WAIT: &str = "\
Examples:
  coracle job-wait web 1a2b3c4d                                    until it ends
  coracle job-wait web 1a2b3c4d --until regex --pattern 'ready' --offset 0
  coracle job-wait web 1a2b3c4d --until '[\"port\", \"idle\"]' --port 8080 --idle 5

The exit code is 0 when what was waited for came, the job's own when it ended (1 in place of 0,
when something else was waited for), 124 when the time was over, and 125 when nothing was waited for.";

const JOB_READ: &str = "\
Examples:
  coracle job-read web 1a2b3c4d --stream stdout                    the first 32 KiB, byte for byte
  coracle job-read web 1a2b3c4d --offset -2000                     the last 2000 bytes
  coracle job-read web 1a2b3c4d --pattern 'error|warning' --ignore-case";

const COPY_IN: &str = "\
Examples:
  coracle copy-in web data.csv /tmp/      to /tmp/data.csv
  coracle copy-in web src /opt/src        a directory";

const COPY_OUT: &str = "\
Examples:
  coracle copy-out web /workspace/report.html .
  coracle copy-out web /var/log logs      a directory";

const LIST: &str = "\
Examples:
  coracle list
  coracle list --json                     every field, for programs

A container `of another state directory` was made with other records, such as those of another user or home.
One that is `unverified` carries Coracle's label without a signature. Coracle never acts on either. If it is
of no use, remove it with the engine itself: `docker rm -f NAME` or `podman rm -f NAME`.";

const APPROVALS: &str = "\
Examples:
  coracle approvals                                shows each refused request, and asks
  coracle approvals list
  coracle approvals allow 3fa9c1d2 once            the next request
  coracle approvals allow 3fa9c1d2 session         as long as the container exists
  coracle approvals allow 3fa9c1d2 always          writes the rule into the configuration
  coracle approvals revoke docs.example.com";

const SAVED: &str = "\
Examples:
  coracle saved list
  coracle saved restore web --into web2            into a container, where its work was
  coracle saved restore web/20261122T101500.000Z --into ./web-work";

const RECORDED: &str = "\
Examples:
  coracle recorded list
  coracle recorded show web
  coracle create --name again --replay web         answers from the record, and sends nothing
  coracle recorded report again";

const COMPLETIONS: &str = "\
Examples:
  coracle completions bash > ~/.local/share/bash-completion/completions/coracle
  coracle completions zsh > ~/.zfunc/_coracle          where `fpath` has ~/.zfunc
  coracle completions fish > ~/.config/fish/completions/coracle.fish";

const CALL: &str = "\
Examples:
  coracle call '{\"operation\": \"list\"}'
  echo '{\"operation\": \"exec\", \"container\": \"web\", \"command\": \"ls\"}' | coracle call
  coracle call --schema

Exit codes: 0 for `success: true`, 1 for false, 2 for text that is no call.";

const MCP: &str = "\
Started by an agent's program, not by hand. Most take a configuration like this one:
  { \"mcpServers\": { \"coracle\": { \"command\": \"coracle\", \"args\": [\"mcp\"] } } }

For several programs of this machine at once:
  coracle mcp --http 127.0.0.1:8765";

const SERVE: &str = "\
Started by the client libraries for Python and TypeScript. A line is a request, and each gets an answer with its id:
  {\"id\": 1, \"call\": {\"operation\": \"exec\", \"container\": \"web\", \"command\": \"make\"}, \"events\": true}
  {\"id\": 2, \"tool\": \"read_file\", \"arguments\": {\"path\": \"README.md\"}}
  {\"id\": 3, \"cancel\": 1}
Programs that use E2B's SDKs:
  coracle serve --e2b 127.0.0.1:3000      prints the three variables that they need";

const UI: &str = "\
Example:
  coracle ui                              prints an address with a token; open it in a browser of this machine";

#[cfg(test)]
mod tests {
    use coracle::operations;

    use super::{COMMANDS, FIRST_COMMANDS, GROUPS, VALUES};

    #[test]
    fn help_addresses_the_user() {
        fn check(command: &mut clap::Command) {
            let help = command.render_long_help().to_string();
            assert!(!help.to_lowercase().contains("the person"), "{help}");
            assert!(!help.contains("the user has to") && !help.contains("the user's to set"), "{help}");
            command.get_subcommands_mut().for_each(check);
        }
        let mut root = crate::command::command(operations::ALL, &[]);
        root.build();
        check(&mut root);
    }

    #[test]
    fn every_name_in_the_help_exists() {
        let fields: Vec<String> =
            operations::ALL.iter().flat_map(|it| it.arguments().properties).map(|it| it.0).collect();
        let named = GROUPS.iter().flat_map(|it| it.1.split(' ')).chain(VALUES.iter().map(|it| it.0));
        for name in named {
            assert!(fields.iter().any(|it| it == name), "no operation has `{name}`");
        }
        let root = crate::command::command(operations::ALL, &[]);
        let listed = |groups: &[(&str, &str)]| -> Vec<String> {
            groups.iter().flat_map(|(_, words)| words.split(' ')).map(str::to_owned).collect()
        };
        for word in listed(COMMANDS).iter().chain(&listed(FIRST_COMMANDS)) {
            assert!(root.get_subcommands().any(|it| it.get_name() == word), "no subcommand `{word}`");
        }
        for command in root.get_subcommands().filter(|it| !it.is_hide_set()) {
            assert!(listed(COMMANDS).iter().any(|it| it == command.get_name()), "not in the help: {command}");
        }
    }

    #[test]
    fn the_first_help_fits_a_small_terminal() {
        let mut root = crate::command::command(operations::ALL, &[]);
        let help = root.render_help().to_string();
        assert!(help.lines().count() <= 40, "{help}");
        assert!(help.contains("coracle help --all") && help.contains("In a container:"), "{help}");
        assert!(!help.contains("snapshot-import") && !help.contains("Exit codes"), "{help}");
        let all = super::with_root_help(root, true).render_help().to_string();
        for word in listed_words() {
            assert!(all.contains(&format!("\n  {word}")), "{word}: {all}");
        }
        assert!(all.contains("--state-dir") && all.contains("Exit codes"), "{all}");
    }

    fn listed_words() -> impl Iterator<Item = &'static str> {
        COMMANDS.iter().flat_map(|(_, words)| words.split(' '))
    }
}
