import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  collectiveEnvironment,
  dcbCommands,
  defaultQos,
  ecnFiles,
  ethernetSettings,
  mlnxQosCommands,
  parseQos,
  percentages,
  planQos,
  sonicTables,
} from '../../src/qos/index.js';

describe('RoCE', () => {
  const settings = ethernetSettings(defaultQos);
  const text = (commands: readonly string[][]): string[] => commands.map((words) => words.join(' '));

  it('has four lossless classes with weights in proportion', () => {
    expect(settings.bandwidth).toEqual([33, 1, 0, 33, 0, 33, 0, 0]);
    expect(settings.lossless).toEqual([true, true, false, true, false, true, false, false]);
    expect(planQos(defaultQos).classes.map(({ roceFloor }) => roceFloor)).toEqual([0.33, 0.33, 0.01, 0.33]);
  });

  it('is written for mlnx_qos, dcb and ECN of mlx5', () => {
    expect(text(mlnxQosCommands(settings, 'ens1'))).toContain('mlnx_qos -i ens1 --dscp2prio set,10,1');
    expect(text(mlnxQosCommands(settings, 'ens1')).at(-1)).toBe(
      'mlnx_qos -i ens1 --prio_tc 0,1,2,3,4,5,6,7 --tsa ets,ets,ets,ets,ets,ets,ets,ets --tcbw 33,1,0,33,0,33,0,0',
    );
    expect(text(dcbCommands(settings, 'ens1'))[0]).toBe(
      'dcb app replace dev ens1 dscp-prio 0:0 10:1 26:3 46:5',
    );
    expect(ecnFiles(settings, 'ens1').map(({ path }) => path)).toContain(
      '/sys/class/net/ens1/ecn/roce_np/enable/1',
    );
  });

  it('is written for SONiC, every DSCP mapped and every queue of a class scheduled', () => {
    const tables = sonicTables(settings, ['Ethernet0', 'Ethernet4']) as Record<
      string,
      Record<string, Record<string, string>>
    >;
    expect(Object.keys(tables['DSCP_TO_TC_MAP']!['DUALPATH']!)).toHaveLength(64);
    expect(tables['DSCP_TO_TC_MAP']!['DUALPATH']!['10']).toBe('1');
    expect(Object.keys(tables['QUEUE']!)).toEqual(
      ['Ethernet0', 'Ethernet4'].flatMap((port) => [0, 1, 3, 5].map((queue) => `${port}|${queue}`)),
    );
    expect(tables['SCHEDULER']!['DUALPATH.1']).toEqual({ type: 'DWRR', weight: '1' });
    expect(tables['PORT_QOS_MAP']!['Ethernet4']!['pfc_enable']).toBe('0,1,3,5');
  });

  it('has whole percentages that are together 100, and leaves nobody without', () => {
    fc.assert(
      fc.property(
        fc.array(fc.oneof(fc.constant(0), fc.double({ min: 1e-4, max: 1, noNaN: true })), {
          minLength: 8,
          maxLength: 8,
        }),
        (raw) => {
          const sum = raw.reduce((total, share) => total + share, 0);
          fc.pre(sum > 0);
          const shares = raw.map((share) => share / sum);
          const whole = percentages(shares);
          expect(whole.reduce((total, share) => total + share, 0)).toBe(100);
          whole.forEach((percent, i) => expect(percent > 0).toBe(shares[i]! > 0));
        },
      ),
      { numRuns: 300 },
    );
  });
});

describe("engines' collectives", () => {
  it('are put on the inference class', () => {
    expect(collectiveEnvironment(defaultQos)).toMatchObject({
      NCCL_IB_SL: '1',
      NCCL_IB_TC: '104',
      NVSHMEM_IB_TRAFFIC_CLASS: '104',
      UCX_IB_SL: '1',
    });
    const moved = parseQos({ classes: { inference: { dscp: 34, service_level: 7 } } }, 'test');
    expect(collectiveEnvironment(moved)).toMatchObject({ NVSHMEM_IB_SL: '7', UCX_IB_TRAFFIC_CLASS: '136' });
  });
});
