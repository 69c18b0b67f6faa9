set -eu
. /install-test/mcp.sh
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
apt-get -qq install -y --no-install-recommends python3-venv > /dev/null
python3 -m venv /root/venv
/root/venv/bin/pip install --quiet --no-index /release/*.whl
mcp /root/venv/bin/coracle
/root/venv/bin/python -c 'import coracle; coracle.Client'
