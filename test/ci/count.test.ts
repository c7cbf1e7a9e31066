import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';

const script = resolve(import.meta.dirname, '../../.ci/count.mjs');
const folder = mkdtempSync(join(tmpdir(), 'dualpath-count-'));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function count(exitStatus: number, report?: unknown): string {
  const args = [script, String(exitStatus)];
  if (report !== undefined) {
    const path = join(folder, 'report.json');
    writeFileSync(path, typeof report === 'string' ? report : JSON.stringify(report));
    args.push(path);
  }
  return spawnSync(process.execPath, args, { encoding: 'utf8' }).stdout.trim();
}

const passing = { status: 'RUN', result: 'COMPLETED' };
const googleTest = (...tests: object[]): object => ({ testsuites: [{ testsuite: tests }] });
const vitest = (numPassedTests: number, numFailedTests: number): object => ({
  numPassedTests,
  numFailedTests,
});

describe('the count of a stage', () => {
  it('tells passed, failed and skipped native tests apart', () => {
    const failing = { ...passing, failures: [{ failure: 'x' }] };
    const skipped = { status: 'RUN', result: 'SKIPPED' };
    const disabled = { status: 'NOTRUN', result: 'SUPPRESSED' };
    expect(count(1, googleTest(passing, failing, skipped, disabled, passing))).toBe('2 1');
  });

  it('reads the report of vitest', () => {
    expect(count(1, vitest(7, 2))).toBe('7 2');
    expect(count(0, vitest(7, 0))).toBe('7 0');
  });

  it('counts a stage without tests by its exit status', () => {
    expect(count(0)).toBe('0 0');
    expect(count(2)).toBe('0 1');
  });

  it('counts one failure for a stage that broke beside its tests', () => {
    expect(count(1, vitest(7, 0))).toBe('7 1');
    expect(count(0, vitest(0, 0))).toBe('0 1');
    expect(count(0, '{"numPassed')).toBe('0 1');
  });
});
