import type { LinearTimeCoefficients } from '../scheduler/index.js';
import type { CellSettings } from './cells.js';
import type { SimulatedMode } from './modes.js';

/** A cluster as the simulation sees it: numbers alone, wherever they come from (`clusterOf`, or a replay's options). */
export interface ClusterSettings {
  readonly mode: SimulatedMode;
  /** `Admission` of src/scheduler; else engines in turn. */
  readonly isScheduled: boolean;
  readonly prefillNodes: number;
  readonly decodeNodes: number;
  readonly enginesPerNode: number;
  readonly layers: number;
  readonly blockTokens: number;
  readonly bytesPerToken: number;
  /** What reads get of a node's storage NIC. */
  readonly snicBytesPerS: number;
  /** What KV-Cache may use of an engine's compute NIC, a direction. */
  readonly cnicBytesPerS: number;
  readonly dramBytesPerS: number;
  /** Of an engine. */
  readonly prefillBufferBytes: number;
  readonly decodeBufferBytes: number;
  readonly decodeHbmBytes: number;
  readonly prefillTime: LinearTimeCoefficients;
  readonly quotaS: number;
  readonly windowLayers: number;
  /** Forwards that a prefill engine has under way at most, 1 or 2: the second one's KV comes while the first computes. */
  readonly maxForwards: 1 | 2;
  /** Engines of a prefill node meet in collectives every layer. */
  readonly isLockstep: boolean;
  readonly decodeBaseS: number;
  readonly decodePerSequenceS: number;
  readonly decodePerContextTokenS: number;
  /** From the first token until a sequence is in a decode batch, its transfer to HBM not counted. */
  readonly decodeAdmissionS: number;
  /** Groups fetch at multiples of it. */
  readonly fetchS: number;
  readonly decodeSpareBlocks: number;
  readonly alphaS: number;
  readonly betaTokens: number;
  readonly hitTokenWeight: number;
  /** Above 0: the tail policy, requests by arrival and so much slack a computed token. */
  readonly slackSPerToken: number;
  /** Follow measured link rates: groups report them when they fetch. */
  readonly adaptLinkRates: boolean;
  /** What the first decode node's storage link really reads of its rate. */
  readonly firstDecodeLinkShare: number;
  /** Several clusters alike, and a router in front. */
  readonly cells?: CellSettings;
  readonly seed: number;
}

/** Who comes when. */
export type Arrivals =
  /** All at once, as in the paper's offline runs. */
  | { readonly kind: 'together'; readonly agents: number }
  /** Poisson, until `untilS`; what is under way then is not finished. */
  | { readonly kind: 'poisson'; readonly agentsPerS: number; readonly untilS: number }
  /** So many at any time: who has finished is followed by another. Spread: at turns all over their scripts. */
  | { readonly kind: 'constant'; readonly agents: number; readonly isSpread: boolean }
  /** As the trace says, each script once. */
  | { readonly kind: 'trace' };

export interface StopRules {
  /** Agents do not take longer than that; reached, the run is cut and says so. */
  readonly maxVirtualS: number;
  /** Mean TTFT over `windowS` beyond which the cluster counts as overloaded and the run ends; default none. */
  readonly overloadTtftS?: number;
  readonly windowS?: number;
  /** The run ends as steady when a window's mean TTFT is within 5 % of that so long before; default never. */
  readonly steadyAfterS?: number;
  /** Not before this. */
  readonly warmupS?: number;
}
