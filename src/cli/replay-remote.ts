/** Engines of other processes, for `dualpath replay --engines` and `--distributed`. */
import { hostname } from 'node:os';
import type { Address } from '../control/index.js';
import { DualPathError } from '../errors/index.js';
import type { BlockLayout } from '../layout/index.js';
import type { RemoteSettings } from '../hosts/index.js';
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
  serve?: RemoteSettings['serve'],
): Promise<Remote> {
  const [{ addressText, ControlNode, Rpc }, { findEngines, RemoteEngines }] = await Promise.all([
    import('../control/index.js'),
    import('../hosts/index.js'),
  ]);
  const control = controlOptionsOf(flags);
  const node = await ControlNode.open({
    name: `replay-${hostname()}-${process.pid}`,
    identity: layout.identity,
    ...control,
  });
  try {
    const rpc = new Rpc(node);
    const found = await findEngines(node, rpc, addresses);
    const remote = new RemoteEngines(node, rpc, found, {
      ...{ timeModel, canaries: flags.canaries === true, token: control.token },
      ...(serve === undefined ? {} : { serve }),
    });
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
  readonly decisions?: string;
}

/** Engines given by their addresses, or started here; undefined: those of this process. @throws as openRemote() */
export async function remoteOf(
  flags: DistributedFlags,
  layout: BlockLayout,
  timeModel: ConstructorParameters<typeof LinearTimeModel>[0],
  /** Of engines started here: more arguments, and a line that one has written to stderr. */
  started: { readonly args: readonly string[]; readonly said: (line: string) => void },
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
  if (flags.decisions !== undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      '--decisions writes what this process decides, with --distributed another one does: ask it with dualpath explain',
    );
  }
  const { EngineProcesses, SchedulerProcess } = await import('../hosts/index.js');
  const { prefill, decode, enginesPerNode, model, blockSize, store, transport } = flags;
  const token = flags.tokenFile === undefined ? [] : ['--token-file', flags.tokenFile];
  const common = ['--model', model, '--block-size', String(blockSize), ...token];
  const processes = await EngineProcesses.start({
    prefill: prefill * enginesPerNode,
    decode: decode * enginesPerNode,
    args: [
      ...[...common, '--store', store, '--transport', transport],
      ...(transport === 'rdma' ? ['--share-port'] : []),
      ...started.args,
    ],
    note: started.said,
  });
  try {
    // A mode has its policy, and so its scheduler. There is nobody to wait for after its start.
    const serve: RemoteSettings['serve'] = (policy, seed) =>
      SchedulerProcess.start(
        [...common, '--policy', policy, '--seed', String(seed), '--grace', '0', ...started.args],
        started.said,
      );
    const remote = await openRemote(processes.addresses, layout, flags, timeModel, serve);
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
