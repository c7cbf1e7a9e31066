import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  Admission,
  readPolicies,
  stages,
  type AdmissionOptions,
  type Assignment,
  type EngineCapacity,
  type ReadPolicy,
  type Stage,
} from '../../src/scheduler/index.js';
import { isDualPathError } from '../../src/errors/index.js';
import { engineOf, optionsOf } from './support.js';
import { Transcription } from './transcription.js';

const BLOCK_TOKENS = 4;
const MAX_WAITING = 10;
const policyNames = Object.keys(readPolicies) as ReadPolicy[];
const stageNames = Object.keys(stages) as Stage[];

/** The account equals the sum over running requests, and lies within every capacity. */
function checkAccount(admission: Admission, model: Transcription): void {
  for (const state of admission.engines()) {
    const { engine, node, bufferBlocks, hbmBlocks, readRateBytesPerS } = state.capacity;
    expect({
      buffer: state.bufferBlocks,
      hbm: state.hbmBlocks,
      requests: state.unfinishedRequests,
      tokens: state.unfinishedTokens,
    }).toEqual(model.use(model.capacity(engine)));
    expect(state.bufferBlocks).toBeLessThanOrEqual(bufferBlocks);
    expect(state.hbmBlocks).toBeLessThanOrEqual(hbmBlocks);
    const queueS = (state.link.readQueueBlocks * model.options.blockBytes) / readRateBytesPerS;
    expect(queueS).toBe(model.queueS(node));
  }
  expect(admission.statistics()).toMatchObject({
    waiting: model.waiting.length + model.all().length - model.running.size,
    running: model.running.size,
  });
}

const options: fc.Arbitrary<AdmissionOptions> = fc
  .record({
    // For each group, its nodes, for each node its engines.
    prefill: groupsOf(fc.record({ bufferBlocks: fc.nat(12), hbmBlocks: fc.constantFrom(0, 0, 10) })),
    decode: groupsOf(fc.record({ bufferBlocks: tightOrWide(20), hbmBlocks: tightOrWide(24) })),
    rates: fc.array(fc.constantFrom(100, 250, 1000), { minLength: 8, maxLength: 8 }),
    policy: fc.constantFrom(...policyNames),
    decodeSpareBlocks: fc.nat(2),
    alphaS: fc.constantFrom(0, 0.3, 3),
    betaTokens: fc.constantFrom(0, 12, 40, Infinity),
    hitTokenWeight: fc.constantFrom(0, 0.3, 1),
    seed: fc.nat(),
  })
  .map(({ prefill, decode, rates, ...rest }) => {
    let node = 0;
    const engines = (['prefill', 'decode'] as const).flatMap((role) =>
      (role === 'prefill' ? prefill : decode).flatMap((group, g) =>
        group.flatMap((members) => {
          const n = node++;
          return members.map((room, e) =>
            engineOf(role, `${role}-${g}-${n}-${e}`, {
              ...room,
              node: `n${n}`,
              group: `${role}-${g}`,
              readRateBytesPerS: rates[n % 8]!,
            }),
          );
        }),
      ),
    );
    return optionsOf({ ...rest, maxWaiting: MAX_WAITING, engines: shuffle(engines, rest.seed) });
  });

/** Memory that requests wait for, or room for many, so that loads decide. */
function tightOrWide(tight: number): fc.Arbitrary<number> {
  return fc.oneof(fc.nat(tight), fc.constant(200));
}

type Room = Pick<EngineCapacity, 'bufferBlocks' | 'hbmBlocks'>;

function groupsOf(room: fc.Arbitrary<Room>): fc.Arbitrary<Room[][][]> {
  const node = fc.array(room, { minLength: 1, maxLength: 2 });
  return fc.array(fc.array(node, { minLength: 1, maxLength: 2 }), { minLength: 1, maxLength: 3 });
}

/** Engines of a group need not stand together. */
function shuffle<T>(items: readonly T[], seed: number): T[] {
  const place = (i: number): number => ((i + 1) * (seed + 7919)) % 104_729;
  return items
    .map((item, i) => ({ item, at: place(i) }))
    .sort((a, b) => a.at - b.at)
    .map(({ item }) => item);
}

const eventArbitrary = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      kind: fc.constant('submit' as const),
      promptTokens: fc.integer({ min: 1, max: 40 }),
      hitBlocks: fc.nat(10),
      maxNewTokens: fc.oneof(fc.nat(20), fc.nat(90)),
    }),
  },
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant('complete' as const),
      which: fc.nat(20),
      stage: fc.constantFrom(...stageNames),
    }),
  },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant('fetch' as const), which: fc.nat(5) }) },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('admit' as const) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('end' as const), which: fc.nat(20) }) },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('lost' as const), which: fc.nat(9) }) },
);
type Event = typeof eventArbitrary extends fc.Arbitrary<infer E> ? E : never;

class Run {
  readonly admission: Admission;
  readonly model: Transcription;
  readonly #submitted: string[] = [];
  assigned = 0;

  constructor(readonly some: AdmissionOptions) {
    this.admission = new Admission(some);
    this.model = new Transcription(some);
  }

  step(event: Event): void {
    const { admission, model } = this;
    switch (event.kind) {
      case 'submit':
        return this.#submit(event);
      case 'complete': {
        const live = [...model.running.values()][event.which];
        if (!live) return;
        const fresh = !live.done.has(event.stage);
        const { request } = live.description;
        expect(admission.complete(request, event.stage, live.assignment!.admission)).toBe(fresh);
        if (event.stage === 'request') model.running.delete(request);
        else live.done.add(event.stage);
        return;
      }
      case 'end': {
        const request = this.#alive()[event.which];
        if (request === undefined) return;
        expect(admission.end(request, new Error('ended'))).toMatchObject({ request });
        return model.forget(request);
      }
      case 'lost':
        return this.#lose(event.which);
      case 'fetch': {
        const groups = [...model.groups('prefill'), ...model.groups('decode')];
        const group = groups[event.which % groups.length]!;
        const assignments = byRequest(admission.fetch(group, []));
        this.assigned += assignments.size;
        if (!model.queues.has(group)) return model.placePrefill(admission, model.live('prefill', group));
        model.drain(admission);
        return model.placeDecode(group, assignments);
      }
      case 'admit': {
        const assignments = byRequest(admission.admit());
        this.assigned += assignments.size;
        model.placePrefill(admission, model.live('prefill'));
        model.drain(admission);
        for (const group of model.groups('decode')) model.placeDecode(group, assignments);
      }
    }
  }

  #alive(): string[] {
    const { model } = this;
    return [...model.waiting, ...model.all().map(({ description }) => description)].map(
      ({ request }) => request,
    );
  }

  #submit(event: Extract<Event, { kind: 'submit' }>): void {
    const { admission, model } = this;
    const { promptTokens, maxNewTokens } = event;
    const hitTokens = Math.min(event.hitBlocks, Math.floor(promptTokens / BLOCK_TOKENS)) * BLOCK_TOKENS;
    const description = { request: `r${this.#submitted.length}`, promptTokens, hitTokens, maxNewTokens };
    try {
      admission.submit(description);
      this.#submitted.push(description.request);
      model.waiting.push(description);
    } catch (error) {
      if (isDualPathError(error, 'CAPACITY_EXHAUSTED')) {
        return expect(this.#alive().length - model.running.size).toBe(MAX_WAITING);
      }
      const gone = ['prefill', 'decode'].some((role) => model.live(role as 'prefill').length === 0);
      expect(isDualPathError(error, gone ? 'PEER_LOST' : 'REQUEST_TOO_LARGE')).toBe(true);
      expect(model.possible(description)).toBe(false);
    }
  }

  #lose(which: number): void {
    const { admission, model } = this;
    const engine = model.options.engines[which]?.engine;
    if (engine === undefined || model.lost.has(engine)) return;
    model.lost.add(engine);
    const failures = admission.engineLost(engine).map(({ request }) => request);
    const doomed = model.all().filter(({ description, assignment, done }) => {
      if (!assignment) return !model.possible(description);
      return (
        assignment.decodeEngine === engine || (assignment.prefillEngine === engine && !done.has('prefill'))
      );
    });
    const never = model.waiting.filter((description) => !model.possible(description));
    const expected = [...doomed.map(({ description }) => description), ...never].map(
      ({ request }) => request,
    );
    expect(failures.sort()).toEqual(expected.sort());
    for (const request of failures) model.forget(request);
    model.lose(engine, (request) => this.#submitted.indexOf(request));
  }
}

function byRequest(assignments: readonly Assignment[]): Map<string, Assignment> {
  return new Map(assignments.map((assignment) => [assignment.request, assignment]));
}

describe('any groups and capacities, any order of events', () => {
  it("decides as the paper's text does, keeps the account exact, and ends at zero", () => {
    let assigned = 0;
    let waited = 0;
    fc.assert(
      fc.property(
        options,
        fc.array(eventArbitrary, { minLength: 20, maxLength: 60 }),
        fc.nat(),
        (some, events, order) => {
          const run = new Run(some);
          const { admission, model } = run;
          for (const event of events) {
            run.step(event);
            checkAccount(admission, model);
          }
          run.step({ kind: 'admit' });
          waited += model.waiting.length + model.all().length - model.running.size;
          // Completions keep coming: everything that waits is assigned in the end.
          let steps = 0;
          while (model.running.size > 0) {
            expect(steps++).toBeLessThan(events.length);
            run.step({ kind: 'complete', which: order % model.running.size, stage: 'request' });
            run.step({ kind: 'admit' });
            checkAccount(admission, model);
          }
          expect([model.waiting, model.all()]).toEqual([[], []]);
          for (const { bufferBlocks, hbmBlocks, unfinishedTokens, link } of admission.engines()) {
            expect([bufferBlocks, hbmBlocks, unfinishedTokens, link.readQueueBlocks]).toEqual([0, 0, 0, 0]);
          }
          const counts = admission.statistics();
          expect(counts.completed + counts.failed).toBe(counts.submitted);
          assigned += run.assigned;
        },
      ),
      { numRuns: 200, seed: 20260226 },
    );
    expect(assigned).toBeGreaterThan(400); // the cases reach what they are meant to test
    expect(waited).toBeGreaterThan(100);
  });
});
