/** Engines of their own control nodes in this process, joined by loopback, and a driver. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ControlNode, Rpc, type Address } from '../../src/control/index.js';
import { EngineHost, findEngines, RemoteEngines, type EngineHostOptions } from '../../src/hosts/index.js';
import type { BlockLayout } from '../../src/layout/index.js';

const timing = { pingMs: 50, deadMs: 5000, goneMs: 300, firstRedialMs: 5 };
const local = { host: '127.0.0.1', port: 0 };
const token = Buffer.from('the token of all engines of a test');
let fleets = 0;

export interface Member {
  readonly host: EngineHost;
  readonly node: ControlNode;
}

export class Fleet {
  readonly folder = mkdtempSync(join(tmpdir(), 'dualpath-hosts-'));
  readonly members = new Map<string, Member>();
  readonly notes: string[] = [];
  driver!: ControlNode;
  engines!: RemoteEngines;
  readonly #layout: BlockLayout;
  readonly #network = `fleet-${++fleets}`;

  constructor(layout: BlockLayout) {
    this.#layout = layout;
  }

  async engine(
    name: string,
    role: 'prefill' | 'decode',
    options: Partial<EngineHostOptions> | ((at: { node: ControlNode }) => Partial<EngineHostOptions>) = {},
  ): Promise<Address> {
    const identity = this.#layout.identity;
    const node = await ControlNode.open({ name, identity, token, listen: local, timing });
    const host = new EngineHost({
      role,
      layout: this.#layout,
      storeFolder: this.folder,
      memoryLimitBytes: 1 << 30,
      node,
      network: this.#network,
      device: null,
      note: (text) => this.notes.push(`${name}: ${text}`),
      ...(typeof options === 'function' ? options({ node }) : options),
    });
    this.members.set(name, { host, node });
    return node.address!;
  }

  async drive(addresses: readonly Address[], canaries = true): Promise<RemoteEngines> {
    this.driver = await ControlNode.open({ name: 'driver', identity: this.#layout.identity, token, timing });
    const rpc = new Rpc(this.driver);
    const found = await findEngines(this.driver, rpc, addresses);
    const timeModel = { baseS: 0.0005, perNewTokenS: 1e-6, perAttentionTokenS: 0, perAttentionPairS: 0 };
    this.engines = new RemoteEngines(this.driver, rpc, found, { timeModel, canaries });
    return this.engines;
  }

  async close(): Promise<void> {
    await (this.driver as ControlNode | undefined)?.close();
    for (const { host, node } of this.members.values()) {
      await host.close();
      await node.close();
    }
    rmSync(this.folder, { recursive: true, force: true });
  }
}
