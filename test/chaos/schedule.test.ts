/** Seeded fault schedules over the lease ledger; and that what they look for would be found. */
import { afterEach, describe, expect, it, vi } from 'vitest';
import { runSchedule } from '../../src/chaos/index.js';
import { LeaseContext } from '../../src/leases/context.js';
import { LeaseBook } from '../../src/leases/lease-book.js';
import { RequestTable } from '../../src/leases/request-table.js';
import { TokenLog } from '../../src/leases/index.js';

const seeds = (count: number): number[] => Array.from({ length: count }, (_, i) => i + 1);

/** What is wrong in the first schedule of `count` that fails. */
function firstViolation(count: number): string {
  for (const seed of seeds(count)) {
    const [first] = runSchedule(seed).violations;
    if (first !== undefined) return first;
  }
  return 'none';
}

describe('fault schedules', () => {
  afterEach(() => vi.restoreAllMocks());

  it('end every request once, repeat and skip no token, lease nothing twice', () => {
    const results = seeds(200).map(runSchedule);
    expect(results.flatMap(({ seed, violations }) => violations.map((what) => `${seed}: ${what}`))).toEqual(
      [],
    );
    const sum = (of: (result: (typeof results)[number]) => number): number =>
      results.reduce((total, result) => total + of(result), 0);
    expect(sum(({ outcomes }) => outcomes['OK'] ?? 0)).toBeGreaterThan(1000);
    expect(sum(({ totals }) => totals.returned)).toBeGreaterThan(100);
    expect(sum(({ lateResults }) => lateResults)).toBeGreaterThan(10);
  });

  it('are the same for the same seed', () => {
    expect(runSchedule(5)).toEqual(runSchedule(5));
  });

  it('find a lease granted before the last has ended', () => {
    const takeBack = Reflect.get<LeaseBook, 'takeBack'>(LeaseBook.prototype, 'takeBack');
    vi.spyOn(LeaseBook.prototype, 'takeBack').mockImplementation(function (this: LeaseBook, record, error) {
      takeBack.call(this, record, error);
      for (const engine of [...record.holders]) this.release(record, engine);
    });
    expect(firstViolation(400)).toMatch(/is leased twice/);
  });

  it('find a token that is repeated', () => {
    vi.spyOn(TokenLog.prototype, 'from').mockImplementation(function (this: TokenLog, first) {
      return new Uint32Array(this.count - Math.min(first, this.count) + 1);
    });
    expect(firstViolation(50)).toMatch(/token|leased/);
  });

  it('find a request that is lost', () => {
    vi.spyOn(RequestTable.prototype, 'park').mockImplementation(() => undefined);
    expect(firstViolation(50)).toMatch(/has not ended/);
  });

  it('find a late result that is not counted', () => {
    vi.spyOn(LeaseContext.prototype, 'drop').mockImplementation(() => undefined);
    expect(firstViolation(200)).toMatch(/late result was not counted/);
  });
});
