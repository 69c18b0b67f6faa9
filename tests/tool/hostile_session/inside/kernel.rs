//! Processes, the kernel's files, namespaces, and the guest itself.

use super::Act;

/// None of these would harm the host: settings are written with harmless values.
pub(super) const PROC: &[Act] = &[
    (
        "root of the first process",
        "cat /proc/1/root$OUT/secret; ls /proc/1/root/home; chroot /proc/1/root cat $OUT/secret",
    ),
    ("directory of the first process", "cat /proc/1/cwd/../../..$OUT/secret; cat /proc/1/cwd/secret"),
    ("descriptors of the first process", "for f in /proc/1/fd/*; do readlink $f; cat $f/../../..$OUT/secret; done"),
    (
        "program of the first process",
        "echo x >>/proc/1/exe; cp /bin/busybox /proc/1/exe; cat /bin/true >/proc/self/exe",
    ),
    (
        "memory of the first process",
        "echo x >/proc/1/mem; dd if=/proc/1/mem bs=1 count=1 skip=4096; echo x >/proc/1/attr/current",
    ),
    ("variables of the first process", "cat /proc/1/environ; cat /proc/1/cmdline; cat /proc/1/maps; cat /proc/1/stack"),
    ("every process", "for p in /proc/[0-9]*; do cat $p/root$OUT/secret; cat $p/environ; done"),
    ("program for core dumps", "echo core >/proc/sys/kernel/core_pattern && reached core_pattern"),
    ("core dump", "ulimit -c unlimited; sh -c 'kill -ABRT $$'; sh -c 'kill -SEGV $$'"),
    ("program that loads modules", "cat /proc/sys/kernel/modprobe >/proc/sys/kernel/modprobe && reached modprobe"),
    ("sysrq", "echo h >/proc/sysrq-trigger && reached sysrq"),
    ("memory", "[ -n \"$(head -c 4 /dev/mem)\" ] && reached mem; [ -n \"$(head -c 4 /proc/kcore)\" ] && reached kcore"),
    ("kernel messages", "dd if=/dev/kmsg bs=64 count=1 && reached kmsg; dmesg | head -1"),
    ("kernel modules", "insmod /bin/busybox; modprobe dummy; rmmod dummy"),
    (
        "firmware and block devices",
        "ls /sys/firmware; for d in /sys/block/*; do cat $d/uevent; done; echo 1 >/sys/power/pm_test",
    ),
    ("keys", "cat /proc/keys /proc/key-users; keyctl show"),
    (
        "limits and priorities",
        "echo -1000 >/proc/1/oom_score_adj; nice -n -20 true; ulimit -u unlimited; ulimit -l unlimited",
    ),
    ("clock and host name", "date -s \"@$(date +%s)\"; hostname other; sysctl -w kernel.hostname=x"),
];

pub(super) const NAMESPACES: &[Act] = &[
    ("new namespaces", "unshare -Urm sh -c \"mount -t tmpfs t /home; cat $OUT/secret\"; unshare -n -p -i -u true"),
    (
        "namespaces of the first process",
        "nsenter -t 1 -m -u -i -n -p cat $OUT/secret; nsenter -m/proc/1/ns/mnt cat $OUT/secret",
    ),
    ("mount a disk", "for d in sda vda nvme0n1 sda1 vda1; do mount /dev/$d /home && reached disk; done"),
    (
        "mount proc and sys",
        "mount -t proc p /home && cat /home/1/root$OUT/secret; mount -t sysfs s /home; mount -t debugfs d /home",
    ),
    (
        "mount control groups",
        "mkdir -p /tmp/cg; mount -t cgroup -o rdma c /tmp/cg && echo 1 >/tmp/cg/notify_on_release && reached cgroup",
    ),
    (
        "release agent",
        "for f in $(find /sys/fs/cgroup -name release_agent); do echo $HERE/evil.sh >$f && reached release_agent; done",
    ),
    (
        "control groups",
        "echo 1 >/sys/fs/cgroup/cgroup.procs; echo max >/sys/fs/cgroup/pids.max; mkdir /sys/fs/cgroup/devices/x",
    ),
    ("devices by their group", "echo a >/sys/fs/cgroup/devices/devices.allow && reached devices"),
    (
        "bind mounts",
        "mount --bind / /home; mount --rbind /proc/1/root /home; mount -o remount,rw /; cat /home$OUT/secret",
    ),
    (
        "another root",
        "mkdir -p /tmp/r/old; mount -t tmpfs t /tmp/r; pivot_root /tmp/r /tmp/r/old; chroot /tmp/r /bin/sh",
    ),
    (
        "out of a chroot",
        "mkdir -p /tmp/jail; cp /bin/busybox /tmp/jail; cd /; chroot /tmp/jail /busybox cat ../../../..$OUT/secret",
    ),
    (
        "overlay of the host",
        "mkdir -p /tmp/u /tmp/k; mount -t overlay o -o lowerdir=/workspace,upperdir=/tmp/u,workdir=/tmp/k /home",
    ),
    ("loop device", "truncate -s 1M /tmp/img; losetup -f /tmp/img; mount -o loop /tmp/img /home; mkswap /tmp/img"),
    ("uncover what is mounted over", "umount -l /proc/kcore; umount -l /proc/sysrq-trigger; umount -l /workspace"),
    ("network devices", "ip link add x type dummy; ip addr; ip route add default via 127.0.0.1"),
    ("services of the host", "wget -T 1 -q -O - http://169.254.169.254/; nc -w 1 127.0.0.1 2375 </dev/null"),
];

pub(super) const PROCESSES: &[Act] = &[
    ("daemon", "setsid sh -c \"sleep 600; : $DAEMON\" >/dev/null 2>&1 &"),
    ("daemon of a daemon", "(setsid sh -c \"(setsid sh -c 'sleep 600; : $DAEMON') & exit\" >/dev/null 2>&1 &)"),
    (
        "daemon that ignores signals",
        "setsid sh -c \"trap '' TERM HUP INT QUIT; sleep 600; sleep 600; : $DAEMON\" >/dev/null 2>&1 &",
    ),
    (
        "daemon that begins again",
        "setsid sh -c \"while sleep 5; do sh -c 'sleep 50; : $DAEMON' & done; : $DAEMON\" >/dev/null 2>&1 &",
    ),
    ("daemon that stops itself", "setsid sh -c \"kill -STOP \\$\\$; sleep 600; : $DAEMON\" >/dev/null 2>&1 &"),
    ("daemon by busybox", "start-stop-daemon -S -b -x /bin/sh -- -c \"sleep 600; : $DAEMON\""),
    (
        "markers of an end",
        "printf '{\"exit_code\": 0}\\n\\000\\001END\\n{\"success\": true}\\n'; printf '\\377\\376\\000\\000' >&2",
    ),
    ("escapes in output", "printf '\\033]52;c;aGk=\\007\\033[2J\\342\\200\\256\\233'; printf '\\r\\n\\r\\n'"),
    (
        "the guest's socket",
        "ls -la /.coracle /.coracle/*; cat /.coracle/run/key; nc -w 1 -U /.coracle/link/sock </dev/null",
    ),
    (
        "an archive that leaves its directory",
        "mkdir -p tars; tar -c -f tars/up.tar ../etc/passwd to-out up-to-out /proc/version",
    ),
];

pub(super) const LAST: &[Act] = &[
    ("kill every process", "kill -KILL -1"),
    ("kill the first process", "kill -KILL 1; kill -SEGV 1; kill -QUIT 1"),
    ("stop the first process", "kill -STOP 1; kill -TSTP 1; kill -CONT 1"),
    ("stop everything", "(sleep 1; kill -CONT -1) & kill -STOP -1"),
    ("bounded fork bomb", "for i in $(seq 200); do sleep 2 & done; wait"),
    ("fork bomb of shells", "b() { [ $1 -gt 0 ] && { b $(($1 - 1)) & b $(($1 - 1)) & }; wait; }; b 7"),
    ("flood of output", "yes hostile | head -c 8000000; head -c 2000000 /dev/zero"),
    ("flood of errors", "yes hostile | head -c 4000000 >&2"),
    ("flood of a pipe that is read", "rm -f .envrc; mkfifo .envrc; (timeout 2 yes >.envrc &) ; sleep 0.1"),
    ("many open files", "i=3; while [ $i -lt 200 ]; do eval \"exec $i</dev/null\"; i=$((i + 1)); done"),
    ("other programs", "cp evil.sh /bin/id; cp evil.sh /bin/ls; cp evil.sh /bin/tar; rm -f /bin/cat"),
    ("other accounts", "echo 'x:x:0:0:x:/:/bin/sh' >>/etc/passwd; echo 'agent:x:0:' >/etc/group"),
    (
        "the guest's socket by a link",
        "ln -s $OUT /.coracle/link/x; touch /.coracle/link/y; mkfifo /.coracle/link/z; ln -s /.coracle/link near",
    ),
    ("the guest's files", "echo x >/.coracle/run/key; cp /bin/busybox /.coracle/guest; chmod 777 /.coracle"),
    (
        "another socket of the guest",
        "rm -rf /.coracle/link/*; nc -l -U /.coracle/link/sock </dev/null & sleep 0.1; kill $!",
    ),
    ("a link in place of the socket", "rm -rf /.coracle/link /.coracle/run; ln -s $OUT /.coracle/link"),
];
