set -eu
root=$1 release=$2
shift 2
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind -o ro "$release" "$root/release"
cd "$root"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs tmpfs tmp
pivot_root . old
cd /
umount -l /old
exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
