# mcp PROGRAM: whether `PROGRAM mcp` answers an agent's client.
mcp() {
    {
        echo '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"newcomer","version":"1"}}}'
        echo '{"jsonrpc":"2.0","method":"notifications/initialized"}'
        echo '{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
    } | "$1" mcp > /tmp/answers
    grep -q '"serverInfo":{"name":"coracle"' /tmp/answers
    grep -q '"tools":\[{"name":"shell"' /tmp/answers
    echo "$1 mcp answers"
}
