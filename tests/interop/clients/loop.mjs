// The line protocol between the driver and a TypeScript client; see loop.py.
import { createInterface } from "node:readline";

export async function run(connect) {
  let client;
  let background;
  const call = async (command, options) => {
    const result = await client.callTool({ name: command.name, arguments: command.args }, options);
    const text = (result.content ?? []).filter((block) => block.type === "text").map((block) => block.text).join("\n");
    return { text, isError: Boolean(result.isError), meta: result._meta ?? null };
  };
  const verbs = {
    connect: async (command) => {
      client = await connect(command.url);
      return { version: client.version() };
    },
    list: async () => ({ tools: (await client.listTools()).tools.map((tool) => tool.name) }),
    call: (command) => call(command),
    start: async (command) => {
      const abort = new AbortController();
      const ended = call(command, { signal: abort.signal }).then(
        (value) => ({ value }),
        (error) => ({ error: String(error) }),
      );
      background = { abort, ended };
      return { started: true };
    },
    cancel: async () => {
      background.abort.abort("no longer wanted");
      const ended = await background.ended;
      return { cancelled: "error" in ended, ended: JSON.stringify(ended) };
    },
    wait: async () => {
      const ended = await background.ended;
      return ended.value ?? { fault: ended.error };
    },
    close: async () => {
      await client.close();
      return { closed: true };
    },
  };
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let answer;
    try {
      answer = await verbs[command.do](command);
    } catch (error) {
      answer = { fault: String(error) };
    }
    process.stdout.write(JSON.stringify(answer) + "\n");
  }
  process.exit(0);
}
