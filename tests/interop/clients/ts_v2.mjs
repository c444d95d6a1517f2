// `@modelcontextprotocol/client` 2.x. argv[2] is the era: `legacy` (its default) or `modern`.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { run } from "./loop.mjs";

const options = process.argv[2] === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};

await run(async (url) => {
  const client = new Client({ name: "interop-ts-v2", version: "1" }, options);
  const transport = new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  return {
    version: () => client.getNegotiatedProtocolVersion?.() ?? transport.protocolVersion,
    listTools: () => client.listTools(),
    callTool: (params, options) => client.callTool(params, options),
    close: () => client.close(),
  };
});
