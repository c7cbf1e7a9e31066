/** What `dualpath doctor` prints for people: the worst first, what is in order in one line. */
import { severities, type Diagnosis, type Finding, type Severity } from '../doctor/index.js';

const order: readonly Severity[] = ['error', 'warning', 'unknown', 'note'];

export function doctorText({ findings, counts }: Diagnosis): string {
  const worst = order.flatMap((severity) => findings.filter((finding) => finding.severity === severity));
  const fine = findings.filter(({ severity }) => severity === 'ok').map(({ id }) => id);
  const summary = severities
    .filter((severity) => severity !== 'ok')
    .map((severity) => `${severity} ${counts[severity]}`)
    .join(', ');
  return [...worst.map(findingText), `in order: ${fine.join(', ') || 'nothing'}`, summary].join('\n\n');
}

function findingText({ id, severity, found, why, remedy }: Finding): string {
  return `${severity}: ${id}: ${found}\n  why: ${why}\n  remedy: ${remedy}`;
}
