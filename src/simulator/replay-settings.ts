import type { ClusterOptions, ReplayMode } from '../replay/index.js';
import { LinearTimeModel } from '../scheduler/index.js';
import { DualPathError } from '../errors/index.js';
import { decodeSpareBlocks } from '../replay/index.js';
import type { ClusterSettings } from './settings.js';

/**
 * An emulated cluster of `dualpath replay` as the simulation sees it, so that the same workload can go through both. This
 * holds the order of events against the real thing (engines, reactor, files), not the hardware of a real cluster.
 *
 * @param blockFileBytes what a block takes on a storage link: its file, header and padding included
 */
export function settingsOfReplay(
  options: ClusterOptions,
  mode: ReplayMode,
  blockFileBytes: number,
): ClusterSettings {
  const { layout, timeModel } = options;
  if (!(timeModel instanceof LinearTimeModel)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'only a linear time model can be simulated: use LinearTimeModel',
    );
  }
  const bytesPerToken = blockFileBytes / layout.blockTokens;
  return {
    mode,
    isScheduled: true,
    prefillNodes: options.prefillNodes,
    decodeNodes: options.decodeNodes,
    enginesPerNode: options.enginesPerNode,
    layers: layout.layers,
    blockTokens: layout.blockTokens,
    bytesPerToken,
    snicBytesPerS: options.snicBytesPerS,
    cnicBytesPerS: options.cnicBytesPerS === 0 ? unlimited : options.cnicBytesPerS,
    dramBytesPerS: unlimited,
    prefillBufferBytes: options.prefillBufferBytes,
    decodeBufferBytes: options.decodeBufferBytes,
    decodeHbmBytes: options.decodeHbmBytes,
    prefillTime: timeModel.coefficients,
    quotaS: options.quotaS,
    windowLayers: options.windowLayers,
    maxForwards: 2,
    isLockstep: false,
    decodeBaseS: options.decodeStepS,
    decodePerSequenceS: 0,
    decodePerContextTokenS: 0,
    decodeAdmissionS: 0,
    fetchS: 0,
    decodeSpareBlocks,
    alphaS: 3,
    betaTokens: Number.POSITIVE_INFINITY,
    hitTokenWeight: 1,
    slackSPerToken: 0,
    adaptLinkRates: false,
    firstDecodeLinkShare: 1,
    seed: options.seed,
  };
}

const unlimited = 1e15;
