/** A native half without a device: keeps the rules that queue pairs have, and lets tests break them. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import type { ConnectionHalf, NativeEvent, NativeHalf } from '../../src/rdma/index.js';

interface QueuePair {
  readonly owner: FakeHalf;
  readonly connection: number;
  readonly qpNum: number;
  readonly gidIndex: number;
  peerQp: number | undefined;
  state: 'initialised' | 'ready' | 'draining' | 'closed';
}

/** What joins the halves: queue pairs by number. */
export class FakeFabric {
  readonly queuePairs = new Map<number, QueuePair>();
  /** GID index by which nothing can be reached. */
  deadGid = -1;
  nextQp = 100;

  /** Whether bytes may go: both ends connected with each other. */
  carries(from: QueuePair | undefined): boolean {
    const to = this.queuePairs.get(from?.peerQp ?? 0);
    return from?.state === 'ready' && to?.state === 'ready' && to.peerQp === from.qpNum;
  }
}

export class FakeHalf implements NativeHalf {
  readonly #fabric: FakeFabric;
  readonly #name: string;
  readonly #max: number;
  readonly #connections = new Map<number, QueuePair>();
  readonly #events: NativeEvent[] = [];
  readonly peers: { readonly name: string; readonly memory: unknown }[] = [];
  identity = 0;
  wake: () => void = () => undefined;
  refuse: DualPathError | undefined;
  opened = 0;
  most = 0;

  constructor(fabric: FakeFabric, name: string, max = 256) {
    this.#fabric = fabric;
    this.#name = name;
    this.#max = max;
  }

  get open_(): readonly QueuePair[] {
    return [...this.#connections.values()];
  }
  /** The queue pair that bytes to `peer` would take. */
  way(): QueuePair | undefined {
    return this.open_.find((pair) => this.#fabric.carries(pair));
  }

  facts(): ReturnType<NativeHalf['facts']> {
    return {
      provider: 'fake',
      emulated: true,
      device: 'fake0',
      port: 1,
      linkLayer: 'ethernet',
      mtuBytes: 1024,
    };
  }
  memory(): unknown {
    return { of: this.#name, identity: this.identity };
  }
  addPeer(name: string, memory: unknown): number {
    this.peers.push({ name, memory });
    return this.peers.length;
  }
  open({ gidIndex = 0 }: { gidIndex?: number }): { connection: number; half: ConnectionHalf } {
    if (this.refuse !== undefined) throw this.refuse;
    expect(this.#connections.size).toBeLessThan(this.#max);
    const connection = ++this.opened;
    const qpNum = this.#fabric.nextQp++;
    const pair: QueuePair = {
      owner: this,
      connection,
      qpNum,
      gidIndex,
      peerQp: undefined,
      state: 'initialised',
    };
    this.#connections.set(connection, pair);
    this.#fabric.queuePairs.set(qpNum, pair);
    this.most = Math.max(this.most, this.#connections.size);
    return {
      connection,
      half: {
        qpNum,
        psn: 1,
        receives: 8,
        creditAddress: '0x7f0000001000',
        creditKey: 5,
        gid: `::${gidIndex}`,
        lid: 0,
      },
    };
  }
  connect(connection: number, { peer, half }: { peer: number; half: ConnectionHalf }): void {
    const pair = this.#connections.get(connection)!;
    expect(pair.state).toBe('initialised');
    expect(peer).toBeLessThanOrEqual(this.peers.length);
    expect(half.creditAddress).toBe('0x7f0000001000');
    if (pair.gidIndex === this.#fabric.deadGid) throw new DualPathError('RDMA_FAILED', 'no route');
    pair.peerQp = half.qpNum;
    pair.state = 'ready';
  }
  drain(connection: number): void {
    const pair = this.#connections.get(connection)!;
    if (pair.state === 'draining') return;
    pair.state = 'draining';
    void nextTurn().then(() => this.#tell({ kind: 'drained', connection }));
  }
  close(connection: number): void {
    const pair = this.#connections.get(connection)!;
    pair.state = 'closed';
    this.#connections.delete(connection);
    this.#fabric.queuePairs.delete(pair.qpNum);
  }
  takeEvents(): NativeEvent[] {
    return this.#events
      .splice(0)
      .filter((event) => !('connection' in event) || this.#connections.has(event.connection));
  }
  statistics(): ReturnType<NativeHalf['statistics']> {
    const counts = { sentBytes: 1000, completions: 1, inFlightBytes: 0 };
    return { connections: this.open_.map(({ connection }) => ({ connection, ...counts })) };
  }
  shutdown(): void {
    for (const connection of [...this.#connections.keys()]) this.close(connection);
  }

  #tell(event: NativeEvent): void {
    this.#events.push(event);
    this.wake();
  }
  portUp(): void {
    this.#tell({ kind: 'port', port: 1, up: true });
  }
  /** As when a request fails. */
  break(blame: 'local' | 'remote'): void {
    const pair = this.way();
    if (pair === undefined) return;
    pair.state = 'draining';
    this.#tell({ kind: 'broke', connection: pair.connection, blame, cause: `${blame} trouble` });
    void nextTurn().then(() => this.#tell({ kind: 'drained', connection: pair.connection }));
  }
}
