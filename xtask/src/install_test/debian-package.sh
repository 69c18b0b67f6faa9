set -eu
. /install-test/mcp.sh
dpkg -i /release/*.deb
dpkg -V coracle
mcp /usr/bin/coracle
dpkg -r coracle
[ ! -e /usr/bin/coracle ]
