/** Numbers that no configuration gives: four are fitted, the others taken from the paper. */

/** Fitted on DS 660B, 2P4D, by scripts/calibrate.mjs; what the fit came to is in docs/simulator.md. */
export interface FittedConstants {
  /** What a prefill GPU computes of the model's FLOPs, on Hopper. */
  readonly prefillFlopsPerS: number;
  /** Of a storage NIC's rate, what reads get. */
  readonly snicEfficiency: number;
  /** A decode step with no sequence in its batch. */
  readonly decodeBaseS: number;
  /** What each sequence of its batch adds to a decode step. */
  readonly decodePerSequenceS: number;
}

export const fittedConstants: FittedConstants = {
  prefillFlopsPerS: 317e12,
  snicEfficiency: 0.668,
  decodeBaseS: 0.0237,
  decodePerSequenceS: 0.00181,
};

/** Taken as they are; none was moved to meet a figure. */
export const takenConstants = {
  /**
   * A forward's fixed cost, in forwards of one request of 300 tokens at the mean context: throughput over requests a batch
   * rises as n / (n + 2.35) in the paper's Fig. 3.
   */
  forwardOverheadRequests: 2.35,
  overheadRequestTokens: 300,
  overheadContextTokens: 32_721,
  /** Table 3: TTST less TPOT is 0.19 s, of which moving a prompt to HBM takes 0.025 s. */
  decodeAdmissionS: 0.165,
  /** The paper: quota 300 ms of attention a forward, alpha 3 s of reads, beta 5 s of prefill. */
  quotaS: 0.3,
  alphaS: 3,
  betaS: 5,
  /** Not given ("regularly"): far below what anything else takes. */
  fetchS: 0.05,
  /** Layers of KV that are staged in HBM. */
  windowLayers: 4,
  /** The paper: 80 GB a node for DeepSeek models, 320 GB for Qwen2.5-32B. */
  bufferBytesPerNode: 80e9,
  denseBufferBytesPerNode: 320e9,
  /** Of HBM, what engines leave to weights and KV-Cache together. */
  hbmShare: 0.9,
  decodeSpareBlocks: 2,
} as const;
