/** What carries an engine process's bytes: `--transport` and what belongs to it. */
import type { ControlNode } from '../control/index.js';
import type { EngineHostOptions } from '../hosts/index.js';
import type { TrafficClass } from '../rdma/index.js';
import type { CopyWay } from '../traffic/index.js';
import { copiesOf } from './copy-options.js';

export interface WayFlags {
  readonly transport: 'rdma' | 'shared-memory';
  readonly device?: string;
  readonly port?: number;
  readonly gidIndex?: number;
  readonly sharePort?: boolean;
  readonly copy: CopyWay;
  readonly copyDevice?: string;
  readonly classes: Record<string, Partial<TrafficClass>>;
}

export interface Way {
  /** For people, and for the document. */
  readonly text: string;
  readonly facts: object;
  readonly over: (
    node: ControlNode,
  ) => Pick<EngineHostOptions, 'transport' | 'transportKind' | 'device' | 'copies'>;
}

/** @throws RDMA_UNAVAILABLE, INVALID_ARGUMENT */
export async function wayOf(
  flags: WayFlags,
  name: string,
  identity: string,
  note: (text: string) => void,
): Promise<Way> {
  const { device, port, gidIndex, sharePort, copy, copyDevice, classes } = flags;
  if (flags.transport === 'shared-memory') {
    const { MemoryExchange, sharedMemoryTransport } = await import('../shared-memory/index.js');
    return {
      text: 'loopback over shared memory, to engines of this host only',
      facts: { transport: 'shared-memory', device: null },
      over: (node) => ({
        ...{ device: null, transportKind: 'shared-memory' },
        transport: sharedMemoryTransport({ identity, exchange: new MemoryExchange(node) }),
        copies: copiesOf({ copy, copyDevice }),
      }),
    };
  }
  const { findRdmaPlace, PathExchange, rdmaTransport, trafficClasses } = await import('../rdma/index.js');
  trafficClasses(classes); // what is wrong with them is said before anything is opened
  const place = findRdmaPlace({
    ...(device === undefined ? {} : { device }),
    ...(port === undefined ? {} : { port }),
    ...(gidIndex === undefined ? {} : { gidIndex }),
  });
  const gids = place.gidIndexes.join(', then ') || 'none';
  return {
    text: `RDMA device ${place.device} port ${place.port}, GID index ${gids}`,
    facts: { transport: 'verbs', device: place.device, port: place.port, gidIndexes: place.gidIndexes },
    over: (node) => ({
      device: `${place.device}/${place.port}`,
      transport: rdmaTransport({
        ...{ place, name, identity, classes },
        exchange: new PathExchange(node),
        exclusive: sharePort !== true,
        onOutage: (peer, outageMs, cause = 'its requests were late') =>
          note(`bytes reach '${peer}' again, after ${Math.round(outageMs)} ms: ${cause}`),
      }),
      copies: copiesOf({ copy, copyDevice: copyDevice ?? (copy === 'nic' ? place.device : undefined) }),
    }),
  };
}
