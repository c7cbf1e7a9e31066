/** The page of `dualpath serve --web`: asks for the scheduler's state every second and draws it. */
const refreshMs = 1000;
const byId = (id) => document.getElementById(id);
const charts = Object.fromEntries(
  ['requests', 'rates', 'paths', 'links', 'engines'].map((id) => [id, echarts.init(byId(id))]),
);
addEventListener('resize', () => Object.values(charts).forEach((chart) => chart.resize()));

const timeAxis = { type: 'time' };
const base = {
  animation: false,
  tooltip: { trigger: 'axis' },
  legend: { top: 0 },
  grid: { top: 36, bottom: 30 },
};
const line = (name, history, of) => ({
  name,
  type: 'line',
  showSymbol: false,
  data: history.map((point) => [point.atS * 1000, of(point)]),
});
const bars = (names, values) => ({
  ...base,
  legend: undefined,
  xAxis: { type: 'category', data: names },
  yAxis: { type: 'value' },
  series: [{ type: 'bar', data: values }],
});

const roleColours = { prefill: '#5470c6', decode: '#91cc75' };
const stateColours = { lost: '#b00020', closed: '#aaaaaa' };

function draw({ epoch, statistics, nodes, engines, history, latestRequests }) {
  byId('epoch').textContent = `epoch ${epoch}`;
  byId('problem').textContent = '';
  const figures = {
    waiting: statistics.waiting,
    running: statistics.running,
    completed: statistics.completed,
    failed: statistics.failed,
    engines: engines.filter(({ state }) => state === 'open').length,
    nodes: nodes.length,
  };
  byId('figures').replaceChildren(
    ...Object.entries(figures).map(([name, value]) => {
      const figure = document.createElement('div');
      const number = document.createElement('b');
      number.textContent = value.toLocaleString('en');
      figure.append(number, name);
      return figure;
    }),
  );
  const overTime = (series) => ({ ...base, xAxis: timeAxis, yAxis: { type: 'value' }, series });
  charts.requests.setOption(
    overTime([
      line('waiting', history, ({ waiting }) => waiting),
      line('running', history, ({ running }) => running),
    ]),
  );
  charts.rates.setOption(
    overTime([
      line('assigned', history, ({ assignedPerS }) => assignedPerS),
      line('completed', history, ({ completedPerS }) => completedPerS),
    ]),
  );
  charts.paths.setOption(
    overTime([
      line('prefill side', history, ({ prefillReadBlocksPerS }) => prefillReadBlocksPerS),
      line('decode side', history, ({ decodeReadBlocksPerS }) => decodeReadBlocksPerS),
    ]),
  );
  charts.links.setOption(
    bars(
      nodes.map(({ node }) => node),
      nodes.map(({ readQueueBlocks }) => readQueueBlocks),
    ),
  );
  charts.engines.setOption(
    bars(
      engines.map(({ engine }) => engine),
      engines.map(({ tokens, role, state }) => ({
        value: tokens,
        itemStyle: { color: stateColours[state] ?? roleColours[role] },
      })),
    ),
  );
  showLatest(latestRequests);
}

function showLatest(names) {
  const list = byId('latest');
  if (list.dataset.names === names.join(' ')) return;
  list.dataset.names = names.join(' ');
  list.replaceChildren(
    ...names.map((name) => {
      const item = document.createElement('li');
      const link = document.createElement('a');
      link.href = `#${encodeURIComponent(name)}`;
      link.textContent = name;
      item.append(link);
      return item;
    }),
  );
}

async function showRequest(name) {
  const response = await fetch(`/request?name=${encodeURIComponent(name)}`);
  const found = await response.json();
  const rows = [];
  if (!response.ok) {
    byId('path').textContent = found.error;
  } else {
    const { path, timeline, omitted } = found;
    byId('path').textContent =
      path === null
        ? `${name}: not assigned yet`
        : `${name}: ${path.prefillEngine} -> ${path.decodeEngine}, ${path.promptBlocks} blocks; read on the prefill side ` +
          `${path.prefillReadBlocks}, on the decode side ${path.decodeReadBlocks} (${path.side})`;
    const startS = timeline[0]?.atS ?? 0;
    for (const { atS, kind, detail } of timeline)
      rows.push([`+${((atS - startS) * 1000).toFixed(1)} ms`, kind, detail]);
    if (omitted > 0) rows.push(['', '', `${omitted} more`]);
  }
  byId('timeline').replaceChildren(
    ...rows.map((cells) => {
      const row = document.createElement('tr');
      row.append(
        ...cells.map((text) => {
          const cell = document.createElement('td');
          cell.textContent = text;
          return cell;
        }),
      );
      return row;
    }),
  );
}

async function refresh() {
  try {
    const response = await fetch('/state');
    const state = await response.json();
    if (response.ok) draw(state);
    else byId('problem').textContent = state.error;
  } catch {
    byId('problem').textContent = 'the scheduler does not answer';
  }
  if (document.body.dataset.drawn === undefined) performance.mark('drawn');
  document.body.dataset.drawn = String(Number(document.body.dataset.drawn ?? 0) + 1);
  setTimeout(refresh, refreshMs);
}

byId('find').addEventListener('submit', (event) => {
  event.preventDefault();
  location.hash = encodeURIComponent(byId('name').value);
});
const shown = () => {
  const name = decodeURIComponent(location.hash.slice(1));
  if (name !== '') void showRequest(name);
};
addEventListener('hashchange', shown);
shown();
void refresh();
