/** src/transfer/abi.ts says what the compiler says, and what the header's text says. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { native } from '../../src/binding/index.js';
import * as abi from '../../src/transfer/abi.js';

const described = native().describeAbi();
const header = readFileSync(new URL('../../native/include/dualpath_ring.h', import.meta.url), 'utf8');
const code = header.replace(/\/\*[\s\S]*?\*\//g, '');

/** { DP_OP_NOP: 0, ... } of `enum <name>`. */
function enumerators(name: string): Record<string, number> {
  const body = new RegExp(`enum ${name} \\{([^}]*)\\}`).exec(code)?.[1] ?? '';
  const values = [...body.matchAll(/(\w+) = (\d+)u?(?: << (\d+))?/g)];
  const entries = values.map(([, key = '', value, shift]): [string, number] => [
    key,
    Number(value) << Number(shift ?? 0),
  ]);
  return Object.fromEntries(entries);
}

const defined = (name: string): number => {
  const value = new RegExp(`#define ${name} (0x[0-9a-f]+|\\d+)u`).exec(header)?.[1];
  return Number(value);
};

/** { nop: 0 } as { DP_OP_NOP: 0 }. */
const spelled = (prefix: string, values: Readonly<Record<string, number>>): Record<string, number> =>
  Object.fromEntries(
    Object.entries(values).map(([key, value]) => [
      prefix + key.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase(),
      value,
    ]),
  );

const snake = (name: string): string => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const place = (field: string): readonly [number, number] => described.fields[field] ?? [-1, -1];

describe('constants', () => {
  it.each([
    ['dp_op', 'DP_OP_', abi.op],
    ['dp_traffic_class', 'DP_CLASS_', abi.trafficClass],
    ['dp_descriptor_flags', 'DP_FLAG_', abi.flag],
    ['dp_signal_mode', 'DP_SIGNAL_', abi.signalMode],
    ['dp_record_kind', 'DP_RECORD_', abi.recordKind],
    ['dp_call', 'DP_CALL_', abi.failedCall],
  ])('enum %s', (name, prefix, values) => {
    expect(spelled(prefix, values)).toEqual(enumerators(name));
  });

  it('enum dp_error', () => {
    const { ok, ...errors } = abi.programStatus;
    expect({ DP_ERROR_NONE: ok, ...spelled('DP_ERROR_', errors) }).toEqual(enumerators('dp_error'));
  });

  it('#defines', () => {
    expect(abi.abiMagic).toBe(defined('DP_ABI_MAGIC'));
    expect(abi.abiVersion).toBe(defined('DP_ABI_VERSION'));
    expect(abi.none).toBe(defined('DP_NONE'));
    expect([described.magic, described.version]).toEqual([abi.abiMagic, abi.abiVersion]);
  });
});

describe('layout', () => {
  it('the add-on describes every field of the header', () => {
    const fields = [...code.matchAll(/struct (\w+) \{([^}]*)\};/g)].flatMap(([, struct, body = '']) =>
      body
        .split(';')
        .map((declaration) => /(\w+)(?:\[\d+\])?$/.exec(declaration.trim())?.[1])
        .filter((field) => field !== undefined)
        .map((field) => `${struct}.${field}`),
    );
    expect(fields.length).toBeGreaterThan(60);
    expect(Object.keys(described.fields).sort()).toEqual(fields.sort());
  });

  it('sizes', () => {
    const asserted = [...code.matchAll(/DP_ASSERT_BYTES\((\w+), ([\d +*]+)\)/g)].map(
      ([, struct, bytes = '']) => [struct, bytes.split('+').map((sum) => sum.split('*').map(Number))],
    );
    const sizes = asserted.map(([struct, sums]) => [
      struct,
      (sums as number[][]).reduce((sum, factors) => sum + factors.reduce((a, b) => a * b), 0),
    ]);
    expect(described.structs).toEqual(Object.fromEntries(sizes));
    expect(described.structs['dp_descriptor']).toBe(4 * abi.descriptorWords);
    expect(described.structs['dp_record']).toBe(4 * abi.recordWords);
    expect(described.structs['dp_wait']).toBe(4 * abi.waitWords);
    expect(described.structs['dp_signal']).toBe(4 * abi.waitWords);
    expect(place('dp_descriptor.wait')[1]).toBe(4 * abi.waitWords * abi.waitsPerDescriptor);
    expect(place('dp_descriptor.signal')[1]).toBe(4 * abi.waitWords * abi.waitsPerDescriptor);
    expect(described.keyBytes).toBe(abi.keyBytes);
  });

  it.each([
    ['dp_descriptor', abi.descriptorWord, { head: 'op', layers: 'first_layer' }],
    ['dp_wait', abi.waitWord, { steps: 'counter_step' }],
    ['dp_signal', abi.waitWord, { steps: 'mode' }],
    ['dp_record', abi.recordWord, { head: 'kind' }],
    ['dp_ring_index', abi.ringWord, {}],
    ['dp_door_header', abi.headerWord, {}],
  ] as [string, Record<string, number>, Record<string, string>][])('words of %s', (struct, words, names) => {
    for (const [name, word] of Object.entries(words)) {
      const field = `${struct}.${names[name] ?? snake(name)}`;
      expect([field, place(field)[0]]).toEqual([field, 4 * word]);
    }
  });

  // The fields that share a word: writeDescriptor and takeRecord shift by these.
  it.each([
    ['dp_descriptor.op', 0, 1],
    ['dp_descriptor.traffic_class', 1, 1],
    ['dp_descriptor.flags', 2, 2],
    ['dp_descriptor.first_layer', 48, 2],
    ['dp_descriptor.layer_count', 50, 2],
    ['dp_wait.counter_step', 4, 1],
    ['dp_wait.value_step', 5, 1],
    ['dp_wait.skip_steps', 6, 2],
    ['dp_signal.mode', 4, 1],
    ['dp_signal.remote', 5, 1],
    ['dp_signal.counter_step', 6, 1],
    ['dp_record.kind', 0, 1],
    ['dp_record.op', 1, 1],
    ['dp_record.step', 2, 2],
  ])('%s', (field, offset, bytes) => {
    expect(place(field)).toEqual([offset, bytes]);
  });

  it.each(['dp_wait.value', 'dp_signal.value', 'dp_record.bytes_moved', 'dp_record.finished_ns'])(
    '%s has 64 bits',
    (field) => {
      expect(place(field)[1]).toBe(8);
    },
  );
});
