/**
 * Counts the tests of one stage: `node .ci/count.mjs EXIT_STATUS [REPORT]` prints "PASSED FAILED".
 * REPORT is the JSON of GoogleTest or of vitest. Skipped tests count as neither.
 */
import { readFileSync } from 'node:fs';

function countGoogleTest({ testsuites }) {
  const tests = testsuites.flatMap(({ testsuite }) => testsuite);
  const failed = tests.filter(({ failures }) => failures !== undefined).length;
  const skipped = tests.filter(({ status, result }) => status !== 'RUN' || result === 'SKIPPED').length;
  return { passed: tests.length - failed - skipped, failed };
}

function countVitest({ numPassedTests, numFailedTests }) {
  return { passed: numPassedTests, failed: numFailedTests };
}

/** `undefined` when the stage left no report that can be read: it broke before its end. */
function readReport(path) {
  try {
    return JSON.parse(readFileSync(path, 'utf8'));
  } catch (error) {
    console.error(`no report: ${error.message}`);
    return undefined;
  }
}

function count(exitStatus, reportPath) {
  if (reportPath === undefined) return { passed: 0, failed: exitStatus === 0 ? 0 : 1 };
  const report = readReport(reportPath);
  if (report === undefined) return { passed: 0, failed: 1 };
  const { passed, failed } = 'testsuites' in report ? countGoogleTest(report) : countVitest(report);
  // A stage that broke beside its tests, and one that ran none, is a failure too.
  const broke = exitStatus !== 0 || passed === 0;
  return { passed, failed: failed === 0 && broke ? 1 : failed };
}

const { passed, failed } = count(Number(process.argv[2]), process.argv[3]);
console.log(`${passed} ${failed}`);
