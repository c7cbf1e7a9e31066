import { MessageChannel } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { LocalControl, requestKey, type ControlMessage } from '../../src/control/index.js';

const readMessage = (blocks: number): ControlMessage => ({ kind: 'decode-read', request: '1:r', blocks });

interface Heard {
  readonly from: string;
  readonly message: ControlMessage;
}

/** Resolves when `count` messages have been heard. */
function hear(control: LocalControl, engine: string, count: number): Promise<Heard[]> {
  const heard: Heard[] = [];
  return new Promise((resolve) => {
    control.listen(engine, (from, message) => {
      heard.push({ from, message });
      if (heard.length === count) resolve(heard);
    });
  });
}

describe('requestKey', () => {
  it('tells apart uses of a name in different admissions', () => {
    expect(requestKey({ request: 'r', admission: 1 })).not.toBe(requestKey({ request: 'r', admission: 2 }));
    // What comes first is a number, so no name can look like another's key.
    expect(requestKey({ request: '2:r', admission: 1 })).not.toBe(
      requestKey({ request: 'r', admission: 12 }),
    );
  });
});

describe('LocalControl', () => {
  it('carries messages in order, each once, and not before the sender has gone on', async () => {
    const control = new LocalControl();
    const heard = hear(control, 'b', 3);
    let early = 0;
    control.listen('c', () => early++);
    for (const blocks of [1, 2, 3]) control.send('b', 'a', readMessage(blocks));
    control.send('c', 'a', readMessage(4));
    expect(early).toBe(0);
    expect(await heard).toEqual([1, 2, 3].map((blocks) => ({ from: 'a', message: readMessage(blocks) })));
  });

  it('shares no object between sender and receiver', async () => {
    const control = new LocalControl();
    const heard = hear(control, 'b', 1);
    const slots = Uint32Array.of(1, 2, 3);
    const ready = {
      kind: 'decode-ready',
      request: '1:r',
      geometry: 0,
      mergedCounter: 1,
      freeCounter: 2,
    } as const;
    control.send('b', 'a', { ...ready, slots });
    slots[0] = 99;
    const [{ message }] = (await heard) as [Heard];
    expect(message).toEqual({ ...ready, slots: Uint32Array.of(1, 2, 3) });
  });

  it('drops what is for an engine that is gone', async () => {
    const control = new LocalControl();
    const heard: number[] = [];
    const unlisten = control.listen('b', () => heard.push(1));
    control.send('b', 'a', readMessage(1));
    unlisten();
    control.send('nobody', 'a', readMessage(2));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(heard).toEqual([]);
  });

  it('an old listener that ends late leaves a new one in place', async () => {
    const control = new LocalControl();
    const unlisten = control.listen('b', () => undefined);
    const heard = hear(control, 'b', 1);
    unlisten();
    control.send('b', 'a', readMessage(7));
    expect(await heard).toHaveLength(1);
  });

  it('joins the controls of two threads over a port, both ways', async () => {
    const [left, right] = [new LocalControl(), new LocalControl()];
    const { port1, port2 } = new MessageChannel();
    left.join(port1, ['b', 'c']);
    right.join(port2, ['a']);
    const atB = hear(right, 'b', 2);
    const atA = hear(left, 'a', 1);
    left.send('b', 'a', readMessage(1));
    left.send('b', 'a', readMessage(2));
    right.send('a', 'b', readMessage(3));
    expect((await atB).map(({ message }) => message)).toEqual([readMessage(1), readMessage(2)]);
    expect(await atA).toEqual([{ from: 'b', message: readMessage(3) }]);
    port1.close();
  });
});
