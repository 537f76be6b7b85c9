// What a program in JavaScript does with EVI: node scenarios.mjs NAME [ARGUMENT …], one line of JSON for each thing seen.
import OpenAI from "openai";

const [name, ...given] = process.argv.slice(2);
const baseURL = `${process.env.EVI_URL}/v1`;
const connect = (options = {}) => new OpenAI({ baseURL, apiKey: process.env.EVI_KEY, maxRetries: 0, ...options });
const client = connect();

const see = (seen) => console.log(JSON.stringify(seen));
const user = (content) => ({ role: "user", content });
const inSession = (id) => ({ headers: { "X-Session-ID": id } });

async function ask(text, options = {}, { through = client, ...body } = {}) {
  const request = { model: "evi", messages: [user(text)], ...body };
  const { data, response } = await through.chat.completions.create(request, options).withResponse();
  const { message, finish_reason } = data.choices[0];
  return { answer: message.content, finish_reason, usage: data.usage, session: response.headers.get("X-Session-ID") };
}

async function stream(text, options = {}) {
  const body = { model: "evi", messages: [user(text)], stream: true, stream_options: { include_usage: true } };
  const { data, response } = await client.chat.completions.create(body, options).withResponse();
  see({ session: response.headers.get("X-Session-ID") });
  return data;
}

// The error as the SDK sorts it: by name, by being one of its own, and by what it says.
async function refused(promise) {
  try {
    return { answered: await promise };
  } catch (error) {
    const kind = error.constructor.name;
    return { kind, official: error instanceof OpenAI[kind], status: error.status, code: error.code, message: error.message };
  }
}

const scenarios = {
  chat: async (text) => see(await ask(text)),

  async stream(text) {
    for await (const chunk of await stream(text)) see(chunk);
  },

  async conversation(...texts) {
    let session;
    for (const text of texts) {
      const seen = await ask(text, session ? inSession(session) : {});
      session = seen.session;
      see(seen);
    }
  },

  async historyOfTheClient(store) {
    const messages = [{ role: "developer", content: "be brief" }, user("one"), { role: "assistant", content: "1" }];
    see(await ask("", {}, { messages: [...messages, user([{ type: "text", text: "two" }])], store: store === "true" }));
  },

  async sameKeyTwice(text) {
    for (const _ of [1, 2]) see(await ask(text, { headers: { "Idempotency-Key": "k1" } }));
  },

  retry: async (text) => see(await ask(text, {}, { through: connect({ maxRetries: 2 }) })),
  retryAfterTimeout: async (text) => see(await ask(text, {}, { through: connect({ maxRetries: 2, timeout: 1500 }) })),
  timeout: async (text) => see(await refused(ask(text, { timeout: 1000 }))),

  async abort(text) {
    const chunks = await stream(text);
    let words = "";
    for await (const chunk of chunks) {
      words += chunk.choices[0].delta.content;
      if (words === "You said: ") chunks.controller.abort();
    }
    see({ words });
  },

  async brokenStream(text) {
    let words = "";
    const read = async () => {
      for await (const chunk of await stream(text)) words += chunk.choices[0]?.delta.content ?? "";
    };
    see({ ...(await refused(read())), words });
  },

  refusedQuestion: async (text) => see(await refused(ask(text))),
  refusedSession: async (session) => see(await refused(ask("hello", inSession(session)))),
  refusedKey: async (key) => see(await refused(ask("hello", {}, { through: connect({ apiKey: key }) }))),

  async models() {
    const listed = [];
    for await (const model of client.models.list()) listed.push(model);
    see({ listed, retrieved: await client.models.retrieve("evi"), unknown: await refused(client.models.retrieve("gpt-9")) });
  },
};

await scenarios[name](...given);
