import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DualPathError } from '../../src/errors/index.js';
import {
  addEngineMetrics,
  addSchedulerMetrics,
  addStoreMetrics,
  leaseObserver,
  Metrics,
  metricTable,
  MetricsServer,
  type MetricName,
  type MetricRow,
} from '../../src/metrics/index.js';
import { Admission } from '../../src/scheduler/index.js';
import { admitAll, optionsOf, requestOf } from '../scheduler/support.js';

const rows = Object.entries(metricTable) as [MetricName, MetricRow][];

describe('the table of metrics', () => {
  it('follows the conventions of Prometheus', () => {
    for (const [name, { type, help, labels }] of rows) {
      expect(name).toMatch(/^dualpath(_[a-z]+)+$/);
      expect(name.endsWith('_total'), name).toBe(type === 'counter');
      if (type === 'histogram') expect(name).toMatch(/_seconds$/);
      expect(help).not.toMatch(/\.$/);
      for (const label of labels) {
        // Names of requests, sessions or tenants would be without bound.
        expect(['request', 'session', 'tenant', 'peer']).not.toContain(label);
        expect(label).toMatch(/^[a-z_]+$/);
      }
    }
  });

  it('is what registries have, no more and no less', () => {
    const metrics = new Metrics();
    addSchedulerMetrics(metrics, () => undefined);
    addEngineMetrics(metrics, () => []);
    addStoreMetrics(metrics, () => undefined);
    const observe = leaseObserver(metrics);
    for (const kind of ['assigned', 'ended', 'returned', 'dropped', 'engine', 'clock', 'tokens']) {
      observe({ kind, waitedS: 1, ranS: 1, error: new DualPathError('CANCELLED', 'x') });
    }
    metrics.observe('dualpath_request_ttft_seconds', 1);
    const names = metrics.registry.getMetricsAsArray().map(({ name }) => name);
    expect(names.sort()).toEqual(Object.keys(metricTable).sort());
  });

  it('is the one in the documentation', () => {
    const text = readFileSync('docs/observability.md', 'utf8');
    const documented = text.split('\n').filter((line) => line.startsWith('| `dualpath_'));
    const expected = rows.map(([name, { type, help, labels }]) => {
      return `| \`${name}\` | ${type} | ${labels.length === 0 ? '-' : labels.join(', ')} | ${help} |`;
    });
    const squeezed = documented.map((line) => line.replace(/ +/g, ' '));
    expect(squeezed).toEqual(expected);
  });

  it('has everything that the dashboard plots', () => {
    const dashboard = JSON.parse(readFileSync('docs/dashboards/dualpath.json', 'utf8')) as {
      panels: { id: number; targets?: { expr: string; legendFormat: string }[] }[];
    };
    const targets = dashboard.panels.flatMap((panel) => panel.targets ?? []);
    expect(targets.length).toBeGreaterThan(20);
    for (const { expr, legendFormat } of targets) {
      const used = [...expr.matchAll(/dualpath_[a-z_]+/g)].map(([name]) => {
        const base = name.replace(/_bucket$/, '');
        expect(metricTable, expr).toHaveProperty(base);
        return metricTable[base as MetricName];
      });
      expect(used.length, expr).toBeGreaterThan(0);
      const by = [...expr.matchAll(/by \(([a-z_, ]+)\)/g)].flatMap(([, list]) => list!.split(', '));
      const legend = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label]) => label!);
      for (const label of [...by, ...legend].filter((one) => one !== 'le')) {
        expect(used[0]!.labels, expr).toContain(label);
      }
    }
    expect(new Set(dashboard.panels.map(({ id }) => id)).size).toBe(dashboard.panels.length);
  });
});

describe('what a scrape says', () => {
  it('is what the scheduler counts at that moment', async () => {
    const admission = new Admission(optionsOf({ policy: 'split' }));
    const metrics = new Metrics();
    addSchedulerMetrics(metrics, () => admission);
    admitAll(admission, requestOf('a', 6, 4), requestOf('b', 2, 0));
    const text = await metrics.registry.metrics();
    for (const line of [
      'dualpath_scheduler_requests_total{outcome="submitted"} 2',
      'dualpath_scheduler_running_requests 2',
      'dualpath_scheduler_assignments_total{path="split"} 1',
      'dualpath_scheduler_read_queue_blocks{node="node-p"} 2',
      'dualpath_scheduler_engine_tokens{engine="p",role="prefill"} 32',
    ])
      expect(text).toContain(`${line}\n`);
    admission.complete('a', 'request');
    expect(await metrics.registry.metrics()).toContain('requests_total{outcome="completed"} 1\n');
  });

  it('comes over HTTP, and nothing else does', async () => {
    const metrics = new Metrics();
    metrics.count('dualpath_errors_total', { code: 'CANCELLED' }, 3);
    const server = await MetricsServer.open(metrics, { host: '127.0.0.1', port: 0 });
    try {
      const response = await fetch(server.url);
      expect(response.headers.get('content-type')).toContain('text/plain');
      expect(await response.text()).toContain('dualpath_errors_total{code="CANCELLED"} 3');
      expect((await fetch(server.url.replace('/metrics', '/'))).status).toBe(404);
      expect((await fetch(server.url, { method: 'POST' })).status).toBe(404);
      await expect(MetricsServer.open(metrics, server.address)).rejects.toMatchObject({
        code: 'INVALID_ARGUMENT',
        message: expect.stringContaining('--metrics') as string,
      });
    } finally {
      await server.close();
    }
  });
});
