/** When each layer of a forward batch arrived, was computed and had left, on the clock of the data plane. */
const nowUs = () => performance.now() * 1000; // CLOCK_MONOTONIC from the process's start: see `origin`

/** performance.now() counts from the start of the process, records of programs from that of the machine. */
const originUs = Number(process.hrtime.bigint() / 1000n) - nowUs();

/** Watches a batch: give `watch` to runPrefill. Its counters tell of transfers, without a turn of the event loop between them. */
export function watchBatch(engine, done) {
  return (batch) => {
    const { counters } = batch;
    const { layers } = counters;
    const rows = Array.from({ length: layers }, (_, layer) => ({ layer }));
    const note = (key) => (layer, finishedUs) => (rows[layer][key] = finishedUs);
    const begunUs = nowUs() + originUs;
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
      begin: (layer) => (rows[layer].computeUs = nowUs() + originUs),
      end: (layer) => (rows[layer].computedUs = nowUs() + originUs),
    };
  };
}

/** Milliseconds of a batch: waiting for KV, computing, and what was still to be sent when the last layer was computed. */
export function shares({ begunUs, rows }) {
  const last = rows.at(-1);
  const computeUs = rows.reduce((sum, row) => sum + row.computedUs - row.computeUs, 0);
  return {
    first_arrival_ms: (rows[0].arrivedUs - begunUs) / 1000,
    load_ms: (Math.max(...rows.map((row) => row.arrivedUs)) - begunUs) / 1000,
    compute_ms: computeUs / 1000,
    batch_ms: (last.computedUs - begunUs) / 1000,
    exposed_ms: (last.computedUs - begunUs - computeUs) / 1000,
    send_tail_ms: (Math.max(...rows.map((row) => row.leftUs)) - last.computedUs) / 1000,
  };
}

/** A picture of it (echarts, as the simulator's report has). */
export async function timelineSvg({ begunUs, rows, cachedTokens, newTokens }, title) {
  const echarts = await import('echarts');
  const ms = (us) => (us - begunUs) / 1000;
  const chart = echarts.init(null, null, {
    renderer: 'svg',
    ssr: true,
    width: 900,
    height: 120 + 16 * rows.length,
  });
  const bars = [
    ['hit KV on its way', '#91caff', (row, i) => [i === 0 ? begunUs : rows[i - 1].arrivedUs, row.arrivedUs]],
    ['computed', '#ffa940', (row) => [row.computeUs, row.computedUs]],
    ['sent on', '#95de64', (row) => [row.computedUs, row.leftUs]],
  ];
  const renderItem = (_, api) => {
    const [lane, count] = [api.value(3), bars.length];
    const [from, to] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
    const height = api.size([0, 1])[1] * 0.8;
    const shape = {
      ...{ x: from[0], width: Math.max(1, to[0] - from[0]) },
      ...{ y: from[1] - height / 2 + (lane * height) / count, height: height / count },
    };
    return { type: 'rect', shape, style: { fill: bars[lane][1] } };
  };
  chart.setOption({
    animation: false,
    title: {
      text: title,
      left: 10,
      subtext: `${cachedTokens} tokens from the store, ${newTokens} computed`,
      textStyle: { fontSize: 14 },
    },
    legend: { data: bars.map(([name]) => name), right: 20, top: 8, itemGap: 24 },
    grid: { left: 60, right: 20, top: 60, bottom: 40 },
    xAxis: { name: 'ms', nameLocation: 'middle', nameGap: 24 },
    yAxis: { type: 'category', data: rows.map(({ layer }) => String(layer)), inverse: true, name: 'layer' },
    series: bars.map(([name, color, span], lane) => ({
      ...{ type: 'custom', name, renderItem, itemStyle: { color } },
      encode: { x: [1, 2], y: 0 },
      data: rows.map((row, i) => [String(row.layer), ...span(row, i).map(ms), lane]),
    })),
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  return svg;
}
