//! Shell scripts for commands in a container without a guest, which run by an engine's own exec.

/// A variable in the environment of all our execs, which identifies their processes.
pub const MARK: &str = "CORACLE_MARK";

/// Enters a directory and becomes the command. The directory is an argument and never the engine's `--workdir`: old
/// runtimes can be tricked by what that leads to (CVE-2024-21626).
pub const ENTER: &str = r#"cd -- "$1" 2>/dev/null || exit 127; unset OLDPWD; shift; exec "$@""#;

/// Asks whether a directory is there.
pub const IS_DIR: &str = r#"[ -d "$1" ]"#;

/// Ends every process that carries a mark, is the child of one that does, or lives in its session: TERM, then KILL. A
/// process that was seen once is not lost when its parent ends first. Exits 0 when none remains. `$1` is the mark, `$2`
/// the grace in tenths of a second.
pub const END_TREE: &str = r#"exec 2>/dev/null
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
