export interface ControlLoadOptions {
  readonly endpoint: string;
  readonly model: string;
  readonly engines: number;
  readonly groupEngines: number;
  readonly clients: number;
}

export interface ControlLoadResult {
  /** Submitted, scheduled and completed while it was measured. */
  readonly requests: number;
  readonly failed: number;
  readonly perS: number;
  /** From submission to outcome, at the client. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}
