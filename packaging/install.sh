#!/bin/sh
# Installs Coracle @VERSION@: the program, its pages for man and the completions of bash, zsh and fish.
set -eu
unset CDPATH # `cd` would look there first

VERSION=@VERSION@

usage() {
    cat <<'END'
usage: install.sh [--prefix DIR] [--from SOURCE]
       install.sh --uninstall [--prefix DIR]

  --prefix DIR    where it goes: DIR/bin, DIR/share [default: /usr/local for root, else ~/.local]
  --from SOURCE   a directory, or a URL, with the archive and SHA256SUMS, or the archive itself
                  [default: the directory of this script, which may be the unpacked archive]
  --uninstall     removes what this script has installed, and says what stays
END
}

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

has() {
    command -v "$1" > /dev/null 2>&1
}

# The target of this machine, as in the archive's name.
target() {
    case $(uname -m) in
        x86_64 | amd64) cpu=x86_64 ;;
        aarch64 | arm64) cpu=aarch64 ;;
        *) fail "there is no program for $(uname -m)" ;;
    esac
    case $(uname -s) in
        Linux) echo "$cpu-unknown-linux-musl" ;;
        Darwin) echo "$cpu-apple-darwin" ;;
        *) fail "there is no program for $(uname -s)" ;;
    esac
}

# The SHA-256 of a file; `check` has made sure that one of these programs exists.
sum() {
    if has sha256sum; then sha256sum "$1"
    elif has shasum; then shasum -a 256 "$1"
    else openssl dgst -sha256 -r "$1"
    fi | cut -d ' ' -f 1
}

fetch() {
    if has curl; then curl --fail --silent --show-error --location --output "$2" "$1"
    elif has wget; then wget -q -O "$2" "$1" || fail "$1 cannot be downloaded" # -q hides errors, too
    else fail "curl or wget is needed to download $1"
    fi
}

# Compares an archive with its line in SHA256SUMS.
check() {
    has sha256sum || has shasum || has openssl || fail "sha256sum, shasum or openssl is needed to check the archive"
    want=$(grep " [ *]\{0,1\}$2\$" "$3" | cut -d ' ' -f 1)
    [ -n "$want" ] || fail "$3 does not name $2: it is of another version"
    [ "$(sum "$1")" = "$want" ] || fail "$1 is damaged: its SHA-256 is not the one in $3"
    echo "checked   $2"
}

# Whether this script is in the unpacked archive, and not in another directory with a `bin/coracle`.
is_unpacked() {
    [ -x "$here/bin/coracle" ] || return 1
    if [ "${here##*/}" = "$base" ]; then return 0; fi
    [ ! -f "$here/$base.tar.gz" ] && [ "$("$here/bin/coracle" --version 2> /dev/null)" = "coracle $VERSION" ]
}

# The files below the current directory to install. Other files are ignored.
files() {
    for file in bin/coracle share/man/man1/coracle.1 share/man/man1/coracle-*.1 \
        share/bash-completion/completions/coracle share/zsh/site-functions/_coracle \
        share/fish/vendor_completions.d/coracle.fish; do
        if [ -f "$file" ]; then echo "$file"; fi
    done
}

# Unpacks the archive at SOURCE into $work/tree.
unpack() {
    for it in gzip tar; do
        has "$it" || fail "$it is needed to unpack the archive"
    done
    name=$base.tar.gz
    case $1 in
        http://* | https://* | file://*)
            fetch "${1%/}/$name" "$work/$name"
            fetch "${1%/}/SHA256SUMS" "$work/SHA256SUMS"
            archive=$work/$name sums=$work/SHA256SUMS
            ;;
        *.tar.gz) archive=$1 name=${1##*/} sums=$(dirname "$1")/SHA256SUMS ;;
        *) archive=$1/$name sums=$1/SHA256SUMS ;;
    esac
    [ -f "$archive" ] || fail "there is no $archive"
    [ -f "$sums" ] || fail "there is no $sums to check the archive with"
    check "$archive" "$name" "$sums"
    mkdir "$work/tree"
    gzip -dc "$archive" | (cd "$work/tree" && tar -xf -)
    tree=$work/tree/${name%.tar.gz}
}

# Replaces a file atomically: a running program continues with the old one.
put() {
    mkdir -p "$(dirname "$2")"
    new=$2.new-$$
    cp "$1" "$new"
    chmod "$3" "$new"
    mv -f "$new" "$2"
    new=''
}

# Prints what prevents the use of this program or its completions. Under sudo, root's PATH is not the user's.
notes() {
    person=root
    if [ "$(id -u)" = 0 ]; then person=${SUDO_USER:-root}; fi
    case $person in
        root)
            case :$PATH: in
                *":$prefix/bin:"*) ;;
                *) echo "note      $prefix/bin is not in PATH" ;;
            esac
            first=$(command -v coracle) || first=''
            ;;
        *[!A-Za-z0-9._-]*) first='' ;;
        *) first=$(eval "echo ~$person")/.local/bin/coracle ;;
    esac
    # shellcheck disable=SC3013 # dash, bash and busybox know -ef
    if [ -x "$first" ] && ! [ "$first" -ef "$prefix/bin/coracle" ]; then
        echo "note      $first may come first in PATH: remove it in the way that it was installed"
    fi
    # zsh does not search directories below the home.
    case $prefix,${SHELL:-} in
        /usr,* | /usr/local,*) ;;
        *zsh) echo "note      zsh needs in ~/.zshrc, before compinit: fpath+=(\"$prefix/share/zsh/site-functions\")" ;;
    esac
}

install() {
    tree=''
    base=coracle-$VERSION-$(target)
    if [ -z "$from" ] && is_unpacked; then tree=$here; else unpack "${from:-$here}"; fi
    found=$("$tree/bin/coracle" --version) ||
        fail "the program does not start on this machine (if $work is mounted noexec: TMPDIR=DIR sh install.sh)"
    before=''
    if [ -x "$prefix/bin/coracle" ]; then before=$("$prefix/bin/coracle" --version 2> /dev/null) || before=unknown; fi
    (cd "$tree" && files) | LC_ALL=C sort > "$work/files"
    : > "$work/old"
    if [ -f "$list" ]; then cat "$list" > "$work/old"; fi
    # The list is written first, with old and new files, so that an interrupted installation can be removed.
    LC_ALL=C sort -u "$work/old" "$work/files" > "$work/all"
    put "$work/all" "$list" 644
    while read -r file; do
        mode=644
        if [ "$file" = bin/coracle ]; then mode=755; fi
        put "$tree/$file" "$prefix/$file" "$mode"
    done < "$work/files"
    # Files of the earlier version that this one lacks.
    while read -r file; do
        grep -qxF "$file" "$work/files" || rm -f "$prefix/$file"
    done < "$work/old"
    put "$work/files" "$list" 644
    prefix=$(cd "$prefix" && pwd)
    if [ -n "$before" ]; then echo "replaced  $before"; fi
    echo "installed $found: $prefix/bin/coracle, pages for man, completions of bash, zsh and fish"
    if [ -n "$before" ]; then echo "kept      settings, records and containers of the version before"; fi
    notes
    echo "next      coracle preflight"
}

uninstall() {
    [ -f "$list" ] || fail "nothing below $prefix was installed by this script"
    while read -r file; do
        rm -f "$prefix/$file"
    done < "$list"
    rm -f "$list"
    rmdir "$prefix/share/coracle" 2> /dev/null || true
    echo "removed   $prefix/bin/coracle, pages for man, completions"
    home=${HOME:-/root}
    config=${XDG_CONFIG_HOME:-$home/.config}
    data=${XDG_DATA_HOME:-$home/.local/share}/coracle podman=$config/containers
    if [ "$(id -u)" = 0 ]; then data=/var/lib/coracle podman=/etc/containers; fi
    stays "settings" "$config/coracle"
    stays "records, keys and saved work" "${XDG_STATE_HOME:-$home/.local/state}/coracle"
    stays "images and containers of the embedded engine" "$data"
    stays "Podman's settings, by \`coracle setup\`" "$podman/containers.conf.d/50-coracle.conf"
    echo "stays     containers and images in Docker or Podman; other users' settings and records"
    echo "stays     the entries of \`coracle init\` and \`coracle ssh-config\` in files of other programs, if there are any"
    if [ "$(id -u)" = 0 ] && { [ -d "$data/engine" ] || grep -qsx 2 /proc/sys/net/ipv4/conf/*/forwarding; }; then
        network_stays
    fi
}

network_stays() {
    cat <<'END'
stays     until a restart, if the embedded engine ran since the last one: devices that forward packets of containers, and its
          packet filter, which keeps other packets from these devices. To undo both without a restart, in this order
          (if `nft` knows no such table, there is nothing to undo):
            for it in $(grep -lx 2 /proc/sys/net/ipv4/conf/*/forwarding); do echo 0 > "$it"; done
            nft delete table inet coracle
          The rules `coracle links` in the chain FORWARD apply to links of containers alone
END
}

stays() {
    if [ -e "$2" ]; then echo "stays     $2: $1"; fi
}

prefix='' from='' act=install
while [ $# -gt 0 ]; do
    case $1 in
        --prefix) prefix=${2:?--prefix needs a directory} && shift ;;
        --from) from=${2:?--from needs a directory, an archive or a URL} && shift ;;
        --uninstall) act=uninstall ;;
        -h | --help) usage && exit ;;
        *) usage >&2 && exit 2 ;;
    esac
    shift
done
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=$HOME/.local; fi
fi
here=$(cd "$(dirname "$0")" && pwd)
list=$prefix/share/coracle/installed
# Root's `umask` may deny others access to the directories.
if [ "$(id -u)" = 0 ]; then umask 022; fi
new=''
work=$(mktemp -d "${TMPDIR:-/tmp}/coracle-install.XXXXXX")
trap 'rm -rf "$work" ${new:+"$new"}' EXIT
trap 'exit 130' INT TERM HUP PIPE
$act
