import type { SimulatedMode } from './modes.js';

/** What the paper gives of DS 660B, 2P4D, 64K agents, read off its figures; seconds. */
export const publishedJct: readonly {
  readonly agents: number;
  readonly mode: SimulatedMode;
  readonly jctS: number;
}[] = [
  { agents: 512, mode: 'basic', jctS: 2900 },
  { agents: 512, mode: 'dualpath', jctS: 2100 },
  { agents: 512, mode: 'oracle', jctS: 2000 },
  { agents: 1024, mode: 'basic', jctS: 5400 },
  { agents: 1024, mode: 'layerwise', jctS: 4250 },
  { agents: 1024, mode: 'round-robin', jctS: 3200 },
  { agents: 1024, mode: 'dualpath', jctS: 3000 },
  { agents: 2048, mode: 'basic', jctS: 10_100 },
  { agents: 2048, mode: 'layerwise', jctS: 8750 },
  { agents: 2048, mode: 'round-robin', jctS: 6500 },
  { agents: 2048, mode: 'dualpath', jctS: 5450 },
  { agents: 4096, mode: 'basic', jctS: 19_500 },
  { agents: 4096, mode: 'dualpath', jctS: 10_400 },
  { agents: 4096, mode: 'oracle', jctS: 9400 },
];

/** Reading a bar off a figure: half a tick of 500 s in 10,000 s. */
export const readOffError = 0.025;

/** Online, DS 660B 2P4D (Table 3 and the working-set figure). */
export const publishedOnline = {
  capacityBasicApS: 0.2,
  capacityDualPathAps: 0.45,
  ttftS: 1.739,
  ttstS: 0.228,
  tpotS: 0.039,
  largeTtftS: 1.847,
  largeTtstS: 0.194,
  largeTpotS: 0.036,
  agentLowS: 575,
  agentHighS: 1100,
  workingSetLowBytes: 69e9,
  workingSetHighBytes: 681e9,
} as const;
