/** What engines computed, for whoever compares: chunks and tokens of each request, and every logit, in files. */
import { appendFileSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

export class Recorder {
  #log;
  #logits;
  #at = 0;

  constructor(directory, name) {
    mkdirSync(directory, { recursive: true });
    this.#log = join(directory, `${name}.jsonl`);
    this.#logits = `${name}.f32`;
    this.directory = directory;
  }

  #write(line) {
    appendFileSync(this.#log, `${JSON.stringify(line)}\n`);
  }

  /** @param attempt counts from 0 where a request begins anew because an engine was lost */
  prompt(request, attempt, tokens) {
    this.#write({ kind: 'prompt', request, attempt, tokens: [...tokens] });
  }

  chunk(request, attempt, start, count) {
    this.#write({ kind: 'chunk', request, attempt, start, count });
  }

  token(request, attempt, index, { token, margin, logits }) {
    const bytes = new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength);
    appendFileSync(join(this.directory, this.#logits), bytes);
    const place = { file: this.#logits, at: this.#at, count: logits.length };
    this.#write({ kind: 'token', request, attempt, index, token, margin, logits: place });
    this.#at += logits.byteLength;
  }
}

/** Of each request its attempts: the prompt, the chunks and the tokens that were computed, in their order. */
export function readRecords(directory) {
  const requests = new Map();
  const lines = readdirSync(directory)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n'))
    .filter((line) => line.endsWith('}')); // a process that was killed may have left half a line
  for (const { kind, request, attempt, ...line } of lines.map((line) => JSON.parse(line))) {
    const attempts = requests.get(request) ?? [];
    requests.set(request, attempts);
    const record = (attempts[attempt] ??= { prompt: [], chunks: [], tokens: [] });
    if (kind === 'prompt') record.prompt = Uint32Array.from(line.tokens);
    else if (kind === 'chunk') record.chunks.push(line);
    else record.tokens[line.index] = line;
  }
  return requests;
}
