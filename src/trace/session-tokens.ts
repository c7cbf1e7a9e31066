import { DualPathError } from '../errors/index.js';
import { fillTokens, indexedKey, namedKey, type MixKey } from './mix.js';
import { keptTokensOf, type Session, type Turn } from './types.js';

/**
 * The tokens of one session: u32 values, a function of the seed, the session's id and the session's lengths.
 * Within a session every token that is not taken over is new, that is, unlike all others of the session; a
 * prefix segment is the same in every session that names it; a block of a `blocks` turn is the same wherever
 * its hash id appears.
 *
 * Holds one conversation at a time (4 bytes per token of the longest) and moves on turn by turn, generating
 * only what a turn adds. Asking for an earlier turn starts again from the first.
 */
export class SessionTokens {
  readonly session: Session;
  readonly #seed: number;
  readonly #ownKey: MixKey;
  readonly #blockFamily: MixKey;
  #conversation: Uint32Array | null = null;
  #turn = -1;
  #newTokens = 0;

  /** `seed` is that of the workload: sessions share prefixes and blocks only under one seed. */
  constructor(session: Session, seed: number) {
    this.session = session;
    this.#seed = seed;
    this.#ownKey = namedKey(seed, 'session', session.id);
    this.#blockFamily = namedKey(seed, 'block', '');
  }

  /** The turn's whole prompt, [promptTokens], a copy that is the caller's to keep. */
  promptOf(turnIndex: number): Uint32Array {
    const turn = this.#turnAt(turnIndex);
    return this.conversationOf(turnIndex).slice(0, turn.promptTokens);
  }

  /** The tokens the turn generates, [outputTokens], a copy. */
  replyOf(turnIndex: number): Uint32Array {
    return this.conversationOf(turnIndex).slice(this.#turnAt(turnIndex).promptTokens);
  }

  /** Prompt and reply, [promptTokens + outputTokens]: a view, overwritten when another turn is asked for. */
  conversationOf(turnIndex: number): Uint32Array {
    const turn = this.#turnAt(turnIndex);
    if (turnIndex < this.#turn) {
      this.#turn = -1;
      this.#newTokens = 0;
    }
    while (this.#turn < turnIndex) this.#advance();
    return this.#buffer().subarray(0, turn.promptTokens + turn.outputTokens);
  }

  #turnAt(turnIndex: number): Turn {
    const turn = this.session.turns[turnIndex];
    if (turn === undefined) {
      const turns = this.session.turns.length;
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `session ${this.session.id} has no turn ${turnIndex}: its turns are 0 to ${turns - 1}`,
        { session: this.session.id, turn: turnIndex, turns },
      );
    }
    return turn;
  }

  #buffer(): Uint32Array {
    if (this.#conversation === null) {
      let longest = 0;
      for (const turn of this.session.turns) {
        longest = Math.max(longest, turn.promptTokens + turn.outputTokens);
      }
      this.#conversation = new Uint32Array(longest);
    }
    return this.#conversation;
  }

  #advance(): void {
    this.#turn++;
    const turn = this.#turnAt(this.#turn);
    const { identity, promptTokens } = turn;
    if (identity.kind === 'blocks') {
      this.#fillBlocks(identity.hashIds, identity.blockTokens, promptTokens);
    } else {
      this.#fillNew(this.#turn === 0 ? this.#fillPrefix() : keptTokensOf(turn), promptTokens);
    }
    this.#fillNew(promptTokens, promptTokens + turn.outputTokens);
  }

  #fillNew(from: number, to: number): void {
    fillTokens(this.#buffer(), from, to, this.#ownKey, this.#newTokens);
    this.#newTokens += to - from;
  }

  #fillPrefix(): number {
    let position = 0;
    for (const segment of this.session.prefix) {
      const end = position + segment.tokens;
      fillTokens(this.#buffer(), position, end, namedKey(this.#seed, 'prefix', segment.name), 0);
      position = end;
    }
    return position;
  }

  #fillBlocks(hashIds: readonly number[], blockTokens: number, promptTokens: number): void {
    let position = 0;
    for (const hashId of hashIds) {
      const end = Math.min(position + blockTokens, promptTokens);
      fillTokens(this.#buffer(), position, end, indexedKey(this.#blockFamily, hashId), 0);
      position = end;
    }
  }
}
