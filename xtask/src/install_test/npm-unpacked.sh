set -eu
. /install-test/mcp.sh
mkdir -p /root/node && cd /root/node
tar -xzf /release/*.tgz
mcp package/bin/coracle
