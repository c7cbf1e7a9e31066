/** Traffic classes of the fabric, as far as this host shows them. */
import { checkQos, type QosCheck } from '../../qos/index.js';
import type { Check, Host, Problem } from '../check.js';

function problemsOf({ differences, unknown }: QosCheck, howToSee: string): Problem[] {
  const byPlace = new Map<string, typeof differences>();
  for (const one of differences) byPlace.set(one.place, [...(byPlace.get(one.place) ?? []), one]);
  const different = [...byPlace].map(([place, ofPlace]): Problem => {
    const list = ofPlace.map(({ what, wanted, found }) => `${what} ${found}, wanted ${wanted}`);
    return { severity: 'warning', found: `${place}: ${list.join('; ')}`, remedy: ofPlace[0]!.remedy };
  });
  const dark = unknown.map(({ place, what, why }): Problem => ({
    severity: 'unknown',
    found: `${place}: ${what}: ${why}`,
    remedy: howToSee,
  }));
  return [...different, ...dark];
}

/** Soft-RoCE is left out: it has no queues of its own, and 'qos check' compares those of tc. */
function ofLayer(host: Host, isInfiniBand: boolean): QosCheck {
  const devices = host.devices.filter(
    ({ isSoftware, ports }) =>
      !isSoftware && ports.some(({ linkLayer }) => (linkLayer === 'infiniband') === isInfiniBand),
  );
  const checks = devices.map(({ name }) => checkQos(host.view, host.description, name));
  return {
    looked: checks.flatMap(({ looked }) => looked),
    differences: checks.flatMap(({ differences }) => differences),
    unknown: checks.flatMap(({ unknown }) => unknown),
  };
}

export const classesInfiniBand: Check = {
  id: 'classes-infiniband',
  looksAt: 'VL arbitration tables and SL-to-VL map of InfiniBand ports, by umad',
  why: 'Without lanes and weights KV-Cache traffic shares a queue with the engines’ collectives, and delays every step of the model.',
  remedy: 'OpenSM’s options of `dualpath qos plan`; to see them: root, or access to /dev/infiniband/umad*',
  run: (host) =>
    problemsOf(
      ofLayer(host, true),
      'modprobe ib_umad; run as root or with access to /dev/infiniband/umad*; or smpquery vlarb LID PORT at the subnet manager',
    ),
};

export const classesRoce: Check = {
  id: 'classes-roce',
  looksAt: 'DSCP map, PFC, ETS weights (`dcb`) and ECN of RoCE NICs',
  why: 'Without a queue for each class KV-Cache delays the engines’ collectives; without PFC a full switch drops, and RDMA sends everything again.',
  remedy: 'The commands for mlnx_qos or dcb of `dualpath qos plan`, and the same on the switches',
  run: (host) =>
    problemsOf(
      ofLayer(host, false),
      'install iproute2 5.11 or later (dcb) and look from the host’s network namespace: dcb ets show dev DEV; mlnx_qos -i DEV',
    ),
};
