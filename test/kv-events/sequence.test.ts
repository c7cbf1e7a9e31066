import { describe, expect, it } from 'vitest';
import { Sequence, type NumberedBatch } from '../../src/kv-events/index.js';

/** What a sequence tells, as text; payloads are one byte, 255 is malformed. */
function transcript(kept: readonly number[] | null) {
  const told: string[] = [];
  const sequence: Sequence = new Sequence(
    {
      apply: ([byte]) => {
        told.push(String(byte));
        return byte !== 255;
      },
      reset: (isWhole) => told.push(isWhole ? 'empty' : 'unknown'),
      setWhole: (isWhole) => told.push(isWhole ? 'whole' : 'partial'),
      restarted: () => told.push('restarted'),
      gap: (isFilled) => told.push(isFilled ? 'filled' : 'gap'),
    },
    kept === null
      ? null
      : async function* (from): AsyncGenerator<NumberedBatch> {
          told.push(`replay from ${from}`);
          await Promise.resolve();
          for (const each of kept) if (each >= from) yield numbered(each);
        },
  );
  return { told, sequence };
}

function numbered(value: number, byte = value): NumberedBatch {
  return { number: BigInt(value), payload: Uint8Array.of(byte) };
}

async function run(kept: readonly number[] | null, numbers: readonly number[]): Promise<string> {
  const { told, sequence } = transcript(kept);
  for (const each of numbers) await sequence.take(numbered(each));
  return told.join(' ');
}

describe('Sequence', () => {
  it('applies what comes in order', async () => {
    expect(await run(null, [0, 1, 2])).toBe('empty 0 1 2');
  });

  it('begins in the middle, with what can be had of the beginning', async () => {
    expect(await run(null, [5, 6])).toBe('unknown unknown gap partial 5 6');
    expect(await run([0, 1, 2], [2, 3])).toBe('unknown replay from 0 0 1 filled whole 2 3');
    expect(await run([1, 2, 3], [3])).toBe('unknown replay from 0 unknown 1 2 gap partial 3');
  });

  it('fills a gap, or drops what it knew', async () => {
    expect(await run([0, 1, 2, 3], [0, 3, 4])).toBe('empty 0 replay from 1 1 2 filled 3 4');
    expect(await run(null, [0, 3, 4])).toBe('empty 0 unknown gap partial 3 4');
    expect(await run([0, 1], [0, 3])).toBe('empty 0 replay from 1 1 unknown gap partial 3');
  });

  it('sees that the publisher is another process', async () => {
    expect(await run([], [0, 1, 0, 1])).toBe('empty 0 1 restarted empty 0 1');
    expect(await run([0, 1], [5, 1])).toBe(
      'unknown replay from 0 0 1 unknown gap partial 5 restarted unknown replay from 0 0 filled whole 1',
    );
  });

  it('drops what it knew with a batch that cannot be read', async () => {
    const { told, sequence } = transcript(null);
    await sequence.take(numbered(0));
    await sequence.take(numbered(1, 255));
    await sequence.take(numbered(2));
    expect(told.join(' ')).toBe('empty 0 255 unknown 2');
  });

  it('begins anew when told to, also within a replay', async () => {
    const { told, sequence } = transcript([0, 1, 2, 3]);
    const taken = sequence.take(numbered(2));
    sequence.forget();
    await taken;
    expect(told.at(-1)).toBe('unknown');
    await sequence.take(numbered(3));
    expect(told.slice(-6).join(' ')).toBe(
      'replay from 0 0 1 2 filled whole 3'.split(' ').slice(-6).join(' '),
    );
  });
});
