/** docs/doctor.md and docs/qos.md say what the registry and the arithmetic say. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checks, peerChecks, severities } from '../../src/doctor/index.js';
import { defaultQos, planQos, qosDocument } from '../../src/qos/index.js';

const read = (name: string): string =>
  readFileSync(new URL(`../../docs/${name}.md`, import.meta.url), 'utf8');

function section(document: string, name: string): string {
  const [, text] = new RegExp(`<!-- ${name} -->\\n([\\s\\S]*?)\\n?<!-- /${name} -->`).exec(document) ?? [];
  return text ?? '';
}

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string =>
  [head, head.map(() => '---'), ...rows]
    .map((cells, i) => (i === 1 ? `|${cells.join('|')}|` : `| ${cells.join(' | ')} |`))
    .join('\n');

describe('docs/doctor.md', () => {
  const document = read('doctor');

  it('has every check, what it looks at, why and the remedy', () => {
    const rows = checks.map(({ id, looksAt, why, remedy }) => [`\`${id}\``, looksAt, why, remedy]);
    expect(section(document, 'checks')).toBe(table(['check', 'looks at', 'why', 'remedy'], rows));
  });

  it('has every comparison of two hosts', () => {
    const rows = peerChecks.map(({ id, why, remedy }) => [`\`${id}\``, why, remedy]);
    expect(section(document, 'peer')).toContain(table(['comparison', 'why', 'remedy'], rows));
  });

  it('has every severity', () => {
    for (const severity of severities) expect(document).toContain(`| \`${severity}\` |`);
  });
});

describe('docs/qos.md', () => {
  const document = read('qos');
  const percent = (share: number): string => `${(share * 100).toFixed(share < 0.01 ? 3 : 2)} %`;

  it('shows the default description', () => {
    const [, json] = /```json\n([\s\S]*?)```/.exec(document) ?? [];
    expect(JSON.parse(json!)).toEqual(qosDocument(defaultQos));
  });

  it('has the shares that the plan computes', () => {
    const rows = planQos(defaultQos).classes.map((one) => [
      `\`${one.name}\``,
      ...[one.share, one.paper, one.infinibandFloor, one.infinibandBesideOne, one.roceFloor].map(percent),
    ]);
    const head = [
      'class',
      'share wanted',
      "the paper's text",
      'InfiniBand, all busy',
      'InfiniBand, beside one',
    ];
    expect(section(document, 'shares')).toBe(table([...head, 'RoCE, all busy'], rows));
  });
});
