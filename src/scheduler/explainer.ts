import type { DecisionLog } from './decision-log.js';
import { decodeWaitCause } from './decode-placement.js';
import {
  maxCandidates,
  type DecodeDecision,
  type PrefillDecision,
  type ReadReason,
  type SideFacts,
} from './decisions.js';
import { requestsOf, tokensOf, type EngineEntry, type GroupEntry } from './ledger.js';
import { freeBufferBlocks, freeHbmBlocks, type Needs } from './needs.js';
import type { AdmissionOptions } from './options.js';
import type { Placements } from './placements.js';
import type { PrefillNeeds } from './prefill-placement.js';
import { readTimeS, type ReadPlan } from './read-side.js';
import { decodeTokensOf, type RequestEntry } from './request-entry.js';
import type { Assignment } from './types.js';

type Rules = Pick<Required<AdmissionOptions>, 'policy' | 'blockBytes' | 'alphaS' | 'betaTokens'>;

/**
 * Writes into a `DecisionLog` what `Admission` decides and what it looked at. Called before the account changes, so
 * that the numbers are those of the decision; decides nothing itself.
 */
export class Explainer {
  readonly #log: DecisionLog;
  readonly #rules: Rules;
  readonly #placements: Placements;

  /** undefined where nobody asks. */
  static of(
    options: Rules & { readonly decisions: DecisionLog | undefined },
    placements: Placements,
  ): Explainer | undefined {
    return options.decisions && new Explainer(options.decisions, options, placements);
  }

  private constructor(log: DecisionLog, rules: Rules, placements: Placements) {
    this.#log = log;
    this.#rules = rules;
    this.#placements = placements;
    placements.explainBy({
      onHanded: (entry) => this.#handed(entry),
      onChoice: (entry, group, engine, zTokens, rule) => {
        const decision = this.#decodeDecision(entry, group, engine, zTokens, rule);
        const { request } = entry.description;
        if (engine) this.#log.add(request, decision);
        else this.#log.wait(request, decodeWaitCause(entry, group), decision);
      },
    });
  }

  submitted({ description, key }: RequestEntry, ahead: number): void {
    const { request, promptTokens, hitTokens, maxNewTokens, tenant, priority = 0, avoidSide } = description;
    this.#log.add(request, {
      kind: 'submit',
      ...{ promptTokens, hitTokens, maxNewTokens, tenant, priority, avoidSide, key, ahead },
    });
  }

  /** Of the PEs [from, to); undefined: none may take it. */
  prefill(
    { description: { request } }: RequestEntry,
    needs: PrefillNeeds,
    engine: EngineEntry | undefined,
    from: number,
    to: number,
  ): void {
    const { blockBytes, alphaS, betaTokens } = this.#rules;
    const { classes, first } = this.#placements.prefill.survey(maxCandidates, from, to);
    const candidates = first.map(({ entry, busy }) => ({
      engine: entry.capacity.engine,
      class: busy ? ('C3' as const) : ('C2' as const),
      tokens: tokensOf(entry),
      readQueueS: readTimeS(entry.link, 0, blockBytes),
      freeBufferBlocks: freeBufferBlocks(entry),
      fits:
        freeBufferBlocks(entry) >= needs.bufferBlocks &&
        (entry.capacity.hbmBlocks === 0 || freeHbmBlocks(entry) >= needs.hbmBlocks),
    }));
    const decision: PrefillDecision = {
      kind: 'prefill',
      engine: engine?.capacity.engine,
      ...{ classes, candidates, alphaS, bufferBlocks: needs.bufferBlocks },
      betaTokens: Number.isFinite(betaTokens) ? betaTokens : null,
    };
    if (engine) this.#log.add(request, decision);
    else this.#log.wait(request, 'prefill-room', decision);
  }

  #handed(entry: RequestEntry): void {
    const group = entry.decodeGroup!.name;
    const candidates = this.#placements.decode.firstGroups(maxCandidates).map(({ name, tokens }) => {
      return { group: name, tokens: name === group ? tokens - decodeTokensOf(entry) : tokens };
    });
    candidates.sort((a, b) => a.tokens - b.tokens);
    this.#log.add(entry.description.request, { kind: 'decode-group', group, candidates });
  }

  #decodeDecision(
    entry: RequestEntry,
    group: GroupEntry,
    engine: EngineEntry | undefined,
    zTokens: number,
    rule: DecodeDecision['rule'],
  ): DecodeDecision {
    const { decodeHbmBlocks: hbmBlocks, decodeBufferBlocks: bufferBlocks } = entry.needs!;
    const requestTokens = decodeTokensOf(entry);
    const candidates = this.#placements.decode.firstEngines(group, maxCandidates).map((one) => ({
      engine: one.capacity.engine,
      requests: requestsOf(one),
      tokens: tokensOf(one),
      freeHbmBlocks: freeHbmBlocks(one),
      freeBufferBlocks: freeBufferBlocks(one),
      withinZ: tokensOf(one) + requestTokens <= zTokens,
      fits: freeHbmBlocks(one) >= hbmBlocks && freeBufferBlocks(one) >= bufferBlocks,
    }));
    return {
      kind: 'decode',
      engine: engine?.capacity.engine,
      group: group.name,
      ...{ rule, zTokens, requestTokens, hbmBlocks, bufferBlocks, candidates },
    };
  }

  read(entry: RequestEntry, decode: EngineEntry, plan: ReadPlan): void {
    const needs = entry.needs!;
    const prefill = entry.prefill!;
    const { hitBlocks } = needs;
    const { policy, blockBytes } = this.#rules;
    const facts = ({ capacity, link }: EngineEntry): SideFacts => ({
      engine: capacity.engine,
      queueBlocks: link.readQueueBlocks,
      finishS: readTimeS(link, hitBlocks, blockBytes),
    });
    const sides = { prefill: facts(prefill), decode: facts(decode) };
    this.#log.add(entry.description.request, {
      kind: 'read',
      reason: this.#reason(needs, entry, sides),
      ...plan,
      ...{ policy, hitBlocks, prefillFreeBufferBlocks: freeBufferBlocks(prefill), ...sides },
    });
  }

  #reason(
    needs: Needs,
    { readsAll, prefill }: RequestEntry,
    sides: { readonly prefill: SideFacts; readonly decode: SideFacts },
  ): ReadReason {
    const { policy } = this.#rules;
    if (needs.hitBlocks === 0) return 'nothing-to-read';
    if (needs.avoidSide === 'prefill') return 'other-side-failed';
    if (policy === 'round-robin') return 'turn';
    if (readsAll) return 'policy';
    if (policy === 'split') return 'balance';
    if (freeBufferBlocks(prefill!) < needs.hitBlocks) return 'prefill-buffer-short';
    return sides.prefill.finishS === sides.decode.finishS ? 'tie' : 'shorter-queue';
  }

  assigned(assignment: Assignment): void {
    this.#log.add(assignment.request, { kind: 'assigned', assignment });
  }

  placedAnew({ description, prefill }: RequestEntry): void {
    const lostEngine = prefill!.capacity.engine;
    this.#log.add(description.request, { kind: 'placed-anew', lostEngine });
  }

  ended({ description }: RequestEntry, error: Error | null): void {
    this.#log.ended(description.request, error);
  }
}
