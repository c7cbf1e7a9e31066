import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { BlockView, KvFeed } from '../../src/kv-events/index.js';
import { until } from '../proxy/support.js';
import { batch, blockTokens, keyed, keys, number, stored, TestPublisher } from './support.js';

const ids = Array.from({ length: 64 }, (_, i) => 7 * i);

/** Block `i` of the ids, as the engine names it. */
function block(i: number): Uint8Array {
  const itsIds = ids.slice(i * blockTokens, (i + 1) * blockTokens);
  return batch([stored([i + 1], i === 0 ? null : i, itsIds, blockTokens)]);
}

interface Seen {
  gaps: string[];
  malformed: number;
  lost: number;
  events: number;
}

describe('KvFeed', () => {
  let publisher: TestPublisher;
  let feed: KvFeed;
  let view: BlockView;
  let seen: Seen;

  beforeEach(async () => {
    publisher = await TestPublisher.open();
    seen = { gaps: [], malformed: 0, lost: 0, events: 0 };
    view = new BlockView({ chain: keys, model: 'emulated', blockTokens, blocksMax: 1000 });
  });

  afterEach(async () => {
    await feed.close();
    publisher.close();
  });

  async function open(withReplay: boolean): Promise<void> {
    feed = await KvFeed.open(
      { endpoint: publisher.endpoint, replay: withReplay ? publisher.replayEndpoint : undefined },
      {
        event: () => seen.events++,
        gap: (isFilled) => seen.gaps.push(isFilled ? 'filled' : 'lost'),
        malformed: () => seen.malformed++,
        cacheLost: () => seen.lost++,
      },
    );
    feed.addView('emulated', view);
    // Nobody is told when a subscription has come to its publisher: something is sent until it has.
    const before = publisher.sent.length;
    while (seen.events === 0) {
      await publisher.send(batch([stored([1000 + before], null, [1], 1)]));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  function held(): number {
    const prompt = keyed(ids);
    return view.held.match(prompt.keys, 0, prompt.blocks);
  }

  it('learns what came before it, and what was lost on the way', async () => {
    await publisher.send(block(0));
    await publisher.send(block(1));
    await open(true);
    await until(() => view.held.isWhole, 'the beginning is known');
    expect(held()).toBe(2);
    await publisher.send(block(2), true);
    await publisher.send(block(3));
    await until(() => held() === 4, 'the gap is filled');
    expect(view.held.isWhole).toBe(true);
    expect(new Set(seen.gaps)).toEqual(new Set(['filled']));
    await publisher.send(batch([['BlockRemoved', [4]]]));
    await until(() => held() === 3, 'a block is removed');
  });

  it('drops what it knew where a gap cannot be filled, and knows all again once nothing is cached', async () => {
    await open(false);
    await publisher.send(batch([['AllBlocksCleared']]));
    await publisher.send(block(0));
    await until(() => held() === 1 && view.held.isWhole, 'a block is there');
    await publisher.send(block(1), true);
    await publisher.send(block(2));
    await until(() => !view.held.isWhole, 'it is dropped');
    expect([held(), view.size, seen.gaps.at(-1)]).toEqual([0, 0, 'lost']);
    await publisher.send(batch([['AllBlocksCleared']]));
    await publisher.send(block(0));
    await until(() => held() === 1, 'it is known again');
    expect([view.held.isWhole, seen.lost]).toEqual([true, 2]);
  });

  it('connects again to another process, which has nothing cached', async () => {
    await open(true);
    await publisher.send(block(0));
    await until(() => held() === 1, 'a block is there');
    await publisher.restart();
    await until(() => !view.held.isWhole, 'it is away');
    expect(held()).toBe(0);
    // By now it may have sent more than the one before had.
    await until(() => view.held.isWhole || (void publisher.send(batch([])), false), 'it is back');
    expect([held(), view.size]).toEqual([0, 0]);
  });

  it('ignores and counts what is no event', async () => {
    await open(true);
    await publisher.sendFrames(['', 'short', 'x']);
    await publisher.sendFrames(['alone']);
    await until(() => seen.malformed === 2, 'frames');
    await until(() => view.held.isWhole, 'the beginning is known');
    await publisher.send(Buffer.from('no msgpack'));
    await until(() => seen.malformed === 3, 'a payload');
    await until(() => !view.held.isWhole, 'what it said is missing');
    await publisher.sendFrames(['', number(publisher.sent.length), block(0)]);
    await until(() => held() === 1, 'what follows is taken');
  });

  it('goes on without a replay that nobody answers', async () => {
    await publisher.send(batch([]), true);
    feed = await KvFeed.open(
      { endpoint: publisher.endpoint, replay: 'tcp://127.0.0.1:9' },
      {
        event: () => seen.events++,
        gap: () => seen.gaps.push('lost'),
        malformed: () => 0,
        cacheLost: () => 0,
      },
    );
    feed.addView('emulated', view);
    await until(() => seen.gaps.length > 0 || (void publisher.send(batch([])), false), 'it asked in vain');
    await publisher.send(block(0));
    await until(() => held() === 1, 'what follows is taken');
    expect(view.held.isWhole).toBe(false);
  });
});
