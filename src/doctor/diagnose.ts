/** Runs the checks. */
import type { HostView } from '../host-view/index.js';
import {
  lookAt,
  severities,
  type Check,
  type Finding,
  type Host,
  type HostOptions,
  type Severity,
} from './check.js';
import { checks } from './registry.js';

export interface Diagnosis {
  /** In the order of the registry; a check without problems has one, 'ok'. */
  readonly findings: readonly Finding[];
  readonly counts: Readonly<Record<Severity, number>>;
}

/** Never throws: a check that cannot be carried out is 'unknown'. */
export function diagnose(view: HostView, options: HostOptions): Diagnosis {
  const host = lookAt(view, options);
  return diagnosisOf(checks.flatMap((check) => findingsOf(check, host)));
}

export function diagnosisOf(findings: readonly Finding[]): Diagnosis {
  const count = (severity: Severity): number =>
    findings.filter((finding) => finding.severity === severity).length;
  const entries = severities.map((severity) => [severity, count(severity)]);
  return { findings, counts: Object.fromEntries(entries) as Diagnosis['counts'] };
}

function findingsOf(check: Check, host: Host): Finding[] {
  const { id, why, looksAt } = check;
  try {
    const problems = check.run(host);
    if (problems.length === 0)
      return [{ id, severity: 'ok', found: `nothing wrong: ${looksAt}`, why, remedy: null }];
    return problems.map((problem) => ({ id, why, ...problem }));
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return [
      {
        ...{ id, severity: 'unknown', why },
        found: `the check failed: ${message}`,
        remedy: 'please report it, with the output of dualpath doctor --json',
      },
    ];
  }
}
