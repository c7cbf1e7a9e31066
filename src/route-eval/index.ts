/** The evaluation of routing policies in virtual time, on emulated replicas. */
export { arrivalTimesS } from './arrivals.js';
export type { CapacityComparison, Comparison, Point, PolicyCurve } from './curves.js';
export {
  evaluate,
  sections,
  type EvaluationOptions,
  type EvaluationResult,
  type Section,
  type TtftComparison,
  type ViewResult,
} from './evaluate.js';
export type { ElasticityResult } from './elasticity.js';
export { policyEntries, type PolicyEntry, type PolicyKind } from './policies.js';
export { routeEvalReport } from './report.js';
export type { ScalingResult } from './scaling.js';
export { clusterSetting, modelSettings, type ModelName } from './settings.js';
export type { ClusterSetting } from './simulation.js';
export type { Estimate } from './statistics.js';
export { routeTrace, type RouteTrace } from './trace.js';
