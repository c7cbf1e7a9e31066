/** Error counters since boot. */
import type { Check, Host, Problem } from '../check.js';
import { excesses, readCounters, type CounterMeaning } from '../counters.js';

function problemsOf({ devices, view }: Host, kind: CounterMeaning['kind']): Problem[] {
  return devices.flatMap(({ name, ports }) =>
    ports.flatMap((port) =>
      excesses(readCounters(view, port.folder))
        .filter(({ meaning }) => meaning.kind === kind)
        .map(({ name: counter, count, packets, meaning }): Problem => ({
          severity: kind === 'congestion' ? 'note' : 'warning',
          found: `${name} port ${port.port}: ${counter} ${count} in ${packets} packets: ${meaning.meaning}`,
          remedy: meaning.remedy,
        })),
    ),
  );
}

export const portErrors: Check = {
  id: 'port-errors',
  looksAt:
    'symbol errors, link recoveries and link downs, damaged packets: more than one in a million packets',
  why: 'A bad cable or transceiver; each error costs a retry, a recovery stops the link for a while.',
  remedy: 'Reseat or replace the cable; `ibqueryerrors`, `mlxlink -d DEVICE -c`',
  run: (host) => problemsOf(host, 'physical'),
};

export const transportErrors: Check = {
  id: 'transport-errors',
  looksAt: 'out of sequence, retries, time-outs, RNR, drops: more than one in 100,000 packets',
  why: 'RDMA expects a network that loses nothing: one lost packet costs milliseconds, go-back-N sends everything after it again.',
  remedy: 'PFC for the class on every hop (`dualpath qos check`); for RNR: the receiver’s CPU',
  run: (host) => problemsOf(host, 'transport'),
};

export const congestion: Check = {
  id: 'congestion',
  looksAt: 'CNPs, ECN marks (more than one in 1,000 packets), xmit_wait',
  why: 'Senders are slowed down; expected under load, a fault where links should be idle.',
  remedy: 'Look for several senders to one port, uneven routes, a slow receiver',
  run: (host) => problemsOf(host, 'congestion'),
};
