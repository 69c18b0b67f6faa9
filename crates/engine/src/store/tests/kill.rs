//! Processes that are killed at any moment: the next one finds whole things, and removes the rest.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::commit::container;
use super::*;

/// Names the data directory to the process that is killed.
const VICTIM: &str = "CORACLE_STORE_VICTIM";

/// Each kill comes after so many operations, and a little later each time.
const KILLS: u32 = 40;

/// Not a test by itself: what the killed process runs.
#[test]
#[expect(clippy::disallowed_methods, reason = "a process of the test, marked by the variable")]
fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let place = Place { dir: tempfile::tempdir().unwrap(), store: Place::open(Path::new(&dir)) };
    for round in 0.. {
        let tar = small(&format!("{round}")).file("large", &"x".repeat(200_000)).dir("d").file("d/x", "");
        let image = place.import(&format!("a:{}", round % 3), &tar);
        println!("\nimported");
        let mut files = container(&place, &image);
        files.source.upper = place.dir.path().to_owned();
        let made = place.store.commit(files.source).unwrap();
        println!("\ncommitted");
        place.store.tag(&made.id, &name("b:1")).unwrap();
        println!("\ntagged");
        place.store.untag(&name("made:1")).unwrap();
        place.store.remove(&made.id).unwrap();
        println!("\nremoved");
        place.store.collect_garbage().unwrap();
        println!("\ncollected");
        std::fs::remove_dir(files.upper).unwrap();
    }
}

#[expect(clippy::disallowed_methods, reason = "a process of the test")]
fn start_victim(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "store::tests::kill::victim", "--nocapture"]).env(VICTIM, dir);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_process_that_is_killed_leaves_nothing_half() {
    if !coracle_skips::has_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for kill in 0..KILLS {
        let mut victim = start_victim(dir.path());
        let operations = usize::try_from(kill % 7).unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines().map(Result::unwrap);
        let done = lines.by_ref().filter(|it| it.ends_with("ed")).take(operations).count();
        assert_eq!(done, operations, "the victim ended by itself");
        let (begun, later) = (Instant::now(), Duration::from_micros(u64::from(kill) * 731));
        while begun.elapsed() < later {
            std::hint::spin_loop();
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        check(dir.path(), kill);
    }
}

/// The store is whole, and nothing is in it that no image needs.
fn check(dir: &Path, kill: u32) {
    let place = Place { dir: tempfile::tempdir().unwrap(), store: Place::open(dir) };
    assert_eq!(place.damage(true), Vec::<String>::new(), "kill {kill}");
    for it in [place.store.temporary(), place.store.holds(), place.store.trash.dir.clone()] {
        assert_eq!(std::fs::read_dir(&it).unwrap().count(), 0, "kill {kill}: {}", it.display());
    }
    let needed = place.store.layers_in_use(&[]).unwrap();
    let there = place.store.layer_ids().unwrap();
    assert!(there.iter().all(|it| needed.contains(it)), "kill {kill}: {there:?}");
    assert_eq!(needed.len(), there.len(), "kill {kill}");
}
