/** `doctor` in a guest with a soft-RoCE device: nothing to report at first, then real faults, one after the other. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { cli, runOnHosts, type HostsRun } from './hosts.js';

interface Report {
  readonly findings: readonly { id: string; severity: string; found: string; remedy: string | null }[];
  readonly counts: Readonly<Record<string, number>>;
}

const doctor = (name: string, command = cli, options = ''): string =>
  `${command} doctor --json ${options} >$DUALPATH_OUT/${name}.json; echo "${name}: $?"`;
/** Without CAP_IPC_LOCK root, too, has its limit. */
const limited = `ulimit -l 65536; ulimit -n 1024; setpriv --bounding-set -ipc_lock ${cli}`;
const nobody = `setpriv --reuid 65534 --regid 65534 --clear-groups ${cli}`;
const thp = '/sys/kernel/mm/transparent_hugepage/enabled';

let run: HostsRun;
beforeAll(async () => {
  const steps = [
    doctor('sound'),
    `(cat ${thp} | tr -d '\\n' >/tmp/thp; echo never >${thp}; ip link set eth0 mtu 1500; ` +
      `${doctor('limits', limited, '--store $DUALPATH_OUT')}; ip link set eth0 mtu 4500; echo always >${thp})`,
    `chmod 600 /dev/infiniband/uverbs0; ${doctor('nobody', nobody)}`,
    `mv /dev/infiniband/uverbs0 /tmp/; ${doctor('container')}; mv /tmp/uverbs0 /dev/infiniband/`,
    `ip link set eth0 down; ${doctor('down')}; ip link set eth0 up`,
    `rdma link delete rxe0; ${doctor('none')}`,
  ];
  run = await runOnHosts([steps.join('\n')]);
  expect(run.statuses, run.output.join('\n')).toEqual([0]);
});
afterAll(() => run.remove());

/** What is not in order, by check. */
function reported(name: string): Record<string, { severity: string; found: string }> {
  const { findings } = run.json(`${name}.json`) as Report;
  return Object.fromEntries(
    findings.filter(({ severity }) => severity !== 'ok').map((finding) => [finding.id, finding]),
  );
}

describe('doctor in a guest', () => {
  it('reports nothing where all is in order', () => {
    expect(reported('sound')).toEqual({});
    expect(run.output[0]).toContain('sound: 0');
  });

  it('finds small limits, packets and pages, and a store on 9p', () => {
    expect(reported('limits')).toMatchObject({
      'path-mtu': { severity: 'warning', found: expect.stringMatching(/path MTU 1024, eth0 has MTU 1500/) },
      memlock: { severity: 'error', found: expect.stringMatching(/67108864 bytes/) },
      'huge-pages': { severity: 'warning' },
      'open-files': { severity: 'warning' },
      'store-file-system': { severity: 'warning', found: expect.stringMatching(/lies on 9p/) },
    });
    expect(run.output[0]).toContain('limits: 1');
  });

  it('says who may not open the device, and where its node is missing', () => {
    expect(reported('nobody')['rdma-access']).toMatchObject({
      severity: 'error',
      found: expect.stringMatching(/rxe0 cannot be opened: this user may not/),
    });
    expect(reported('container')['rdma-access']).toMatchObject({
      severity: 'error',
      found: expect.stringMatching(/uverbs0 is not there/),
    });
  });

  it('finds a link that is down, and no device at all', () => {
    expect(reported('down')['port-state']).toMatchObject({ severity: 'error' });
    expect(run.output[0]).toContain('down: 1');
    expect(reported('none')['rdma-subsystem']).toMatchObject({ severity: 'error' });
  });
});
