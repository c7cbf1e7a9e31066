/** What a driver asks of its engines and of its own scheduler for one run. */
import { basename } from 'node:path';
import type { Address } from '../control/index.js';
import { decodeSpareBlocks, modePlans } from '../replay/index.js';
import type { ClusterOptions, ReplayMode } from '../replay/index.js';
import type { AdmissionOptions, EngineCapacity, ReadPolicy } from '../scheduler/index.js';
import type { BlockStore } from '../storage/index.js';
import type { EngineDescription, EngineJob } from './protocol.js';
import type { SchedulerProcess } from './scheduler-process.js';

export interface RemoteEngine extends EngineDescription {
  readonly address: Address;
}

export interface RemoteSettings {
  readonly timeModel: EngineJob['timeModel'];
  readonly canaries: boolean;
  /** Starts the scheduler of a run, which ends with it; left out: this process schedules. */
  readonly serve?: (policy: ReadPolicy, seed: number) => Promise<SchedulerProcess>;
  /** What the scheduler that was started asks for. */
  readonly token?: Uint8Array | undefined;
}

export function admissionOf(
  store: BlockStore,
  { seed, decisions }: ClusterOptions,
  mode: ReplayMode,
  engines: readonly EngineCapacity[],
): AdmissionOptions {
  return {
    engines,
    policy: modePlans[mode].policy,
    blockTokens: store.layout.blockTokens,
    blockBytes: store.file.fileBytes,
    decodeSpareBlocks,
    maxWaiting: 65_536,
    ...{ seed, decisions },
  };
}

export function jobOf(
  engine: RemoteEngine,
  engines: readonly RemoteEngine[],
  options: ClusterOptions,
  mode: ReplayMode,
  lanes: number,
  { timeModel, canaries }: RemoteSettings,
  served: SchedulerProcess | undefined,
): EngineJob {
  const { layerwise, freeHits } = modePlans[mode];
  const prefill = engine.role === 'prefill';
  return {
    scheduler: served === undefined ? null : { endpoint: served.endpoint, model: options.layout.model.name },
    store: basename(options.storePath),
    bufferBytes: prefill ? options.prefillBufferBytes : options.decodeBufferBytes,
    hbmBytes: prefill ? options.prefillHbmBytes : options.decodeHbmBytes,
    windowLayers: options.windowLayers,
    ...{ layerwise, freeHits, lanes, timeModel, canaries },
    quotaS: options.quotaS,
    decodeStepS: options.decodeStepS,
    snicBytesPerS: options.snicBytesPerS,
    cnicBytesPerS: options.cnicBytesPerS,
    peers:
      served === undefined
        ? engines.filter(({ role }) => role !== engine.role).map(({ name, address }) => ({ name, address }))
        : [],
  };
}
