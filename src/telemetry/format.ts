/** Numbers as people read them. Three significant digits, a space before the unit. */

const binaryUnits = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'] as const;
const decimalUnits = ['B/s', 'KB/s', 'MB/s', 'GB/s', 'TB/s'] as const;

/** A size in bytes, in powers of 1024: `64 MiB`. */
export function formatBytes(bytes: number | bigint): string {
  return withPrefix(Number(bytes), 1024, binaryUnits);
}

/** A rate in bytes per second, in powers of 1000 as links are rated: `125 MB/s`. */
export function formatBytesPerSecond(bytesPerSecond: number): string {
  return withPrefix(bytesPerSecond, 1000, decimalUnits);
}

/** A duration given in seconds: `12.5 us`, `340 ms`, `9.87 s`, `3 min 20 s`, `2 h 05 min`. */
export function formatDuration(seconds: number): string {
  const size = Math.abs(seconds);
  const sign = seconds < 0 ? '-' : '';
  const units = [
    ['ns', 1e9],
    ['us', 1e6],
    ['ms', 1e3],
    ['s', 1],
  ] as const;
  if (size === 0) return '0 s';
  for (const [unit, perSecond] of units) {
    const text = significant(size * perSecond);
    if (Number(text) < (unit === 's' ? 100 : 1000)) return `${sign}${text} ${unit}`;
  }
  const whole = Math.round(size);
  if (whole < 3600) return `${sign}${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  const minutes = Math.round(size / 60);
  return `${sign}${formatCount(Math.floor(minutes / 60))} h ${pad(minutes % 60)} min`;
}

/** A count with thousands set apart; one decimal below 1000 where it is not whole: `12,031`, `65.8`. */
export function formatCount(value: number | bigint): string {
  if (typeof value === 'bigint') return value.toLocaleString('en-US');
  const digits = Number.isInteger(value) || Math.abs(value) >= 1000 ? 0 : 1;
  return value.toLocaleString('en-US', { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** A fraction of one as a percentage: `96.3 %`. */
export function formatPercent(fraction: number): string {
  return `${(100 * fraction).toFixed(1)} %`;
}

function withPrefix(value: number, base: number, units: readonly string[]): string {
  const sign = value < 0 ? '-' : '';
  let size = Math.abs(value);
  let unit = 0;
  // Judged after rounding, so that 1023.9 KiB is 1 MiB and never 1024 KiB.
  while (unit < units.length - 1 && Number(significant(size)) >= base) {
    size /= base;
    unit++;
  }
  return `${sign}${significant(size)} ${units[unit] ?? ''}`;
}

function significant(value: number): string {
  if (value >= 100) return String(Math.round(value));
  return String(Number(value.toPrecision(3)));
}

function pad(value: number): string {
  return String(value).padStart(2, '0');
}
