set -eu
. /install-test/mcp.sh
now() { cut -d ' ' -f 1 /proc/uptime >> /install-test/times; }

rm -f /install-test/times
now
sh /release/install.sh
mkdir -p /root/project
cd /root/project
coracle --engine embedded images load --from /install-test/image.tar debian:bare
coracle create --name first --image debian:bare
coracle exec first -- sh -c 'echo made inside > note.txt && cat note.txt'
now

coracle list
coracle destroy first
mcp coracle
# An upgrade keeps what is there.
key=$(sha256sum /root/.local/state/coracle/key)
sh /release/install.sh | grep -q '^kept '
[ "$(sha256sum /root/.local/state/coracle/key)" = "$key" ]
sh /release/install.sh --uninstall | tee /tmp/said
grep -q '^stays  *.*/root/.local/state/coracle: records, keys and saved work$' /tmp/said
[ ! -e /usr/local/bin/coracle ]
