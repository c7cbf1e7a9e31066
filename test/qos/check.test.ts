/** A host's reality beside a description, layer by layer. */
import { afterAll, describe, expect, it } from 'vitest';
import { checkQos, defaultQos, parseQos, quantaOf, readTc, type QosCheck } from '../../src/qos/index.js';
import { answer, HostTree, netdev, soundHost, type PlantedHost } from '../doctor/host.js';

const tree = new HostTree();
afterAll(() => tree.close());

const checked = (host: PlantedHost, description = defaultQos): QosCheck =>
  checkQos(tree.view(host), description);

describe('qos check', () => {
  it('finds an InfiniBand and a RoCE port as described, and nothing of a device that is not asked for', () => {
    expect(checked(soundHost())).toEqual({ looked: ['mlx5_0 port 1', netdev], differences: [], unknown: [] });
    expect(checkQos(tree.view(soundHost()), defaultQos, 'mlx5_1').looked).toEqual([netdev]);
  });

  it('with another description finds what has to change, on both', () => {
    const classes = { kv: { dscp: 8, share: 0.1, service_level: 4 }, other: { share: 0.24 } };
    const other = parseQos({ classes, high_limit: 99 }, 'test');
    const what = checked(soundHost(), other).differences.map((one) => `${one.place}: ${one.what}`);
    expect(what).toContain('mlx5_0 port 1: high-priority limit');
    expect(what).toContain('mlx5_0 port 1: virtual lane of class kv (SL 4)');
    expect(what).toContain(`${netdev}: priority of DSCP 8`);
    expect(what).toContain(`${netdev}: ETS weights, percent`);
  });
});

describe('queues of tc', () => {
  const software = (): PlantedHost => {
    const host = soundHost();
    host.set('/sys/class/infiniband/mlx5_1/parent', netdev);
    host.commands.clear();
    return host;
  };
  const qdisc = `tc -j qdisc show dev ${netdev}`;
  const ets = {
    kind: 'ets',
    handle: 'da1:',
    root: true,
    options: { quanta: quantaOf(defaultQos), strict: 0 },
  };
  const filter = (value: string, band: number): string =>
    `filter protocol ip pref 1 u32 chain 0 fh 800::80${band} order 2048 key ht 800 bkt 0 flowid da1:${band} not_in_hw\n` +
    `  match ${value}/00fc0000 at 0\n`;
  const filters = filter('00680000', 2) + filter('00280000', 3) + filter('00b80000', 4);

  it('are known again', () => {
    const host = software();
    host.commands.set(qdisc, answer([ets]));
    host.commands.set(`tc filter show dev ${netdev} parent da1:`, { output: filters, problem: null });
    expect(checked(host).differences).toEqual([]);
    const { reality } = readTc(tree.view(host), netdev);
    expect(reality).toMatchObject({ root: 'ets', isOurs: true });
    expect([...reality!.bandOfDscp]).toEqual([
      [26, 2],
      [10, 3],
      [46, 4],
    ]);
  });

  it("of somebody else's are not ours", () => {
    const host = software();
    host.commands.set(qdisc, answer([{ kind: 'fq_codel', handle: '8001:', root: true }]));
    expect(checked(host).differences).toMatchObject([
      { what: 'queues', found: "'fq_codel' alone", remedy: `dualpath qos apply --dev ${netdev}` },
    ]);
    host.commands.clear();
    expect(checked(host).unknown).toMatchObject([{ place: netdev, why: 'there is no command tc here' }]);
  });
});
