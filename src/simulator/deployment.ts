import { DualPathError } from '../errors/index.js';
import type { LinearTimeCoefficients } from '../scheduler/index.js';
import { ratioRange } from './bounds.js';
import { fittedConstants, takenConstants, type FittedConstants } from './constants.js';
import { hardwareOf, type Hardware } from './hardware.js';
import { flopsPerToken, modelCostOf, type ModelCost } from './model-cost.js';
import { modePlans, type SimulatedMode } from './modes.js';
import type { ClusterSettings } from './settings.js';
import { meansOf, type SimulatedWorkload } from './workload.js';

/** A cluster as people describe it. */
export interface Deployment {
  readonly hardware: Hardware;
  readonly model: ModelCost;
  readonly mode: SimulatedMode;
  readonly prefillNodes: number;
  readonly decodeNodes: number;
  readonly seed: number;
  readonly constants: FittedConstants;
  /** Instead of the paper's. */
  readonly bufferBytesPerNode?: number | undefined;
}

/** DS 660B, 2P4D, dual path: what most of the paper's figures are of. */
export function deployment(changes: Partial<Deployment> = {}): Deployment {
  return {
    hardware: hardwareOf('hopper'),
    model: modelCostOf('ds-v3.2-660b'),
    mode: 'dualpath',
    prefillNodes: 2,
    decodeNodes: 4,
    seed: 1,
    constants: fittedConstants,
    ...changes,
  };
}

const hopper = hardwareOf('hopper');
const calibratedModel = modelCostOf('ds-v3.2-660b');
const maxNodes = 65_536;

/**
 * The numbers of a deployment under a workload, which says what beta is in tokens.
 *
 * @throws INVALID_ARGUMENT for a cluster that cannot be: no nodes, weights or a request larger than memory
 */
export function settingsOf(plan: Deployment, workload: SimulatedWorkload): ClusterSettings {
  const { hardware, model, constants } = plan;
  checkNodes(plan);
  const enginesPerNode = Math.floor(hardware.gpusPerNode / model.gpusPerEngine);
  if (enginesPerNode < 1) {
    refuse(
      `an engine of ${model.name} takes ${model.gpusPerEngine} GPUs, a node has ${hardware.gpusPerNode}: use larger nodes`,
    );
  }
  const means = meansOf(workload);
  const prefillTime = prefillTimeOf(hardware, model, constants);
  const nominal = model.isSpread ? takenConstants.bufferBytesPerNode : takenConstants.denseBufferBytesPerNode;
  const bufferBytes = (plan.bufferBytesPerNode ?? nominal) / enginesPerNode;
  const decodeHbmBytes = freeHbmBytes(plan, 'decode', plan.decodeNodes * enginesPerNode);
  freeHbmBytes(plan, 'prefill', plan.prefillNodes * enginesPerNode);
  const largestBytes = means.largestTokens * model.bytesPerToken;
  for (const [what, bytes] of [
    ['the buffer of an engine', bufferBytes],
    ['free HBM of a decode engine', decodeHbmBytes],
  ] as const) {
    if (bytes > largestBytes * 1.01) continue;
    refuse(
      `${what} is ${gigabytes(bytes)}, but the longest context of ${workload.name} takes ${gigabytes(largestBytes)}: ` +
        'use more nodes or memory, or shorten contexts',
    );
  }
  return {
    mode: plan.mode,
    isScheduled: modePlans[plan.mode].isScheduled,
    prefillNodes: plan.prefillNodes,
    decodeNodes: plan.decodeNodes,
    enginesPerNode,
    layers: model.layers,
    blockTokens: workload.blockTokens,
    bytesPerToken: model.bytesPerToken,
    snicBytesPerS: hardware.snicBytesPerS * constants.snicEfficiency,
    cnicBytesPerS: hardware.cnicBytesPerS * model.gpusPerEngine,
    dramBytesPerS: hardware.dramBytesPerS,
    prefillBufferBytes: bufferBytes,
    decodeBufferBytes: bufferBytes,
    decodeHbmBytes,
    prefillTime,
    quotaS: takenConstants.quotaS,
    windowLayers: takenConstants.windowLayers,
    maxForwards: 1,
    isLockstep: model.isSpread,
    ...decodeTimeOf(plan),
    decodeAdmissionS: takenConstants.decodeAdmissionS,
    fetchS: takenConstants.fetchS,
    decodeSpareBlocks: takenConstants.decodeSpareBlocks,
    alphaS: takenConstants.alphaS,
    betaTokens: betaTokensOf(prefillTime, workload),
    hitTokenWeight: 1,
    slackSPerToken: 0,
    adaptLinkRates: false,
    firstDecodeLinkShare: 1,
    seed: plan.seed,
  };
}

function checkNodes({ prefillNodes, decodeNodes }: Deployment): void {
  for (const [what, nodes] of [
    ['prefill', prefillNodes],
    ['decode', decodeNodes],
  ] as const) {
    if (Number.isSafeInteger(nodes) && nodes >= 1 && nodes <= maxNodes) continue;
    refuse(`${what} nodes are ${nodes}: give a whole number from 1 to ${maxNodes}`);
  }
}

/** Warnings that do not stop a simulation. */
export function warningsOf({ hardware, prefillNodes, decodeNodes, model }: Deployment): string[] {
  const warnings: string[] = [];
  const ratio = prefillNodes / decodeNodes;
  const { lower, upper, violated } = ratioRange(hardware);
  for (const bound of violated) warnings.push(`no P/D keeps networks and memory out of the way: ${bound}`);
  if (ratio < lower.limit)
    warnings.push(`P/D is ${ratio.toFixed(2)}, below ${lower.limit.toFixed(2)} (${lower.name})`);
  if (ratio > upper.limit)
    warnings.push(`P/D is ${ratio.toFixed(2)}, above ${upper.limit.toFixed(2)} (${upper.name})`);
  if (hardware.isExtrapolation)
    warnings.push(`${hardware.name} is outside calibration: rates are scaled from Hopper by data sheets`);
  if (model !== calibratedModel)
    warnings.push(`${model.name} is outside calibration: its times are scaled from DS 660B by FLOPs`);
  return warnings;
}

/** FLOPs at the fitted rate, scaled by the peak of the hardware; a forward's fixed cost by the model's FLOPs. */
function prefillTimeOf(
  hardware: Hardware,
  model: ModelCost,
  constants: FittedConstants,
): LinearTimeCoefficients {
  const scale = (hardware.peakFlopsPerS / hopper.peakFlopsPerS) * model.gpusPerEngine;
  const flopsPerS = constants.prefillFlopsPerS * scale;
  const { forwardOverheadRequests, overheadRequestTokens, overheadContextTokens } = takenConstants;
  const oneRequest = overheadRequestTokens * flopsPerToken(model, overheadContextTokens);
  return {
    baseS: (forwardOverheadRequests * oneRequest) / flopsPerS,
    perNewTokenS: model.linearFlops / flopsPerS,
    perAttentionTokenS: model.attentionFlops / flopsPerS,
    perAttentionPairS: model.attentionFlopsPerContextToken / flopsPerS,
  };
}

/**
 * A decode step: of DS 660B on Hopper as taken and fitted. Other spread models take as much a layer, and a sequence as much
 * a FLOP; a dense model reads its weights and its KV-Cache from HBM once a step.
 */
function decodeTimeOf({
  hardware,
  model,
  constants,
}: Deployment): Pick<ClusterSettings, 'decodeBaseS' | 'decodePerSequenceS' | 'decodePerContextTokenS'> {
  if (!model.isSpread) {
    const hbmBytesPerS = hardware.hbmBytesPerS * model.gpusPerEngine * 0.7;
    return {
      decodeBaseS: model.weightBytes / hbmBytesPerS,
      decodePerSequenceS: 0.0001,
      decodePerContextTokenS: model.bytesPerToken / hbmBytesPerS,
    };
  }
  const bandwidth = hopper.hbmBytesPerS / hardware.hbmBytesPerS;
  const at = takenConstants.overheadContextTokens;
  const flops = flopsPerToken(model, at) / flopsPerToken(calibratedModel, at);
  return {
    decodeBaseS: constants.decodeBaseS * (model.layers / calibratedModel.layers),
    decodePerSequenceS: constants.decodePerSequenceS * flops * bandwidth,
    decodePerContextTokenS: 0,
  };
}

/** Prefill time of a mean request in full batches, on one engine. */
export function requestSecondsOf(time: LinearTimeCoefficients, workload: SimulatedWorkload): number {
  const { promptTokens, newTokens } = meansOf(workload);
  const attentionS = newTokens * (time.perAttentionTokenS + time.perAttentionPairS * promptTokens);
  const batch = Math.max(1, takenConstants.quotaS / attentionS);
  return time.baseS / batch + newTokens * time.perNewTokenS + attentionS;
}

/** beta: prompt tokens, hits included as in the paper, that an engine gets through in 5 s of full batches. */
function betaTokensOf(time: LinearTimeCoefficients, workload: SimulatedWorkload): number {
  const { promptTokens } = meansOf(workload);
  return Math.ceil((takenConstants.betaS / requestSecondsOf(time, workload)) * promptTokens);
}

function freeHbmBytes({ hardware, model }: Deployment, role: string, engines: number): number {
  const hbm = hardware.hbmBytes * model.gpusPerEngine * takenConstants.hbmShare;
  const weights = model.isSpread ? model.weightBytes / engines : model.weightBytes;
  if (weights < hbm) return hbm - weights;
  refuse(
    `${model.name} has ${gigabytes(weights)} of weights for each of ${engines} ${role} engines, which have ` +
      `${gigabytes(hbm)} of HBM: use more ${role} nodes`,
  );
}

function gigabytes(bytes: number): string {
  return `${(bytes / 1e9).toFixed(1)} GB`;
}

function refuse(message: string): never {
  throw new DualPathError('INVALID_ARGUMENT', message);
}
