/** Messages of one stream, numbered by who sends them: what comes twice or out of order does no harm. */
export class Sequence {
  #sent = 0;
  received = 0;

  next(): number {
    return ++this.#sent;
  }

  /** 'take' it, 'drop' it for it was there before, or there is a 'gap': something before it is missing. */
  check(sequence: number): 'take' | 'drop' | 'gap' {
    if (sequence <= this.received) return 'drop';
    if (sequence > this.received + 1) return 'gap';
    this.received = sequence;
    return 'take';
  }
}
