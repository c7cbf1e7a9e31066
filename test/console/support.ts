import { WebConsole, type ConsoleSource } from '../../src/console/index.js';
import { Admission, type Assignment } from '../../src/scheduler/index.js';
import { admitAll, engineOf, optionsOf, requestOf } from '../scheduler/support.js';

/** A scheduler of 48 prefill and 96 decode engines with a request on each of the first PEs, and its page. */
export async function openConsole(): Promise<{
  page: WebConsole;
  admission: Admission;
  assignments: Assignment[];
  lead(leads: boolean): void;
}> {
  const engines = [
    ...Array.from({ length: 48 }, (_, index) =>
      engineOf('prefill', `p${index}`, { node: `node-${index >> 3}` }),
    ),
    ...Array.from({ length: 96 }, (_, index) =>
      engineOf('decode', `d${index}`, { node: `node-${6 + (index >> 3)}` }),
    ),
  ];
  const admission = new Admission(optionsOf({ engines, maxWaiting: 1000 }));
  const source: ConsoleSource = {
    statistics: () => admission.statistics(),
    engines: () => admission.engines(),
    epoch: () => 7,
  };
  let leads = true;
  const page = await WebConsole.open({ host: '127.0.0.1', port: 0 }, () => (leads ? source : undefined));
  const assignments = admitAll(admission, ...Array.from({ length: 20 }, (_, i) => requestOf(`r${i}`, 4, 3)));
  for (const assignment of assignments) {
    const { request } = assignment;
    page.observe({ atS: 1, kind: 'submitted', request });
    page.observe({ atS: 1.25, kind: 'assigned', request, assignment, attempt: 1, waitedS: 0.25 });
    page.observe({ atS: 1.5, kind: 'tokens', request, first: 0, count: 1 });
    page.observe({ atS: 1.6, kind: 'tokens', request, first: 1, count: 1 });
  }
  return { page, admission, assignments, lead: (value) => (leads = value) };
}
