//! Acts from inside. Each is a name and a script, which has the host's own paths in its environment: `OUT` is the marked
//! tree, `STATE` the state directory, `HERE` the bound directory, `MARK` a file that code on the host would leave, `DAEMON` a
//! word that makes processes known. `put`, `hostile` and `evil.sh` are those of the attacks on git.

mod files;
mod git;
mod kernel;

pub(super) type Act = (&'static str, &'static str);

/// Attacks that run in one command. A container is restarted after each block.
pub(super) struct Block {
    pub(super) topic: &'static str,
    pub(super) as_root: bool,
    pub(super) acts: &'static [Act],
}

pub(super) const BLOCKS: &[Block] = &[
    Block { topic: "links out of the directory", as_root: false, acts: files::LINKS },
    Block { topic: "git", as_root: false, acts: git::GIT },
    Block { topic: "git, as root", as_root: true, acts: git::GIT_AS_ROOT },
    Block { topic: "files that other programs act on", as_root: false, acts: git::OTHER_PROGRAMS },
    Block { topic: "names", as_root: false, acts: files::NAMES },
    Block { topic: "set-id bits", as_root: false, acts: files::SET_ID },
    Block { topic: "set-id bits and devices, as root", as_root: true, acts: files::SET_ID_AS_ROOT },
    Block { topic: "the first process and the kernel", as_root: true, acts: kernel::PROC },
    Block { topic: "namespaces and mounts", as_root: true, acts: kernel::NAMESPACES },
    Block { topic: "processes that stay, and the guest", as_root: false, acts: kernel::PROCESSES },
];

/// Acts after which a container may be of no more use.
pub(super) const LAST: &[Act] = kernel::LAST;

/// Rounds of [`EXCHANGE`].
pub(super) const RACES: usize = 4;

/// Exchanges a directory and a file for links to the marked tree until it is ended.
pub(super) const EXCHANGE: &str = r#"mkdir -p race-dir; echo mine >race-dir/secret; echo mine >race-file
ln -s $OUT race-link; ln -s $OUT/secret race-link-file
while :; do
  mv -T race-dir race-away; mv -T race-link race-dir; mv -T race-dir race-link; mv -T race-away race-dir
  mv -T race-file race-away-file; mv -T race-link-file race-file; mv -T race-file race-link-file
  mv -T race-away-file race-file
done"#;
