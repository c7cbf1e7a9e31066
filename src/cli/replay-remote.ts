/** Engines of other processes, for `dualpath replay --engines` and `--distributed`. */
import { hostname } from 'node:os';
import type { Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
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

export interface DistributedFlags extends ControlFlags {
  readonly distributed?: boolean;
  readonly transport: 'rdma' | 'shared-memory';
  readonly engines?: readonly Address[];
  readonly canaries?: boolean;
  readonly prefill: number;
  readonly decode: number;
  readonly enginesPerNode: number;
  readonly model: string;
  readonly blockSize: number;
  readonly store: string;
}

/** Engines given by their addresses, or started here; undefined: those of this process. @throws as openRemote() */
export async function remoteOf(
  flags: DistributedFlags,
  layout: BlockLayout,
  timeModel: ConstructorParameters<typeof LinearTimeModel>[0],
  note: (text: string) => void,
): Promise<Remote | undefined> {
  const { distributed = false, engines } = flags;
  if (engines === undefined && !distributed) return undefined;
  if (engines !== undefined && distributed) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      '--distributed starts engines and --engines names some that run: give one of the two',
    );
  }
  if (engines !== undefined) return await openRemote(engines, layout, flags, timeModel);
  const { EngineProcesses } = await import('../hosts/index.js');
  const { prefill, decode, enginesPerNode, model, blockSize, store, transport } = flags;
  const processes = await EngineProcesses.start({
    prefill: prefill * enginesPerNode,
    decode: decode * enginesPerNode,
    args: [
      ...['--model', model, '--block-size', String(blockSize), '--store', store, '--transport', transport],
      ...(transport === 'rdma' ? ['--share-port'] : []),
      ...(flags.tokenFile === undefined ? [] : ['--token-file', flags.tokenFile]),
    ],
    note,
  });
  try {
    const remote = await openRemote(processes.addresses, layout, flags, timeModel);
    const close = async (): Promise<void> => {
      await remote.close();
      await processes.close();
    };
    return { ...remote, close };
  } catch (error) {
    await processes.close();
    throw error;
  }
}
