// The client of the conformance tool's client scenarios: `conform.mjs URL` does what the scenario wants to see.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';

const url = new URL(process.argv.at(-1));
const scenario = process.env.MCP_CONFORMANCE_SCENARIO ?? '';
const revision = process.env.MCP_CONFORMANCE_PROTOCOL_VERSION ?? '2025-11-25';
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');

const client = new Client(
  { name: 'forebay-conform', version: '1.0.0' },
  {
    capabilities: { elicitation: { form: { applyDefaults: true } } },
    versionNegotiation: revision === '2026-07-28' ? { mode: { pin: revision } } : { mode: 'legacy' },
  },
);
client.setRequestHandler('elicitation/create', async () => ({
  action: 'accept',
  content: scenario.startsWith('sep-2322') ? { confirmed: true } : {},
}));

await client.connect(new StreamableHTTPClientTransport(url));
const { tools } = await client.listTools();
const call = (name, args = {}) => client.callTool({ name, arguments: args });
const tolerant = (promise) => promise.catch((error) => console.error(String(error)));

if (scenario === 'tools_call') await call('add_numbers', { a: 5, b: 3 });
else if (scenario === 'json-schema-2020-12-preservation') {
  const focal = tools.find((tool) => tool.name === 'json_schema_2020_12_tool');
  const echo = tools.find((tool) => tool !== focal);
  await call(echo.name, { schema: focal.inputSchema });
} else if (scenario === 'http-standard-headers') {
  await call('my-hyphenated-tool');
  const { resources } = await client.listResources();
  await tolerant(client.readResource({ uri: resources[0].uri }));
  const { prompts } = await client.listPrompts();
  await tolerant(client.getPrompt({ name: prompts[0].name }));
} else if (context.toolCalls) {
  for (const one of context.toolCalls) await tolerant(call(one.name, one.arguments));
} else if (scenario === 'http-invalid-tool-headers') {
  for (const tool of tools) {
    const [property, schema] = Object.entries(tool.inputSchema.properties ?? {})[0] ?? [];
    const value = { string: 'x', integer: 1, number: 1, boolean: true, object: {}, array: [] }[schema?.type] ?? null;
    await tolerant(call(tool.name, property ? { [property]: value } : {}));
  }
} else if (scenario === 'sep-2322-client-request-state') {
  const names = ['test_mrtr_echo_state', 'test_mrtr_no_state', 'test_mrtr_no_result_type'];
  for (const name of names) await tolerant(call(name));
  await Promise.all([tolerant(call('test_mrtr_echo_state')), tolerant(call('test_mrtr_unrelated'))]);
} else for (const tool of tools) await tolerant(call(tool.name));
await client.close();
