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

function run(exitStatus: number, report?: unknown): { counts: string; said: string } {
  const args = [script, String(exitStatus)];
  if (report !== undefined) {
    const path = join(folder, 'report.json');
    writeFileSync(path, typeof report === 'string' ? report : JSON.stringify(report));
    args.push(path);
  }
  const { stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
  return { counts: stdout.trim(), said: stderr };
}

const count = (exitStatus: number, report?: unknown): string => run(exitStatus, report).counts;

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

  it('names the tests that failed, with what they said', () => {
    const native = googleTest(passing, {
      ...passing,
      classname: 'Ring',
      name: 'Wraps',
      failures: [{ failure: 'ring.cc:7\nExpected 1' }],
    });
    expect(run(1, native).said).toBe('FAILED Ring.Wraps\n    ring.cc:7\n    Expected 1\n');
    const unit = {
      ...vitest(1, 1),
      testResults: [
        {
          name: 'a.test.ts',
          status: 'failed',
          message: '',
          assertionResults: [
            { status: 'passed', fullName: 'a holds', failureMessages: [] },
            { status: 'failed', fullName: 'a breaks', failureMessages: ['AssertionError: x'] },
          ],
        },
        { name: 'b.test.ts', status: 'failed', message: 'SyntaxError', assertionResults: [] },
        { name: 'c.test.ts', status: 'passed', message: '', assertionResults: [] },
      ],
    };
    expect(run(1, unit).said).toBe(
      'FAILED a.test.ts: a breaks\n    AssertionError: x\nFAILED b.test.ts\n    SyntaxError\n',
    );
  });
});
