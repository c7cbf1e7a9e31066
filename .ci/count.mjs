/**
 * Counts the tests of one stage: `node .ci/count.mjs EXIT_STATUS [REPORT]` prints "PASSED FAILED".
 * REPORT is the JSON of GoogleTest or of vitest. Skipped tests count as neither. On stderr: the tests that
 * failed, each with the beginning of what it said.
 */
import { readFileSync } from 'node:fs';

const messageLines = 12;

function countGoogleTest({ testsuites }) {
  const tests = testsuites.flatMap(({ testsuite }) => testsuite);
  const failed = tests.filter(({ failures }) => failures !== undefined).length;
  const skipped = tests.filter(({ status, result }) => status !== 'RUN' || result === 'SKIPPED').length;
  return { passed: tests.length - failed - skipped, failed };
}

function googleTestFailures({ testsuites }) {
  return testsuites
    .flatMap(({ testsuite }) => testsuite)
    .filter(({ failures }) => failures !== undefined)
    .map(({ classname, name, failures }) => ({ name: `${classname}.${name}`, message: failures[0].failure }));
}

function countVitest({ numPassedTests, numFailedTests }) {
  return { passed: numPassedTests, failed: numFailedTests };
}

/** Of a file that could not even be read, or whose hooks failed, the message stands with the file. */
function vitestFailures({ testResults = [] }) {
  return testResults.flatMap(({ name, status, message, assertionResults }) => {
    const failures = assertionResults
      .filter((test) => test.status === 'failed')
      .map(({ fullName, failureMessages }) => ({
        name: `${name}: ${fullName}`,
        message: failureMessages[0],
      }));
    return failures.length > 0 || status !== 'failed' ? failures : [{ name, message }];
  });
}

function tellFailures(report) {
  const failures = 'testsuites' in report ? googleTestFailures(report) : vitestFailures(report);
  for (const { name, message = '' } of failures) {
    console.error(`FAILED ${name}`);
    for (const line of message.split('\n').slice(0, messageLines)) console.error(`    ${line}`);
  }
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
  tellFailures(report);
  const { passed, failed } = 'testsuites' in report ? countGoogleTest(report) : countVitest(report);
  // A stage that broke beside its tests, and one that ran none, is a failure too.
  const broke = exitStatus !== 0 || passed === 0;
  return { passed, failed: failed === 0 && broke ? 1 : failed };
}

const { passed, failed } = count(Number(process.argv[2]), process.argv[3]);
console.log(`${passed} ${failed}`);
