/** Seeded schedules of faults over the lease ledger, in virtual time. */
export { runSchedule, type ChaosResult } from './schedule.js';
