import type { FigureRow } from './row.js';

export const rowHead = ['', 'published', 'ours', 'ratio', 'kind', 'within'] as const;

/** A row for people. */
export function formatRow({
  name,
  unit,
  published,
  ours,
  ratio,
  kind,
  withinTolerance,
}: FigureRow): string[] {
  const value = (number: number | null): string => {
    if (number === null) return '-';
    const text =
      Math.abs(number) >= 1000 ? String(Math.round(number)) : String(Number(number.toPrecision(3)));
    return unit === '' ? text : `${text} ${unit}`;
  };
  const within = withinTolerance === null ? '' : withinTolerance ? 'yes' : 'no';
  return [name, value(published), value(ours), ratio === null ? '' : ratio.toFixed(2), kind, within];
}
