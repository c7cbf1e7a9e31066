/** What stops or slows the data plane on a host: checks over what the host shows, and between two hosts. */
export {
  severities,
  type Check,
  type Finding,
  type Host,
  type HostOptions,
  type Problem,
  type Severity,
} from './check.js';
export { counterDeltas, counterMeanings, excesses, readCounters, type Counters } from './counters.js';
export { diagnose, diagnosisOf, type Diagnosis } from './diagnose.js';
export {
  comparePeers,
  peerChecks,
  summarise,
  type ClockOffset,
  type HostSummary,
  type PortSummary,
} from './peer.js';
export { diagnosePeer, serveDoctor, type PeerDiagnosis, type PeerOptions } from './peer-run.js';
export { checks } from './registry.js';
