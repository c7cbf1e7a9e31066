/**
 * How a row came about: fitted to this very point; predicted with constants that were fitted to others; arithmetic from
 * formulas and public configurations; structural, which any constants would give.
 */
export type RowKind = 'fitted' | 'predicted' | 'arithmetic' | 'structural';

/** One published figure beside ours. */
export interface FigureRow {
  readonly name: string;
  readonly section: Section;
  readonly unit: string;
  /** Null where the paper has no such figure. */
  readonly published: number | null;
  /** Null where the run that gives it was left out or interrupted. */
  readonly ours: number | null;
  readonly ratio: number | null;
  /** Ours over published less 1. */
  readonly signedError: number | null;
  /** Relative error of reading the published value off a figure; 0 where it is a number in the text. */
  readonly readOffError: number;
  readonly kind: RowKind;
  /** Null where there is nothing to compare. */
  readonly withinTolerance: boolean | null;
  /** What ours may be. */
  readonly tolerance: { readonly least: number; readonly most: number } | null;
  readonly note: string;
}

export const sections = {
  table1: 'Cache to compute (Table 1)',
  bounds: 'Bottleneck-free range and lanes',
  workload: 'Workloads (Table 2)',
  offline: 'Offline, DS 660B 2P4D, 64K',
  ratios: 'Speed-ups and reductions',
  balance: 'Balance',
  online: 'Online, DS 660B',
  scale: 'Scale',
  ds27b: 'DS 27B',
  beyond: 'Beyond the paper',
} as const;

export type Section = keyof typeof sections;

export interface RowDescription {
  readonly name: string;
  readonly section: Section;
  readonly unit: string;
  readonly published?: number;
  readonly ours: number | undefined;
  readonly kind: RowKind;
  readonly readOffError?: number;
  /** Relative; or what ours may be. */
  readonly tolerance?: number | { readonly least: number; readonly most: number };
  readonly note?: string;
}

export function row(description: RowDescription): FigureRow {
  const { name, section, unit, published, ours, kind, readOffError = 0, note = '' } = description;
  const tolerance = boundsOf(description);
  const ratio = published === undefined || ours === undefined ? null : ours / published;
  const within =
    tolerance === null || ours === undefined ? null : ours >= tolerance.least && ours <= tolerance.most;
  return {
    name,
    section,
    unit,
    published: published ?? null,
    ours: ours ?? null,
    ratio,
    signedError: ratio === null ? null : ratio - 1,
    readOffError,
    kind,
    withinTolerance: within,
    tolerance,
    note,
  };
}

function boundsOf({ tolerance, published }: RowDescription): { least: number; most: number } | null {
  if (tolerance === undefined) return null;
  if (typeof tolerance !== 'number') return tolerance;
  if (published === undefined) return null;
  return { least: published * (1 - tolerance), most: published * (1 + tolerance) };
}
