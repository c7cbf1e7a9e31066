/** Worker threads run built code: this test imports the package as it is built. */
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { ParsePool } from '../../src/proxy/parse-pool.js';
import { Preparer } from '../../src/proxy/prepare.js';

const { ParsePool: BuiltPool } = (await import(
  resolve(import.meta.dirname, '../../dist/proxy/parse-pool.js')
)) as { ParsePool: typeof ParsePool };

const options = { blockTokens: 4, bytesPerToken: 4, secret: new Uint8Array(32), volatileLines: [/^x:.*$/gm] };

describe('ParsePool', () => {
  it('does what the main thread does, and gives the body back', async () => {
    const pool = new BuiltPool(options, 1);
    const preparer = new Preparer(options);
    try {
      for (const length of [10, 1000, 100_000]) {
        const body = Buffer.from(JSON.stringify({ model: 'm', prompt: 'ab c'.repeat(length) }));
        const expected = preparer.prepare('completions', body, 'tenant');
        const text = body.toString();
        const { body: back, prompt, keyed } = await pool.prepare('completions', body, 'tenant');
        expect([prompt, keyed]).toEqual([expected.prompt, expected.keyed]);
        expect(back.toString()).toBe(text);
      }
      await expect(pool.prepare('chat', Buffer.from('{"model":"m"}'), '')).rejects.toMatchObject({
        status: 400,
      });
    } finally {
      await pool.close();
    }
  });
});
