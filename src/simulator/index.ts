/** A cluster in virtual time: what a deployment would do, and the published figures derived again. */
export { benchSimulator, type SimulatorBenchResult } from './bench.js';
export { ratioRange } from './bounds.js';
export { cellRoutings, type CellRouting } from './cells.js';
export { deployment, settingsOf, warningsOf, type Deployment } from './deployment.js';
export { hardwareOf, hardwarePresets, parseHardware, type Hardware } from './hardware.js';
export { modelCostOf, modelCosts, type ModelCost } from './model-cost.js';
export { simulatedModes, type SimulatedMode } from './modes.js';
export { derivePaper, sections, type FigureRow, type PaperResult } from './paper/index.js';
export { paperReport } from './paper/figures.js';
export { formatRow, rowHead } from './paper/format.js';
export { paperTasks } from './paper/index.js';
export { planCluster, type Plan } from './plan.js';
export { planReport } from './plan-report.js';
export { checkAgainstReplay, type CheckRow } from './replay-check.js';
export { Simulation } from './simulation.js';
export { maxOverMean } from './storage-link.js';
export { simulate, type RunResult } from './run.js';
export type { Arrivals, ClusterSettings, StopRules } from './settings.js';
export { isDataSet } from './sweep.js';
export {
  dataSetWorkload,
  frozenDataSets,
  hashOf,
  meansOf,
  traceWorkload,
  type AgentScript,
  type SimulatedWorkload,
} from './workload.js';
