/** When each layer of a forward batch arrived, was computed and had left, on the clock of the data plane. */
const monotonicUs = () => performance.now() * 1000; // from the process's start: see `origin`
const originUs = Number(process.hrtime.bigint() / 1000n) - monotonicUs();

/** The data plane's clock: that of the machine, where performance.now() counts from the start of the process. */
export const clockUs = () => monotonicUs() + originUs;

/** Watches a batch: give `watch` to runPrefill. Its counters tell of transfers, without a turn of the event loop between them. */
export function watchBatch(engine, done) {
  return (batch) => {
    const { counters } = batch;
    const { layers } = counters;
    const rows = Array.from({ length: layers }, (_, layer) => ({ layer }));
    const note = (key) => (layer, finishedUs) => (rows[layer][key] = finishedUs);
    const begunUs = clockUs();
    const left = { counter: counters.free, counterStep: 1, value: counters.piecesOut };
    const watching = [
      engine.traffic.engine.submit(
        [{ op: 'bump', steps: layers, waits: [counters.arrived()], event: true }],
        note('arrivedUs'),
      ),
      engine.traffic.engine.submit(
        [{ op: 'bump', steps: layers, waits: [left], event: true }],
        note('leftUs'),
      ),
    ];
    batch.holdUntil(
      Promise.all(watching.map((program) => program.done)).then(() => {
        const [entry] = batch.entries;
        done({ begunUs, rows, cachedTokens: entry.cachedTokens, newTokens: entry.newTokens });
      }),
    );
    return {
      begin: (layer) => (rows[layer].computeUs = clockUs()),
      end: (layer) => (rows[layer].computedUs = clockUs()),
    };
  };
}

/**
 * Milliseconds on the way to the first token: until the request is with the engines, reading its hits from storage, forming the batch;
 * of the batch, how long its hits are on their way, computing, and the part of the way that computing does not hide; then the head.
 */
export function shares({ submittedUs, assigned, firstTokenUs, begunUs, rows, ...stages }) {
  const last = rows.at(-1);
  const readUs = Math.max(...['prefill-read', 'decode-read'].map((stage) => stages[stage] ?? assigned));
  const computeUs = rows.reduce((sum, row) => sum + row.computedUs - row.computeUs, 0);
  return mapMs({
    first_token_ms: firstTokenUs - submittedUs,
    schedule_ms: assigned - submittedUs,
    read_ms: readUs - assigned,
    form_ms: begunUs - readUs,
    batch_ms: last.computedUs - begunUs,
    load_ms: Math.max(...rows.map((row) => row.arrivedUs)) - begunUs,
    compute_ms: computeUs,
    exposed_ms: last.computedUs - begunUs - computeUs,
    head_ms: firstTokenUs - last.computedUs,
    send_tail_ms: Math.max(...rows.map((row) => row.leftUs)) - last.computedUs,
  });
}
const mapMs = (us) => Object.fromEntries(Object.entries(us).map(([key, value]) => [key, value / 1000]));

/** A picture of it (echarts, as the simulator's report has). */
export async function timelineSvg(request, title) {
  const { submittedUs, assigned, firstTokenUs, begunUs, rows, cachedTokens, newTokens } = request;
  const echarts = await import('echarts');
  const readUs = assigned + 1000 * shares(request).read_ms;
  const layers = rows.map((row, i) => ({ ...row, label: `${row.layer}`, beforeUs: rows[i - 1]?.arrivedUs }));
  const lines = ['store', ...layers.map(({ label }) => label), 'head'];
  const chart = echarts.init(null, null, {
    renderer: 'svg',
    ssr: true,
    width: 900,
    height: 120 + 16 * lines.length,
  });
  const of = (span) => layers.map((row) => [row.label, ...span(row)]);
  const series = [
    ['read from storage', '#b37feb', [['store', assigned, readUs]]],
    ['hit KV on its way', '#91caff', of(({ beforeUs = begunUs, arrivedUs }) => [beforeUs, arrivedUs])],
    [
      'computed',
      '#ffa940',
      [...of((row) => [row.computeUs, row.computedUs]), ['head', rows.at(-1).computedUs, firstTokenUs]],
    ],
    ['sent on', '#95de64', of((row) => [row.computedUs, row.leftUs])],
  ];
  const renderItem = (_, api) => {
    const [lane, count] = [api.value(3), series.length];
    const [from, to] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
    const height = api.size([0, 1])[1] * 0.8;
    const shape = {
      ...{ x: from[0], width: Math.max(1, to[0] - from[0]) },
      ...{ y: from[1] - height / 2 + (lane * height) / count, height: height / count },
    };
    return { type: 'rect', shape, style: { fill: series[lane][1] } };
  };
  chart.setOption({
    animation: false,
    title: {
      text: title,
      left: 10,
      subtext: `${cachedTokens} tokens from the store, ${newTokens} computed`,
      textStyle: { fontSize: 14 },
    },
    legend: { data: series.map(([name]) => name), right: 20, top: 30, itemGap: 24 },
    grid: { left: 60, right: 20, top: 70, bottom: 40 },
    xAxis: { name: 'ms since the request', nameLocation: 'middle', nameGap: 24 },
    yAxis: { type: 'category', data: lines, inverse: true, name: 'layer' },
    series: series.map(([name, color, spans], lane) => ({
      ...{ type: 'custom', name, renderItem, itemStyle: { color } },
      encode: { x: [1, 2], y: 0 },
      data: spans.map(([line, ...us]) => [line, ...us.map((at) => (at - submittedUs) / 1000), lane]),
    })),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}
