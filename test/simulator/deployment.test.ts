import { describe, expect, it } from 'vitest';
import { deployment, settingsOf, warningsOf } from '../../src/simulator/deployment.js';
import { hardwareOf, parseHardware } from '../../src/simulator/hardware.js';
import { modelCostOf, modelCosts } from '../../src/simulator/model-cost.js';
import { dataSetWorkload } from '../../src/simulator/workload.js';
import { loadModel } from '../../src/layout/index.js';

const workload = dataSetWorkload('64k');

describe('a deployment', () => {
  it('refuses what cannot be, and says what to change', () => {
    const refused = (changes: Parameters<typeof deployment>[0]) => () =>
      settingsOf(deployment(changes), workload);
    expect(refused({ prefillNodes: 0 })).toThrow(/prefill nodes are 0: give a whole number from 1/);
    expect(refused({ decodeNodes: 1.5 })).toThrow(/decode nodes are 1.5/);
    const small = { ...hardwareOf('hopper'), hbmBytes: 8e9 };
    expect(refused({ hardware: small })).toThrow(/weights for each of .* use more (prefill|decode) nodes/);
    expect(refused({ bufferBytesPerNode: 8e9 })).toThrow(
      /the buffer of an engine is 1.0 GB, but the longest context/,
    );
    const single = { ...hardwareOf('hopper'), gpusPerNode: 1 };
    expect(refused({ model: modelCostOf('qwen2.5-32b'), hardware: single })).toThrow(/takes 2 GPUs/);
  });

  it('warns of what lies outside the bounds or outside calibration', () => {
    expect(warningsOf(deployment())).toEqual([]);
    expect(warningsOf(deployment({ prefillNodes: 8, decodeNodes: 1 }))[0]).toMatch(
      /above 3.50 \(DE CNIC write/,
    );
    expect(warningsOf(deployment({ prefillNodes: 1, decodeNodes: 8 }))[0]).toMatch(/below 0.14/);
    expect(warningsOf(deployment({ hardware: hardwareOf('a100') }))[0]).toMatch(/outside calibration/);
  });

  it('knows models and hardware by name, and names that come near', () => {
    expect(() => modelCostOf('ds-28b')).toThrow(/did you mean ds-27b/);
    expect(() => hardwareOf('hoper')).toThrow(/did you mean hopper/);
    for (const name of ['ds-v3.2-660b', 'ds-27b', 'qwen2.5-32b', 'gpt-oss-120b']) {
      const planes = loadModel(name).groups.map(
        ({ layers, planes: all }) =>
          layers.length * all.reduce((sum, { bytesPerToken }) => sum + bytesPerToken, 0),
      );
      expect(modelCostOf(name).bytesPerToken).toBe(planes.reduce((sum, bytes) => sum + bytes, 0));
    }
  });

  it('simulates every model on hardware that holds it', () => {
    for (const model of modelCosts) {
      expect(settingsOf(deployment({ model }), workload).prefillTime.baseS).toBeGreaterThan(0);
    }
  });

  it('reads hardware from JSON', () => {
    const value = {
      name: 'mine',
      gpus_per_node: 4,
      peak_flops_per_s: 5e14,
      hbm_bytes: 96e9,
      hbm_bytes_per_s: 4e12,
      cnic_bytes_per_s: 25e9,
      snic_bytes_per_s: 25e9,
      dram_bytes_per_s: 4e11,
    };
    expect(parseHardware(value, 'mine.json')).toMatchObject({
      name: 'mine',
      gpusPerNode: 4,
      isExtrapolation: true,
    });
    expect(() => parseHardware({ ...value, hbm_bytes: 0 }, 'x')).toThrow(
      /hbm_bytes of x is 0: give a number above 0/,
    );
    expect(() => parseHardware({ ...value, gpus: 4 }, 'x')).toThrow(/x has gpus, which is unknown/);
    expect(() => parseHardware([], 'x')).toThrow(/no JSON object/);
  });
});
