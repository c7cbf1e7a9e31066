import { describe, expect, it } from 'vitest';
import { readTrace, type ReadTraceOptions, type TraceEntry } from '../../src/trace/index.js';
import { rawSession, temporaryFiles } from './support.js';

const write = temporaryFiles();

function file(...lines: unknown[]): string {
  return write(
    't.jsonl',
    lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'),
  );
}

async function read(path: string, options?: ReadTraceOptions): Promise<(TraceEntry & { format: string })[]> {
  const entries = [];
  for await (const entry of readTrace(path, options)) entries.push(entry);
  return entries;
}

async function complaint(...lines: unknown[]): Promise<string> {
  const error = await read(file(...lines)).then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toMatchObject({ code: 'INVALID_TRACE' });
  return (error as Error).message.replace(/^.*t\.jsonl:?/, '');
}

const request = { timestamp: 3000, input_length: 1025, output_length: 7, hash_ids: [0, 9, 4294967295] };
const own = { format: 'dualpath', version: 1, id: 'a', turns: [{ append: 10, output: 4 }] };

describe('claude-code', () => {
  it('reads lengths, times and the shared prefix', async () => {
    const turns = [
      { t: 0, in: 20, out: 5, hit: 0, think: null },
      { t: 1.25, in: 30, out: 6, hit: 16, think: 0.5 },
      { t: 2, in: 33, out: 7, hit: 30, think: 0 },
      { t: 3, in: 25, out: 0, hit: 12, think: 0 },
    ];
    const [entry] = await read(
      file(rawSession('x', turns, { dup_of: 'w', tool_tokens: 12, system_tokens: 9 })),
    );
    expect(entry).toMatchObject({ format: 'claude-code', duplicateOf: 'w', session: { id: 'x' } });
    expect(entry?.session.prefix.map((segment) => segment.tokens)).toEqual([12, 8]);
    expect(entry?.session.turns[1]).toEqual({
      promptTokens: 30,
      outputTokens: 6,
      traceHitTokens: 16,
      arrivalMs: 1250,
      thinkMs: 500,
      identity: { kind: 'conversation', keptTokens: 25 },
    });
    expect(entry?.session.turns.map(({ identity }) => identity)).toMatchObject(
      [0, 25, 30, 12].map((keptTokens) => ({ keptTokens })),
    );
  });

  it('names file, line, field, the expected and the found', async () => {
    const good = rawSession('x', [{}]);
    const bad = { ...rawSession('y', [{}, {}]) };
    Object.assign(bad.turns[1] ?? {}, { out: -1 });
    expect(await complaint(good, bad)).toBe(
      '2: turns[1].out: expected a whole number from 0 to 2147483648, found -1',
    );
    expect(await complaint(good, { ...good, id: 'z', turns: [] })).toBe(
      '2: turns: expected a list of 1 to 65536 turns, found a list of 0',
    );
    expect(await complaint(good, '', '{"id": "cut')).toMatch(
      /^3: expected one JSON document on the line, found "/,
    );
    expect(await complaint(good, 17)).toBe('2: expected a JSON object, found 17');
    expect(await complaint(rawSession('y', [{ in: 5, hit: 6 }]))).toMatch(
      /turns\[0\]\.hit: expected at most the turn's 5/,
    );
    expect(await complaint(good, good)).toBe(
      '2: id: expected an id not used before (line 1 has it), found "x"',
    );
  });

  it('refuses contexts and sessions of too many tokens', async () => {
    const most = 2 ** 31;
    expect(await complaint(rawSession('x', [{ in: most + 1 }]))).toMatch(
      /turns\[0\]\.in: expected a whole number/,
    );
    expect(await complaint(rawSession('x', [{ in: most, out: 1 }]))).toMatch(
      /turns\[0\]: expected at most 2147483648 tokens in a turn, found 2147483649/,
    );
    const halves = [
      { in: 2 ** 30, out: 0 },
      { in: 2 ** 30 - 1, out: 0 },
      { in: 2 ** 30 - 2, out: 0 },
    ];
    expect(await complaint(rawSession('x', halves))).toMatch(
      /turns: expected at most 2147483648 distinct tokens/,
    );
    expect(await read(file(rawSession('x', halves.slice(0, 2))))).toHaveLength(1);
  });
});

describe('mooncake', () => {
  it('reads each request as a session of one turn', async () => {
    expect(await read(file(request, '', request))).toMatchObject([
      {
        format: 'mooncake',
        session: {
          id: 'request-1',
          turns: [
            {
              promptTokens: 1025,
              outputTokens: 7,
              arrivalMs: 3000,
              identity: { kind: 'blocks', blockTokens: 512, hashIds: [0, 9, 4294967295] },
            },
          ],
        },
      },
      { session: { id: 'request-3' } },
    ]);
  });

  it('refuses ids that do not cover the input, and ids that are not u32', async () => {
    expect(await complaint({ ...request, hash_ids: [0, 9] })).toBe(
      '1: hash_ids: expected 3 ids, one for each 512 tokens of input_length 1025, found a list of 2',
    );
    expect(await complaint(request, { ...request, hash_ids: [0, 1, 2 ** 32] })).toMatch(
      /^2: hash_ids\[2\]: expected/,
    );
  });
});

describe('dualpath', () => {
  it('reads turns by what they add', async () => {
    const turns = [
      { append: 10, output: 4, arrival_ms: 5 },
      { append: 3, output: 2, think_ms: 7 },
      { append: 1, output: 0, keep: 6, arrival_ms: 5 },
      { append: 0, output: 3 },
    ];
    const [entry] = await read(file({ ...own, shared_prefix: { name: 'p', tokens: 8 }, turns }));
    expect(entry?.format).toBe('dualpath');
    expect(entry?.session.prefix).toEqual([{ name: 'p', tokens: 8 }]);
    expect(
      entry?.session.turns.map(({ promptTokens, identity, arrivalMs, thinkMs }) => [
        promptTokens,
        identity.kind === 'conversation' ? identity.keptTokens : NaN,
        arrivalMs,
        thinkMs,
      ]),
    ).toEqual([
      [18, 0, 5, null],
      [25, 22, null, 7],
      [7, 6, 5, null],
      [7, 7, null, null],
    ]);
  });

  it('refuses other versions, unknown fields and impossible turns', async () => {
    expect(await complaint({ ...own, version: 2 })).toBe(
      '1: version: expected 1, the only version there is, found 2',
    );
    expect(await complaint({ ...own, turns: [{ apend: 10, output: 4 }] })).toBe(
      '1: turns[0].apend: expected no key of this name; check its spelling, found 10',
    );
    const second = (turn: object): object => ({
      ...own,
      turns: [{ append: 10, output: 4, arrival_ms: 9 }, turn],
    });
    expect(await complaint(second({ append: 1, output: 1, keep: 15 }))).toMatch(
      /turns\[1\]\.keep: expected at most the 14/,
    );
    expect(await complaint(second({ append: 0, output: 1, keep: 0 }))).toMatch(
      /turns\[1\]\.append: expected a prompt/,
    );
    expect(await complaint(second({ append: 1, output: 1, arrival_ms: 8 }))).toMatch(
      /no time before .*\(9\), found 8/,
    );
    expect(await complaint({ ...own, turns: [{ append: 1, output: 1, keep: 1 }] })).toMatch(
      /keep: expected at most the 0/,
    );
  });
});

describe('formats', () => {
  it('is told from the first line, unless given', async () => {
    expect(await complaint({ a: 1 })).toMatch(/^1: expected a line with "format" .*found \{"keys":\["a"\]\}/);
    expect(await complaint(request, own)).toMatch(/^2: timestamp: expected a number of milliseconds/);
    await expect(read(file(request), { format: 'dualpath' })).rejects.toMatchObject({
      code: 'INVALID_TRACE',
    });
    expect(await read(file(request), { format: 'mooncake' })).toHaveLength(1);
  });

  it('refuses an empty file', async () => {
    expect(await complaint('\n')).toBe(' expected a session a line, found an empty file');
  });
});
