//! Links, names and set-id bits.

use super::Act;

pub(super) const LINKS: &[Act] = &[
    ("read the marked tree by its path", "cat $OUT/secret $OUT/.ssh/id_ed25519; echo changed >$OUT/secret"),
    ("link to the marked tree", "ln -s $OUT to-out; cat to-out/secret; echo changed >to-out/written"),
    ("link to a file of it", "ln -s $OUT/secret to-secret; cat to-secret; ln -s $OUT/.ssh/id_ed25519 to-key"),
    ("link to the root", "ln -s / to-root; cat to-root$OUT/secret"),
    ("link to the home above it", "ln -s $OUT/.. to-home; cat to-home/outside/secret"),
    (
        "relative link",
        "ln -s ../../../../../../../../../..$OUT up-to-out; ln -s ../home/outside near-out; cat near-out/secret",
    ),
    ("link to the state directory", "ln -s $STATE to-state; ls to-state/"),
    (
        "link by a process",
        "ln -s /proc/1/root$OUT by-init; ln -s /proc/self/fd/3 by-fd; ln -s /proc/self/cwd by-cwd; cat by-init/secret",
    ),
    ("link to an engine's socket", "ln -s /var/run/docker.sock to-docker; ln -s /run/podman/podman.sock to-podman"),
    (
        "chain of links",
        "ln -s to-out one; ln -s one two; ln -s two/ three; ln -s three/.. four; cat four/outside/secret",
    ),
    ("loop of links", "ln -s loop loop; ln -s loop-b loop-a; ln -s loop-a loop-b"),
    (
        "links deep in a tree",
        "mkdir -p deep/er/est; ln -s $OUT deep/er/est/out; ln -s ../../../../home/outside deep/er/est/near",
    ),
    (
        "links at names of editors and agents",
        "for p in .vscode .idea .husky .claude .devcontainer; do rm -rf $p; mv $p $p.was; ln -s $OUT $p; cat $p/secret; done",
    ),
    (
        "links at names of shells and builds",
        "for p in .envrc .mcp.json .cargo/config .cargo/config.toml .cargo; do mv $p $p.was; ln -s $OUT/config $p; cat $p; done",
    ),
    (
        "links at names of git",
        "for p in config config.worktree commondir hooks info worktrees; do mv .git/$p .git/$p.was; ln -s $OUT .git/$p; done",
    ),
    (
        "git's directory away",
        "mv .git away; mv .git/hooks away; mv .git/worktrees/linked away; mv .git/objects/info away",
    ),
    (
        "hard links",
        "ln $OUT/secret hard; ln /proc/1/exe hard-exe; ln .git/config hard-config; ln /.coracle/link/sock hard-sock",
    ),
    (
        "the same path inside",
        "mkdir -p $OUT $STATE && echo mine >$OUT/secret && ln -s $OUT/secret same-path && cat same-path",
    ),
];

pub(super) const NAMES: &[Act] = &[
    ("newline", "touch \"$(printf 'two\\nlines')\"; mkdir \"$(printf 'dir\\nof two')\""),
    ("escapes of a terminal", "touch \"$(printf 'a\\033[31m\\033]0;x\\007b')\"; touch \"$(printf 'bell\\007')\""),
    ("bidirectional controls", "touch \"$(printf 'a\\342\\200\\256txt.sh')\"; touch \"$(printf '\\342\\201\\246b')\""),
    ("no text", "touch \"$(printf 'x\\377\\376y')\"; mkdir \"$(printf '\\300\\257')\""),
    ("options", "touch -- -rf --help '-oProxyCommand=x'; mkdir -- --upload-pack=x"),
    ("commands", "touch \"\\$(touch x)\" '`id`' ';id;' '| id' '&& id'"),
    ("long name", "touch $(printf 'n%.0s' $(seq 255)); touch $(printf 'm%.0s' $(seq 256))"),
    ("whiteouts", "touch .wh.f .wh..wh..opq .wh.; mkdir .wh.dir; touch .wh..git"),
    ("temporary names of copies", "touch .coracle-0123456789abcdef.tmp; ln -s $OUT .coracle-fedcba9876543210.tmp"),
    ("dots and blanks", "touch ... '.. ' ' ' 'a '; mkdir '. '; touch \"$(printf '.\\t')\""),
    ("git in other letters", "mkdir -p .GIT/hooks GIT~1 .git.; cp evil.sh .GIT/hooks/pre-commit"),
    (
        "git with an invisible character",
        "d=$(printf '.g\\342\\200\\214it'); mkdir -p \"$d/hooks\"; cp evil.sh \"$d/hooks/pre-commit\"",
    ),
    (
        "pipes where files are read",
        "rm -f .envrc .mcp.json; mkfifo .envrc .mcp.json race-pipe; mkdir pipes; mkfifo pipes/f",
    ),
    ("a socket in the directory", "nc -lU sock </dev/null & sleep 0.1; kill $!"),
    ("deep tree", "p=bomb; for i in $(seq 60); do p=$p/d; done; mkdir -p $p; touch $p/end; ln -s $OUT $p/out"),
    ("many files", "mkdir -p bomb/many; for i in $(seq 400); do : >bomb/many/$i; done"),
    ("file that is mostly a hole", "mkdir -p bomb; truncate -s 8M bomb/hole"),
    ("closed directory", "mkdir closed; touch closed/in; chmod 0 closed; chmod 0 bomb/many/1"),
];

pub(super) const SET_ID: &[Act] = &[
    ("chmod in octal", "cp /bin/busybox s1; chmod 4755 s1; chmod 2755 s1; chmod 6755 s1; chmod 7777 s1"),
    ("chmod in letters", "cp /bin/busybox s2; chmod u+s s2; chmod g+s s2; chmod a+s,+t s2"),
    ("chmod by a descriptor", "cp /bin/busybox s3; chmod 6755 /proc/self/fd/3 3<s3"),
    ("busybox by its own name", "cp /bin/busybox s4; /bin/busybox chmod 4755 s4; /proc/self/exe chmod 4755 s4"),
    ("copy with its mode", "cp /bin/busybox /tmp/s; chmod 6755 /tmp/s; cp -p /tmp/s s5; cp -a /tmp/s s5a"),
    ("move with its mode", "cp /bin/busybox /tmp/m; chmod 6755 /tmp/m; mv /tmp/m s6"),
    (
        "tar with modes",
        "cp /bin/busybox /tmp/t; chmod 6755 /tmp/t; tar -c -C /tmp t | tar -x -p; mkdir un; tar -c -C /tmp t | tar -x -p -C un",
    ),
    (
        "cpio with modes",
        "cp /bin/busybox /tmp/c; chmod 6755 /tmp/c; (cd /tmp; echo c | cpio -o -H newc) | cpio -i -d -m -u",
    ),
    ("write after chmod", "cp /bin/true s7; chmod 6755 s7; cat /bin/busybox >s7; truncate -s 10 s7"),
    ("directories with set-id", "mkdir s8 s9; chmod 2777 s8; chmod 6777 s9; mkdir s8/below; mkdir -m 6777 s10"),
    ("umask and mkfifo", "umask 0; mkfifo -m 6666 s11; touch s12; chmod 6777 s12"),
    ("another name", "cp /bin/busybox s13; ln s13 s14; chmod 6755 s14; ln -s s13 s15; chmod 6755 s15"),
    ("access lists", "cp /bin/busybox s16; setfacl -m u:0:rwx s16; setfattr -n security.capability -v 0x01 s16"),
];

pub(super) const SET_ID_AS_ROOT: &[Act] = &[
    ("root: set-id shell", "cp /bin/busybox r1; chown 0:0 r1; chmod 4755 r1; chmod 6755 r1"),
    ("root: owner after mode", "cp /bin/busybox r2; chmod 6755 r2; chown 0:0 r2; chmod u+s r2"),
    ("root: copy with owner", "cp /bin/busybox /root/s; chmod 6755 /root/s; cp -a /root/s r3; mv /root/s r4"),
    (
        "root: tar with owners",
        "cp /bin/busybox /root/t; chmod 6755 /root/t; tar -c -C /root t | tar -x -p; rm -f /root/t",
    ),
    (
        "root: as another user",
        "cp /bin/busybox r5; chown 1234:1234 r5; setpriv --reuid 1234 chmod 6755 r5; chmod 6755 r5",
    ),
    ("root: setgid directory", "mkdir r6; chmod 2777 r6; chown 0:0 r6; cp /bin/busybox r6/x; chmod g+s r6/x"),
    ("root: block device", "mknod r7 b 8 0; [ \"$(head -c 1 r7 | wc -c)\" = 1 ] && reached disk"),
    (
        "root: block devices elsewhere",
        "mknod /tmp/r8 b 259 0; [ \"$(head -c 1 /tmp/r8 | wc -c)\" = 1 ] && reached disk",
    ),
    (
        "root: memory device",
        "mknod r9 c 1 1; [ -n \"$(head -c 1 r9)\" ] && reached memory; mknod r10 c 1 2; head -c 1 r10",
    ),
    ("root: null device in the directory", "mknod r11 c 1 3; mknod -m 666 r12 c 1 5; mknod r13 c 10 200"),
    ("root: tar with a device", "cd /tmp; mkdir -p dev; mknod dev/x c 1 3; tar -c dev | tar -x -C /workspace"),
    ("root: copy of devices", "cp -a /dev/null r14; cp -a /dev/urandom r15; mv /dev/full r16"),
    (
        "root: capabilities of a file",
        "cp /bin/busybox r17; setcap cap_sys_admin+ep r17; setfattr -n security.capability -v 0x01 r17",
    ),
];
