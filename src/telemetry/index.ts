/** Numbers and tables for people. */
export { formatBytes, formatBytesPerSecond, formatCount, formatDuration, formatPercent } from './format.js';
export { renderTable, type TableText } from './table.js';
