/** What is noted of a run: by request, and by time in bins. */

const binS = 10;

/** Numbers as they come, in a typed array that grows. */
export class Samples {
  #values = new Float64Array(1024);
  #size = 0;

  push(value: number): void {
    if (this.#size === this.#values.length) {
      const grown = new Float64Array(2 * this.#size);
      grown.set(this.#values);
      this.#values = grown;
    }
    this.#values[this.#size++] = value;
  }

  get size(): number {
    return this.#size;
  }

  values(): Float64Array {
    return this.#values.subarray(0, this.#size);
  }

  sorted(): Float64Array {
    return this.#values.slice(0, this.#size).sort();
  }
}

export class Recorder {
  /** Requests submitted before are not in the samples and means. */
  readonly warmupS: number;
  readonly ttftS = new Samples();
  /** Of the same requests: tokens that were computed, and when the first token came. */
  readonly ttftNewTokens = new Samples();
  readonly firstTokenS = new Samples();
  readonly agentS = new Samples();
  requests = 0;
  turnsEnded = 0;
  promptTokens = 0;
  newTokens = 0;
  /** Of admitted requests. */
  admittedTokens = 0;
  hitTokens = 0;
  outputTokens = 0;
  admitted = 0;
  lastEndS = 0;
  ttstSumS = 0;
  tpotSumS = 0;
  decoded = 0;
  readsWaitS = 0;
  readyWaitS = 0;
  admissionWaitS = 0;
  /** Integral of the agents' tokens from the warm-up on. */
  tokenSeconds = 0;
  agentSeconds = 0;
  #ttftSum: number[] = [];
  #ttftCount: number[] = [];
  #atS = 0;

  constructor(warmupS: number) {
    this.warmupS = warmupS;
  }

  firstToken(nowS: number, submittedS: number, newTokens: number): void {
    const ttft = nowS - submittedS;
    const bin = Math.floor(nowS / binS);
    while (this.#ttftSum.length <= bin) {
      this.#ttftSum.push(0);
      this.#ttftCount.push(0);
    }
    this.#ttftSum[bin]! += ttft;
    this.#ttftCount[bin]!++;
    if (submittedS < this.warmupS) return;
    this.ttftS.push(ttft);
    this.ttftNewTokens.push(newTokens);
    this.firstTokenS.push(nowS);
  }

  decodedSequence(submittedS: number, ttstS: number, tpotS: number): void {
    if (submittedS < this.warmupS) return;
    this.decoded++;
    this.ttstSumS += ttstS;
    this.tpotSumS += tpotS;
  }

  /** Called before the number of agents or of their tokens changes. */
  passed(nowS: number, agents: number, tokens: number): void {
    const fromS = Math.max(this.warmupS, this.#atS);
    if (nowS > fromS) {
      this.tokenSeconds += (nowS - fromS) * tokens;
      this.agentSeconds += (nowS - fromS) * agents;
    }
    this.#atS = nowS;
  }

  /** Mean TTFT of first tokens in [fromS, toS); undefined if there were none. */
  ttftBetween(fromS: number, toS: number): number | undefined {
    let sum = 0;
    let count = 0;
    for (
      let bin = Math.max(0, Math.floor(fromS / binS));
      bin < toS / binS && bin < this.#ttftSum.length;
      bin++
    ) {
      sum += this.#ttftSum[bin]!;
      count += this.#ttftCount[bin]!;
    }
    return count === 0 ? undefined : sum / count;
  }
}
