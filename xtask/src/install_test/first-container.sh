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
mcp coracle
# An upgrade keeps what is there, also a container, and removes what only the version before had. PATH is root's under
# sudo: another program is then looked for in that user's home.
key=$(sha256sum /root/.local/state/coracle/key)
: > /usr/local/share/old
echo share/old >> /usr/local/share/coracle/installed
echo 'person:x:1000:1000::/home/person:/bin/sh' >> /etc/passwd
mkdir -p /home/person/.local/bin
cp /usr/local/bin/coracle /home/person/.local/bin
SUDO_USER=person sh /release/install.sh > /tmp/output
cat /tmp/output
grep -q '^replaced ' /tmp/output
grep -q '^kept ' /tmp/output
grep -q '^note  *.*/home/person/.local/bin/coracle may come first' /tmp/output
[ "$(sha256sum /root/.local/state/coracle/key)" = "$key" ]
[ ! -e /usr/local/share/old ]
[ "$(coracle exec first -- cat note.txt)" = 'made inside' ]
coracle destroy first
sh /release/install.sh --uninstall > /tmp/output
cat /tmp/output
grep -q '^stays  *.*/root/.local/state/coracle: records, keys and saved work$' /tmp/output
grep -q 'nft delete table inet coracle$' /tmp/output
[ ! -e /usr/local/bin/coracle ]
