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
    appendFileSync(
      this.#log,
      `${JSON.stringify({ atUs: Number(process.hrtime.bigint() / 1000n), ...line })}\n`,
    );
  }

  chunk(request, start, count) {
    this.#write({ kind: 'chunk', request, start, count });
  }

  token(request, { token, margin, logits }) {
    appendFileSync(
      join(this.directory, this.#logits),
      new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength),
    );
    this.#write({
      kind: 'token',
      request,
      token,
      margin,
      logits: { file: this.#logits, at: this.#at, count: logits.length },
    });
    this.#at += logits.byteLength;
  }
}

/** What was recorded of each request: its chunks and its tokens in their order. */
export function readRecords(directory) {
  const requests = new Map();
  const lines = readdirSync(directory)
    .filter((name) => name.endsWith('.jsonl'))
    .flatMap((name) => readFileSync(join(directory, name), 'utf8').split('\n'))
    .filter((line) => line.endsWith('}')) // a process that was killed may have left half a line
    .map((line) => JSON.parse(line))
    .sort((a, b) => a.atUs - b.atUs);
  for (const { kind, request, ...line } of lines) {
    const record = requests.get(request) ?? { chunks: [], tokens: [] };
    requests.set(request, record);
    record[`${kind}s`].push(line);
  }
  return requests;
}
