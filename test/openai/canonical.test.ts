import { describe, expect, it } from 'vitest';
import { ApiError, canonicalPrompt, parseBody, PromptKeys, type Api } from '../../src/openai/index.js';

const keys = new PromptKeys({ blockTokens: 4, bytesPerToken: 4, secret: new Uint8Array(32).fill(1) });

function keysOf(api: Api, body: Record<string, unknown>, tenant = ''): number[] {
  const lines = [/^\u0002?x-volatile:.*$/gm];
  return [...keys.keysOf(canonicalPrompt(api, { model: 'm', ...body }, lines), tenant).keys];
}

const user = (content: unknown): object => ({ role: 'user', content });

describe('canonicalPrompt', () => {
  it('takes every form of prompt', () => {
    const tokens = (prompt: unknown): number =>
      keys.keysOf(canonicalPrompt('completions', { model: 'm', prompt }), '').promptTokens;
    expect(tokens('x'.repeat(40))).toBe(10);
    expect(tokens(['x'.repeat(40), 'y'.repeat(40)])).toBe(20);
    expect(tokens([1, 2, 3])).toBe(3);
    expect(tokens([[1, 2, 3], [4]])).toBe(4);
    expect(tokens('')).toBe(1);
  });

  it.each<[Api, object]>([
    ['completions', {}],
    ['completions', { prompt: [] }],
    ['completions', { prompt: [1, 'x'] }],
    ['completions', { prompt: [1.5] }],
    ['completions', { prompt: ['x', 1] }],
    ['completions', { prompt: [[1], []] }],
    ['chat', { messages: [] }],
    ['chat', { messages: 'x' }],
    ['chat', { messages: [null] }],
    ['messages', {}],
    ['responses', {}],
  ])('refuses %s %j', (api, body) => {
    expect(() => canonicalPrompt(api, { model: 'm', ...body })).toThrow(ApiError);
  });

  it('keeps what templates put first at the front: tools, system, messages', () => {
    const tools = [{ type: 'function', function: { name: 'f' } }];
    const system = { role: 'system', content: 'be brief, be kind, be right, be quick' };
    const one = keysOf('chat', { tools, messages: [system, user('a question of some length, the first')] });
    const two = keysOf('chat', { messages: [system, user('another question')], tools });
    const shared = one.findIndex((key, i) => key !== two[i]);
    expect(shared).toBeGreaterThan(6);
    const other = keysOf('chat', { messages: [system, user('another question')] });
    expect(other[0]).not.toBe(two[0]);
  });

  it.each([['model'], ['cache_salt'], ['lora_path'], ['chat_template']])('keys depend on %s', (name) => {
    const prompt = 'the same text for all of them, long enough';
    expect(keysOf('completions', { prompt })).not.toEqual(keysOf('completions', { prompt, [name]: 'other' }));
  });

  it('keys neither depend on options of sampling nor on marks for caches', () => {
    const content = [{ type: 'text', text: 'the same text for all of them, long enough' }];
    const marked = [{ ...content[0], cache_control: { type: 'ephemeral' } }];
    expect(keysOf('messages', { messages: [user(content)], temperature: 1, max_tokens: 5 })).toEqual(
      keysOf('messages', { messages: [user(marked)] }),
    );
  });

  it('leaves volatile lines of system prompts out, and of nothing else', () => {
    const ask = (line: string): object => ({
      system: `${line}\nyou are an agent of some length`,
      messages: [user('x')],
    });
    const say = (line: string): object => ({ messages: [user(`${line}\nyou are an agent of some length`)] });
    expect(keysOf('messages', { ...ask('x-volatile: 1') })).toEqual(
      keysOf('messages', { ...ask('x-volatile: 2') }),
    );
    expect(keysOf('messages', { ...say('x-volatile: 1') })).not.toEqual(
      keysOf('messages', { ...say('x-volatile: 2') }),
    );
  });

  it('has images as digests', () => {
    const image = (data: string): object =>
      user([{ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }]);
    const [one, same, other] = ['A'.repeat(10_000), 'A'.repeat(10_000), 'B'.repeat(10_000)].map((data) =>
      keysOf('chat', { messages: [image(data)] }),
    );
    expect(one).toEqual(same);
    expect(one).not.toEqual(other);
    expect(one!.length).toBeLessThan(40);
  });
});

describe('PromptKeys', () => {
  const prompt = 'a text of which all have the same beginning, and then another end';

  it('chains: equal up to the block that differs, unlike from there on', () => {
    const one = keysOf('completions', { prompt });
    const two = keysOf('completions', { prompt: `${prompt.slice(0, 32)}X${prompt.slice(33)}` });
    expect(two.slice(0, 4)).toEqual(one.slice(0, 4));
    for (let i = 4; i < one.length; i++) expect(two[i]).not.toBe(one[i]);
  });

  it('are apart for tenants, secrets, and text and ids', () => {
    const other = new PromptKeys({ blockTokens: 4, bytesPerToken: 4, secret: new Uint8Array(32).fill(2) });
    const canonical = canonicalPrompt('completions', { model: 'm', prompt });
    const ids = [...new Uint32Array(Buffer.from(prompt.slice(0, 64)).buffer.slice(0, 64))];
    const all = [
      keysOf('completions', { prompt }, 'a'),
      keysOf('completions', { prompt }, 'b'),
      keysOf('completions', { prompt: ids }, 'a'),
      [...other.keysOf(canonical, 'a').keys],
    ];
    expect(new Set(all.map(([first]) => first)).size).toBe(4);
  });
});

describe('parseBody', () => {
  it.each(['', '{', '[]', 'null', '1', '"x"'])('refuses %j', (text) => {
    expect(() => parseBody(Buffer.from(text))).toThrow(ApiError);
  });
});
