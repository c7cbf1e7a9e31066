export interface KillRunOptions {
  readonly directory: string;
  readonly seed: number;
  readonly capacityBytes?: number;
}

export class KillRun {
  constructor(options: KillRunOptions);
  readonly path: string;
  readonly findings: readonly string[];
  readonly kills: number;
  readonly acknowledgedBlocks: number;
  readonly readBlocks: number;
  readonly evictedBlocks: number;
  kill(): Promise<void>;
  end(): Promise<void>;
}
