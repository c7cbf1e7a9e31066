import { describe, expect, it } from 'vitest';
import { renderTable } from '../../src/telemetry/index.js';

describe('renderTable', () => {
  it('puts the first column left, the others right, without colours', () => {
    const text = renderTable({
      head: ['link', 'rate'],
      rows: [
        ['PE', '64 MB/s'],
        ['storage', '5 MB/s'],
      ],
    });
    expect(text.split('\n')).toEqual([
      '┌─────────┬─────────┐',
      '│ link    │    rate │',
      '├─────────┼─────────┤',
      '│ PE      │ 64 MB/s │',
      '│ storage │  5 MB/s │',
      '└─────────┴─────────┘',
    ]);
  });
});
