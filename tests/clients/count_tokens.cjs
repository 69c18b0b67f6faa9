// Reads an array of texts as JSON, from a file or standard input, and writes how many tokens each is to two tokenizers.
const gpt = require("gpt-tokenizer");
const claude = require("@anthropic-ai/tokenizer");

const texts = JSON.parse(require("fs").readFileSync(process.argv[2] ?? 0, "utf8"));
console.log(JSON.stringify(texts.map((it) => [gpt.encode(it).length, claude.countTokens(it)])));
