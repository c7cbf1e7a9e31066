/** What to take once the candidate with the greater reuse would break the SLO. */
export type Fallback =
  /** The one with fewer pending tokens: the paper. */
  | 'less-loaded'
  /** The one with the smaller TTFT: the released code. */
  | 'smaller-ttft'
  /** The other if it meets the SLO, else the one with the smaller TTFT. */
  | 'other-if-slo';

export interface ChoiceRule {
  /** Leave the candidate with the greater reuse once its TTFT is above this: the SLO, or half of it (released code). */
  readonly leaveAboveS: number;
  readonly sloS: number;
  readonly fallback: Fallback;
}

/** One candidate, as the choice sees it. */
export interface Candidate {
  hitBlocks: number;
  /** T_q. */
  queueS: number;
  /** T_c. */
  computeS: number;
}

/**
 * The SLO-aware choice between two candidates (DualMap): true for the first. The one with the greater reuse, until its
 * TTFT would break the SLO; with equal reuse the less loaded one, and with equal load the first.
 */
export function takesFirst(first: Candidate, second: Candidate, rule: ChoiceRule): boolean {
  const lessLoaded = first.queueS <= second.queueS;
  if (first.hitBlocks === second.hitBlocks) return lessLoaded;
  const firstIsAffine = first.hitBlocks > second.hitBlocks;
  const firstTtftS = first.queueS + first.computeS;
  const secondTtftS = second.queueS + second.computeS;
  if ((firstIsAffine ? firstTtftS : secondTtftS) <= rule.leaveAboveS) return firstIsAffine;
  if (rule.fallback === 'less-loaded') return lessLoaded;
  if (rule.fallback === 'other-if-slo' && (firstIsAffine ? secondTtftS : firstTtftS) <= rule.sloS) {
    return !firstIsAffine;
  }
  return firstTtftS <= secondTtftS;
}
