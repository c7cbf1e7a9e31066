/** A load generator: traces replayed over HTTP. */
export { planLoad, PromptMaker, type PlannedRequest, type PlanOptions } from './plan.js';
export { runLoad, type LoadOptions } from './run.js';
export { send, type Sent } from './send.js';
export { summarize, summaryText, type LoadSummary, type Percentiles } from './summary.js';
