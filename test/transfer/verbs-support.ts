/** Engines that reach each other by verbs over the emulated provider. */
import { onTestFinished } from 'vitest';
import {
  callNative,
  native,
  type NativeConnectionHalf,
  type NativePath,
  type NativeRemoteMemory,
  type NativeStubFabric,
  type NativeStubOptions,
  type NativeTrafficClass,
  type NativeVerbsEvent,
  type NativeVerbsOptions,
  type NativeVerbsTransport,
} from '../../src/binding/index.js';
import type { TransferEngine } from '../../src/transfer/index.js';

let named = 0;

export function openFabric(options: Partial<NativeStubOptions> = {}): NativeStubFabric {
  return callNative(() => new (native().StubFabric)({ name: `test-${named++}`, ...options }));
}

/** An engine's end, with the events that have come. */
export class VerbsEnd {
  readonly engine: TransferEngine;
  readonly transport: NativeVerbsTransport;
  readonly events: NativeVerbsEvent[] = [];
  peer = -1;
  connection = -1;

  constructor(engine: TransferEngine, options: Omit<NativeVerbsOptions, 'engine'>) {
    this.engine = engine;
    this.transport = callNative(
      () => new (native().VerbsTransport)({ gidIndex: 2, ...options, engine: engine.handle }),
    );
    const taker = {
      takeRecords: (): void => {
        this.events.push(...this.transport.takeEvents());
      },
      runtimeClosed: (): void => undefined,
    };
    engine.runtime.register(taker);
    onTestFinished(() => engine.runtime.unregister(taker));
  }

  async event<K extends NativeVerbsEvent['kind']>(kind: K): Promise<Extract<NativeVerbsEvent, { kind: K }>> {
    for (;;) {
      const found = this.events.find((event) => event.kind === kind);
      if (found !== undefined) return found as Extract<NativeVerbsEvent, { kind: K }>;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
}

/** As a message would carry it. */
const carried = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T;

export const path = (peer: number, half: NativeConnectionHalf): NativePath => ({
  peer,
  half: carried(half),
  mtuBytes: 4096,
  serviceLevel: 0,
  trafficClass: 40,
});

/** Each other's peers, once their memory is there. */
export function introduce(a: VerbsEnd, b: VerbsEnd): void {
  const memory = (end: VerbsEnd): NativeRemoteMemory => carried(callNative(() => end.transport.memory()));
  const [ofA, ofB] = [memory(a), memory(b)];
  a.peer = callNative(() => a.transport.addPeer(b.engine.name, ofB));
  b.peer = callNative(() => b.transport.addPeer(a.engine.name, ofA));
}

/** A connection in the class, new each time. */
export function connect(a: VerbsEnd, b: VerbsEnd, trafficClass: NativeTrafficClass = 'kv'): void {
  const [openA, openB] = [a, b].map((end) => callNative(() => end.transport.open({ trafficClass })));
  callNative(() => a.transport.connect(openA!.connection, path(a.peer, openB!.half)));
  callNative(() => b.transport.connect(openB!.connection, path(b.peer, openA!.half)));
  a.connection = openA!.connection;
  b.connection = openB!.connection;
}
