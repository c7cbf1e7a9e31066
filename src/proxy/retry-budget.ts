/** Retries may be a tenth of all requests. A reserve lets a replica's death in a quiet hour be survived, too. */
const share = 0.1;
const reserve = 64;
const most = 512;

export class RetryBudget {
  #left = reserve;

  /** A request has come. */
  earn(): void {
    this.#left = Math.min(most, this.#left + share);
  }

  /** False: no more retries now. */
  spend(): boolean {
    if (this.#left < 1) return false;
    this.#left--;
    return true;
  }
}
