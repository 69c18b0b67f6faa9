# What a process can do and see where it runs, one `row<TAB>value` a line. Nothing is changed: files are opened and not
# written, system calls have arguments that they refuse.
$| = 1;

sub row { my ($name, $value) = @_; $value =~ s/[\t\n]/ /g; print "$name\t$value\n" }
sub text { my ($path) = @_; open(my $file, '<', $path) or return undef; local $/; my $text = <$file>; $text }

# Namespaces and ids.
row("namespace $_", readlink("/proc/self/ns/$_") // 'unknown') for qw(user mnt pid net ipc uts cgroup);
row('uid map', join ' ', split ' ', text('/proc/self/uid_map') // '');
for my $who ('self', '1') {
    my %status = map { /^(\w+):\s*(.*)/ ? ($1, $2) : () } split /\n/, text("/proc/$who/status") // '';
    row("$who $_", $status{$_} // '') for qw(CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp);
}
row('hostname', text('/proc/sys/kernel/hostname') // '');
row('cgroup', join ' ', sort map { (split /:/, $_, 3)[2] ne '/' ? $_ : () } split /\n/, text('/proc/self/cgroup') // '');

# Mounts: their flags by target.
for (split /\n/, text('/proc/self/mountinfo') // '') {
    my @words = split / /;
    my %flags = map { $_ => 1 } split /,/, $words[5];
    row("mount $words[4]", join ' ', grep { $flags{$_} } qw(ro nosuid nodev noexec));
}

# Files that show the host.
sub shows {
    my ($path) = @_;
    if (opendir(my $dir, $path)) { return scalar(grep { !/^\.\.?$/ } readdir $dir) ? 1 : 0 }
    sysopen(my $file, $path, 04000) or return 0;    # O_NONBLOCK
    my $length = sysread($file, my $bytes, 1);
    defined $length && $length > 0 ? 1 : 0;
}
row("readable $_", shows($_)) for qw(
    /proc/acpi /proc/asound /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats /proc/sched_debug /proc/scsi
    /proc/timer_list /proc/timer_stats /proc/kmsg /proc/kpagecount /proc/kpageflags /proc/kpagecgroup /proc/slabinfo
    /proc/vmallocinfo /proc/1/environ /proc/1/root /proc/1/fd /sys/firmware /sys/devices/virtual/powercap
    /sys/kernel/debug /sys/kernel/tracing /sys/kernel/security /sys/fs/bpf /dev/mem /dev/kmsg /dev/vda /dev/sda);

# Files that change the host, opened for writing.
sub opens { my ($path) = @_; sysopen(my $file, $path, 04001) ? 1 : 0 }
row("writable $_", opens($_)) for qw(
    /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hotplug /proc/sys/kernel/hostname
    /proc/sys/kernel/domainname /proc/sys/vm/overcommit_memory /proc/sys/vm/drop_caches /proc/sys/net/ipv4/ip_forward
    /proc/sys/fs/binfmt_misc/register /proc/sysrq-trigger /proc/irq/default_smp_affinity /proc/bus/pci/00/00.0
    /proc/fs/ext4 /proc/acpi/wakeup /proc/mtrr /sys/kernel/uevent_helper /sys/kernel/mm/transparent_hugepage/enabled
    /sys/power/state /sys/module/overlay/parameters/metacopy /sys/class/net/lo/mtu /sys/fs/cgroup/cgroup.procs
    /sys/fs/cgroup/memory/release_agent /sys/fs/cgroup/memory/tasks /sys/fs/cgroup/devices/devices.allow
    /proc/1/exe /proc/1/mem /proc/1/oom_score_adj /proc/1/uid_map /proc/1/attr/current);

# Devices, and descriptors that came with the start of this command.
sub devices {
    my ($dir) = @_;
    opendir(my $entries, $dir) or return;
    for my $name (grep { !/^\.\.?$/ } readdir $entries) {
        my @stat = lstat("$dir/$name");
        my $kind = $stat[2] & 0170000;
        devices("$dir/$name") if $kind == 0040000 && $name ne 'shm';
        next unless $kind == 0020000 || $kind == 0060000;
        my $number = sprintf '%d:%d', ($stat[6] >> 8) & 0xfff, ($stat[6] & 0xff) | (($stat[6] >> 12) & 0xfff00);
        row("device $dir/$name", ($kind == 0060000 ? 'block ' : 'char ') . $number) unless $dir eq '/dev/pts' && $name =~ /^\d+$/;
    }
}
devices('/dev');
opendir(my $open, '/proc/self/fd');
for my $number (sort { $a <=> $b } grep { /^\d+$/ } readdir $open) {
    my $target = readlink("/proc/self/fd/$number") // next;
    row("descriptor $number", $target =~ m{^(pipe|socket|anon_inode):|^/proc/} ? $1 // 'own' : $target) if $number > 2 && $number != fileno($open);
}

# Limits of this process: the hard one.
for (split /\n/, text('/proc/self/limits') // '') {
    row("limit $1", $2) if /^(Max .*?)\s{2,}\S+\s+(\S+)/;
}

# Every system call, each in a process of its own; 0 is one that did something, or none that returned in time.
sub outcome {
    my ($number, @arguments) = @_;
    pipe(my $read, my $write);
    my $child = fork;
    if (!$child) {
        close $read;
        my $result = syscall($number, @arguments);
        syswrite $write, ($result == -1 ? $! + 0 : 0) . '.';
        kill 9, $$;
    }
    close $write;
    my $ready = '';
    vec($ready, fileno($read), 1) = 1;
    my $answer = '';
    sysread $read, $answer, 16 if select($ready, undef, undef, 0.3);
    kill 9, $child;
    waitpid $child, 0;
    $answer =~ /^(\d+)\./ ? $1 : 0;
}
my %unsafe = map { $_ => 1 } split ' ', UNSAFE;
row("call $_", outcome($_, (-1) x 6)) for grep { !$unsafe{$_} } 0 .. LAST_CALL;
my @families = (1 .. 46);
row("family $_", outcome(SOCKET, $_, $_ == 16 ? 3 : 2, 0)) for @families;
row('call x32 getpid', outcome(0x40000000 + GETPID, 0));
row("new namespace $_", outcome(UNSHARE, $_)) for 0x20000, 0x10000000, 0x40000000, 0x8000000, 0x4000000, 0x20000000, 0x2000000;
row('personality without randomized addresses', outcome(PERSONALITY, 0x0040000));
my $path = "/tmp/isolation-$$";
row('node of the disk', outcome(MKNODAT, -100, "$path\0", 060600 + 0, 8 << 8));
row('mount', outcome(MOUNT, "none\0", "/tmp\0", "tmpfs\0", 0, 0));
row('trace PID 1', outcome(PTRACE, 16, 1, 0, 0));
unlink $path;
