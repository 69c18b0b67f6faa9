//! The words that run a command in a container, and the constant programs that do so: what is free is an argument of them.

use std::ffi::OsString;
use std::time::Duration;

use coracle_protocol::paths;

use super::{Words, apple, on};
use crate::cli::Dialect;
use crate::{ContainerId, ContainerPath, Exec, Ids};

/// What every exec of ours carries in its environment, so that its processes are found again.
pub(super) const MARK: &str = "CORACLE_MARK";

/// Enters a directory and becomes the command. The directory is an argument and never the engine's `--workdir`: old
/// runtimes can be tricked by what that leads to (CVE-2024-21626).
pub(super) const ENTER: &str = r#"cd -- "$1" 2>/dev/null || exit 127; unset OLDPWD; shift; exec "$@""#;

/// Asks whether a directory is there.
const IS_DIR: &str = r#"[ -d "$1" ]"#;

/// Ends every process that carries a mark, is the child of one that does, or lives in its session: TERM, then KILL.
/// Whom it has seen once it does not lose when a parent ends first. Exits 0 when none is left. `$1` is the mark, `$2` the grace in tenths of a second.
const END_TREE: &str = r#"exec 2>/dev/null
mark=$1 grace=$2 seen=
find_members() {
  members=' '
  for pid in $seen; do
    read -r line <"/proc/$pid/stat" || continue
    case ${line##*) } in Z*) ;; *) members="$members$pid " ;; esac
  done
  for file in $(grep -slzF "CORACLE_MARK=$mark" /proc/[0-9]*/environ); do
    pid=${file#/proc/} pid=${pid%/environ}
    case $members in *" $pid "*) ;; *) members="$members$pid " ;; esac
  done
  grown=1
  while [ $grown = 1 ]; do
    grown=0
    for file in /proc/[0-9]*/stat; do
      read -r line < "$file" || continue
      pid=${file#/proc/} pid=${pid%/stat}
      set -- ${line##*) }
      [ "$1" = Z ] && continue
      case $members in *" $pid "*) continue ;; esac
      case $members in *" $2 "* | *" $4 "*) members="$members$pid " grown=1 ;; esac
    done
  done
  seen=$members
}
signal() { for pid in $members; do kill "-$1" "$pid"; done; }
find_members
signal TERM
while [ "$grace" -gt 0 ]; do
  find_members
  [ "$members" = ' ' ] && exit 0
  sleep 0.1
  grace=$((grace - 1))
done
for round in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
  find_members
  [ "$members" = ' ' ] && exit 0
  signal KILL
  sleep 0.1
done
exit 1"#;

/// A command as the engine runs it: through the constant program that enters its directory. With it go the variables
/// that the engine's own program needs for that.
pub(in crate::cli) fn exec(
    dialect: Dialect,
    id: &ContainerId,
    exec: &Exec,
    mark: &str,
) -> (Words, Vec<(String, OsString)>) {
    if dialect == Dialect::Apple {
        return apple::exec(id, exec, mark);
    }
    let it = Words::verb("exec");
    let it = if exec.stdin.is_some() { it.word("--interactive") } else { it };
    let it = it.flag("user", exec.user).flag("workdir", "/").flag("env", format_args!("{MARK}={mark}"));
    let it = it.flags("env", exec.env.iter().map(|(name, value)| format!("{name}={value}")));
    let it = it.word("--").word(id.as_str());
    let it = it.words(["/bin/sh", "-c", ENTER, "coracle", exec.workdir.as_str()]);
    (it.words(exec.command.clone().into_argv()), Vec::new())
}

/// Asks, as that user, whether a directory is there.
pub(in crate::cli) fn is_dir(dialect: Dialect, id: &ContainerId, user: Ids, path: &ContainerPath) -> Words {
    constant_program(dialect, id, user, IS_DIR).word(path.as_str())
}

/// Ends what carries a mark.
pub(in crate::cli) fn end_tree(dialect: Dialect, id: &ContainerId, user: Ids, mark: &str, grace: Duration) -> Words {
    let tenths = grace.as_millis().div_ceil(100);
    constant_program(dialect, id, user, END_TREE).word(mark).word(tenths.to_string())
}

fn constant_program(dialect: Dialect, id: &ContainerId, user: Ids, program: &str) -> Words {
    if dialect == Dialect::Apple {
        return apple::constant_program(id, user, program);
    }
    let it = Words::verb("exec").flag("user", user).flag("workdir", "/").word("--").word(id.as_str());
    it.words(["/bin/sh", "-c", program, "coracle"])
}

/// The guest's own way to itself, which stays open as long as a link.
pub(in crate::cli) fn connect(dialect: Dialect, id: &ContainerId) -> Words {
    if dialect == Dialect::Apple {
        return apple::connect(id);
    }
    // As the container's own user, who is PID 1's.
    on("exec --interactive --workdir=/", [id.as_str(), paths::PROGRAM, "connect"])
}
