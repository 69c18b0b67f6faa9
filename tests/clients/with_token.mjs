// Passes requests on with a token added, for clients that cannot send one.
// node with_token.mjs TOKEN-FILE PORT: prints its own port.
import { readFileSync } from "node:fs";
import http from "node:http";

const [file, port] = process.argv.slice(2);
const authorization = `Bearer ${readFileSync(file, "utf8").trim()}`;

const proxy = http.createServer((request, response) => {
  const { method, url, headers } = request;
  const options = { host: "127.0.0.1", port, method, path: url, headers: { ...headers, authorization } };
  const onward = http.request(options, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    response.flushHeaders();
    answer.pipe(response);
  });
  onward.on("error", () => response.destroy());
  response.on("close", () => onward.destroy());
  request.pipe(onward);
});
proxy.listen(0, "127.0.0.1", () => console.log(proxy.address().port));
