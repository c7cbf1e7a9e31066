/** The OpenAI-style front: conversations over HTTP, replies as they are decoded. Any client, or `dualpath route`, talks to it. */
import { createServer } from 'node:http';

const maxBodyBytes = 16 * 2 ** 20;

class ClientError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function readJson(request) {
  const chunks = [];
  let bytes = 0;
  for await (const chunk of request) {
    bytes += chunk.length;
    if (bytes > maxBodyBytes) throw new ClientError(413, `the body has more than ${maxBodyBytes} bytes`);
    chunks.push(chunk);
  }
  try {
    return JSON.parse(Buffer.concat(chunks).toString('utf8'));
  } catch {
    throw new ClientError(400, 'the body is not JSON');
  }
}

/** Messages with their text; content in parts is joined. */
function messagesOf({ messages }) {
  const textOf = ({ content }) =>
    Array.isArray(content) ? content.map(({ text }) => text ?? '').join('') : content;
  const said = Array.isArray(messages)
    ? messages.map((message) => ({ role: message?.role, content: textOf(message ?? {}) }))
    : [];
  if (
    said.length > 0 &&
    said.every(({ role, content }) => typeof role === 'string' && typeof content === 'string')
  )
    return said;
  throw new ClientError(400, 'messages: a list of at least one {"role", "content"} is needed');
}

export class Front {
  #server;
  #options;

  /** @param options model: its name; tokenizer; submit(): see LocalCluster; contextTokens: most of a request */
  constructor(options) {
    this.#options = options;
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error) => {
        const status = error.status ?? (error.code === 'REQUEST_TOO_LARGE' ? 413 : 500);
        const body = {
          error: { message: error.message, type: status < 500 ? 'invalid_request_error' : 'server_error' },
        };
        if (response.headersSent) response.end(`data: ${JSON.stringify(body)}\n\n`);
        else response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
      });
    });
  }

  async listen(port = 0, host = '127.0.0.1') {
    await new Promise((resolve, reject) => this.#server.once('error', reject).listen(port, host, resolve));
    return `http://${host}:${this.#server.address().port}`;
  }

  async close() {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  async #handle(request, response) {
    const path = request.url.split('?', 1)[0];
    const json = (value) => {
      response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(value));
    };
    if (path === '/health') return json({});
    const { model } = this.#options;
    if (path === '/v1/models') return json({ object: 'list', data: [{ id: model, object: 'model' }] });
    if (path !== '/v1/chat/completions' || request.method !== 'POST') {
      throw new ClientError(404, `there is no ${request.method} ${path}`);
    }
    await this.#complete(await readJson(request), response, json);
  }

  async #complete(body, response, json) {
    const { tokenizer, submit, contextTokens, model } = this.#options;
    const messages = messagesOf(body);
    const prompt = tokenizer.prompt(messages);
    const maxNewTokens = body.max_completion_tokens ?? body.max_tokens ?? 64;
    if (
      !Number.isSafeInteger(maxNewTokens) ||
      maxNewTokens < 1 ||
      prompt.length + maxNewTokens > contextTokens
    ) {
      throw new ClientError(
        400,
        `a prompt of ${prompt.length} tokens and max_tokens ${maxNewTokens}; 1 to ${contextTokens} together are possible`,
      );
    }
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    const began = performance.now();
    const { request, hitTokens, stream } = await submit({ prompt, maxNewTokens, signal: gone.signal });
    const head = { id: request, created: Math.floor(Date.now() / 1000), model };
    const write = (delta, finish = null, rest = {}) => {
      const choices = [{ index: 0, delta, finish_reason: finish }];
      const chunk = { ...head, object: 'chat.completion.chunk', choices, ...rest };
      response.write(`data: ${JSON.stringify(chunk)}\n\n`);
    };
    if (body.stream) response.writeHead(200, { 'content-type': 'text/event-stream' });
    const tokens = [];
    let sent = '';
    let firstTokenMs;
    for await (const { first, tokens: fresh } of stream) {
      if (firstTokenMs === undefined) {
        firstTokenMs = performance.now() - began;
        if (body.stream) write({ role: 'assistant', content: '' });
      }
      fresh.forEach((token, i) => (tokens[first + i] = token));
      // The last character may lack bytes that the next token brings.
      const text = tokenizer.decode(tokens).replace(/\u{FFFD}+$/u, '');
      if (body.stream && text.length > sent.length) write({ content: text.slice(sent.length) });
      sent = text;
    }
    const text = tokenizer.decode(tokens);
    const finish = tokens.at(-1) === tokenizer.endToken ? 'stop' : 'length';
    // The end token is the template's to write.
    tokenizer.remember(messages, text, finish === 'stop' ? tokens.slice(0, -1) : tokens);
    const usage = {
      ...{ prompt_tokens: prompt.length, completion_tokens: tokens.length },
      ...{ total_tokens: prompt.length + tokens.length, prompt_tokens_details: { cached_tokens: hitTokens } },
    };
    const timing = { first_token_ms: firstTokenMs, total_ms: performance.now() - began };
    if (!body.stream) {
      const message = { role: 'assistant', content: text };
      const choices = [{ index: 0, message, finish_reason: finish }];
      return json({ ...head, object: 'chat.completion', choices, usage, timing });
    }
    if (text.length > sent.length) write({ content: text.slice(sent.length) });
    write({}, finish, { usage, timing });
    response.end('data: [DONE]\n\n');
  }
}
