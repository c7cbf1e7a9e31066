/** Engines of other processes, for `dualpath replay --engines`. */
import { hostname } from 'node:os';
import type { Address } from '../control/index.js';
import type { BlockLayout } from '../layout/index.js';
import type { OpenCluster } from '../replay/index.js';
import type { LinearTimeModel } from '../scheduler/index.js';
import { controlOptionsOf, type ControlFlags } from './control-options.js';

export interface Remote {
  readonly engines: readonly {
    readonly name: string;
    readonly role: 'prefill' | 'decode';
    readonly address: string;
    readonly transport: string;
    readonly device: string | null;
  }[];
  /** What they are, for people. */
  readonly text: string;
  readonly open: OpenCluster;
  close(): Promise<void>;
}

/** @throws PEER_LOST, UNAUTHENTICATED, INVALID_ARGUMENT */
export async function openRemote(
  addresses: readonly Address[],
  layout: BlockLayout,
  flags: ControlFlags & { readonly canaries?: boolean },
  timeModel: ConstructorParameters<typeof LinearTimeModel>[0],
): Promise<Remote> {
  const [{ addressText, ControlNode, Rpc }, { findEngines, RemoteEngines }] = await Promise.all([
    import('../control/index.js'),
    import('../hosts/index.js'),
  ]);
  const node = await ControlNode.open({
    name: `replay-${hostname()}-${process.pid}`,
    identity: layout.identity,
    ...controlOptionsOf(flags),
  });
  try {
    const rpc = new Rpc(node);
    const found = await findEngines(node, rpc, addresses);
    const remote = new RemoteEngines(node, rpc, found, { timeModel, canaries: flags.canaries === true });
    const engines = found.map(({ name, role, address, transport, device }) => {
      return { name, role, address: addressText(address), transport, device };
    });
    const text = engines.map(
      ({ name, role, address, transport, device }) =>
        `${role} engine ${name} at ${address}: ${transport}, ${device ?? 'no device'}`,
    );
    return {
      engines,
      text: `${text.join('\n')}\nemulated: HBM and GPUs`,
      open: remote.open,
      close: () => node.close(),
    };
  } catch (error) {
    await node.close();
    throw error;
  }
}
