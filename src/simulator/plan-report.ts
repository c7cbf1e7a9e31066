import { formatBytes } from '../telemetry/index.js';
import type { Plan } from './plan.js';
import type { Report } from '../report/index.js';

/** A plan as a page with the sensitivity as a plot. */
export function planReport(plan: Plan, title: string): Report {
  const { best, estimates, sensitivity } = plan;
  return {
    title,
    introduction: [
      `${best.prefillNodes} prefill and ${best.decodeNodes} decode nodes serve ${plan.capacityAps.toFixed(2)} agents a second ` +
        `(${plan.capacityInterval.map((value) => value.toFixed(2)).join(' to ')}); by rates alone ${best.bottleneck} is what limits them.`,
      ...plan.warnings,
      `To buy next: ${plan.buyNext}. Working set at 80 % of that: ${formatBytes(plan.expected.workingSetBytes)}.`,
    ],
    figures: [
      {
        id: 'sensitivity',
        title: 'What a change does to the capacity',
        text: 'Agents a second relative to the plan: hardware that could be bought, and constants at the ends of what is known of them.',
        option: {
          tooltip: {},
          grid: { left: 230 },
          xAxis: { type: 'value', name: '%' },
          yAxis: { type: 'category', data: sensitivity.map(({ change }) => change) },
          series: [
            { type: 'bar', data: sensitivity.map(({ ratio }) => Number((100 * (ratio - 1)).toFixed(1))) },
          ],
        },
      },
      {
        id: 'divisions',
        title: 'Divisions of the nodes, by rates alone',
        text: 'What storage, prefill and decode could serve by themselves; the least is what counts.',
        option: {
          tooltip: { trigger: 'axis' },
          legend: {},
          xAxis: {
            type: 'category',
            data: estimates.map(({ prefillNodes, decodeNodes }) => `${prefillNodes}P${decodeNodes}D`),
          },
          yAxis: { type: 'value', name: 'agents/s' },
          series: (['storage', 'prefill', 'decode'] as const).map((name) => ({
            name,
            type: 'bar',
            data: estimates.map(({ limits }) => Number(limits[name].toPrecision(3))),
          })),
        },
      },
    ],
    tables: [],
  };
}
