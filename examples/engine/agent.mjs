/**
 * Scripted agents: sessions of many turns that share a system prompt and use tools. The model's replies go into the conversation
 * as they are; what the tools answer is the script's, whatever the model asked for, so that a run can be repeated.
 */

/** For models whose tokens are bytes. */
const briefSystem =
  'Use the tools search(query), open(page) and run(command), one at a time; then answer in plain words.';

const system = `You are a careful assistant that works with tools. To use one, answer with its name and its arguments.
Tools:
- search(query): pages about a subject, one line each, with a number.
- open(page): the text of a page by its number.
- read_file(path, from, to): lines of a file of the project, with their numbers.
- run(command): runs a command in the project's folder and returns what it prints.
- note(text): keeps a remark for later.
Rules: use one tool at a time. Say in one short sentence what you found before you go on. Do not repeat yourself. When you know enough,
answer the question in plain words and name the pages and files that you used.`;

const subjects = [
  'how the storage of key-value caches affects the time to the first token',
  'why the build of the parser fails on machines with two cores',
  'which of the three sorting routines is the fastest for short lists',
];

const sentences = [
  'The measurement was repeated five times and the median is given.',
  'On a machine with two cores the difference was smaller than the noise.',
  'The limit is set at the start and does not change while requests are served.',
  'A reader waits until the bytes have arrived and then goes on by itself.',
  'Nothing was written twice, which the log of the last run shows.',
  'The table on the next page lists each step with its share of the time.',
];

/** What a tool answers in a turn: some lines of text, never the same twice. */
function toolAnswer(session, turn, lines) {
  if (lines === 0) return `${turn * 7919 + session}: ok`;
  const tools = ['search', 'open', 'read_file', 'run', 'note'];
  const text = Array.from({ length: lines }, (_, line) => {
    const which = (session * 31 + turn * 7 + line * 5) % sentences.length;
    return `${turn * 100 + line + 1}: ${sentences[which]}`;
  });
  return `Result of ${tools[(session + turn) % tools.length]}, part ${turn}:\n${text.join('\n')}\nGo on.`;
}

/** The task, and with it what is known already, if agents are to begin with a longer context. */
function opening(session, knownLines) {
  const task = `Find out ${subjects[session % subjects.length]}. This is task ${session + 1}.`;
  return knownLines === 0 ? task : `${task}\nWhat is known already:\n${toolAnswer(session, 0, knownLines)}`;
}

/** One turn over HTTP, streamed. @returns the reply, when its first token came, and what the front says of it */
export async function complete(url, body) {
  const began = performance.now();
  const response = await fetch(`${url}/v1/chat/completions`, {
    ...{ method: 'POST', headers: { 'content-type': 'application/json' } },
    body: JSON.stringify({ ...body, stream: true }),
  });
  if (!response.ok) throw new Error(`${response.status}: ${await response.text()}`);
  let reply = '';
  let last;
  let firstTokenMs;
  let rest = '';
  const decoder = new TextDecoder();
  for await (const bytes of response.body) {
    const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith('data: {')) continue;
      firstTokenMs ??= performance.now() - began;
      last = JSON.parse(line.slice(6));
      if (last.error !== undefined) throw new Error(last.error.message);
      reply += last.choices[0].delta.content ?? '';
    }
  }
  return { reply, firstTokenMs, ...last };
}

/**
 * Sessions turn by turn, one request at a time: which request stores a shared block first is then the same in every run.
 * @param options url, model, sessions, turns, toolLines (0: a few words), knownLines of the first message, maxTokens;
 * beforeTurn(session, turn, request body), onTurn(record)
 * @returns a record for each turn
 */
export async function runAgents(options) {
  const { url, model, sessions, turns, toolLines, knownLines = 0, maxTokens, beforeTurn, onTurn } = options;
  const talks = Array.from({ length: sessions }, (_, session) => [
    { role: 'system', content: toolLines === 0 ? briefSystem : system },
    {
      role: 'user',
      content: opening(session, knownLines),
    },
  ]);
  const records = [];
  for (let turn = 1; turn <= turns; turn++) {
    for (const [session, messages] of talks.entries()) {
      const body = { model, messages, max_tokens: maxTokens };
      await beforeTurn?.(session, turn, body);
      const { reply, id, usage, firstTokenMs } = await complete(url, body);
      const record = {
        ...{ session, turn, request: id, reply, promptTokens: usage.prompt_tokens },
        ...{ hitTokens: usage.prompt_tokens_details.cached_tokens, newTokens: usage.completion_tokens },
        firstTokenMs,
      };
      records.push(record);
      onTurn?.(record);
      messages.push({ role: 'assistant', content: reply });
      messages.push({ role: 'user', content: toolAnswer(session, turn, toolLines) });
    }
  }
  return { records, talks };
}
